"""The files of followed processes that are kept open: of real processes, within bounds, and let go of."""

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuwatch.catalogue.process import PROCESS_CPU, PROCESS_RESIDENT
from gpuwatch.model.reading import Reading
from gpuwatch.sources.jobs import process
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.following import PART, Following
from gpuwatch.sources.jobs.home import Home
from gpuwatch.sources.jobs.process import Process
from gpuwatch.sources.jobs.roll import Job
from tests.fakes.cgroups import Crowd
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree
from tests.fakes.until import PATIENCE

JOB = Job("docker", "docker/1", "train", Home("docker"), Named())


class Watching(Following):
    """Follows processes that a test names, all of them on GPUs."""

    def follow(self, *those: Process) -> list[Reading]:
        """Return what is told when these are there."""
        answers = Answers()
        self.take([(one, JOB, "gpu") for one in those], {}, lambda _one, _job: {}, answers)
        return answers.readings

    def look(self) -> list[Reading]:
        """Return what is told in a fast round."""
        answers = Answers()
        self.ask(answers)
        return answers.readings


def met(proc: Path, pid: int) -> Process:
    """Return who a process is."""
    found = process.stat(str(proc), pid)
    assert found is not None
    return process.meet(str(proc), pid, found, 0, "boot")


def kept(proc: Path) -> int:
    """Return how many stat files below this /proc this process has open."""
    places = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - they come and go
    links = [str(place.readlink()) for place in places if place.is_symlink()]
    return sum(link.startswith(str(proc)) and link.removesuffix(" (deleted)").endswith("/stat") for link in links)


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    """Return a host whose processes a test makes."""
    return Crowd(HostTree(tmp_path).kernel())


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """Have this process allowed so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def over(readings: Iterable[Reading]) -> list[str]:
    """Return the pids of those that are said to be over."""
    return [one.target.labels["pid"] for one in readings if not (one.values or one.absent)]


def test_a_real_process_is_followed_by_its_file_until_it_has_ended() -> None:
    proc = Path("/proc")
    before = kept(proc)
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with closing(Watching(str(proc), FakeClock())) as following:
            (first,) = following.follow(met(proc, child.pid))
            assert first.values.keys() >= {PROCESS_CPU, PROCESS_RESIDENT}
            assert kept(proc) == before + 1
            (second,) = following.look()
            assert second.values[PROCESS_RESIDENT] > 0
            child.kill()
            child.wait(PATIENCE)
            assert (over(following.look()), kept(proc)) == ([str(child.pid)], before)
            assert following.look() == []
    finally:
        child.kill()
        child.communicate()


def test_a_zombie_is_over(crowd: Crowd) -> None:
    crowd.run(10)
    with closing(Watching(str(crowd.host.proc), FakeClock())) as following:
        following.follow(met(crowd.host.proc, 10))
        crowd.run(10, state="Z")
        assert (over(following.look()), kept(crowd.host.proc)) == (["10"], 0)


def test_a_number_that_has_gone_to_another_process_is_over_and_then_followed_anew(crowd: Crowd) -> None:
    proc = crowd.host.proc
    crowd.run(10, began=1000, cpu=5.0)
    with closing(Watching(str(proc), FakeClock())) as following:
        following.follow(met(proc, 10))
        crowd.end(10)
        crowd.run(10, began=2000, cpu=1.0)
        gone, new = following.follow(met(proc, 10))
        assert (over([gone, new]), new.values[PROCESS_CPU], kept(proc)) == (["10"], 1.0, 1)
        assert gone.target != new.target
        crowd.spend(10, 3.0)
        assert [one.values[PROCESS_CPU] for one in following.look()] == [3.0]


def test_files_are_kept_up_to_a_part_of_those_that_we_may_have_and_the_others_are_read_all_the_same(crowd: Crowd) -> None:
    proc, pids = crowd.host.proc, range(10, 50)
    for pid in pids:
        crowd.run(pid, cpu=float(pid))
    with descriptors(20 * PART):
        following = Watching(str(proc), FakeClock())
    with closing(following):
        following.follow(*(met(proc, pid) for pid in pids))
        assert kept(proc) == 20
        assert [one.values[PROCESS_CPU] for one in following.look()] == [float(pid) for pid in pids]
        for pid in (10, 45):
            crowd.end(pid)
        assert set(over(following.look())) == {"10", "45"}
        following.look()
        assert kept(proc) == 20  # another one has the place
        following.follow()
        assert kept(proc) == 0


def test_without_a_descriptor_left_a_process_is_late_and_not_over_and_the_log_says_so_once(
    crowd: Crowd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proc = crowd.host.proc
    for pid in (10, 11):
        crowd.run(pid, cpu=float(pid))
    ten, eleven = met(proc, 10), met(proc, 11)
    with closing(Watching(str(proc), FakeClock())) as following:
        following.follow(ten)
        with descriptors(1):
            with pytest.raises(OSError, match="Too many open files"):
                process.small(f"{proc}/11/stat", 10)
            assert following.follow(ten, eleven) == []
            assert [one.values[PROCESS_CPU] for one in following.look()] == [10.0]
            (begun,) = caplog.messages
            assert begun == "what some processes use cannot be read: Too many open files"
        assert [one.values[PROCESS_CPU] for one in following.look()] == [10.0, 11.0]
        following.look()
        assert caplog.messages == [begun, "what processes use can be read of all again"]


def test_who_could_not_be_read_and_has_ended_is_waited_for_no_longer(crowd: Crowd, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    crowd.run(10)
    ten = met(crowd.host.proc, 10)
    with closing(Watching(str(crowd.host.proc), FakeClock())) as following:
        with descriptors(1):
            assert following.follow(ten) == []
        assert over(following.follow()) == ["10"]
    assert len(caplog.messages) == 2
