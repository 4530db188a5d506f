"""Workers that an earlier daemon left behind, on a made-up /proc."""

import os
from pathlib import Path

import pytest

from gpuwatch.sampling.child import orphans
from gpuwatch.sources.processes import is_stuck, is_trusted

OURS = str(os.getuid())
KILLED = "0000000000000100"


def process(
    proc: Path,
    number: int,
    name: str,
    state: str = "D",
    parent: int = 1,
    *,
    since: int = 500,
    users: str = f"{OURS} {OURS} {OURS} {OURS}",
    pending: str = "0",
    threads: str = "",
) -> Path:
    """Write a process; `threads` are the states of the others than its first."""
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    tail = f"{'0 ' * 13}{1 + len(threads)} 0 {since} 0 0"
    (folder / "stat").write_text(f"{number} ({name}) {state} {parent} {number} {number} {tail}\n")
    for task, its in enumerate(state + threads, number):
        (folder / "task" / str(task)).mkdir(parents=True, exist_ok=True)
        status = f"Name:\t{name}\nState:\t{its} (so)\nUid:\t{users}\nSigPnd:\t{pending}\nShdPnd:\t0\n"
        (folder / "task" / str(task) / "status").write_text(status)
        (folder / "status").write_text(status)
    return folder


def test_a_worker_without_its_daemon_is_found_and_seen_to_end(tmp_path: Path) -> None:
    folder = process(tmp_path, 7, "gpuwatch-nvml")
    (tmp_path / "self").mkdir()
    (orphan,) = orphans("gpuwatch-nvml", tmp_path)
    assert not orphan.is_gone()
    (folder / "stat").unlink()
    assert orphan.is_gone()


@pytest.mark.parametrize(
    ("name", "state", "parent"),
    [("gpuwatch-probe", "D", 1), ("gpuwatch-nvml", "D", 4321), ("gpuwatch-nvml", "Z", 1)],
    ids=["another worker", "another daemon's", "one that only waits to be reaped"],
)
def test_what_is_no_orphan_of_ours_is_not_counted(tmp_path: Path, name: str, state: str, parent: int) -> None:
    process(tmp_path, 7, name, state, parent)
    assert orphans("gpuwatch-nvml", tmp_path) == []


@pytest.mark.parametrize(
    "users",
    ["4321 4321 4321 4321", "4321 0 0 0", "4321 0 4321 0", ""],
    ids=["a stranger's", "a set-user-ID program", "one that gives root up", "one that does not say"],
)
def test_a_process_that_a_stranger_started_is_not_counted(tmp_path: Path, users: str) -> None:
    """Anybody can give a process our name and leave it to process 1: that must not keep the daemon from its GPUs."""
    process(tmp_path, 7, "gpuwatch-nvml", users=users)
    assert orphans("gpuwatch-nvml", tmp_path) == []


def test_a_worker_of_a_daemon_that_ran_as_root_is_counted(tmp_path: Path) -> None:
    process(tmp_path, 7, "gpuwatch-nvml", users="0 0 0 0")
    assert len(orphans("gpuwatch-nvml", tmp_path)) == 1


@pytest.mark.parametrize(
    ("state", "threads", "pending", "count"),
    [("S", "", "0", 0), ("R", "", "0", 0), ("R", "", KILLED, 1), ("S", "SD", "0", 1), ("Z", "D", "0", 1), ("Z", "Z", KILLED, 0)],
    ids=["asleep", "at work", "killed and spinning", "with a stuck thread", "ended but for a stuck thread", "all threads ended"],
)
def test_only_what_is_stuck_in_the_kernel_is_counted(tmp_path: Path, state: str, threads: str, pending: str, count: int) -> None:
    process(tmp_path, 7, "gpuwatch-nvml", state, threads=threads, pending=pending)
    assert len(found := orphans("gpuwatch-nvml", tmp_path)) == count
    assert [orphan.is_gone() for orphan in found] == [False] * count


def test_a_real_process_of_our_user_is_trusted_and_not_stuck() -> None:
    assert (is_trusted(Path("/proc/self")), is_stuck(Path("/proc/self"))) == (True, False)


def test_a_worker_that_a_users_manager_took_over_is_found(tmp_path: Path) -> None:
    """`systemd --user` is a subreaper: orphans of the services below it never come to process 1."""
    process(tmp_path, os.getpid(), "gpuwatch", "S", 800)
    process(tmp_path, 800, "systemd", "S", 1)
    folder = process(tmp_path, 7, "gpuwatch-nvml", parent=800)
    process(tmp_path, 8, "gpuwatch-nvml", parent=os.getpid())  # our own is none
    (orphan,) = orphans("gpuwatch-nvml", tmp_path)
    (folder / "stat").unlink()
    assert orphan.is_gone()


def test_another_process_under_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    process(tmp_path, 7, "gpuwatch-nvml")
    (orphan,) = orphans("gpuwatch-nvml", tmp_path)
    process(tmp_path, 7, "gpuwatch-nvml", since=501)
    assert orphan.is_gone()


def test_a_name_with_brackets_and_spaces_is_read_right(tmp_path: Path) -> None:
    process(tmp_path, 7, "a) S 4 (b")
    assert len(orphans("a) S 4 (b", tmp_path)) == 1


def test_without_proc_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert orphans("gpuwatch-nvml", tmp_path / "none") == []
