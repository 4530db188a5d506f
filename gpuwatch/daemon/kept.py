"""A release as it is stored, and what is said of it: of the driver, of what is not told meanwhile, of its times. Pure."""

import logging
import time

import msgspec

from gpuwatch.catalogue.gpu import DRIVER, DRIVER_STATE, RELEASED_SINCE, RELEASED_UNTIL
from gpuwatch.daemon import attached
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.silence import DAY, Matcher, Silence
from gpuwatch.model.target import Target

log = logging.getLogger("gpuwatch")

STATE, VERSION = "release", 1
OF_GPUS = (Matcher(name="gpu", value="", is_equal=False),)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A release, as it is stored. `is_over`: the GPUs are taken up again; `is_told`: and what has changed was told."""

    since: float  # wall clock, as all times here
    until: float
    by: str
    asked_at: float | None = None  # when it was last asked for; later than `since`: somebody wants it besides who began it
    before: attached.Snapshot
    is_over: bool = False
    ended_by: str = ""
    ended_at: float = 0.0
    is_told: bool = False
    waits_for: str = ""  # the installer for which it goes on beyond its time
    is_void: bool = False  # the wall clock went back behind its end: when it was explains nothing any more


def of_driver(kept: Kept, wall: float, since: float) -> Reading:
    """Return what is said of the driver while it is released; once that is over, only when it was."""
    if kept.is_void:
        values = dict[Metric, float]()
    elif kept.is_over:
        values = {RELEASED_SINCE: min(since, kept.ended_at), RELEASED_UNTIL: kept.ended_at}
    else:
        values = {RELEASED_SINCE: since, **DRIVER_STATE.at("released")}
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
        if version == VERSION:
            return msgspec.msgpack.decode(blob, type=Kept)
    except msgspec.MsgspecError:
        pass
    log.warning("whether the GPUs were released cannot be read: they are taken up")
    return None


def clock_time(at: float, now: float) -> str:
    """Write a time for people: of day where that is within twelve hours, else with its date."""
    return time.strftime("%H:%M" if abs(at - now) < DAY / 2 else "%Y-%m-%d %H:%M", time.localtime(at))
