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
LEAP = 5.0  # seconds that one beat may take, whatever the wall clock says; more only where the beats before were long too


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
    """A clock for durations, made of beats: a wall clock that steps, or a restart, moves it by a few beats at most."""

    now: float = 0.0
    wall: float | None = None
    usual: float = 0.0  # how long the last beat took

    def tick(self, wall: float) -> None:
        """Take the time of a beat."""
        passed = 0.0 if self.wall is None else min(max(wall - self.wall, 0.0), max(LEAP, 3 * self.usual))
        self.now, self.wall, self.usual = self.now + passed, wall, passed


def measured(entry: Entry) -> tuple[Reading, ...]:
    """Return the readings of a target that come from its hardware, and not from us."""
    return tuple([reading for reading in entry.readings if reading.source != SOURCE])  # a list is built in half the time


def derived(target: Target, values: dict[Metric, float], absent: dict[Metric, Absence], wall: float) -> Reading:
    """Return a derived reading."""
    return Reading(source=SOURCE, tier=Tier.FAST, target=target, at=wall, took=0.0, values=values, absent=absent)
