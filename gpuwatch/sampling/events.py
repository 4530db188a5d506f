"""What happens to a collector, and what it may do about it: the words between the pure deciders and the crew."""

import signal
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

import msgspec

from gpuwatch.model.reading import Tier

NOT_YET = "has not answered yet"
SIGNALS = frozenset(int(one) for one in signal.Signals)


class Reason(str, Enum):
    """Why a worker process is replaced (the label of COLLECTOR_RESTARTS)."""

    HANG = "hang"
    CRASH = "crash"
    DRIVER_CHANGE = "driver_change"


class Patience(msgspec.Struct, frozen=True):
    """All times, in seconds, and counts of a collector."""

    deadline: float  # for one answer (Supervisor), or from one sign of life to the next (Probe)
    start: float = 30.0  # for the first answer of a worker: nvmlInit wakes every GPU, seconds each without persistence mode
    grace: float = 2.0  # from SIGKILL, or from a polite end, to giving the process up
    first: float = 1.0  # back-off before the first replacement; doubles
    limit: float = 60.0  # longest back-off
    steady: float = 60.0  # a worker that answered for this long has no past
    abandoned: int = 3  # processes in the kernel's hands at which nothing more is started
    round: float = 20.0  # a round of a Probe may take so many deadlines


# What happens


class Asked(msgspec.Struct, frozen=True):
    """The schedule wants this tier read."""

    tier: Tier


class Answered(msgspec.Struct, frozen=True):
    """A worker has ended a round. That one of its targets hangs in a thread is said by the source: the worker answers."""

    worker: int
    number: int


class Heard(msgspec.Struct, frozen=True):
    """A worker is about to touch an item (`begins`; "" is the source as a whole), or gave the reading of one."""

    worker: int
    source: str
    item: str
    begins: bool


class Erred(msgspec.Struct, frozen=True):
    """A source of a worker could not be built (`number` 0), or raised while it was asked."""

    worker: int
    source: str
    words: str
    number: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """A worker asks to be replaced."""

    worker: int
    reason: str


class Broke(msgspec.Struct, frozen=True):
    """A worker's pipe has ended or carries junk (`words`), or the process could not be started."""

    worker: int
    words: str = ""


class Ended(msgspec.Struct, frozen=True):
    """A worker's process, with all that it started, is gone."""

    worker: int
    status: int | None  # negative: the signal; None: it was never started


class Found(msgspec.Struct, frozen=True):
    """A process of an earlier daemon is still there: it counts as abandoned, under this number."""

    worker: int


class Tick(msgspec.Struct, frozen=True):
    """Nothing happened for a while."""


class Pause(msgspec.Struct, frozen=True):
    """The hardware is wanted by somebody else: every process ends, and none is started; or (`begins` false) that is over."""

    begins: bool


Event = Asked | Answered | Heard | Erred | Wanted | Broke | Ended | Found | Tick | Pause


# What is done


class Start(msgspec.Struct, frozen=True):
    """Start a worker process, with these sources (None: all of the collector's)."""

    worker: int
    sources: tuple[str, ...] | None = None


class Question(msgspec.Struct, frozen=True):
    """Ask a worker."""

    worker: int
    number: int
    tier: Tier
    skip: tuple[str, ...] = ()


class Dismiss(msgspec.Struct, frozen=True):
    """Close a worker's pipe, so that it ends by itself."""

    worker: int


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL to a worker and all that it started."""

    worker: int


class Say(msgspec.Struct, frozen=True):
    """Write a line to the log."""

    level: int
    text: str
    arguments: tuple[object, ...] = ()


Action = Start | Question | Dismiss | Kill | Say


class Plan(Protocol):
    """Decides what a collector does; used by one thread, but for `report`, which any thread may call."""

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in an event and return what is to be done."""
        ...

    def due(self) -> float:
        """Return when a Tick is due at the latest."""
        ...

    def report(self, now: float) -> "Report":
        """Return what the collector tells of itself."""
        ...


def words_of(status: int | None) -> str:
    """Say how a process ended."""
    if status is None:
        return "not started"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}" if -status in SIGNALS else f"killed by signal {-status}"
    return f"exit status {status}"


class Standing(msgspec.Struct, frozen=True):
    """What a collector tells of one of its sources."""

    success: bool | None = None  # of the last round; None before the first one is over
    took: float | None = None
    hung: bool = False


class Report(msgspec.Struct, frozen=True):
    """What a collector tells of itself. `problem` is NOT_YET until the first answer or its deadline."""

    standings: Mapping[str, Standing]
    restarts: Mapping[Reason, int]
    problem: str
