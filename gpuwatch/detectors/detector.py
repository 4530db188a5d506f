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
LEAP = 5.0  # seconds that one beat may take; more only where the beats before were long too
STEP = 2.0  # seconds by which the wall clock goes its own way in one beat: it was set


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
    """A clock for durations, made of beats and of the monotonic clock: a wall clock that steps does not move it at all.

    It goes on over a restart, of whose length only the wall clock can tell; that moves it by a few beats at most.
    """

    now: float = 0.0
    wall: float | None = None
    mono: float | None = None  # None: another process has ticked last, if any
    usual: float = 0.0  # how long the last beat took
    whole: float = 0.0  # since when no beat was missed: what has lasted for longer has a gap in it
    offset: float | None = None  # of the wall clock from the monotonic one, which go together until the host starts anew
    stepped: bool = False  # the wall clock was set since the last beat, of this process or of the one before

    def tick(self, wall: float, mono: float) -> bool:
        """Take the time of a beat; returns whether none was missed since the last one."""
        passed = 0.0 if self.wall is None else wall - self.wall if self.mono is None else mono - self.mono
        longest = max(LEAP, 3 * self.usual)
        is_whole = 0 <= passed <= longest
        self.wall, self.mono, self.usual = wall, mono, min(max(passed, 0.0), longest)
        self.now += self.usual
        self.stepped = self.offset is not None and abs(wall - mono - self.offset) > STEP
        self.offset = wall - mono
        if not is_whole:
            self.whole = self.now
        return is_whole

    def since(self, before: float | None, longest: float) -> float | None:
        """Return the seconds from `before` on this clock, None where that is unknown, too long, or has a gap in it."""
        passed = 0.0 if before is None or before < self.whole else self.now - before
        return passed if 0 < passed <= longest else None


def measured(entry: Entry) -> tuple[Reading, ...]:
    """Return the readings of a target that come from its hardware, and not from us."""
    return tuple([reading for reading in entry.readings if reading.source != SOURCE])  # a list is built in half the time


def derived(target: Target, values: dict[Metric, float], absent: dict[Metric, Absence], wall: float) -> Reading:
    """Return a derived reading."""
    return Reading(source=SOURCE, tier=Tier.FAST, target=target, at=wall, took=0.0, values=values, absent=absent)
