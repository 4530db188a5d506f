"""One GPU: its handle, what is wrong with it, and the Readings of each tier. `look` runs on its lane; the rest anywhere."""

import logging
from collections.abc import Mapping
from typing import Any

from gpuwatch.catalogue.mig import MIG_MODE
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources.nvml import recovery, verdicts
from gpuwatch.sources.nvml.answers import ALL_ONES, REASONS, Given
from gpuwatch.sources.nvml.fans import Fans
from gpuwatch.sources.nvml.gpm import Gpm
from gpuwatch.sources.nvml.identity import Identity
from gpuwatch.sources.nvml.inherited import Inherited, Said
from gpuwatch.sources.nvml.lane import Lane
from gpuwatch.sources.nvml.learned import Learned
from gpuwatch.sources.nvml.library import CallError, GpuGoneError, Library
from gpuwatch.sources.nvml.look import Give, Look, Plan
from gpuwatch.sources.nvml.mig import UNDIVIDED, Mig
from gpuwatch.sources.nvml.nvlink import Links, together
from gpuwatch.sources.nvml.processes import Processes
from gpuwatch.sources.nvml.readers import CHAINS, CLOCK_REASONS

SOURCE = "nvml"
ALL_REASONS = sum(bit for bit, _ in REASONS)
PATIENCE = 1.0  # seconds a call may take before the GPU counts as slow for calls that can wait

Standing = Mapping[str, Said]  # by key: what the process before has logged, and what was not over

log = logging.getLogger(__name__)


