"""A release as it is stored, and what is said of it: of the driver, of what is not told meanwhile, of its times. Pure."""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from gpuwatch.catalogue.gpu import (
    DRIVER,
    DRIVER_STATE,
    RELEASED_BEFORE_SINCE,
    RELEASED_BEFORE_UNTIL,
    RELEASED_SINCE,
    RELEASED_UNTIL,
)
from gpuwatch.daemon import attached
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.silence import DAY, Matcher, Silence
from gpuwatch.model.target import Target

log = logging.getLogger("gpuwatch")

STATE, VERSION = "release", 1
PEOPLE = ""  # whose hold lasts until its time, or until a person resumes
LATE = 60.0  # seconds after a release in which the kernel log may still tell of it
OF_GPUS = (Matcher(name="gpu", value="", is_equal=False),)


class Ticket(Protocol):
    """A commit under way."""

    def wait(self, seconds: float) -> bool: ...


class Store(Protocol):
    """Where it is kept."""

    @property
    def remembers(self) -> bool: ...

    def load_state(self, name: str) -> tuple[int, bytes] | None: ...

    def save_state(self, name: str, version: int, blob: bytes) -> Ticket: ...


class Workers(Protocol):
    """Processes that have GPUs open."""

    name: str

    def pause(self) -> None: ...

    def go_on(self) -> None: ...

    def pids(self) -> Sequence[int]: ...


class Hold(msgspec.Struct, frozen=True):
    """Somebody wants the GPUs released until then."""

    by: str
    until: float


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A release, as it is stored. `is_over`: the GPUs are taken up again; `is_told`: and what has changed was told.

    It lasts as long as one of its `holds`, which are by name: that of a command, which drops it at its end, or that of PEOPLE.
    There is always one.
    """

    since: float  # wall clock, as all times here
    holds: Mapping[str, Hold]
    before: attached.Snapshot
    settled_at: float = 0.0  # when that was settled
    begun: Event | None = None  # what was told of its beginning: once more after a restart, which may have cost it
    is_over: bool = False
    ended_by: str = ""
    ended_at: float = 0.0
    is_told: bool = False
    waits_for: str = ""  # the installer for which it goes on beyond its time
    is_void: bool = False  # the wall clock went back behind its end: when it was explains nothing any more
    earlier: tuple[float, float] | None = None  # since and until when the one just before lasted, of which lines may come late

    @property
    def until(self) -> float:
        """Until when it lasts."""
        return max(hold.until for hold in self.holds.values())

    @property
    def by(self) -> str:
        """Who wants it for the longest, and so until then."""
        return max(self.holds.values(), key=lambda hold: hold.until).by


def left(kept: Kept, wall: float, dropped: Collection[str] = ()) -> dict[str, float]:
    """Return how long each hold still lasts (under 0: it is over).

    A clock that was set back makes none longer than it was when that was settled.
    """
    return {
        name: hold.until - max(wall, kept.settled_at or kept.since) for name, hold in kept.holds.items() if name not in dropped
    }


def of_driver(kept: Kept, wall: float, since: float) -> Reading:
    """Return what is said of the driver while it is released; once that is over, only when it was."""
    if kept.is_void:
        values = dict[Metric, float]()
    elif kept.is_over:
        values = {RELEASED_SINCE: min(since, kept.ended_at), RELEASED_UNTIL: kept.ended_at}
    else:
        values = {RELEASED_SINCE: since, **DRIVER_STATE.at("released")}
    if not kept.is_void and kept.earlier is not None and kept.earlier[1] <= since:  # else the clock was set back meanwhile
        values = {**values, RELEASED_BEFORE_SINCE: kept.earlier[0], RELEASED_BEFORE_UNTIL: kept.earlier[1]}
    words = f"released until {clock_time(kept.until, wall)} by {kept.by}"
    if kept.waits_for:
        words += f", while {kept.waits_for} is at work"
    return Reading(
        source="own",
        tier=Tier.FAST,
        target=Target(subject=DRIVER, key=""),
        at=wall,
        took=0.0,
        values=values,
        fault=None if kept.is_over else Fault("released", words),
    )


def lasted(kept: Kept | None, wall: float) -> tuple[float, float] | None:
    """Return when a release lasted that has just ended; None where there is none of which a line may come by now."""
    if kept is None or not kept.is_over or kept.is_void or not 0 <= wall - kept.ended_at <= LATE:
        return None
    return min(kept.since, kept.ended_at), kept.ended_at


def silence(kept: Kept) -> Silence:
    """Return what keeps alerts about GPUs from being told meanwhile."""
    return Silence(
        id=STATE, matchers=OF_GPUS, starts_at=kept.since, ends_at=kept.until, author=kept.by, comment="the GPUs are released"
    )


def read(stored: tuple[int, bytes] | None) -> Kept | None:
    """Return what was stored, None where nothing is released or it cannot be read."""
    if stored is None or not stored[1]:
        return None
    version, blob = stored
    try:
        if version == VERSION and (kept := msgspec.msgpack.decode(blob, type=Kept)).holds:
            return kept
    except msgspec.MsgspecError:
        pass
    log.warning("whether the GPUs were released cannot be read: they are taken up")
    return None


def clock_time(at: float, now: float) -> str:
    """Write a time for people: of day where that is within twelve hours, else with its date."""
    return time.strftime("%H:%M" if abs(at - now) < DAY / 2 else "%Y-%m-%d %H:%M", time.localtime(at))
