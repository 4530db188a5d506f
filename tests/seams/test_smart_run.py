"""One run of smartctl, as a real process: it ends in time whatever it does, and nothing of it stays."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuwatch.sources import program as running
from gpuwatch.sources.program import Ending, Run, Runner, find
from gpuwatch.sources.smart.left_over import left_over
from tests.fakes.smartctl import FakeSmartctl, garbage, half, hang, replay
from tests.fakes.until import PATIENCE, SLOWER, until

SHORT = 2.0  # seconds: time for a smartctl to start and to note that it was called, also on a slow machine


@pytest.fixture
def fake(tmp_path: Path) -> FakeSmartctl:
    """A smartctl."""
    return FakeSmartctl(tmp_path / "smartctl")


def gone(pid: int) -> bool:
    """Say whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_output_and_exit_status_come_back(fake: FakeSmartctl) -> None:
    fake.answers("sda", garbage(b"hello", status=68))
    assert Run(Ending.EXITED, 68, b"hello") == Runner().run([str(fake.program), "-H", "/dev/sda"], PATIENCE)


def test_it_runs_in_the_c_locale_without_input_in_a_group_of_its_own(fake: FakeSmartctl) -> None:
    fake.answers("sda", garbage(b""))
    Runner().run([str(fake.program), "-H", "/dev/sda"], PATIENCE)
    (call,) = fake.calls()
    assert (call.locale, call.stdin, call.leads) == ("C", "/dev/null", True)


@pytest.mark.parametrize("output", [False, True], ids=["silent", "after a first byte"])
def test_a_call_that_hangs_and_ignores_sigterm_is_killed_in_time(fake: FakeSmartctl, output: bool) -> None:
    fake.answers("sda", hang(output=output))
    started = time.monotonic()
    assert Ending.TIMEOUT is Runner().run([str(fake.program), "/dev/sda"], SHORT).ending
    assert SHORT <= time.monotonic() - started < SHORT + running.GRACE + SLOWER
    assert gone(fake.calls()[0].pid)


def test_its_children_are_killed_with_it(fake: FakeSmartctl) -> None:
    fake.answers("sda", hang(child=True))
    Runner().run([str(fake.program), "/dev/sda"], SHORT)
    child = fake.child()
    assert child is not None
    until(lambda: gone(child))


@pytest.mark.parametrize("ending", ["too much output", "close"])
def test_a_child_in_a_session_of_its_own_is_killed_with_it(tmp_path: Path, ending: str) -> None:
    note = tmp_path / "pid"
    child = f"import os, time; open({str(note)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(120)"
    start = f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.DEVNULL, start_new_session=True)"
    flood = f"print('x' * (sys.argv[1] != 'close') * {2 * running.LIMIT}, flush=True)"
    lines = ["import os, subprocess, sys, time", start, f"while not os.path.exists({str(note)!r}): time.sleep(0.01)", flood]
    runner = Runner()
    argv = [sys.executable, "-c", "\n".join([*lines, "child.wait()"]), ending]
    thread = threading.Thread(target=lambda: runner.run(argv, 2 * PATIENCE))
    thread.start()
    until(lambda: note.exists() and note.read_text().endswith("\n"))
    if ending == "close":
        runner.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    pid = int(note.read_text())
    until(lambda: gone(pid))


def test_a_process_that_closes_its_output_and_stays_is_killed() -> None:
    started = time.monotonic()
    run = Runner().run([sys.executable, "-c", "import os, time; os.close(1); time.sleep(60)"], SHORT)
    assert Ending.TIMEOUT is run.ending
    assert time.monotonic() - started < SHORT + running.GRACE + SLOWER


def test_too_much_output_is_cut_and_the_process_killed(fake: FakeSmartctl) -> None:
    fake.answers("sda", garbage(b"x" * 1024, times=8 * 1024))
    assert Ending.FLOOD is Runner().run([str(fake.program), "/dev/sda"], PATIENCE).ending
    assert gone(fake.calls()[0].pid)


def test_a_death_by_signal_is_told_with_what_was_printed(fake: FakeSmartctl, tmp_path: Path) -> None:
    capture = tmp_path / "capture.json"
    capture.write_text("0123456789")
    fake.answers("sda", half(capture))
    assert Run(Ending.SIGNALLED, signal.SIGKILL, b"01234") == Runner().run([str(fake.program), "/dev/sda"], PATIENCE)


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    script = tmp_path / "not_a_program"
    script.write_text("\x00")
    assert Runner().run([str(script)], PATIENCE).status == errno.EACCES
    script.chmod(0o755)
    for path, code in ((script, errno.ENOEXEC), (tmp_path / "none", errno.ENOENT)):
        assert Run(Ending.REFUSED, code) == Runner().run([str(path)], PATIENCE)


