"""What happens to a collector, and what it may do about it: the words between the pure deciders and the crew."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gpuwatch.model.reading import Tier

SIGNALS = frozenset(int(one) for one in signal.Signals)


class Reason(str, Enum):
    """Why a worker process is replaced (the label of COLLECTOR_RESTARTS)."""

    HANG = "hang"
    CRASH = "crash"
    DRIVER_CHANGE = "driver_change"


@dataclass(frozen=True, slots=True)
class Patience:
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


@dataclass(frozen=True, slots=True)
class Asked:
    """The schedule wants this tier read."""

    tier: Tier


@dataclass(frozen=True, slots=True)
class Answered:
    """A worker has ended a round. That one of its targets hangs in a thread is said by the source: the worker answers."""

    worker: int
    number: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker is about to touch an item (`begins`; "" is the source as a whole), or gave the reading of one."""

    worker: int
    source: str
    item: str
    begins: bool


@dataclass(frozen=True, slots=True)
class Erred:
    """A source of a worker could not be built, or raised."""

    worker: int
    source: str
    words: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A worker asks to be replaced."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Broke:
    """A worker's pipe has ended or carries junk (`words`), or the process could not be started."""

    worker: int
    words: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker's process, with all that it started, is gone."""

    worker: int
    status: int | None  # negative: the signal; None: it was never started


@dataclass(frozen=True, slots=True)
class Found:
    """A process of an earlier daemon is still there: it counts as abandoned, under this number."""

    worker: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened for a while."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The hardware is wanted by somebody else: every process ends, and none is started; or (`begins` false) that is over."""

    begins: bool


Event = Asked | Answered | Heard | Erred | Wanted | Broke | Ended | Found | Tick | Pause


# What is done


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker process, with these sources (None: all of the collector's)."""

    worker: int
    sources: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Ask a worker."""

    worker: int
    number: int
    tier: Tier
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Close a worker's pipe, so that it ends by itself."""

    worker: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to a worker and all that it started."""

    worker: int


@dataclass(frozen=True, slots=True)
class Say:
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


@dataclass(frozen=True, slots=True)
class Standing:
    """What a collector tells of one of its sources."""

    success: bool | None = None  # of the last round; None before the first one is over
    took: float | None = None
    hung: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a collector tells of itself."""

    standings: Mapping[str, Standing]
    restarts: Mapping[Reason, int]
    problem: str
