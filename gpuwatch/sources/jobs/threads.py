"""Threads of GPU processes that load data themselves: how many work, and how many are at the limit of a core.

A loader may be threads of the GPU process and no processes of its own (operator.md section 1). A busy first thread proves
nothing, since CUDA waits by spinning, and neither do the threads below that wait likewise. Once a minute is enough: what loads
data does so for hours. There may be hundreds of threads, so they are looked at only where those beside the first use about a core
together, and so many files a look; who is not reached is first in the next one, and what is known of him holds until then. A
process with more threads than are read of one is counted and never looked into.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gpuwatch.catalogue.process import PROCESS_WORKERS, PROCESS_WORKERS_BUSY, PROCESS_WORKERS_FULL
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs import process
from gpuwatch.sources.jobs.process import Process

FULL = 0.9  # of a core
WORKS = 0.1
READS = 1500  # threads that a look may read
MOST = 1000  # threads of one process
LEAST = 10.0  # seconds between two looks: a thread's time comes in steps of 10 ms
# Who waits for the GPU or for peers by spinning, as PyTorch, CUDA and NCCL name them.
WAITERS = ("cuda", "nccl", "NCCL", "pt_autograd", "pt_nccl")


class Found(msgspec.Struct, frozen=True):
    """What is known of the threads of one process."""

    values: Mapping[Metric, float] = {}
    absent: Mapping[Metric, Absence] = {}


NOT_YET = Found(absent=dict.fromkeys((PROCESS_WORKERS, PROCESS_WORKERS_FULL, PROCESS_WORKERS_BUSY), Absence.EMPTY))
TOO_MANY = Found(absent=dict.fromkeys((PROCESS_WORKERS, PROCESS_WORKERS_FULL, PROCESS_WORKERS_BUSY), Absence.UNSUPPORTED))
NONE_FULL = Found({PROCESS_WORKERS_FULL: 0.0}, dict.fromkeys((PROCESS_WORKERS, PROCESS_WORKERS_BUSY), Absence.EMPTY))


class Seen(msgspec.Struct):
    """What a process was when it was last looked at."""

    at: float  # monotonic
    others: float  # seconds of CPU of all threads but the first
    threads: dict[int, tuple[int, float]] | None = None  # when each began, and its seconds of CPU; None: not looked at
    threads_at: float = 0.0
    is_over: bool = False  # it has more threads than are read of one


class Threads:
    """The threads of the GPU processes. Used by one thread."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._seen: dict[str, Seen] = {}

    @property
    def dropped(self) -> int:
        """How many processes have too many threads."""
        return sum(seen.is_over for seen in self._seen.values())

    def look(self, present: Iterable[Process], now: float) -> dict[int, Found]:
        """Return what is known by now, by pid; who was looked at just now, or is not reached, is left out."""
        here = {one.key: one for one in present}
        self._seen = {key: seen for key, seen in self._seen.items() if key in here}
        found: dict[int, Found] = {}
        left = READS
        # Who has waited longest for its threads to be read comes first.
        for one in sorted(here.values(), key=lambda one: self._seen[one.key].threads_at if one.key in self._seen else now):
            seen = self._seen.get(one.key)
            if seen is not None and now - seen.at < LEAST:
                continue
            others = self._others(one)
            if others is None:
                self._seen.pop(one.key, None)
            elif seen is None:
                self._seen[one.key], found[one.pid] = Seen(now, others), NOT_YET
            elif (others - seen.others) / (now - seen.at) < FULL:
                self._seen[one.key], found[one.pid] = Seen(now, others, threads_at=now), NONE_FULL
            else:
                seen.at, seen.others = now, others
                numbers = self._numbers(one.pid)
                seen.is_over = len(numbers) > MOST
                if seen.is_over:
                    found[one.pid], seen.threads, seen.threads_at = TOO_MANY, None, now
                elif len(numbers) <= left:
                    left -= len(numbers)
                    threads = self._threads(one.pid, numbers)
                    found[one.pid] = NOT_YET if seen.threads is None else told(seen, threads, now)
                    seen.threads, seen.threads_at = {tid: (stat.ticks, stat.cpu) for tid, stat in threads.items()}, now
        return found

    def _others(self, one: Process) -> float | None:
        """Return the seconds of CPU of all threads but the first, None where it has ended."""
        whole = process.stat(self._proc, one.pid)
        first = process.stat(f"{self._proc}/{one.pid}/task", one.pid)
        if whole is None or first is None or whole.ticks != one.ticks:
            return None
        return max(0.0, whole.cpu - first.cpu)

    def _numbers(self, pid: int) -> list[int]:
        """Return the numbers of all threads but the first."""
        return [int(name) for name in sysfs.entries(f"{self._proc}/{pid}/task") if name.isdecimal() and name != str(pid)]

    def _threads(self, pid: int, numbers: Iterable[int]) -> dict[int, process.Stat]:
        """Return those of these threads that are still there."""
        folder = f"{self._proc}/{pid}/task"
        return {number: found for number in numbers if (found := process.stat(folder, number)) is not None}


def told(seen: Seen, threads: Mapping[int, process.Stat], now: float) -> Found:
    """Return how many threads have worked since the last look, and how hard."""
    assert seen.threads is not None
    shares: list[float] = []
    for number, stat in threads.items():
        ticks, cpu = seen.threads.get(number, (0, 0.0))
        if ticks == stat.ticks and not stat.comm.startswith(WAITERS):  # else it is new, and nothing is known of it yet
            share = (stat.cpu - cpu) / (now - seen.threads_at)
            shares += [share] if share >= WORKS else []
    values = {PROCESS_WORKERS: float(len(shares)), PROCESS_WORKERS_FULL: float(sum(share >= FULL for share in shares))}
    if not shares:
        return Found(values, {PROCESS_WORKERS_BUSY: Absence.EMPTY})
    return Found(values | {PROCESS_WORKERS_BUSY: min(1.0, sum(shares) / len(shares))})
