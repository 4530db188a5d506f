"""Views become rows: what a period of 10 s held, one row a target, by what each metric's `keep` says.

A reading is counted once, in the period in which it came. So a value that is read every 60 s stands in one row of six and is
NULL in the others, and so is what was absent, late or never there: a NULL says "not read in these 10 s", never 0. Readers of
rows carry the last value on themselves, for as long as it counts.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite

import msgspec

from gpuwatch.catalogue import METRICS
from gpuwatch.model.metric import Keep, Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.store.schema import RAW, stored

PERIOD = 10.0  # seconds
SHORTEST = 5.0  # seconds of monotonic time before the wall clock may end a period
LONGEST = 15.0  # seconds of monotonic time after which it ends whatever the wall clock says
MEANS = frozenset(metric for metric in METRICS if stored(metric) and metric.keep is Keep.MEAN)
HIGHEST = frozenset(metric for metric in METRICS if stored(metric) and metric.keep is Keep.MAX)
LASTS = frozenset(metric for metric in METRICS if stored(metric) and metric.keep is Keep.LAST)


class Round(msgspec.Struct, frozen=True):
    """The rows of one period: for each target that had a value, the values by metric id."""

    at: float  # wall clock of the last view in it
    rows: tuple[tuple[Target, Mapping[str, float]], ...]


class Gathered:
    """What one target had in the present period, and which readings are counted already."""

    __slots__ = ("_counted", "_counts", "_sums", "_values", "entry", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.entry: Entry | None = None
        self._counted: dict[tuple[str, str], float] = {}  # (source, tier) -> at of its last reading
        self._sums: dict[Metric, float] = {}
        self._counts: dict[Metric, int] = {}
        self._values: dict[Metric, float] = {}

    @property
    def empty(self) -> bool:
        """Whether the period holds nothing yet."""
        return not self._sums and not self._values

    def take(self, entry: Entry) -> None:
        """Count the readings that are new."""
        self.target, self.entry = entry.target, entry
        for index, reading in enumerate(entry.readings):
            slot = reading.source, reading.tier.value
            # "another", not "a later": the wall clock may have been set back
            if self._counted.get(slot) != reading.at:
                self._counted[slot] = reading.at
                self._add(reading, [other.values for other in entry.readings[:index]])

    def _add(self, reading: Reading, trusted: Sequence[Mapping[Metric, float]]) -> None:
        """Count one reading, but for what a source that comes before it has too."""
        sums, counts, values = self._sums, self._counts, self._values
        shadowed = {metric for before in trusted for metric in before if metric in reading.values} if trusted else ()
        for metric, value in reading.values.items():
            if metric in shadowed:
                continue
            if metric in MEANS:
                sums[metric] = sums.get(metric, 0.0) + value
                counts[metric] = counts.get(metric, 0) + 1
            elif metric in LASTS or (metric in HIGHEST and value >= values.get(metric, value)):
                values[metric] = value

    def row(self) -> dict[str, float]:
        """Return the values of the period by metric id, and begin the next one."""
        counts = self._counts
        row = {metric.id: total / counts[metric] for metric, total in self._sums.items()}
        row.update((metric.id, value) for metric, value in self._values.items())
        self._sums, self._counts, self._values = {}, {}, {}
        return {name: value for name, value in row.items() if isfinite(value)}


class Accumulator:
    """Gathers views into rounds. Belongs to the one thread that observes."""

    def __init__(self) -> None:
        self._targets: dict[Target, Gathered] = {}
        self._began: tuple[float, float] | None = None  # wall, monotonic
        self._last = 0.0  # wall clock of the last view

    def add(self, view: View, mono: float) -> Round | None:
        """Count one view; returns the period before it where this view begins a new one.

        Periods end where the wall clock passes a multiple of 10 s, so that the rows of all hosts lie together; a step of the
        clock shortens or lengthens one by 5 s at most.
        """
        done = None
        if self._began is None:
            self._began = view.now, mono
        else:
            wall, since = self._began
            passed = view.now // PERIOD != wall // PERIOD
            if (passed and mono - since >= SHORTEST) or mono - since >= LONGEST:
                done = self.finish()
                self._began = view.now, mono
        self._last = view.now
        gone = self._targets.keys() - view.entries.keys()
        for target in gone:
            if self._targets[target].empty:
                del self._targets[target]
        for target, entry in view.entries.items():
            if target.subject in RAW:
                gathered = self._targets.get(target)
                if gathered is None:
                    gathered = self._targets[target] = Gathered(entry.target)
                if gathered.entry is not entry:  # the board hands out the same entry until something of it changes
                    gathered.take(entry)
        return done

    def finish(self) -> Round | None:
        """End the present period; None where it held no value."""
        rows = [(gathered.target, gathered.row()) for gathered in self._targets.values()]
        kept = tuple((target, row) for target, row in rows if row)
        return Round(self._last, kept) if kept else None


class Rounds:
    """The rounds that wait for the writing thread; a full queue drops the oldest. Any thread may call it."""

    LIMIT = 60  # ten minutes

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: deque[Round] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, done: Round) -> None:
        """Add the newest."""
        self._waiting.append(done)
        while len(self._waiting) > self.LIMIT:
            self._waiting.popleft()
            self.dropped += 1

    def take(self) -> Round | None:
        """Return the oldest and remove it."""
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, done: Round) -> None:
        """Return what could not be written; where the queue is full by now it is the oldest and goes."""
        if len(self._waiting) < self.LIMIT:
            self._waiting.appendleft(done)
        else:
            self.dropped += 1