def test_a_process_that_survives_sigkill_is_left_alone_and_the_next_one_runs(fake: FakeSmartctl) -> None:
    """As one in uninterruptible sleep does: here SIGKILL is not sent, which to us looks the same."""
    fake.answers("sda", hang())
    fake.answers("sdb", garbage(b"fine"))
    asked: list[tuple[int, int]] = []
    runner = Runner(kill=lambda pid, number: asked.append((pid, number)))
    started = time.monotonic()
    assert Run(Ending.STUCK) == runner.run([str(fake.program), "/dev/sda"], SHORT)
    assert time.monotonic() - started < SHORT + running.GRACE + SLOWER
    (call,) = fake.calls()
    assert [(call.pid, signal.SIGKILL)] == asked
    assert Run(Ending.EXITED, 0, b"fine") == runner.run([str(fake.program), "/dev/sdb"], PATIENCE)
    os.kill(call.pid, signal.SIGKILL)
    until(lambda: gone(call.pid))
    runner.run(["/bin/true"], PATIENCE)
    assert not Path(f"/proc/{call.pid}").exists()  # reaped by the next run


def test_close_ends_a_run_at_once(fake: FakeSmartctl) -> None:
    fake.answers("sda", hang())
    runner = Runner()
    found: list[Run] = []
    thread = threading.Thread(target=lambda: found.append(runner.run([str(fake.program), "/dev/sda"], 15)))
    thread.start()
    until(fake.calls)
    runner.close()
    thread.join(PATIENCE)
    assert [run.ending for run in found] == [Ending.TIMEOUT]


def test_a_run_dies_with_the_process_that_made_it(fake: FakeSmartctl) -> None:
    fake.answers("sda", hang())
    program = f"from gpuwatch.sources.program import Runner; Runner().run([{str(fake.program)!r}, '/dev/sda'], 30)"
    with subprocess.Popen([sys.executable, "-c", program]) as worker:
        until(fake.calls)
        worker.kill()
    until(lambda: gone(fake.calls()[0].pid))


def test_a_hundred_runs_leave_no_descriptor_and_no_process(fake: FakeSmartctl) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    runner = Runner()
    for _ in range(100):
        runner.run(["/bin/true"], PATIENCE)
    assert before == len(list(Path("/proc/self/fd").iterdir()))


def test_a_name_is_looked_up_in_sbin_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find("ldconfig") in ("/usr/sbin/ldconfig", "/sbin/ldconfig")
    assert find("no-such-program-anywhere") is None


def process(
    proc: Path,
    pid: int,
    *,
    comm: str = "smartctl",
    state: str = "D",
    age: float = 100.0,
    node: str = "/dev/sda",
    users: str = f"{os.getuid()}\t" * 4,
) -> None:
    """Make the folder of a process that started `age` seconds ago, 1000 s after boot."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    ticks = int((1000 - age) * os.sysconf("SC_CLK_TCK"))
    (proc / "uptime").write_text("1000.00 3000.00\n")
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "stat").write_text(f"{pid} (smart) ctl) {state} " + "0 " * 18 + f"{ticks} 0 0\n")
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{users}\n")
    (folder / "cmdline").write_bytes(f"/usr/sbin/smartctl\0-H\0{node}\0".encode())


def test_only_an_old_smartctl_in_uninterruptible_sleep_is_left_over(tmp_path: Path) -> None:
    process(tmp_path, 1, node="/dev/sda")
    process(tmp_path, 2, node="/dev/sdb", state="S")
    process(tmp_path, 3, node="/dev/sdc", age=5)
    process(tmp_path, 4, node="/dev/sdd", comm="dd")
    (tmp_path / "5").mkdir()  # it ended while we looked
    process(tmp_path, 6, node="/dev/sde", users="0 0 0 0")
    assert frozenset({"/dev/sda", "/dev/sde"}) == left_over(tmp_path, "/usr/sbin/smartctl", 30.0)
    assert frozenset() == left_over(tmp_path / "none", "/usr/sbin/smartctl", 30.0)


@pytest.mark.parametrize("users", ["4321 4321 4321 4321", "4321 0 0 0"], ids=["a stranger's", "a set-user-ID program"])
def test_a_smartctl_that_a_stranger_started_blinds_no_disk(tmp_path: Path, users: str) -> None:
    """A process that waits for its vfork() is in state D for as long as it likes, and its name is anybody's choice."""
    process(tmp_path, 1, users=users)
    assert frozenset() == left_over(tmp_path, "/usr/sbin/smartctl", 30.0)


def test_a_real_run_is_not_taken_for_a_left_over_one(fake: FakeSmartctl) -> None:
    fake.answers("sda", replay(fake.program, status=0))
    Runner().run([str(fake.program), "/dev/sda"], PATIENCE)
    assert frozenset() == left_over(Path("/proc"), str(fake.program), 0.0)
