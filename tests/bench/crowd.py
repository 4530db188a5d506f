"""What processes cost: 8 GPUs with 40 processes in 10 containers and 160 loaders. Prints milliseconds of CPU; nothing fails here.

python -m tests.bench.crowd

/proc is made of files that change before each round. What the kernel takes to make up the text of a real one is measured apart.
"""

import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_USED, POWER, UTILIZATION
from gpuwatch.catalogue.process import GPU_PROCESSES, PROCESS, PROCESS_GPU
from gpuwatch.detectors.ended import Ended
from gpuwatch.detectors.usage import Usage
from gpuwatch.export.families import Renderer
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.sampling.board import Board
from gpuwatch.sources import jobs
from gpuwatch.sources.jobs.following import TURNS
from gpuwatch.sources.jobs.process import LONGEST
from gpuwatch.sources.source import Source
from gpuwatch.store.schema import RAW
from tests.bench import keeping
from tests.fakes.cgroups import Crowd, docker
from tests.fakes.crowd_view import GIB, holder, seen, uuid
from tests.fakes.host import Answers, HostTree

GPUS, PROCESSES, LOADERS, CONTAINERS, THREADS = 8, 40, 4, 10, 30
FAST = 2.0  # seconds between two fast rounds


class Posting(Answers):
    """An Answer that puts readings on a board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def reading(self, reading: Reading) -> None:
        """Post it."""
        self._board.post(reading, time.monotonic())


class Rounds:
    """The rounds of the source, before each of which every process has used some more."""

    def __init__(self, source: Source, answer: Answers, crowd: Crowd, pids: Sequence[int]) -> None:
        self._source, self._answer, self._crowd, self._pids = source, answer, crowd, pids
        self._used = 0.0

    def cost(self, *tiers: Tier) -> float:
        """Return the CPU of these rounds in milliseconds."""
        spent = 0.0
        for tier in tiers:
            self._used += 0.8
            for pid in self._pids:
                self._crowd.spend(pid, self._used)
            began = time.thread_time()
            self._source.ask(tier, frozenset(), self._answer)
            spent += time.thread_time() - began
        return spent * 1e3

    def median(self, *tiers: Tier, times: int = 20) -> float:
        """Return the median of some times."""
        return statistics.median(self.cost(*tiers) for _ in range(times))


def kept(path: Path) -> float:
    """Return the CPU of reading a file that is kept open, in milliseconds."""
    descriptor = os.open(path, os.O_RDONLY)
    found = cost(lambda: [os.pread(descriptor, LONGEST, 0) for _ in range(200)]) / 200
    os.close(descriptor)
    return found


def kernel(fake: Path) -> tuple[float, float]:
    """Return what a real stat file costs more than a fake one, of a process with one thread and with many."""
    program = "import threading\nfor _ in range(%d): threading.Thread(target=input).start()\nprint(flush=True)"
    found = []
    for threads in (0, THREADS):
        command = [sys.executable, "-c", program % threads + ("" if threads else "\ninput()")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            found.append(kept(Path(f"/proc/{child.pid}/stat")) - kept(fake))
            child.kill()
    return found[0], found[1]


def cost(act: Callable[[], object], times: int = 20) -> float:
    """Return the median CPU of an act in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.thread_time()
        act()
        spent.append(time.thread_time() - began)
    return statistics.median(spent) * 1e3


def gpus(board: Board, wall: float) -> None:
    """Have every GPU answer."""
    listed = GPU_PROCESSES["compute"]
    for number in range(GPUS):
        target = Target(subject=GPU, key=uuid(number), labels={"gpu": str(number), "uuid": uuid(number)})
        fast: dict[Metric, float] = {UTILIZATION: 0.5, POWER: 300.0, MEMORY_USED: 1e9}
        for tier, values in ((Tier.FAST, fast), (Tier.NORMAL, {listed: 5.0, MEMORY_SIZE: 4e10})):
            reading = Reading(source="nvml", tier=tier, target=target, at=wall, took=0.0, values=values)
            board.post(reading, time.monotonic())


