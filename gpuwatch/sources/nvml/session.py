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
from gpuwatch.sources.nvml.gpu import SOURCE, Standing
from gpuwatch.sources.nvml.lane import Lane
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, Library
from gpuwatch.sources.nvml.verdicts import Traces
from gpuwatch.sources.source import Answer

LAST_RETRY = 60.0  # seconds between attempts to initialise, which begin with half a normal period
LEAST = 5.0  # ... at most, after an initialisation that had brought GPUs
WITNESSES = ("nvmlDeviceGetCount", "nvmlSystemGetDriverVersion")  # calls to NVML as a whole, that touch no GPU
MOST = 1024  # GPUs of one host; a count beyond is no count, and each index gets a thread
BREATH = 0.5  # seconds that a GPU's present call gets to end before NVML is shut down
UNREACHABLE = ("unknown_error", "no_permission")

log = logging.getLogger(__name__)


class Session:
    """Initialises NVML, counts, enumerates, and says how the driver is. `fault` is None while it is well."""

    def __init__(self, config: Config, clock: Clock, standing: Standing) -> None:
        self._config, self._standing = config, standing
        self._clock = clock
        self._lock = threading.RLock()  # what NVML's coming and going changes together
        self._watch = traces.Watch(config.paths, clock)
        self._up = False
        self._was_up = False
        self._shutdown_owed = False
        self._seen = ("", "")  # version and kind of the kernel module when NVML was last tried
        self._nodes = False
        self._retry_at, self._wait, self._renewed_at = 0.0, 0.0, 0.0
        self._gone = 0  # the code that NVML as a whole was last given up for
        self._fits: tuple[str, str] | None = None  # a module of which nvmlInit has said that it fits, against the word of a call
        self._said = False  # `fault` was logged
        self._since = clock.mono()
        self._versions: dict[str, str] = {}
        self._visible: float | Absence = Absence.FAILED
        self._counted = 0  # the last count
        self._empty = False  # the last count was 0 although GPUs answer
        self.fault: Fault | None = Fault("failed", "NVML is being initialised")
        self.library: Library | None = None
        self.fleet: Fleet | None = None
        self.hangs: Fault | None = None  # a call to NVML itself has not returned
        self._told = ""  # the state that was said last
        self._telling = threading.Lock()  # what is said last is what was found last
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
            self.tell(answer)
        if self.fleet is not None and self._told == "ok":  # else the driver as a whole is to blame, and that was said
            for gpu in self.fleet.gpus():
                if gpu.unreachable is None or gpu in silent:  # what fell silent during the look is judged by the next one
                    gpu.tell()

    def _look(self) -> None:
        """Try to initialise NVML where that is due, else see whether its driver or its list of GPUs has changed."""
        module, facts = traces.module(self._config.paths), self._watch.look()
        if not self._up:
            if self._is_due or self._moved(module, facts):
                self._start()
        elif self._is_replaced(module):
            self._want_restart(f"the kernel module went from {self._seen[0]} to {module[0]}")
        elif self._is_deaf:
            self._renew()
        else:
            self._count()

    def tell(self, answer: Answer) -> None:
        """Say how the driver is; from any thread."""
        with self._telling:
            for reading in self._readings():
                answer.reading(reading)

    def tell_news(self, answer: Answer) -> None:
        """Say how the driver is where that is not what was said last, so that no GPU is blamed for it; from any thread."""
        if self._told and state_of(self._verdict()) != self._told:
            self.tell(answer)

    def _readings(self) -> list[Reading]:
        """Return how the driver is, how many GPUs it shows, and our errors."""
        fault = self._verdict()
        self._note(fault if fault is not self.fault else None)
        state = self._told = state_of(fault)
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

    def retry(self) -> None:
        """Have NVML initialised anew where that is due; at the head of every round."""
        if not self._up and self._is_due and not self.lane.running(self._clock.mono()):
            self.lane.submit(self._begin)

    def recount(self) -> None:
        """Look for GPUs before the next round does."""
        self.lane.submit(self._count)

    def driver_gone(self, code: int, life: int | None = None) -> None:
        """NVML as a whole is no longer initialised, its driver no longer loaded or of another version; from any thread.

        `life`: the initialisation that this was said of, where that is known; what was said of an earlier one is over.
        """
        fleet, library = self.fleet, self.library
        if fleet is None or library is None:
            return
        fault = verdicts.not_started(code, library.describe(code), self._watch.look())
        module = traces.module(self._config.paths)
        with self._lock:
            if not self._up or life not in (None, fleet.life):
                return
            is_first, self._up, self._gone = not self._gone, False, code
            worked = any(gpu.handle is not None for gpu in fleet.gpus())
            is_doubted = code == verdicts.LIB_RM_VERSION_MISMATCH and self._fits != module
            if worked or is_first:  # what was wrong before that is over, and its back-off with it
                self._wait, self._retry_at = 0.0, self._renewed_at + min(LEAST, self._first_wait)
            fleet.let_go()
            self._shutdown_owed = code != verdicts.UNINITIALIZED
            if is_doubted or (worked and code == verdicts.UNINITIALIZED):  # what nvmlInit says next is what is logged
                self.fault, self._since, self._said = fault, self._clock.mono(), False
            else:
                self._set(fault)
        if code == verdicts.LIB_RM_VERSION_MISMATCH and self._is_replaced(module):
            self._want_restart("the kernel module was replaced")
        self.lane.submit(self._begin)

    def close(self) -> None:
        """Shut NVML down when the lane gets to it; nobody waits."""
        self.lane.submit(self._shut_down)

    def _begin(self) -> None:
        """Try to initialise where that is due, unless it has happened meanwhile."""
        try:
            if not self._up and self._is_due:
                self._start()
        finally:
            self.begun.set()

    def _start(self) -> None:
        """Load and initialise NVML, then enumerate; what fails becomes the driver's state."""
        module = traces.module(self._config.paths)
        facts = self._watch.look()
        changed = bool(self._seen[0]) and module != self._seen
        self._seen, self._nodes = module, facts.nodes
        self._wait = min(LAST_RETRY, max(self._first_wait, 2 * self._wait))
        self._retry_at = self._clock.mono() + self._wait
        if self._was_up:
            self._renewed_at = self._clock.mono()
        try:
            library = self.library = self.library or Library(bindings.load())
            library.is_gone = self._is_gone
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
        if self._gone == verdicts.LIB_RM_VERSION_MISMATCH:
            self._fits = module
        self._versions = self._ask_versions(library)
        if self.fleet is None:
            self.fleet = Fleet(library, self._config, self._clock, self.driver_gone, self._standing)
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
            self._works()
            self._visible = verdicts.absence(error.code)
            if fleet.count < 0 and self._counted:  # initialised anew: as many as there were can be opened all the same
                fleet.enumerate(self._counted)
            return
        self._works()
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
        self._visible, self._counted = float(count), count
        fleet.enumerate(count)

    def _works(self) -> None:
        """Take that NVML answers; a call that finds the driver gone again has the last word."""
        with self._lock:
            if self._up and self.fault is not None:
                self._set(None)

    def _is_gone(self, code: int) -> bool:
        """Return whether a call that answered a process-wide code speaks for NVML as a whole; on its thread, without a lock.

        One card, or one call, may answer so while all else works. That NVML is gone is seen by what the module leaves in the
        file system, or said by other calls too. Whether the versions fit only nvmlInit can say, and says it once for a module.
        """
        library = self.library
        if not self._up or library is None:
            return True
        module = traces.module(self._config.paths)
        if self._moved(module, self._watch.look()) or (code == verdicts.LIB_RM_VERSION_MISMATCH and self._fits != module):
            return True
        return all(library.code(name) in verdicts.PROCESS_WIDE for name in WITNESSES)

    @property
    def _first_wait(self) -> float:
        return float(self._config.sources.nvml.every_normal) / 2

    @property
    def _is_due(self) -> bool:
        return self._clock.mono() >= self._retry_at

    @property
    def _is_deaf(self) -> bool:
        """Whether NVML counts its GPUs and none of them can be reached through it, so that it is worth to begin anew."""
        fault = self._access()
        return fault is not None and fault.code in verdicts.PROCESS_WIDE and self._is_due and not self.restart

    def _renew(self) -> None:
        """Initialise NVML anew; what is wrong stays said until it is over."""
        with self._lock:
            self._up, self._shutdown_owed = False, True
            if self.fleet is not None:
                self.fleet.let_go()
        self._start()

    def _verdict(self) -> Fault | None:
        return self.hangs or self.fault or self._access()

    def _access(self) -> Fault | None:
        """Return that access to the devices was lost, where all GPUs fail at once without saying that they are lost."""
        if self.fleet is None:
            return None
        gpus = self.fleet.gpus()
        faults = [fault for gpu in gpus if (fault := gpu.unreachable) is not None]
        silent = [fault for fault in faults if fault.kind in UNREACHABLE]
        if not silent or len(faults) < len(gpus):
            return None
        facts, code = self._watch.look(), silent[0].code or verdicts.UNKNOWN
        if facts.lacks_nodes:  # this alone tells it from lost cards, however many there are, and whether others are lost
            return verdicts.no_access(code, facts)
        is_hosts = facts.container or code in (verdicts.NO_PERMISSION, *verdicts.PROCESS_WIDE)
        if len(silent) < len(gpus) or (len(gpus) == 1 and not is_hosts):
            return None  # may as well be the card
        return verdicts.no_access(code, facts)

    def _moved(self, module: tuple[str, str], facts: Traces) -> bool:
        """Return whether the module or its nodes came or went since the last attempt, or were waited for long enough."""
        waited = self.fault is not None and self.fault.waits and facts.nodeless >= verdicts.GRACE
        return waited or module != self._seen or facts.nodes != self._nodes

    def _is_replaced(self, module: tuple[str, str]) -> bool:
        """Return whether another version of the module is loaded than NVML was tried with."""
        return bool(module[0] and self._seen[0] and module[0] != self._seen[0])

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
            is_news = (
                not self._said or before is None or fault is None or (fault.kind, fault.words) != (before.kind, before.words)
            )
            self._said = True
            if fault is not None and before is None:
                self._since = now
            if fault is None:
                self._beside = None
        if fault is not None and is_news:
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
        found = {"driver_version": "", "nvml_version": "", "cuda_version": ""}
        try:
            found["driver_version"] = library.text("nvmlSystemGetDriverVersion")
            found["nvml_version"] = library.text("nvmlSystemGetNVMLVersion")
            cuda = int(library.named("nvmlSystemGetCudaDriverVersion_v2"))
            found["cuda_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        except CallError:  # where NVML is gone again, the count says so
            pass
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


def state_of(fault: Fault | None) -> str:
    """Return the driver's state, as it is told."""
    return fault.kind if fault else "ok"


def say(fault: Fault) -> None:
    """Log what is in the way: a warning, unless it is expected to go by itself."""
    log.log(logging.INFO if fault.waits else logging.WARNING, "driver: %s", fault.words)