class Gpu:
    """One GPU that NVML shows or has shown. `handle` is None while it must not be used; `fault` says why.

    `fault` may also be None with no handle: then the driver as a whole is down.
    """

    def __init__(
        self, library: Library, clock: Clock, identity: Identity, index: int, config: Config, *, before: Said | None = None
    ) -> None:
        self._library = library
        self._clock = clock
        self._config = config
        self._gap = gap = 2 * config.sources.nvml.every
        self._processes: Processes | None = None
        self._learned = Learned(gap)
        self._fans: Fans | None = None
        self._links: Links | None = None
        self._gpm = Gpm(library, clock)
        self._news: list[Event] = []
        self._mig = Mig(library, clock, self._news.append)
        self._action: str | None = None  # what the driver wanted done when it was last asked
        self._odd_reasons = 0  # bits that are newer than we are, each logged once
        self._mute = False  # it was logged that NVML tells nothing of this part
        self._since = 0.0  # when it was given up
        self._said = False  # ... and that was logged
        self._barren_fault: Fault | None = None
        self._barren_since = 0.0
        self._barren_said = False
        self.inherited = Inherited(clock, before)
        self._answers = False  # it has given a value
        self.identity = identity
        self.index = index
        self.target = identity.target(index)
        self.handle: Any = None
        self.fault: Fault | None = None
        self.lane: Lane | None = None
        self.listed = 0  # number of the last enumeration that found it

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.identity.info.get('pci_bus_id', self.identity.key)})"

    def open(self, identity: Identity, index: int, handle: Any, lane: Lane) -> None:
        """Take a handle that was just opened, and forget what the last one taught."""
        self._learned = Learned(self._gap)
        if self._barren_fault is not None:
            self._learned.barren = verdicts.ROW - 1  # that it can be opened does not make it well: it has to answer
        self._fans, self._processes, self._links = None, None, None
        self._gpm.free()
        self._gpm = Gpm(self._library, self._clock)
        self._mig.opened()
        self.move(identity, index)
        if self.fault is not None and self._said:
            log.info("%s answers again after %.0f s", self, self._clock.mono() - self._since)
        self.fault, self.lane = None, lane
        self.handle = handle

    def move(self, identity: Identity, index: int) -> None:
        """Take the index and the facts that NVML has for it now."""
        if (identity, index) != (self.identity, self.index):
            self.identity, self.index = identity, index
            self._fans, self._processes, self._links = None, None, None
            self.target = identity.target(index)

    def lose(self, fault: Fault) -> None:
        """Give the handle up: no call is made with it again (XuehaiPan/nvitop#139). What was said first stays said.

        What may speak of the driver as a whole is said later (`tell`): not where the driver is to blame, which says so itself.
        """
        self.let_go()
        if self.fault is None:
            self._since = self.inherited.since(self._clock.mono())
        elif fault.kind in (self.fault.kind, "unknown_error"):  # a lost GPU is reported as 15 or 999, in turns
            return
        self.fault = fault
        self._barren_said = False  # what is said now, and its end, stand for it
        is_known = self.inherited.take(fault)
        self._said = is_known or fault.code not in verdicts.PROCESS_WIDE
        if self._said and not is_known:
            log.warning("%s: %s", self, fault.words)

    def let_go(self, wait: float = 0.0) -> None:
        """Give up the handle and what hangs on it; what is wrong, if anything is, is for others to say.

        A look that still uses it gets `wait` seconds to end.
        """
        self.handle = None
        self._gpm.free(wait)

    @property
    def unreachable(self) -> Fault | None:
        """The fault of a GPU that gives no values at all, None for one that gives any."""
        return self.fault or self._barren_fault

    def tell(self) -> None:
        """Log once that it has stopped to answer without saying that it is lost, and once that it answers again."""
        if self.fault is not None and not self._said:
            self._said = True
            log.warning("%s: %s", self, self.fault.words)
        fault = self._barren_fault if self.fault is None else None
        if fault is not None and not self._barren_said:
            self._barren_said = True
            self._barren_since = self.inherited.since(self._barren_since)
            if not self.inherited.take(fault):
                log.warning("%s: %s", self, fault.words)
        elif fault is None and self._barren_said:
            self._barren_said = False
            log.info("%s answers again after %.0f s", self, self._clock.mono() - self._barren_since)
        if self.unreachable is None and self._answers and (began := self.inherited.end()) is not None:
            log.info("%s answers again after %.0f s", self, self._clock.mono() - began)

    def stuck(self) -> float:
        """Return for how many seconds its present job has been running."""
        return 0.0 if self.lane is None else self.lane.running(self._clock.mono())

    @property
    def wants_throughput(self) -> bool:
        """Whether a 20 ms sample of the PCIe link is worth its cost now."""
        return self.handle is not None and self._learned.sampleable and self.stuck() < PATIENCE

    def sampled(self, found: Mapping[Metric, float | Absence]) -> None:
        """Take a sample of the PCIe link; it goes out with the next normal Reading."""
        self._learned.sampled(found, self._clock.mono())

    def look(self, tier: Tier) -> list[Reading]:
        """Read everything of one tier; raises DriverGoneError. A GPU that is lost meanwhile gives Readings without values."""
        learned, handle = self._learned, self.handle
        if handle is None:
            return self.silent(tier)
        at, started = self._clock.wall(), self._clock.mono()
        learned.ways.refresh(started)
        look = Look(self._library, handle, learned.ways, learned.gives, started)
        parts: list[Reading] = []
        try:
            self._mig.learn(handle, self.target)
            plan = self._plan(learned, tier, handle)
            look.run(plan)
            if tier is Tier.NORMAL:
                self._fans = self._fans or Fans(self._library, self.target, self._clock)
                parts = self._fans.look(handle) + self._holders(look, handle) + self._mig.look(handle, self.target, self._gpm)
                look.add(self._gpm.look(handle))
            elif tier is Tier.SLOW:
                each = self._config.sources.nvml.per_link
                self._links = self._links or Links(self._library, self.target, self._clock, each=each)
                parts = self._links.look(handle)
                look.add(together(parts))
        except GpuGoneError as error:
            self.lose(verdicts.gone(error.code))
            # Every tier at once, so that no old value outlives the GPU; the fast one last: who sees the loss sees nothing old.
            return [reading for each in reversed(Tier) for reading in self.silent(each)]
        if tier is Tier.FAST and not look.values and not look.codes and not self._mute:
            self._mute = True  # Tegra and Jetson (XuehaiPan/nvitop#168)
            log.info("%s, %s: NVML offers no telemetry of this part", self, self.identity.info.get("name", "without a name"))
        gave = bool(look.values)
        if tier is Tier.SLOW:
            self._notice(look.values)
        if self._mig.is_on:
            look.leave_out(UNDIVIDED)
        learned.complete(tier, look, self._clock.mono(), integrated=self.identity.integrated)
        fault = self._judge(learned, plan, look, gave=gave)
        if self._barren_fault is not None:  # what is only remembered says nothing of a GPU that answers nothing
            look.absent.update(dict.fromkeys(look.values, verdicts.reason(self._barren_fault)))
            look.values.clear()
        mine = Reading(
            source=SOURCE,
            tier=tier,
            target=self.target,
            at=at,
            took=self._clock.mono() - started,
            values=look.values,
            absent=look.absent,
            fault=fault,
        )
        return [*parts, mine]

    def _holders(self, look: Look, handle: Any) -> list[Reading]:
        """Return the processes on it, and add to a look how many there are."""
        if self._processes is None:
            period = float(self._config.sources.nvml.every_normal)
            self._processes = Processes(self._library, self.target, self._clock, self._config.paths.proc, period)
        values, absent, holders = self._processes.look(handle)
        look.values |= values
        look.absent |= absent
        return holders

    def silent(self, tier: Tier, reason: Absence | None = None, fault: Fault | None = None) -> list[Reading]:
        """Return Readings in which all that this GPU and its fans would give is absent; made by any thread, without a call."""
        fault, fans = fault or self.fault or verdicts.DRIVER_DOWN, self._fans
        reason = reason or verdicts.reason(fault)
        expected = self._learned.expected.get(tier) or tuple(metric for chain in CHAINS[tier] for metric in chain.metrics)
        mine = Reading(
            source=SOURCE,
            tier=tier,
            target=self.target,
            at=self._clock.wall(),
            took=0.0,
            values={},
            absent=dict.fromkeys(expected, reason),
            fault=fault,
        )
        if tier is not Tier.NORMAL:
            links = self._links if tier is Tier.SLOW else None
            return [mine, *(links.silent(reason) if links is not None else ())]
        return [mine, *(fans.silent(reason) if fans is not None else ()), *self._mig.silent(reason)]

    def news(self) -> list[Event]:
        """Return what was noticed since the last call; on the lane."""
        found, self._news[:] = list(self._news), ()
        return found

    def _notice(self, values: Mapping[Metric, float]) -> None:
        """Take note of a mode or an action that is another than before."""
        mode = values.get(MIG_MODE["current"])
        if mode is not None and self._mig.switched(on=mode == 1, card=self.target):
            self._learned = Learned(self._gap)  # a divided GPU answers other calls than a whole one
        action = recovery.present(values)
        if action is not None:
            if self._action not in (None, action):
                self._news.append(recovery.changed(self.target.key, str(self._action), action, self._clock.wall()))
            self._action = action

    def _judge(self, learned: Learned, plan: Plan, look: Look, *, gave: bool) -> Fault | None:
        """Return what the errors of this look say about the GPU as a whole; `gave`: a call has answered with a value."""
        codes = frozenset(look.codes)
        learned.barren = 0 if gave or not codes else learned.barren + 1
        self._answers = self._answers or gave
        if learned.barren == 1:
            self._barren_since = self._clock.mono()
        self._barren_fault = verdicts.barren(codes, learned.barren) if learned.barren else None
        if self._barren_fault is verdicts.STALE_HANDLE:
            self.lose(verdicts.STALE_HANDLE)
        if self._barren_fault is not None:
            return self._barren_fault
        failing = learned.ways.failing(plan.chains)
        if failing is not None:
            chain, code, count = failing
            return verdicts.keeps_failing(chain.metrics[0].id, code, count)
        return next((verdicts.ailing(code) for code in look.codes if code in verdicts.AILMENTS), None)

    def _plan(self, learned: Learned, tier: Tier, handle: Any) -> Plan:
        """Return what is to be asked, made anew when something is found to be missing or is to be tried again."""
        plan = learned.plans.get(tier)
        if plan is None or plan.version != learned.ways.version:
            if tier is Tier.FAST and CLOCK_REASONS not in learned.gives:
                learned.gives[CLOCK_REASONS] = self._reasons(handle)
            plan = learned.plans[tier] = Plan(learned.chains(tier), learned.ways, self._library, learned.gives)
        return plan

    def _reasons(self, handle: Any) -> Give:
        """Return the reader of the clock event reasons that this card supports; raises GpuGoneError and DriverGoneError."""
        supported = ALL_REASONS
        for function in ("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"):
            try:
                supported = int(self._library.named(function, handle))
                break
            except CallError as error:
                if type(error) is not CallError:
                    raise
        reasons = tuple((bit, metric) for bit, metric in REASONS if bit & supported)

        def give(answer: int) -> Given:
            if answer in ALL_ONES:
                return dict.fromkeys((metric for _, metric in reasons), Absence.UNSUPPORTED)
            odd = answer & ~ALL_REASONS & ~self._odd_reasons
            if odd:
                self._odd_reasons |= odd
                log.info("%s holds its clocks for a reason that is newer than gpuwatch: bits %#x", self, odd)
            return {metric: float(bool(answer & bit)) for bit, metric in reasons}

        return give
