"""The shape of a detector: a small pure state machine from Views to derived Readings."""

from typing import Protocol, TypeVar

import msgspec

from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

S = TypeVar("S", bound=msgspec.Struct)
SOURCE = "derived"
LEAP = 30.0  # seconds that one beat may take at most, whatever the wall clock says


class Detector(Protocol[S]):
    """One question about the numbers. It does no I/O and keeps nothing but its State, which survives restarts."""

    name: str
    version: int  # of its state; another one is not read

    def initial(self) -> S:
        """Return the state of a first start."""
        ...

    def step(self, state: S, view: View, wall: float) -> tuple[S, Findings]:
        """Look at one beat. Says everything that holds now, not only what changed; `state` is given up to it."""
        ...


class Clockwork(msgspec.Struct):
    """A clock for durations, made of beats: a wall clock that steps moves it by one beat's worth at most."""

    now: float = 0.0
    wall: float | None = None

    def tick(self, wall: float) -> float:
        """Take the time of a beat; returns how long it took."""
        passed = 0.0 if self.wall is None else min(max(wall - self.wall, 0.0), LEAP)
        self.wall = wall
        self.now += passed
        return passed


def measured(entry: Entry) -> tuple[Reading, ...]:
    """Return the readings of a target that come from its hardware, and not from us."""
    return tuple(reading for reading in entry.readings if reading.source != SOURCE)


def derived(target: Target, values: dict[Metric, float], absent: dict[Metric, Absence], wall: float) -> Reading:
    """Return a derived reading."""
    return Reading(source=SOURCE, tier=Tier.FAST, target=target, at=wall, took=0.0, values=values, absent=absent)
