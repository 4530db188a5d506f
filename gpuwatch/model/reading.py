"""One look at one target: Reading, why a value is absent, and what is wrong with the whole target."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target


class Tier(str, Enum):
    """How often a group of numbers is read; the periods are in the configuration."""

    FAST = "fast"  # F: 1 s
    NORMAL = "normal"  # N: 10 s
    SLOW = "slow"  # S and I: 60 s (SMART: 10 min)


class Absence(str, Enum):
    """Why a value is not there."""

    UNSUPPORTED = "unsupported"  # this device or driver will never have it
    FAILED = "failed"  # the call failed this time
    LATE = "late"  # no answer within the deadline
    LOST = "lost"  # the device is gone or needs a reset
    DENIED = "denied"  # no permission
    EMPTY = "empty"  # no new sample this time
    RELEASED = "released"  # we let go of the device on request


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a whole target: `kind` is one of the source's documented words, `words` says it to a person.

    `waits`: it is expected to end by itself soon, as at boot; nobody has to do anything yet.
    """

    kind: str
    words: str
    code: int | None = None
    waits: bool = False


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one target: what was there, what wasn't, and why not. Nothing in it changes after it is posted."""

    source: str  # nvml, dcgm, pci, host, smart, ..., derived, own
    tier: Tier
    target: Target
    at: float  # wall clock, seconds: for people and for history
    took: float  # monotonic seconds
    values: Mapping[Metric, float]
    absent: Mapping[Metric, Absence] = {}
    fault: Fault | None = None
