"""What `gpuwatch read` shows of two sources that the daemon reads in threads of its own: the kernel log, and jobs."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpuwatch.catalogue.own import QUEUE
from gpuwatch.catalogue.process import HOLDER
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.board import Board
from gpuwatch.sampling.once import once
from gpuwatch.sources import jobs
from gpuwatch.sources.kernel.reader import Reader
from gpuwatch.sources.source import Source

EVENTS = 1000  # the newest that are shown
ROUNDS = 3  # in which names that have to be looked up may come


class Local(msgspec.Struct):
    """An Answer that keeps the last reading of everything, and the events."""

    kept: dict[tuple[Tier, Target], Reading] = {}
    events: deque[Event] = msgspec.field(default_factory=lambda: deque(maxlen=EVENTS))
    left_out: int = 0
    problem: str = ""

    @property
    def readings(self) -> list[Reading]:
        """What there is; a reading that says nothing says that its target is over."""
        return [one for one in self.kept.values() if one.values or one.absent or one.fault]

    def reading(self, reading: Reading) -> None:
        """Keep it, unless it tells of queues, which one look does not fill."""
        if reading.target.subject is not QUEUE:
            self.kept[reading.tier, reading.target] = reading

    def event(self, event: Event) -> None:
        """Keep it, in place of the oldest."""
        self.left_out += len(self.events) == EVENTS
        self.events.append(event)

    def working(self, item: str) -> None:
        """Nothing here can hang."""

    def restart(self, reason: str) -> None:
        """There is no worker."""

    def failed(self, words: str) -> None:
        """What is wrong with a round is wrong with all that was to be read."""
        self.problem = words

    def done(self, busy: Sequence[str] = ()) -> None:
        """The round ends when `ask` returns."""


def kernel(config: Config, seconds: float, clock: Clock) -> Local:
    """Read the kernel log of this boot up to its present end."""
    found, reader = Local(), Reader(config, clock)
    end = clock.mono() + seconds
    try:
        reader.ask(Tier.NORMAL, frozenset(), found)
        while not reader.is_at_end and not reader.problem():
            if clock.mono() >= end:
                found.problem = "the kernel log could not be read to its end in time"
                break
            reader.ask(Tier.NORMAL, frozenset(), found)
        found.problem = found.problem or reader.problem()
        reader.finish(found)
    finally:
        reader.close()
    return found


def of_jobs(config: Config, seconds: float, clock: Clock) -> Local:
    """Read whose processes are on the GPUs: the lists are NVML's, asked first."""
    found, board = Local(), Board({})
    nvml = once(["nvml"], config, seconds)
    for reading in nvml.readings:
        if reading.target.subject is HOLDER:
            board.post(reading, clock.mono())
    found.problem = nvml.problem and f"NVML, which lists the processes: {nvml.problem}"
    for fault in (reading.fault for reading in nvml.readings if reading.fault):
        found.problem = found.problem or f"NVML, which lists the processes: {fault.words}"
    source: Source = jobs.source(config, clock, lambda: board.view(clock.wall(), clock.mono()))
    try:
        for _ in range(ROUNDS):
            source.ask(Tier.NORMAL, frozenset(), found)
        source.ask(Tier.FAST, frozenset(), found)
    finally:
        source.close()
    return found


LOCAL: Mapping[str, Callable[[Config, float, Clock], Local]] = {"kernel": kernel, "jobs": of_jobs}


def read(name: str, config: Config, seconds: float) -> Local:
    """Read one of them; what is in its way is in the answer, and not in a log besides."""
    logging.getLogger("gpuwatch").addHandler(logging.NullHandler())
    return LOCAL[name](config, seconds, SystemClock())
