"""Workers that an earlier daemon left behind, on a made-up /proc."""

import os
from pathlib import Path

import pytest

from gpuwatch.sampling.child import orphans

TAIL = "0 " * 15


def process(proc: Path, number: int, name: str, state: str = "D", parent: int = 1, *, since: int = 500) -> Path:
    """Write a process."""
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "stat").write_text(f"{number} ({name}) {state} {parent} {number} {number} {TAIL}{since} 0 0\n")
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
