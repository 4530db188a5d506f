"""What processes cost: 8 GPUs with 40 processes in 10 containers and 160 loaders. Prints milliseconds of CPU; nothing fails here.

python -m tests.bench.crowd
"""

import logging
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
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
from gpuwatch.store.schema import RAW
from tests.bench import keeping
from tests.fakes.cgroups import Crowd, docker
from tests.fakes.crowd_view import GIB, holder, seen, uuid
from tests.fakes.host import Answers, HostTree

GPUS, PROCESSES, LOADERS, CONTAINERS = 8, 40, 4, 10


class Posting(Answers):
    """An Answer that puts readings on a board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def reading(self, reading: Reading) -> None:
        """Post it."""
        self._board.post(reading, time.monotonic())


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
        holders = []
        for number in range(PROCESSES):
            pid, group = 1000 + number * 100, docker(f"{number % CONTAINERS:012x}" + "0" * 52, "systemd")
            crowd.run(pid, group=group, threads=range(pid + 50, pid + 80), uid=1001 + number % 2)
            crowd.limit(group, quota=8)
            for loader in range(LOADERS):
                crowd.run(pid + 1 + loader, "pt_data_worker", parent=pid, group=group)
            holders.append(holder(pid, number % GPUS, memory=(number + 1) * GIB / 10))
        board = Board({})
        source, answer = jobs.source(tree.config, SystemClock(), lambda: seen(*holders)), Posting(board)

        def ask(*tiers: Tier) -> Callable[[], None]:
            def act() -> None:
                for tier in tiers:
                    source.ask(tier, frozenset(), answer)

            return act

        ask(Tier.NORMAL)()
        print(f"jobs, normal round     {cost(ask(Tier.NORMAL)):6.2f} ms every 10 s")
        print(f"jobs, thorough round   {cost(ask(Tier.SLOW, Tier.NORMAL), 5):6.2f} ms every 60 s")
        print(f"jobs, fast round       {cost(ask(Tier.FAST)):6.2f} ms every 2 s")
        minute = [*([Tier.FAST] * 5 + [Tier.NORMAL]) * 6, Tier.SLOW]
        print(f"jobs, all rounds       {cost(ask(*minute), 5) / 60:6.2f} ms a second")
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
