"""Many rows become a bounded number of points: rows as they are while they fit, else one point a longer step.

Each step is a multiple of the one before it, so that points can be made of points: nobody has to know beforehand how many rows
there will be, and no more are held than fit. A point is of the time before it, as a row is.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Generic, TypeVar

import msgspec

from gpuwatch.model.metric import Keep
from gpuwatch.model.past import Point

RAW = 10_000  # milliseconds between two rows
STEPS = (30_000, 60_000, 300_000, 900_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000)
GAP = 3.0  # usual distances between two points, beyond which nothing was known between them

Name = TypeVar("Name", bound=Hashable)


class Slot(msgspec.Struct):
    """What the values of one step come to."""

    total: float
    count: int
    low: float
    high: float
    last: float

    def add(self, value: float) -> None:
        """Add the next value."""
        self.total += value
        self.count += 1
        if value < self.low:
            self.low = value
        elif value > self.high:
            self.high = value
        self.last = value

    def join(self, later: "Slot") -> None:
        """Add what the step after this one comes to."""
        self.total += later.total
        self.count += later.count
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
        self.last = later.last

    def value(self, keep: Keep) -> float:
        """Return what a row of this step would hold."""
        if keep is Keep.LAST:
            return self.last
        return self.high if keep is Keep.MAX else self.total / self.count


class Thinned(Generic[Name]):
    """Values by name of their series and by time; each series gets `most` at most, all together `total`.

    Values of a series are added in the order of their time.
    """

    def __init__(self, most: int, total: int) -> None:
        self._most, self._total = most, total
        self._held = 0
        self._newest: int | None = None  # milliseconds
        self._step: int | None = None  # None: rows as they are
        self._series: dict[Name, dict[int, Slot]] = {}

    @property
    def step(self) -> int:
        """Milliseconds between two points."""
        return RAW if self._step is None else self._step

    @property
    def names(self) -> Sequence[Name]:
        """The series that have a value, in the order in which they came."""
        return list(self._series)

    def __contains__(self, name: Name) -> bool:
        return name in self._series

    def __len__(self) -> int:
        return len(self._series)

    def add(self, name: Name, at: int, value: float) -> None:
        """Add the value of a row, at so many milliseconds."""
        slots = self._series.setdefault(name, {})
        self._newest = at if self._newest is None else max(self._newest, at)
        end = self._end(at)
        slot = slots.get(end)
        if slot is not None:
            slot.add(value)
            return
        slots[end] = Slot(value, 1, value, value, value)
        self._held += 1
        while self._held > self._total or len(self._series[name]) > self._most:
            self._lengthen()

    def points(self, name: Name, keep: Keep) -> list[Point]:
        """Return the points of a series, and None where nothing was known between two."""
        slots, newest = self._series[name], self._newest or 0
        if self._step is None:
            return gapped([(at / 1000, slot.last) for at, slot in slots.items()], RAW / 1000)
        found = [(min(end, newest) / 1000, slot.value(keep), slot.low, slot.high) for end, slot in slots.items()]
        return gapped(found, self._step / 1000)

    def _end(self, at: int) -> int:
        """Return the end of the step that a time lies in."""
        return at if self._step is None else -(-at // self._step) * self._step

    def _lengthen(self) -> None:
        """Take the next longer step, and make its points of those of this one."""
        now = self._step or 0
        self._step = next((step for step in STEPS if step > now), 2 * now)
        for name, slots in self._series.items():
            self._series[name] = longer = dict[int, Slot]()
            for at, slot in slots.items():
                end = self._end(at)
                if end in longer:
                    longer[end].join(slot)
                else:
                    longer[end] = slot
        self._held = sum(map(len, self._series.values()))


def gapped(points: Sequence[Point], step: float) -> list[Point]:
    """Return points with a None after each that is followed by a gap.

    What is read every minute has a value in one row of six: a gap is longer than is usual in this series.
    """
    if len(points) < 2:
        return list(points)
    distances = [later[0] - point[0] for point, later in pairwise(points)]
    usual = max(step, median_low(distances))
    found: list[Point] = []
    for point, distance in zip(points, [*distances, 0.0], strict=True):
        found.append(point)
        if distance > GAP * usual:
            found.append((point[0] + usual, None))
    return found
