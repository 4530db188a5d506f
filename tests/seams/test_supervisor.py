"""Supervisor and Probe with real worker processes, and with processes that no SIGKILL ends."""

import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch.catalogue import own
from gpuwatch.catalogue.disk import FILESYSTEM_SIZE, FILESYSTEM_STUCK
from gpuwatch.config import Store
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Tier
from gpuwatch.sampling.child import Process
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sources import wire
from tests.fakes.collecting import Scene
from tests.fakes.scripted import EVENT
from tests.fakes.undying import Undying
from tests.fakes.until import PATIENCE, SLOWER, until
from tests.fakes.written import Written

RESTARTS = own.COLLECTOR_RESTARTS
TOO_MUCH = 1 << 46  # bytes for the stack of a thread: there is none to be had


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A stage; at the end no process is left."""
    scene = Scene(tmp_path)
    yield scene
    for crew in scene.crews:
        crew.stop(SLOWER)
        assert crew.pids() == []
    until(lambda: all(child.poll() is not None for child in scene.stage.children))


def numbers(crew: Crew, source: str) -> dict[Metric, float]:
    """Return what the collector tells of one source."""
    return dict(next(reading.values for reading in crew.readings(0.0) if reading.target.key == source))


def test_readings_come_and_the_collector_tells_of_them(scene: Scene) -> None:
    crew = scene.supervisor("alpha")
    scene.beat(crew, lambda: crew.problem() == "")
    told = numbers(crew, "alpha")
    assert (told[own.COLLECTOR_SUCCESS], told[own.COLLECTOR_HUNG]) == (1.0, 0.0)
    assert [told[metric] for metric in RESTARTS.values()] == [0.0, 0.0, 0.0]
    assert 0 < told[own.COLLECTOR_DURATION] < 5
    assert scene.came[-1].at == pytest.approx(told[own.COLLECTOR_LAST_SUCCESS], abs=5)
    assert len(crew.pids()) == 1


def test_before_the_first_answer_nothing_is_claimed(scene: Scene) -> None:
    crew = scene.supervisor("alpha")
    told = numbers(crew, "alpha")
    assert not {own.COLLECTOR_SUCCESS, own.COLLECTOR_DURATION, own.COLLECTOR_LAST_SUCCESS} & told.keys()
    assert crew.problem() == "has not answered yet"


def test_a_worker_that_hangs_is_killed_replaced_and_the_next_round_is_whole(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    crew = scene.supervisor("alpha")
    scene.beat(crew, lambda: scene.came)
    scene.stage.play("alpha", all="hang")
    scene.beat(crew, lambda: numbers(crew, "alpha")[own.COLLECTOR_HUNG])
    scene.stage.play("alpha", size=7)
    scene.beat(crew, lambda: 7 in scene.values("alpha", FILESYSTEM_SIZE))
    until(lambda: crew.problem() == "")
    told = numbers(crew, "alpha")
    assert (told[own.COLLECTOR_SUCCESS], told[own.COLLECTOR_HUNG]) == (1.0, 0.0)
    assert told[RESTARTS["hang"]] >= 1
    assert len(crew.pids()) == 1
    first, *_, last = caplog.messages
    assert first.startswith("gpuwatch-test has not answered for ")
    assert last.startswith("gpuwatch-test answers again after ")


def test_a_worker_that_crashes_twenty_times_is_replaced_twenty_times(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    crew = scene.supervisor("alpha")
    scene.stage.play("alpha", all="crash")
    scene.beat(crew, lambda: numbers(crew, "alpha")[RESTARTS["crash"]] >= 20)
    assert scene.came == []
    scene.stage.play("alpha")
    scene.beat(crew, lambda: scene.came and not crew.problem())
    assert len(crew.pids()) == 1
    text = "gpuwatch-test ended unasked (killed by SIGSEGV); its values are missing until a new process answers"
    assert [text] == caplog.messages


def test_a_worker_that_asks_for_it_is_replaced(scene: Scene) -> None:
    crew = scene.supervisor("alpha")
    scene.beat(crew, lambda: scene.came)
    (before,) = crew.pids()
    scene.stage.play("alpha", all="restart")
    scene.beat(crew, lambda: before not in crew.pids())
    scene.stage.play("alpha", size=3)
    scene.beat(crew, lambda: scene.values("alpha", FILESYSTEM_SIZE)[-1] == 3)
    assert numbers(crew, "alpha")[RESTARTS["driver_change"]] >= 1
    assert numbers(crew, "alpha")[RESTARTS["crash"]] == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os\nwhile True: os.write(1, os.urandom(65536))", "sent junk"),
        ("import os, threading\nos.write(1, bytes([0, 0, 0, 9]) + b'half'); threading.Event().wait()", "has not answered"),
        ("import os\nos.write(1, bytes([0, 0, 0, 9]) + b'half')", "ended unasked"),
        ("import os, threading\nos.write(1, bytes([0, 0, 0, 2]) + b'xx'); threading.Event().wait()", "sent junk"),
        ("raise SystemExit(5)", "ended unasked"),
        ("import threading\nthreading.Event().wait()", "has not answered"),
    ],
    ids=["flood", "half a frame, then silence", "half a frame, then an end", "a frame of junk", "an end at once", "silence"],
)
def test_a_worker_that_makes_no_sense_is_replaced_by_one_that_does(scene: Scene, code: str, words: str) -> None:
    broken = [code]

    def spawn(name: str) -> Process:
        return scene.stage.run(broken.pop()) if broken else scene.stage.spawn(name)

    crew = scene.supervisor("alpha", patience=Patience(deadline=3, start=3, grace=0.3, first=0.01, limit=0.5), spawn=spawn)
    problems: set[str] = set()

    def well() -> bool:
        problems.add(crew.problem())
        return bool(scene.came)

    scene.beat(crew, well)
    assert any(problem.startswith(words) for problem in problems), problems
    assert broken == []


def test_a_worker_that_ended_before_it_was_told_anything_is_said_to_have_ended(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broken = ["raise SystemExit(5)"]

    def spawn(name: str) -> Process:
        if not broken:
            return scene.stage.spawn(name)
        child = scene.stage.run(broken.pop())
        until(lambda: child._process.poll() is not None)
        return child

    crew = scene.supervisor("alpha", spawn=spawn)
    scene.beat(crew, lambda: scene.came and not crew.problem())
    assert caplog.messages[0].startswith("gpuwatch-test ended unasked (exit status 5)"), caplog.messages


def test_a_process_that_cannot_be_started_is_tried_again(scene: Scene) -> None:
    failures = [OSError(11, "Resource temporarily unavailable")] * 3

    def spawn(name: str) -> Process:
        if failures:
            raise failures.pop()
        return scene.stage.spawn(name)

    crew = scene.supervisor("alpha", spawn=spawn)
    until(lambda: crew.problem() == "could not be started: Resource temporarily unavailable")
    scene.beat(crew, lambda: scene.came)
    assert failures == []


def test_processes_that_survive_sigkill_are_three_at_most_and_the_stop_does_not_wait_for_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    stuck: list[Undying] = []

    def spawn(name: str) -> Process:
        if len(stuck) >= 3 and stuck[0].status is None:
            raise AssertionError("a fourth process was started")
        if len(stuck) < 3:
            stuck.append(Undying(pid=len(stuck) + 1))
            return stuck[-1]
        return scene.stage.spawn(name)

    crew = scene.supervisor("alpha", patience=Patience(deadline=1, start=1.5, grace=0.05, first=0.01, limit=0.5), spawn=spawn)
    scene.beat(crew, lambda: "stuck in the kernel" in crew.problem())
    assert (crew.pids(), [process.kills for process in stuck]) == ([1, 2, 3], [1, 1, 1])
    assert numbers(crew, "alpha")[own.COLLECTOR_HUNG] == 1.0
    stuck[0].let_go()
    scene.beat(crew, lambda: scene.came)
    crew.stop(0.5)
    until(lambda: not crew._thread.is_alive())
    assert crew.pids()[:2] == [2, 3]
    for process in stuck:
        process.let_go()
    until(lambda: all(child.poll() is not None for child in scene.stage.children))
    until(lambda: all(process.output.closed for process in stuck))


class Old:
    """A process of an earlier daemon."""

    def __init__(self) -> None:
        self.gone = False

    def is_gone(self) -> bool:
        """Say whether it has ended."""
        return self.gone


def test_a_restart_of_the_daemon_adds_no_process_to_three_stuck_ones(scene: Scene) -> None:
    old = [Old(), Old(), Old()]
    crew = scene.supervisor("alpha", find=lambda _: old)
    until(lambda: "stuck in the kernel" in crew.problem())
    crew.ask(Tier.FAST)
    assert (crew.pids(), scene.stage.children) == ([], [])
    old[1].gone = True
    scene.beat(crew, lambda: scene.came)


def test_a_source_that_cannot_be_built_leaves_the_others_and_is_told(scene: Scene) -> None:
    crew = scene.supervisor("absent", "alpha")
    scene.beat(crew, lambda: scene.came and own.COLLECTOR_SUCCESS in numbers(crew, "alpha"))
    assert (numbers(crew, "absent")[own.COLLECTOR_SUCCESS], numbers(crew, "alpha")[own.COLLECTOR_SUCCESS]) == (0.0, 1.0)
    assert crew.problem().startswith("absent cannot be built: ModuleNotFoundError")


def test_a_full_queue_drops_the_oldest_and_is_counted(scene: Scene) -> None:
    busy, gate = threading.Event(), threading.Event()

    def spawn(name: str) -> Process:
        busy.set()
        gate.wait(PATIENCE)
        return scene.stage.spawn(name)

    crew = scene.supervisor("alpha", spawn=spawn)
    assert busy.wait(PATIENCE)
    for _ in range(1500):
        crew.ask(Tier.FAST)
    queue = next(reading for reading in crew.readings(0.0) if reading.target.subject is own.QUEUE)
    gate.set()
    assert (queue.target.labels, queue.values) == ({"queue": "gpuwatch-test"}, {own.QUEUE_DROPPED: 500.0})
    until(lambda: scene.came)


def test_a_worker_that_no_thread_can_listen_to_is_replaced_once_there_is_one(scene: Scene) -> None:
    def spawn(name: str) -> Process:
        threading.stack_size(0 if scene.stage.children else TOO_MUCH)
        return scene.stage.spawn(name)

    try:
        crew = scene.supervisor("alpha", patience=Patience(deadline=3, start=3, grace=0.1, first=0.01, limit=0.5), spawn=spawn)
        until(lambda: len(scene.stage.children) == 2)
        crew.ask(Tier.FAST)
        until(lambda: scene.came)
    finally:
        threading.stack_size(0)
    assert scene.stage.children[0].poll() == -signal.SIGKILL


def test_stop_ends_a_worker_that_hangs(scene: Scene) -> None:
    crew = scene.supervisor("alpha", patience=Patience(deadline=60))
    scene.stage.play("alpha", all="hang")
    crew.ask(Tier.FAST)
    until(lambda: scene.stage.children)
    crew.stop(SLOWER)
    assert crew.pids() == []
    assert scene.stage.children[0].poll() == 0  # it left at the end of its pipe and needed no signal


def test_stop_kills_a_worker_that_does_not_leave(scene: Scene) -> None:
    crew = scene.supervisor("alpha", spawn=lambda _: scene.stage.run("import threading; threading.Event().wait()"))
    until(crew.pids)
    crew.stop(3)
    assert crew.pids() == []
    assert scene.stage.children[0].poll() == -signal.SIGKILL


def test_a_probe_reads_its_sources_with_a_process_that_ends(scene: Scene) -> None:
    scene.stage.play("alpha", items=["a", "b"])
    crew = scene.probe("alpha", "beta")
    crew.ask(Tier.SLOW)
    until(lambda: scene.stage.children and not crew.pids() and not crew.problem())
    assert [reading.target.key for reading in scene.came] == ["a", "b", "beta"]
    assert [numbers(crew, source)[own.COLLECTOR_SUCCESS] for source in ("alpha", "beta")] == [1.0, 1.0]
    assert scene.stage.children[0].poll() == 0


def test_a_mount_that_hangs_is_told_and_the_rest_of_the_round_is_read(scene: Scene) -> None:
    scene.stage.play("alpha", items=["/", "/dead", "/data"], **{"/dead": "hang"})
    crew = scene.probe("alpha", "beta")
    crew.ask(Tier.SLOW)
    until(lambda: scene.values("beta", FILESYSTEM_SIZE))
    until(lambda: not crew.pids())
    assert scene.values("/dead", FILESYSTEM_STUCK) == [1.0]
    assert scene.values("/dead", FILESYSTEM_SIZE) == []
    assert scene.values("/data", FILESYSTEM_SIZE) == [1.0]
    assert [(stuck.source, stuck.item) for stuck in crew.stuck()] == [("alpha", "/dead")]
    assert tuple(numbers(crew, source)[own.COLLECTOR_HUNG] for source in ("alpha", "beta")) == (1.0, 0.0)
    scene.stage.play("alpha", items=["/", "/dead", "/data"])
    crew.ask(Tier.SLOW)
    until(lambda: scene.values("/dead", FILESYSTEM_SIZE) and not crew.pids())
    assert scene.values("/dead", FILESYSTEM_STUCK) == [1.0, 0.0]
    assert crew.stuck() == ()


@pytest.mark.parametrize("nth", range(4))
def test_whichever_item_hangs_nothing_else_is_lost(scene: Scene, nth: int) -> None:
    items = ["a", "b", "c", "d"]
    scene.stage.play("alpha", items=items, **{items[nth]: "hang"})
    crew = scene.probe("alpha", "beta")
    crew.ask(Tier.SLOW)
    until(lambda: scene.values("beta", FILESYSTEM_SIZE) and not crew.pids())
    assert [item for item in items if item != items[nth]] == [item for item in items if scene.values(item, FILESYSTEM_SIZE)]
    assert numbers(crew, "alpha")[RESTARTS["hang"]] == 1.0


@pytest.mark.parametrize("what", ["crash", "exit"])
def test_an_item_that_ends_its_process_does_not_cost_the_rest(scene: Scene, what: str) -> None:
    scene.stage.play("alpha", items=["a", "b", "c"], b=what)
    crew = scene.probe("alpha", "beta")
    crew.ask(Tier.SLOW)
    until(lambda: scene.values("beta", FILESYSTEM_SIZE) and not crew.pids())
    assert [item for item in ("a", "b", "c") if scene.values(item, FILESYSTEM_SIZE)] == ["a", "c"]
    assert numbers(crew, "alpha")[RESTARTS["crash"]] == 1.0


def test_what_a_process_wrote_before_it_ended_says_which_item_ended_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    wrote = [wire.Working(1, "alpha", "a"), wire.Working(1, "alpha", "b"), wire.Working(1, "alpha", "c")]
    children = iter([Written(4_000_000, wrote)])
    scene.stage.play("alpha", items=["a", "b", "c"])
    crew = scene.probe("alpha", spawn=lambda name: next(children, None) or scene.stage.spawn(name))
    crew.ask(Tier.SLOW)
    until(lambda: scene.came and not crew.pids())
    assert "alpha c ended the process" in caplog.text
    assert scene.stage.read("alpha") == ["a", "b"]


def test_secrets_do_not_reach_a_worker(scene: Scene) -> None:
    seen = scene.stage.folder / "seen"
    code = f"import pathlib, sys\npathlib.Path({str(seen)!r}).write_bytes(sys.stdin.buffer.read())"
    scene.stage.config = msgspec.structs.replace(
        scene.stage.config, receivers=[{"url": "hush"}], store=Store(url="postgresql://u:hush@h/d")
    )
    crew = scene.supervisor("alpha", spawn=lambda _: scene.stage.run(code))
    until(crew.pids)
    crew.stop(SLOWER)
    assert (b"alpha" in seen.read_bytes(), b"hush" in seen.read_bytes()) == (True, False)


def test_an_event_of_a_worker_arrives_whole_and_one_of_another_version_is_left_out(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    crew = scene.supervisor("alpha")
    scene.stage.play("alpha", event="from_the_future")
    scene.beat(crew, lambda: "unknown kind of event 'from_the_future' from alpha" in caplog.text)
    scene.stage.play("alpha", event=EVENT.kind)
    scene.beat(crew, lambda: scene.told)
    assert scene.told[0] == EVENT
    assert caplog.text.count("is not understood and left out") == 1
    assert crew.problem() == ""
