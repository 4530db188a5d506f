"""What the known processes use: those on GPUs every fast round, their loaders in turn. There are hundreds, every 2 s.

Of each a descriptor of its stat file is kept: that saves the way through /proc, which costs more than the file (3.1 us a process
instead of 1.3, measured). And it is that of this very process: when that has ended, it gives nothing, whoever has the number.
"""

import logging
import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

import msgspec

from gpuwatch.catalogue.process import PROCESS, PROCESS_IO_WAIT
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.jobs import process
from gpuwatch.sources.jobs.process import LONGEST, Process
from gpuwatch.sources.jobs.roll import Job
from gpuwatch.sources.source import Answer

log = logging.getLogger(__name__)

SOURCE = "jobs"
TURNS = 2  # rounds in which each loader is read once: there are many, and what they use is wanted over minutes
MOST = 512  # descriptors that are kept, and at most a part of those that we may have; who is beyond is opened each time
PART = 8
NOTHING: Mapping[Metric, Absence] = MappingProxyType({})
UNACCOUNTED: Mapping[Metric, Absence] = MappingProxyType({PROCESS_IO_WAIT: Absence.UNSUPPORTED})
NOWHERE: Mapping[str, str] = MappingProxyType({})

Facts = Mapping[str, str]


class Followed(msgspec.Struct):
    """A process whose CPU is followed. `turn` is that of a loader, None for who is on a GPU."""

    one: Process
    job: str
    where: Facts
    target: Target
    began: bytes  # its start in ticks, as the file says it
    turn: int | None
    descriptor: int | None = None


class Following:
    """Those who are followed, by pid. Used by one thread."""

    def __init__(self, proc: str, clock: Clock) -> None:
        self._proc, self._clock = proc, clock
        self._room = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // PART)
        self._followed: dict[int, Followed] = {}
        self._unread: set[int] = set()  # those whose file could not be opened or read when it was last tried
        self._turn = 0
        self.accounted = False  # the kernel counts the time that tasks wait for disks
        self.seen: set[int] = set()  # loaders that were there when they were read, since somebody emptied it

    def target(self, pid: int) -> Target | None:
        """Return the target of a process, None where it is not followed."""
        found = self._followed.get(pid)
        return None if found is None else found.target

    def take(
        self,
        everyone: Iterable[tuple[Process, Job, str]],
        where: Mapping[int, Facts],
        facts: Callable[[Process, Job], Facts],
        answer: Answer,
    ) -> None:
        """Follow these from now on, each with its role, and tell of the new ones; those who are no longer among them are over.

        `where` has the labels of the GPU of those who are on one alone.
        """
        before, self._followed = self._followed, {}
        new: list[Followed] = []
        for number, (one, job, role) in enumerate(everyone):
            place = where.get(one.pid, NOWHERE) if role == "gpu" else NOWHERE
            info = facts(one, job)
            known = before.pop(one.pid, None)
            if known is not None and known.one.key != one.key:
                self._over(known, answer)
                known = None
            if known is None:
                turn = None if role == "gpu" else number % TURNS
                known = Followed(one, job.name, place, target_of(one, job, role, place, info), b"%d" % one.ticks, turn)
                new.append(known)
            elif not (
                known.one is one
                and known.job == job.name
                and (known.turn is None) == (role == "gpu")
                and known.where == place
                and known.target.info == info
            ):
                known.one, known.job, known.where = one, job.name, place
                known.target = target_of(one, job, role, place, info)
                known.turn = None if role == "gpu" else number % TURNS if known.turn is None else known.turn
            self._followed[one.pid] = known
        for known in before.values():
            self._over(known, answer)
        self._read(new, answer)

    def ask(self, answer: Answer) -> None:
        """Tell what they use now: those on GPUs each time, a part of their loaders in turn."""
        self._turn = (self._turn + 1) % TURNS
        self._read([one for one in self._followed.values() if one.turn is None or one.turn == self._turn], answer)

    def close(self) -> None:
        """Let go of all."""
        for known in self._followed.values():
            self._let_go(known)
        self._followed = {}

    def _read(self, those: Iterable[Followed], answer: Answer) -> None:
        """Tell what these processes use now; who has ended is over."""
        at = self._clock.wall()  # a round takes a few milliseconds: one time stands for all
        for known in those:
            try:
                raw = self._stat(known)
            except OSError as error:  # too many open files: it is not told this time, and late if that lasts
                if not self._unread:
                    log.warning("what some processes use cannot be read: %s", error.strerror)
                self._unread.add(known.one.pid)
                continue
            self._is_read(known.one.pid)
            values = None if raw is None else process.amounts(raw, known.began, accounted=self.accounted)
            if raw is None or values is None:
                del self._followed[known.one.pid]
                self.seen.discard(known.one.pid)
                self._over(known, answer)
                continue
            if known.turn is not None:
                self.seen.add(known.one.pid)
            absent = NOTHING if PROCESS_IO_WAIT in values else UNACCOUNTED
            answer.reading(
                Reading(source=SOURCE, tier=Tier.FAST, target=known.target, at=at, took=0.0, values=values, absent=absent)
            )

    def _is_read(self, pid: int) -> None:
        """Say so where this was the last one that could not be read."""
        if pid in self._unread:
            self._unread.remove(pid)
            if not self._unread:
                log.info("what processes use can be read of all again")

    def _stat(self, known: Followed) -> bytes | None:
        """Return the stat file of a process, None where it has none any more; raises OSError where that is not known."""
        try:
            if known.descriptor is None:
                path = f"{self._proc}/{known.one.pid}/stat"
                if self._room <= 0:
                    return process.small(path, LONGEST)
                known.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                self._room -= 1
            return os.pread(known.descriptor, LONGEST, 0)
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _over(self, known: Followed, answer: Answer) -> None:
        """Say that a process is over."""
        self._let_go(known)
        self._is_read(known.one.pid)
        answer.reading(Reading(source=SOURCE, tier=Tier.FAST, target=known.target, at=self._clock.wall(), took=0.0, values={}))

    def _let_go(self, known: Followed) -> None:
        """Close its file."""
        if known.descriptor is not None:
            with suppress(OSError):
                os.close(known.descriptor)
            known.descriptor = None
            self._room += 1


def target_of(one: Process, job: Job, role: str, where: Facts, info: Facts) -> Target:
    """Return a process as a target."""
    return Target(subject=PROCESS, key=one.key, labels={**labels_of(one, job, role), **where}, info=info)


def labels_of(one: Process, job: Job, role: str) -> dict[str, str]:
    """Return the labels of a process."""
    return {"pid": str(one.pid), "start": str(one.start), "command": one.comm, "job": job.name, "role": role}
