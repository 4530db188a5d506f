"""Who is at work on the driver, and who has its nodes open."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.sources.holders import Holders, holders
from gpuwatch.sources.installers import LOCK, at_work, listed

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"


def process(proc: Path, pid: int, name: str, uid: int = 0) -> None:
    """Have a process in a tree of our own."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    (proc / str(pid) / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


@contextmanager
def holding(path: Path) -> Iterator[int]:
    """Have another process hold a lock on this file, and keep it open."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.communicate()


@pytest.mark.parametrize(
    ("name", "uid", "who"),
    [
        ("nvidia-installe", 0, "nvidia-installe (pid 4711)"),
        ("NVIDIA-Linux-x8", 0, "NVIDIA-Linux-x8 (pid 4711)"),
        ("nvidia-installe", 4242, ""),  # anybody can name a process so
        ("nvidia-smi", 0, ""),
    ],
)
def test_an_installer_is_known_by_name_and_by_whose_it_is(tmp_path: Path, name: str, uid: int, who: str) -> None:
    process(tmp_path / "proc", 4711, name, uid)
    assert at_work(tmp_path / "proc", tmp_path) == who


def test_a_package_manager_is_known_by_its_lock_while_it_holds_it(tmp_path: Path) -> None:
    lock, proc = tmp_path / LOCK, tmp_path / "proc"
    lock.parent.mkdir(parents=True)
    lock.touch()
    proc.mkdir()
    assert at_work(proc, tmp_path) == ""
    with holding(lock) as pid:
        process(proc, pid, "apt-get")
        assert at_work(proc, tmp_path) == f"apt-get (pid {pid})"
        assert listed(Path("/proc"), lock) == pid  # as it is found out where the file may not be opened
    assert (at_work(proc, tmp_path), listed(Path("/proc"), lock)) == ("", 0)


def test_a_lock_of_our_own_process_is_none(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert at_work(tmp_path / "proc", tmp_path) == ""


@pytest.mark.parametrize("junk", ["", "1: POSIX\n", "1: POSIX ADVISORY WRITE x 00:00:0 0 EOF\n", "\x00\n"])
def test_a_list_of_locks_that_makes_no_sense_names_nobody(tmp_path: Path, junk: str) -> None:
    (tmp_path / "locks").write_text(junk)
    (tmp_path / "lock").touch()
    assert listed(tmp_path, tmp_path / "lock") == 0


def test_who_has_a_node_open_is_named_by_pid_and_name_alone(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    with holding(node) as pid:
        found = holders(nodes=str(tmp_path / "nvidia"))
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        assert (found.found, str(found)) == ({pid: name}, f"{name} (pid {pid})")
    assert holders(nodes=str(tmp_path / "nvidia")).found == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_whoever_may_not_look_is_told_how_many_were_hidden(tmp_path: Path) -> None:
    code = "import os; from gpuwatch.sources.holders import holders; os.setuid(65534); print(holders().hidden)"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert int(done.stdout) > 0, done


def test_a_look_without_time_says_that_it_is_not_whole() -> None:
    assert holders(seconds=-1.0) == Holders({}, 0, is_whole=False)


def test_many_holders_are_counted_and_not_all_named() -> None:
    assert str(Holders(dict.fromkeys(range(23), "x"), 0, is_whole=True)).endswith("x (pid 19), and 3 more")
