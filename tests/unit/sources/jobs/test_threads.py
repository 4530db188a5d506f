"""Loaders that are threads of the GPU process: how many work and how many are full (operator.md section 1)."""

import os
import shutil

import pytest

from gpuwatch.catalogue.process import PROCESS, PROCESS_WORKERS, PROCESS_WORKERS_BUSY, PROCESS_WORKERS_FULL, PROCESSES_DROPPED
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.jobs.threads import MOST, READS
from tests.fakes.cgroups import TICK, Crowd
from tests.fakes.crowd_view import holder
from tests.fakes.host import HostTree
from tests.fakes.watched_jobs import Watched, told

MINUTE = 60.0
NUMBERS = (PROCESS_WORKERS, PROCESS_WORKERS_FULL, PROCESS_WORKERS_BUSY)
NOT_YET = dict.fromkeys(NUMBERS, Absence.EMPTY)
NONE_FULL = {PROCESS_WORKERS: Absence.EMPTY, PROCESS_WORKERS_BUSY: Absence.EMPTY}


class Programs:
    """GPU processes whose threads use the CPU at a steady pace."""

    def __init__(self, tree: HostTree, crowd: Crowd) -> None:
        self.tree, self.crowd = tree, crowd
        self.watched = Watched(tree)
        self.used: dict[tuple[int, int], float] = {}
        self.paces: dict[int, dict[int, tuple[str, float]]] = {}  # name and cores of each thread by number
        self.began: dict[int, int] = {}
        self.dropped = 0.0

    def run(self, pid: int, *others: tuple[str, float], first: float = 1.0) -> None:
        """Have a process whose first thread, and whose others, use so many cores."""
        self.paces[pid] = {pid: ("python", first)} | {pid + 1 + n: one for n, one in enumerate(others)}
        self.watched.board = [holder(each, 0) for each in self.paces]
        self.write(0.0)

    def write(self, seconds: float) -> None:
        """Let them work for so long."""
        for pid, threads in self.paces.items():
            for thread, (name, cores) in threads.items():
                self.used[pid, thread] = self.used.get((pid, thread), 0.0) + cores * seconds
                self.stat(pid, f"task/{thread}", thread, name, self.used[pid, thread])
            self.crowd.run(pid, "python", uid=1001, cpu=sum(self.used[pid, thread] for thread in threads))

    def stat(self, pid: int, place: str, number: int, name: str, cpu: float) -> None:
        """Write the numbers of a thread."""
        fields = ["S", *["0"] * 49]
        fields[1], fields[11], fields[19] = "1", str(round(cpu * TICK)), str(self.began.get(number, 1000))
        self.tree.write(self.tree.proc / str(pid) / place / "stat", f"{number} ({name}) {' '.join(fields)}\n")

    def look(self, seconds: float = MINUTE) -> dict[int, tuple[dict[Metric, float], dict[Metric, Absence]]]:
        """Let time pass, and return what a slow round tells of the threads of each process."""
        self.write(seconds)
        self.watched.clock.forward(seconds)
        answers = self.watched.ask(Tier.SLOW, Tier.NORMAL)
        [self.dropped] = [one.values[PROCESSES_DROPPED] for one in answers.readings if PROCESSES_DROPPED in one.values]
        found = [one for one in told(answers, PROCESS) if one.tier is Tier.SLOW]
        return {int(one.target.labels["pid"]): (dict(one.values), dict(one.absent)) for one in found}


@pytest.fixture
def programs(tree: HostTree, crowd: Crowd) -> Programs:
    """A host without any."""
    return Programs(tree, crowd)


def test_full_worker_threads_are_counted_with_how_full_they_are(programs: Programs) -> None:
    programs.run(4711, *[("python", 0.98)] * 4, ("python", 0.5), ("python", 0.02))
    assert [programs.look()[4711], programs.look()[4711]] == [({}, NOT_YET)] * 2
    values, absent = programs.look()[4711]
    assert (values[PROCESS_WORKERS], values[PROCESS_WORKERS_FULL], absent) == (5.0, 4.0, {})
    assert values[PROCESS_WORKERS_BUSY] == pytest.approx((4 * 0.98 + 0.5) / 5, abs=0.001)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        (1.0, []),  # CUDA waits by spinning
        (1.0, [("python", 0.05)] * 10),
        (1.0, [("python", 0.4), ("python", 0.4)]),
    ],
)
def test_where_the_others_use_less_than_a_core_together_none_is_full(
    programs: Programs, first: float, others: list[tuple[str, float]]
) -> None:
    programs.run(4711, *others, first=first)
    programs.look()
    opened = programs.tree.proc / "4711/task/4712/stat"
    if others:
        opened.unlink()  # it is not even read
    assert programs.look()[4711] == ({PROCESS_WORKERS_FULL: 0.0}, NONE_FULL)


