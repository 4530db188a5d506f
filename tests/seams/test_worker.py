"""The worker process over its real pipe."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from gpuwatch import config as configuration
from gpuwatch.config import Config
from gpuwatch.daemon.building import PROBED
from gpuwatch.model.reading import Tier
from gpuwatch.sampling.child import Child
from gpuwatch.sources import wire
from gpuwatch.sources.worker import SOURCES
from tests.fakes.scripted import ROOT, Stage
from tests.fakes.threadless import TOO_MUCH
from tests.fakes.until import PATIENCE, SLOWER, until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Scripts and the workers that play them; all are gone at the end."""
    stage = Stage(tmp_path)
    yield stage
    for child in stage.children:
        child.dismiss()
        child.kill()
        until(lambda child=child: child.poll() is not None)  # type: ignore[misc]  # mypy cannot type a lambda's default
        child.output.close()


def begin(stage: Stage, *sources: str) -> tuple[Child, Iterator[wire.FromWorker]]:
    """Start a worker with these sources."""
    child = stage.spawn("gpuwatch-test")
    child.send(wire.pack(wire.Setup(list(sources), configuration.plain(stage.config))))
    return child, (wire.from_worker(body) for body in wire.frames(child.output))


def round_(child: Child, frames: Iterator[wire.FromWorker], number: int, tier: Tier = Tier.SLOW) -> list[wire.FromWorker]:
    """Ask and return all frames up to Done."""
    child.send(wire.pack(wire.Ask(number, tier)))
    came: list[wire.FromWorker] = []
    for frame in frames:
        came.append(frame)
        if isinstance(frame, wire.Done):
            break
    assert wire.Done(number) == came[-1]
    return came


def gots(frames: list[wire.FromWorker]) -> list[tuple[str, str]]:
    """Return source and key of the readings."""
    return [(frame.source, frame.key) for frame in frames if isinstance(frame, wire.Got)]


