"""Counters that the hardware does not keep as one would want: unwrapped PCIe bytes, busy time, energy.

Each looks at `Reading.at`, so that one value is not counted twice, and at the time from the beat that found the reading before:
more than three periods, or a restart, is a gap of which nothing is counted. No step of the wall clock is any time.

A counter that falls is taken for one that has begun anew, and its whole value counted again. So these go on where an orderly stop
left them, and begin at 0 after any other end, as those of the driver do after a reboot: that is exact for a rate and an increase,
and they are told as they are, every beat. The same where the sums of an earlier run come late: these here have begun by then.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.catalogue.derived import BUSY_SECONDS
from gpuwatch.catalogue.gpu import (
    ENERGY,
    GPU,
    PCIE_RECEIVE,
    PCIE_RECEIVE_MEAN,
    PCIE_RECEIVE_RAW,
    PCIE_TRANSMIT,
    PCIE_TRANSMIT_MEAN,
    PCIE_TRANSMIT_RAW,
    POWER,
    UTILIZATION,
)
from gpuwatch.detectors.detector import Clockwork, derived, measured
from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.view import View

WRAP = 2.0**32  # where the byte counters of drivers begin anew (nvml.md 2.7)
GAP = 3  # periods
KEEP = 256  # GPUs that are remembered; a host has 16 at most, but cards come and go

RAW = {PCIE_TRANSMIT_RAW: PCIE_TRANSMIT, PCIE_RECEIVE_RAW: PCIE_RECEIVE}
RATES = {UTILIZATION: BUSY_SECONDS, POWER: ENERGY, PCIE_TRANSMIT_MEAN: PCIE_TRANSMIT, PCIE_RECEIVE_MEAN: PCIE_RECEIVE}


class Sum(msgspec.Struct):
    """One counter: what it has come to, and the reading that was last taken in."""

    total: float = 0.0
    at: float | None = None  # wall clock, so that it is known again
    seen: float | None = None  # own clock
    raw: float | None = None  # None: it came from a rate


class State(msgspec.Struct):
    """The sums of each GPU by the id of the counter."""

    gpus: dict[str, dict[str, Sum]] = {}
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


class Accumulate:
    """The detector; `periods` is how often each tier is read."""

    name = "accumulate"
    version = 1

    def __init__(self, periods: Mapping[Tier, float]) -> None:
        self.periods = periods

    def initial(self) -> State:
        """Return sums of nothing."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Add what is new. A GPU that gives nothing now has no sums now; they go on when it does."""
        readings = []
        state.clock.tick(wall, view.mono)
        for entry in view.of(GPU):
            told = measured(entry)
            if not told:
                continue
            key = entry.target.key
            sums = state.gpus.pop(key, {})
            values: dict[Metric, float] = {}
            for raw, counter in RAW.items():
                if (reading := of(raw, told)) is not None:
                    values[counter] = self.add_raw(reading, raw, sums.setdefault(counter.id, Sum()), state.clock)
            for rate, counter in RATES.items():
                if (counter is not ENERGY or lacks_energy(told)) and (reading := of(rate, told)) is not None:
                    values[counter] = self.add_rate(reading, rate, sums.setdefault(counter.id, Sum()), state.clock)
            if sums:
                state.gpus[key] = sums  # at the end: the first are those not seen for longest
                readings.append(derived(entry.target, values, {}, wall))
        while len(state.gpus) > KEEP:
            del state.gpus[next(iter(state.gpus))]
        return state, Findings(tuple(readings))

    def add_raw(self, reading: Reading, raw: Metric, total: Sum, clock: Clockwork) -> float:
        """Add what a raw byte counter has grown by; returns what it has come to."""
        if total.at != reading.at:
            value = reading.values[raw]
            gap = clock.since(total.seen, GAP * self.periods[reading.tier]) is None
            total.total += 0.0 if total.raw is None else growth(total.raw, value, gap=gap)
            total.at, total.seen, total.raw = reading.at, clock.now, value
        return total.total

    def add_rate(self, reading: Reading, rate: Metric, total: Sum, clock: Clockwork) -> float:
        """Add a rate times the time that it stands for, since the last reading; returns what it has come to."""
        if total.at != reading.at:
            passed = clock.since(total.seen, GAP * self.periods[reading.tier])
            total.total += 0.0 if passed is None else max(0.0, reading.values[rate]) * passed
            total.at, total.seen, total.raw = reading.at, clock.now, None
        return total.total


def of(metric: Metric, readings: Sequence[Reading]) -> Reading | None:
    """Return the most trusted reading that has a number."""
    return next((reading for reading in readings if metric in reading.values), None)


def growth(before: float, value: float, *, gap: bool) -> float:
    """Return the bytes between two values of a raw counter: it wraps at 32 bits on some drivers, and begins at 0 with the driver.

    After a gap a 32-bit counter may have wrapped any number of times: nothing is counted then.
    """
    if gap and max(before, value) < WRAP:
        return 0.0
    if value >= before:
        return value - before
    return value - before + WRAP if before < WRAP else value


def lacks_energy(readings: Sequence[Reading]) -> bool:
    """Say whether a GPU of which this is told will never tell its energy (before Volta)."""
    return not any(ENERGY in reading.values for reading in readings) and any(
        reading.absent.get(ENERGY) is Absence.UNSUPPORTED for reading in readings
    )