def test_threads_that_wait_by_spinning_load_nothing(programs: Programs) -> None:
    programs.run(4711, ("pt_autograd_0", 1.0), ("cuda-EvtHandlr", 1.0), ("NCCL Progress 1", 1.0), ("python", 0.3))
    for _ in range(3):
        values, absent = programs.look()[4711]
    assert (values, absent) == ({PROCESS_WORKERS: 1.0, PROCESS_WORKERS_FULL: 0.0, PROCESS_WORKERS_BUSY: 0.3}, {})


def test_a_thread_that_has_taken_the_number_of_another_is_no_worker_yet(programs: Programs) -> None:
    programs.run(4711, *[("python", 1.0)] * 2)
    programs.look()
    programs.look()
    programs.began[4712] = 70_000
    assert programs.look()[4711][0][PROCESS_WORKERS] == 1.0
    assert programs.look()[4711][0][PROCESS_WORKERS] == 2.0


def test_a_process_that_has_ended_is_told_of_no_more_and_its_number_begins_anew(programs: Programs) -> None:
    programs.run(4711, *[("python", 1.0)] * 2)
    for _ in range(3):
        programs.look()
    threads = programs.paces.pop(4711)
    programs.crowd.end(4711)
    assert programs.look() == {}
    programs.paces[4711] = threads
    assert [programs.look()[4711] for _ in range(2)] == [({}, NOT_YET)] * 2


def test_rounds_that_come_too_soon_tell_nothing_of_threads(programs: Programs) -> None:
    programs.run(4711, *[("python", 1.0)] * 2)
    programs.look()
    assert programs.look(1.0) == {}
    assert programs.look(MINUTE)[4711] == ({}, NOT_YET)


def test_of_very_many_threads_a_bounded_number_is_read_and_the_others_are_next(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = READS // 2 - 50
    for pid in (10_000, 20_000, 30_000):
        programs.run(pid, ("python", 1.0), *[("python", 0.0)] * (each - 1))
    opened: list[str] = []
    real = os.open

    def count(path: str, *args: int, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return real(path, *args, dir_fd=dir_fd)

    monkeypatch.setattr("os.open", count)  # the edge: how many files are read
    known: list[set[int]] = []
    begun = set[int]()
    for _ in range(6):
        opened.clear()
        looked = programs.look()
        known.append({pid for pid, (values, _) in looked.items() if PROCESS_WORKERS in values})
        begun |= known[-1]
        assert not [pid for pid in begun & looked.keys() if pid not in known[-1]]  # what was known holds until it is read again
        assert sum("/task/" in path and path.endswith("/stat") for path in opened) <= READS + 8
    assert set().union(*known) == {10_000, 20_000, 30_000}
    assert all(len(pids) <= 2 for pids in known)


def test_a_process_with_too_many_threads_is_counted_and_keeps_nobody_waiting(programs: Programs) -> None:
    programs.run(10_000, ("python", 1.0), *[("python", 0.0)] * MOST)
    programs.run(20_000, *[("python", 1.0)] * 2)
    programs.look()
    assert programs.dropped == 0.0
    for _ in range(2):
        looked = programs.look()
        assert (looked[10_000], programs.dropped) == (({}, dict.fromkeys(NUMBERS, Absence.UNSUPPORTED)), 1.0)
    assert looked[20_000][0][PROCESS_WORKERS] == 2.0
    threads = programs.paces[10_000]
    for thread in [*threads][3:]:
        del threads[thread]
        shutil.rmtree(programs.tree.proc / f"10000/task/{thread}")
    assert (programs.look()[10_000], programs.dropped) == (({}, NOT_YET), 0.0)