def lives(pid: int) -> bool:
    """Say whether a process has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_answers_reading_by_reading_and_says_what_it_touches(stage: Stage) -> None:
    stage.play("alpha", items=["a", "b"])
    child, frames = begin(stage, "alpha")
    came = round_(child, frames, 7)
    assert [wire.Working, wire.Got, wire.Working, wire.Got, wire.Done] == [type(frame) for frame in came]
    assert gots(came) == [("alpha", "a"), ("alpha", "b")]


def test_skipped_items_reach_their_source_alone(stage: Stage) -> None:
    stage.play("alpha", items=["a", "b"])
    stage.play("beta", items=["a", "b"])
    child, frames = begin(stage, "alpha", "beta")
    child.send(wire.pack(wire.Ask(1, Tier.SLOW, ["alpha:a", "beta:b"])))
    for frame in frames:
        if isinstance(frame, wire.Done):
            break
    assert (stage.read("alpha"), stage.read("beta")) == (["b"], ["a"])


def test_workers_import_nothing_that_they_do_without() -> None:
    """Each of these is memory for nothing, 0.1 to 2 MB, in every worker at once."""
    sources = sorted({place.partition(":")[0] for name, place in SOURCES.items() if name in {"nvml", *PROBED}})
    program = f"import sys, gpuwatch.sources.worker, {', '.join(sources)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60, cwd=ROOT)
    spared = {"asyncio", "difflib", "email", "http", "importlib.resources", "psutil", "random", "socket", "sqlalchemy", "ssl"}
    assert set() == spared & set(loaded.stdout.split())


def test_the_process_bears_its_name_and_one_too_long_is_cut(stage: Stage) -> None:
    child = stage.spawn("gpuwatch-a-very-long-name")
    comm = Path(f"/proc/{child.pid}/comm")
    until(lambda: comm.read_text().startswith("gpuwatch"))
    assert comm.read_text() == "gpuwatch-a-very\n"


def test_a_source_that_cannot_be_imported_does_not_cost_the_others(stage: Stage) -> None:
    child, frames = begin(stage, "absent", "alpha")
    came = round_(child, frames, 1)
    failed = [frame for frame in came if isinstance(frame, wire.Failed)]
    assert [frame.source for frame in failed] == ["absent", "absent"]  # when it was built, and tried again in the slow round
    assert failed[0].words == "cannot be built: ModuleNotFoundError: No module named 'tests.fakes.no_such_file'"
    assert gots(came) == [("alpha", "alpha")]


def test_a_source_that_cannot_be_built_is_tried_again_with_a_slow_round(stage: Stage) -> None:
    stage.play("alpha", build="not yet")
    child, frames = begin(stage, "alpha", "beta")
    came = round_(child, frames, 1, Tier.FAST)
    assert gots(came) == [("beta", "beta")]
    stage.play("alpha")
    assert gots(round_(child, frames, 2, Tier.FAST)) == [("beta", "beta")]
    assert gots(round_(child, frames, 3, Tier.SLOW)) == [("alpha", "alpha"), ("beta", "beta")]


def test_a_source_that_raises_ends_its_round_and_not_that_of_the_others(stage: Stage) -> None:
    stage.play("alpha", all="raise")
    child, frames = begin(stage, "alpha", "beta")
    came = round_(child, frames, 1)
    assert [wire.Failed(1, "alpha", "raised: ValueError: a bug of this source")] == [
        frame for frame in came if isinstance(frame, wire.Failed)
    ]
    assert gots(came) == [("beta", "beta")]
    stage.play("alpha")
    assert gots(round_(child, frames, 2)) == [("alpha", "alpha"), ("beta", "beta")]


def test_stray_prints_do_not_touch_the_frames(stage: Stage) -> None:
    stage.play("alpha", items=["a", "b"], a="print")
    child, frames = begin(stage, "alpha")
    assert gots(round_(child, frames, 1)) == [("alpha", "a"), ("alpha", "b")]


def test_a_worker_ends_at_the_end_of_its_pipe_even_while_a_source_hangs(stage: Stage) -> None:
    stage.play("alpha", all="hang", items=[])
    child, frames = begin(stage, "alpha")
    child.send(wire.pack(wire.Ask(1, Tier.FAST)))
    assert child.poll() is None
    child.dismiss()
    until(lambda: child.poll() is not None)
    assert child.poll() == 0
    assert list(frames) == []


def test_a_worker_ends_with_a_bad_frame(stage: Stage) -> None:
    child, frames = begin(stage, "alpha")
    round_(child, frames, 1)
    child.send(b"\xff\xff\xff\xff")
    until(lambda: child.poll() is not None)
    assert child.poll() == 1


def test_a_source_that_leaves_the_interpreter_ends_the_worker(stage: Stage) -> None:
    stage.play("alpha", all="exit")
    child, _ = begin(stage, "alpha")
    child.send(wire.pack(wire.Ask(1, Tier.FAST)))
    until(lambda: child.poll() is not None)
    assert child.poll() == 1


def test_a_source_whose_library_leaves_the_interpreter_when_it_is_imported_costs_itself(stage: Stage) -> None:
    stage.play("alpha", build_exit="no")
    child, frames = begin(stage, "alpha", "beta")
    came = round_(child, frames, 1, Tier.FAST)
    assert gots(came) == [("beta", "beta")]
    assert [frame.words for frame in came if isinstance(frame, wire.Failed)][-1] == "cannot be built: SystemExit: no"


def test_killing_a_worker_kills_what_it_started(stage: Stage, tmp_path: Path) -> None:
    code = f"""
        import pathlib, subprocess
        grandchild = subprocess.Popen(["sleep", "60"])
        pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(grandchild.pid))
        grandchild.wait()
    """
    child = stage.run(textwrap.dedent(code))
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    child.kill()
    until(lambda: child.poll() is not None)
    assert child.poll() == -signal.SIGKILL
    assert not lives(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("way", ["kill", "crash", "dismiss"])
def test_nothing_stays_of_a_smartctl_that_is_a_wrapper_and_forks(stage: Stage, tmp_path: Path, way: str) -> None:
    """A run leads a process group of its own, and only the first process of it dies with the worker."""
    wrapper = tmp_path / "smartctl"
    wrapper.write_text(f"#!/bin/sh\nsleep 60 &\necho $$ $! > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pids\nsleep 60\n")
    wrapper.chmod(0o755)
    code = f"""
        import os, sys, threading
        from gpuwatch.sources.program import Runner
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        Runner().run([{str(wrapper)!r}], 50)
    """
    child = stage.run(textwrap.dedent(code))
    until((tmp_path / "pids").exists)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert [os.getpgid(pid) for pid in pids] == [pids[0]] * 2
    assert pids[0] != child.pid
    if way == "crash":
        os.kill(child.pid, signal.SIGSEGV)
    if way == "dismiss":
        child.dismiss()
    if way != "kill":
        until(lambda: child._process.poll() is not None and not lives(pids[0]))
        assert (lives(pids[1]), child.poll()) == (True, None)
    child.kill()
    until(lambda: child.poll() is not None)
    assert [lives(pid) for pid in pids] == [False, False]
    assert child.poll() == {"kill": -signal.SIGKILL, "crash": -signal.SIGSEGV, "dismiss": 0}[way]


def test_a_worker_is_there_until_what_it_started_is_gone(stage: Stage, tmp_path: Path) -> None:
    code = f"""
        import os, pathlib, subprocess
        grandchild = subprocess.Popen(["sleep", "60"])
        pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(grandchild.pid))
        os._exit(0)
    """
    child = stage.run(textwrap.dedent(code))
    until(lambda: child._process.poll() is not None)
    assert child.poll() is None
    child.kill()
    until(lambda: child.poll() is not None)
    assert child.poll() == 0


@pytest.mark.parametrize(
    ("journal", "head"),
    [(True, "<3>gpuwatch-test: source absent cannot be built"), (False, "20")],
    ids=["to the journal", "to a terminal"],
)
def test_a_worker_logs_to_stderr_with_priorities_where_that_is_the_journal(journal: bool, head: str) -> None:
    reading, writing = os.pipe()
    seen = os.fstat(writing)
    environment = {"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino}"} if journal else {}
    outer = {key: value for key, value in os.environ.items() if key != "JOURNAL_STREAM"}
    command = [sys.executable, "-m", "tests.fakes.scripted", "gpuwatch-test"]
    frame = wire.pack(wire.Setup(["absent"], configuration.plain(Config())))
    pipes = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env={**outer, **environment}, stdin=pipes, stdout=pipes, stderr=writing) as child:
        os.close(writing)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(frame)
        child.stdin.flush()
        assert isinstance(wire.from_worker(next(wire.frames(cast("BinaryIO", child.stdout)))), wire.Failed)
        child.stdin.close()
        with os.fdopen(reading) as said:
            lines = said.read().splitlines()
    assert lines[0].startswith(head)
    assert "gpuwatch-test: source absent cannot be built: ModuleNotFoundError" in lines[0]
    assert all(line.startswith("<3>") for line in lines) == journal


def test_a_process_that_does_not_read_its_pipe_is_not_waited_for(stage: Stage) -> None:
    child = stage.run("import threading; threading.Event().wait()")
    assert child.send(b"x" * 10)
    assert not child.send(b"x" * 200_000)


@pytest.mark.parametrize("leak", [False, True], ids=["its pipe ends", "a copy of its pipe stays open"])
def test_kill_9_of_the_daemon_ends_a_hanging_worker_within_a_second(tmp_path: Path, leak: bool) -> None:
    Stage(tmp_path).play("alpha", all="hang")
    code = f"""
        import os, subprocess, sys, threading
        from pathlib import Path
        from gpuwatch import config
        from gpuwatch.model.reading import Tier
        from gpuwatch.sources import wire
        from tests.fakes.scripted import Stage
        stage = Stage(Path({str(tmp_path)!r}))
        child = stage.spawn("gpuwatch-test")
        child.send(wire.pack(wire.Setup(["alpha"], config.plain(stage.config))))
        child.send(wire.pack(wire.Ask(1, Tier.FAST)))
        holder = 0
        if {leak}:
            os.set_inheritable(child._input, True)
            holder = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL).pid
        comm = Path(f"/proc/{{child.pid}}/comm")
        while comm.read_text() != "gpuwatch-test\\n":
            threading.Event().wait(0.01)
        print(child.pid, holder, flush=True)
        threading.Event().wait()
    """
    daemon = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, cwd=ROOT)
    assert daemon.stdout is not None
    worker, holder = (int(part) for part in daemon.stdout.readline().split())
    is_there = Path(f"/proc/{worker}/stat").exists
    assert is_there()
    daemon.kill()
    daemon.wait(PATIENCE)
    try:
        until(lambda: not is_there() or " Z " in Path(f"/proc/{worker}/stat").read_text(), 1 + SLOWER)
    finally:
        daemon.stdout.close()
        if holder:
            os.kill(holder, signal.SIGKILL)


def test_a_worker_without_a_thread_to_listen_with_ends_with_one_line() -> None:
    program = (
        f"import threading; threading.stack_size({TOO_MUCH}); from gpuwatch.sources.worker import main; main(['gpuwatch-x'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, input=b"", capture_output=True, timeout=PATIENCE, check=False
    )
    line = "gpuwatch-x: can't start new thread (limits: ulimit -u, TasksMax, memory), so this worker ends\n"
    assert (done.returncode, done.stderr.decode()) == (1, line)