def main() -> None:
    """Measure and print."""
    logging.disable(logging.WARNING)  # a clock that is moved on by hand looks like a slow disk
    with tempfile.TemporaryDirectory() as folder:
        tree = HostTree(Path(folder)).kernel()
        crowd = Crowd(tree, "v2")
        crowd.users(ann=1001, bob=1002)
        tree.write(tree.proc / "sys/kernel/task_delayacct", "0\n")  # as since Linux 5.14
        holders, pids = [], list[int]()
        for number in range(PROCESSES):
            pid, group = 1000 + number * 100, docker(f"{number % CONTAINERS:012x}" + "0" * 52, "systemd")
            crowd.run(pid, group=group, threads=range(pid + 50, pid + 50 + THREADS), uid=1001 + number % 2)
            crowd.limit(group, quota=8)
            for loader in range(LOADERS):
                crowd.run(pid + 1 + loader, "pt_data_worker", parent=pid, group=group)
            pids += range(pid, pid + 1 + LOADERS)
            holders.append(holder(pid, number % GPUS, memory=(number + 1) * GIB / 10))
        board = Board({})
        source, answer = jobs.source(tree.config, SystemClock(), lambda: seen(*holders)), Posting(board)

        rounds = Rounds(source, answer, crowd, pids)
        rounds.cost(Tier.NORMAL)
        print(f"jobs, normal round     {rounds.median(Tier.NORMAL):6.2f} ms every 10 s")
        print(f"jobs, thorough round   {rounds.median(Tier.SLOW, Tier.NORMAL, times=5):6.2f} ms every 60 s")
        print(f"jobs, fast round       {rounds.median(Tier.FAST):6.2f} ms every {FAST:.0f} s")
        minute = [*([Tier.FAST] * 5 + [Tier.NORMAL]) * 6, Tier.SLOW]
        print(f"jobs, all rounds       {rounds.median(*minute, times=5) / 60:6.2f} ms a second")
        single, many = kernel(tree.proc / str(pids[0]) / "stat")
        a_second = PROCESSES / FAST * many + PROCESSES * LOADERS / (TURNS * FAST) * single
        own = f"{single * 1e3:.1f} us a file, {many * 1e3:.1f} with {THREADS} threads"
        print(f"the kernel's own part  {a_second:6.2f} ms a second: {own}")
        usage, ended = Usage(1.0, 3, 3), Ended()
        accounts, watched = usage.initial(), ended.initial()
        spent, wall = [], time.time()
        for _ in range(30):
            wall += 1
            gpus(board, wall)
            view = board.view(wall, time.monotonic())
            began = time.thread_time()
            accounts, found = usage.step(accounts, view, wall)
            usage.written = accounts
            watched, _ = ended.step(watched, view, wall)
            spent.append(time.thread_time() - began)
            for reading in found.readings:
                board.post(reading, time.monotonic())
        print(f"both detectors         {statistics.median(spent) * 1e3:6.2f} ms a beat")
        view = board.view(wall, time.monotonic())
        for words, hidden in (("", (PROCESS, PROCESS_GPU)), (" with those of processes", ())):
            lines = sum(text.count("\n") for _, text in Renderer(hidden).render(view).lines)
            print(f"series{words}: {lines - GPUS * 5}")  # without the five values of each GPU above
        brief = View(wall, MappingProxyType({target: entry for target, entry in view.entries.items() if target.subject.brief}))
        targets = Counter(target.subject.name for target in brief.entries if target.subject in RAW)
        cost_a_day = keeping.sent(Path(folder), brief)
        print(f"history of {', '.join(f'{count} {name}' for name, count in sorted(targets.items()))}, a day:")
        print(f"  sent to the disk     {cost_a_day.disk / 1e6:8.0f} MB")
        print(f"  the file grows by    {cost_a_day.file / 1e6:8.0f} MB")


if __name__ == "__main__":
    main()
