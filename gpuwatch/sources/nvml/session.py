"""NVML as a whole: whether it is initialised, what is in the way, how many GPUs it counts. Runs on a lane of its own."""

import logging
import threading
from collections.abc import Callable, Mapping

from gpuwatch.catalogue.gpu import DRIVER, DRIVER_MISMATCH, DRIVER_STATE, GPUS, VISIBLE
from gpuwatch.catalogue.own import OWN
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml import bindings, traces, verdicts
from gpuwatch.sources.nvml.fleet import Fleet
from gpuwatch.sources.nvml.gpu import SOURCE
from gpuwatch.sources.nvml.lane import Lane
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, Library
from gpuwatch.sources.nvml.verdicts import Traces
from gpuwatch.sources.source import Answer

LAST_RETRY = 60.0  # seconds between attempts to initialise; the first comes with the next normal round
MOST = 1024  # GPUs of one host; a count beyond is no count, and each index gets a thread
BREATH = 0.5  # seconds that a GPU's present call gets to end before NVML is shut down
UNREACHABLE = ("unknown_error", "no_permission")

log = logging.getLogger(__name__)


class Session:
    """Initialises NVML, counts, enumerates, and says how the driver is. `fault` is None while it is well."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.RLock()  # what NVML's coming and going changes together
        self._watch = traces.Watch(config.paths, clock)
        self._up = False
        self._was_up = False
        self._shutdown_owed = False
        self._seen = ("", "")  # version and kind of the kernel module when NVML was last tried
        self._nodes = False
        self._retry_at, self._wait = 0.0, 0.0
        self._since = clock.mono()
        self._versions: dict[str, str] = {}
        self._visible: float | Absence = Absence.FAILED
        self._empty = False  # the last count was 0 although GPUs answer
        self.fault: Fault | None = Fault("failed", "NVML is being initialised")
        self.library: Library | None = None
        self.fleet: Fleet | None = None
        self._told = ""  # the state that was said last
        self._beside: tuple[Fault, float] | None = None  # what is wrong, and since when, although NVML is initialised
        self.quiet: Callable[[], bool] = lambda: True  # waits until nobody else uses what nvmlShutdown takes away
        self.restart = ""  # why a new process is wanted
        self.begun = threading.Event()  # the first attempt is over
        self.lane = Lane("nvml-session", clock)
        self.lane.submit(self._begin)

    def survey(self, answer: Answer) -> None:
        """Look at the driver and at the list of GPUs, and say so; on the lane, once a normal round."""
        silent = [] if self.fleet is None else [gpu for gpu in self.fleet.gpus() if gpu.unreachable is not None]
        try:
            self._look()
        finally:  # what a bug lets be known is said all the same
            for reading in self.readings():
                answer.reading(reading)
        if self.fleet is not None and self._told == "ok":  # else the driver as a whole is to blame, and that was said
            for gpu in self.fleet.gpus():
                if gpu.unreachable is None or gpu in silent:  # what fell silent during the look is judged by the next one
                    gpu.tell()

    def _look(self) -> None:
        """Try to initialise NVML where that is due, else see whether its driver or its list of GPUs has changed."""
        module, facts = traces.module(self._config.paths), self._watch.look()
        if not self._up:
            if self._clock.mono() >= self._retry_at or self._moved(module, facts):
                self._start()
        elif module[0] and self._seen[0] and module[0] != self._seen[0]:
            self._want_restart(f"the kernel module went from {self._seen[0]} to {module[0]}")
        else:
            self._count()

    def readings(self, fault: Fault | None = None) -> list[Reading]:
        """Return how the driver is, how many GPUs it shows, and our errors; `fault` overrides what is known."""
        fault = fault or self._verdict()
        self._note(fault if fault is not self.fault else None)
        state = self._told = fault.kind if fault else "ok"
        mismatch = state == "version_mismatch" or (self._up and traces.replaced())
        visible = VISIBLE["nvml"]
        counted = self._visible if self._up else Absence.FAILED
        found = [
            self._reading(DRIVER, DRIVER_STATE.at(state) | {DRIVER_MISMATCH: float(mismatch)}, fault=fault, info=self._info()),
            self._reading(GPUS, {}, {visible: counted})
            if isinstance(counted, Absence)
            else self._reading(GPUS, {visible: counted}),
        ]
        if self.library is not None:
            found.append(self._reading(OWN, self.library.errors()))
        return found

    def news(self) -> list[Reading]:
        """Return readings where the driver's state is another than was said last: GPUs must not be blamed for the driver."""
        fault = self._verdict()
        return self.readings(fault) if (fault.kind if fault else "ok") != self._told else []

    def recount(self) -> None:
        """Look for GPUs before the next round does."""
        self.lane.submit(self._count)

    def driver_gone(self, code: int) -> None:
        """A call answered that NVML is not initialised, the driver not loaded, or the versions differ; from any thread."""
        fleet, library = self.fleet, self.library
        if fleet is None or library is None:
            return
        fault = verdicts.not_started(code, library.describe(code), self._watch.look())
        with self._lock:
            if not self._up:
                return
            self._up = False
            fleet.let_go()
            self._shutdown_owed = code != verdicts.UNINITIALIZED
            self._retry_at, self._wait = 0.0, 0.0
            if code == verdicts.UNINITIALIZED:
                self.fault, self._since = fault, self._clock.mono()  # what nvmlInit says next, at once, is what is logged
            else:
                self._set(fault)
        if code == verdicts.LIB_RM_VERSION_MISMATCH:
            self._want_restart("the kernel module was replaced")
        self.lane.submit(self._begin)

    def close(self) -> None:
        """Shut NVML down when the lane gets to it; nobody waits."""
        self.lane.submit(self._shut_down)

    def _begin(self) -> None:
        """Try to initialise, unless that has happened meanwhile."""
        try:
            if not self._up:
                self._start()
        finally:
            self.begun.set()

    def _start(self) -> None:
        """Load and initialise NVML, then enumerate; what fails becomes the driver's state."""
        module = traces.module(self._config.paths)
        facts = self._watch.look()
        changed = bool(self._seen[0]) and module != self._seen
        self._seen, self._nodes = module, facts.nodes
        self._wait = min(LAST_RETRY, max(float(self._config.sources.nvml.every_normal) / 2, 2 * self._wait))
        self._retry_at = self._clock.mono() + self._wait
        try:
            library = self.library = self.library or Library(bindings.load())
        except bindings.BindingsError as error:
            self._set(Fault("failed", str(error)))
            return
        if self._shutdown_owed and not self.restart:
            self._shut_down()
        try:
            library.named("nvmlInit")
        except CallError as error:
            if error.code == verdicts.LIB_RM_VERSION_MISMATCH and (self._was_up or changed or traces.replaced()):
                # pynvml keeps the file it mapped first: only a new process gets the library that fits (nvml.md 1.5)
                self._want_restart("NVML no longer fits the kernel module")
            self._set(verdicts.not_started(error.code, library.describe(error.code), facts))
            return
        self._wait = 0.0
        self._versions = self._ask_versions(library)
        if self.fleet is None:
            self.fleet = Fleet(library, self._config, self._clock, self.driver_gone)
        with self._lock:  # a call that finds the driver gone again has the last word
            self._set(None)
            self._up = self._was_up = True
        self._count()

    def _count(self) -> None:
        """Count the GPUs, and open what is not open."""
        library, fleet = self.library, self.fleet
        if library is None or fleet is None or not self._up:
            return
        try:
            count = int(library.named("nvmlDeviceGetCount"))
        except DriverGoneError as error:
            self.driver_gone(error.code)
            return
        except CallError as error:
            self._visible = verdicts.absence(error.code)
            return
        if count > MOST:
            self._visible = Absence.FAILED
            return
        # an empty answer for once is no loss (netdata/netdata#23207)
        if count == 0 and not self._empty and any(gpu.handle is not None for gpu in fleet.gpus()):
            self._empty, self._visible = True, Absence.EMPTY
            return
        self._empty = False
        if fleet.count not in (-1, count):
            level = logging.WARNING if count < fleet.count else logging.INFO
            log.log(level, "NVML shows %d GPUs, before it were %d", count, fleet.count)
        self._visible = float(count)
        fleet.enumerate(count)

    def _verdict(self) -> Fault | None:
        return self.fault or self._access()

    def _access(self) -> Fault | None:
        """Return that access to the devices was lost, where all GPUs fail at once without saying that they are lost."""
        if not self._up or self.fleet is None:
            return None
        gpus = self.fleet.gpus()
        faults = [fault for gpu in gpus if (fault := gpu.unreachable) is not None]
        silent = [fault for fault in faults if fault.kind in UNREACHABLE]
        if not silent or len(faults) < len(gpus):
            return None
        facts, code = self._watch.look(), silent[0].code or verdicts.UNKNOWN
        if facts.lacks_nodes:  # this alone tells it from lost cards, however many there are, and whether others are lost
            return verdicts.no_access(code, facts)
        if len(silent) < len(gpus) or (len(gpus) == 1 and code != verdicts.NO_PERMISSION and not facts.container):
            return None  # may as well be the card
        return verdicts.no_access(code, facts)

    def _moved(self, module: tuple[str, str], facts: Traces) -> bool:
        """Return whether the module or its nodes came or went since the last attempt, or were waited for long enough."""
        waited = self.fault is not None and self.fault.waits and facts.nodeless >= verdicts.GRACE
        return waited or module != self._seen or facts.nodes != self._nodes

    def _want_restart(self, why: str) -> None:
        if not self.restart:
            self.restart = "driver_change"
            log.warning("%s: this worker asks to be replaced", why)

    def _shut_down(self) -> None:
        self._shutdown_owed = False
        for gpu in self.fleet.gpus() if self.fleet is not None else ():
            gpu.let_go(BREATH)  # samples of GPM must not outlive this initialisation
        if self.library is not None and not self.quiet():
            self._want_restart("a wait for events does not return, and NVML cannot be shut down under it")
        elif self.library is not None:
            try:
                self.library.named("nvmlShutdown")
            except CallError as error:
                log.info("nvmlShutdown answers %d", error.code)

    def _set(self, fault: Fault | None) -> None:
        """Take a state, and log where it changes."""
        now = self._clock.mono()
        with self._lock:
            before, self.fault = self.fault, fault
            if fault is not None and before is None:
                self._since = now
            if fault is None:
                self._beside = None
        if fault is not None and (before is None or (fault.kind, fault.words) != (before.kind, before.words)):
            say(fault)
        elif fault is None and before is not None:
            log.info("NVML is initialised after %.1f s, driver %s", now - self._since, self._versions.get("driver_version", "?"))

    def _note(self, fault: Fault | None) -> None:
        """Log what is in the way although NVML is initialised: once when it comes, once when it is over.

        What was waited for and did not come is logged then too.
        """
        with self._lock:
            before = self._beside
            self._beside = None if fault is None else (fault, before[1] if before else self._clock.mono())
        if fault is not None and (before is None or (before[0].waits and not fault.waits)):
            say(fault)
        elif fault is None and before is not None and self.fault is None:
            log.info("the driver answers again after %.0f s", self._clock.mono() - before[1])

    def _ask_versions(self, library: Library) -> dict[str, str]:
        """Read the versions; the driver's may be missing or "N/A" (Jetson)."""
        found = {
            "driver_version": library.text("nvmlSystemGetDriverVersion"),
            "nvml_version": library.text("nvmlSystemGetNVMLVersion"),
        }
        try:
            cuda = int(library.named("nvmlSystemGetCudaDriverVersion_v2"))
            found["cuda_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        except CallError:
            found["cuda_version"] = ""
        return {name: text for name, text in found.items() if text not in ("", "N/A")}

    def _info(self) -> dict[str, str]:
        version, kind = self._seen
        facts = {"module_version": version, "module_type": kind}
        return self._versions | {name: text for name, text in facts.items() if text}

    def _reading(
        self,
        subject: Subject,
        values: Mapping[Metric, float],
        absent: Mapping[Metric, Absence] | None = None,
        fault: Fault | None = None,
        info: Mapping[str, str] | None = None,
    ) -> Reading:
        return Reading(
            source=SOURCE,
            tier=Tier.NORMAL,
            target=Target(subject=subject, key="", info=info or {}),
            at=self._clock.wall(),
            took=0.0,
            values=values,
            absent=absent or {},
            fault=fault,
        )


def say(fault: Fault) -> None:
    """Log what is in the way: a warning, unless it is expected to go by itself."""
    log.log(logging.INFO if fault.waits else logging.WARNING, "driver: %s", fault.words)
