"""Collectors that are paused: their processes end, others are not started, and one that does not end is named by its pid."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.model.clock import SystemClock
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling.child import Process
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.probe import Probe
from gpuwatch.sampling.supervisor import Supervisor
from tests.fakes.scripted import Stage
from tests.fakes.undying import Undying
from tests.fakes.until import SLOWER, until

QUICK = Patience(deadline=5.0, start=20, grace=0.1, first=0.01, limit=0.05, steady=60)


def crew(kind: type[Supervisor] | type[Probe], stage: Stage, came: list[Reading], spawn: Callable[[str], Process]) -> Crew:
    """Return a collector that has not begun."""
    return kind(
        "gpuwatch-test",
        ["alpha"],
        config=stage.config,
        post=came.append,
        happened=lambda _: None,
        clock=SystemClock(),
        patience=QUICK,
        spawn=spawn,
    )


@pytest.mark.parametrize("kind", [Supervisor, Probe])
def test_a_paused_collector_has_no_process_until_it_goes_on(tmp_path: Path, kind: type[Supervisor] | type[Probe]) -> None:
    stage, came = Stage(tmp_path), list[Reading]()
    paused = crew(kind, stage, came, stage.spawn)

    def answers() -> bool:
        paused.ask(Tier.FAST)
        return bool(came)

    paused.pause()
    paused.start()
    paused.ask(Tier.FAST)
    until(lambda: paused.problem() == "")
    assert (paused.pids(), stage.children, came) == ([], [], [])
    paused.go_on()
    until(answers)
    paused.pause()
    until(lambda: paused.pids() == [])
    begun = len(stage.children)
    came.clear()
    paused.ask(Tier.FAST)
    assert (paused.pids(), paused.problem(), len(stage.children)) == ([], "", begun)
    paused.go_on()
    until(answers)
    paused.stop(SLOWER)
    assert paused.pids() == []
    until(lambda: all(child.poll() is not None for child in stage.children))


def test_a_process_that_a_pause_cannot_end_stays_known_by_its_pid(tmp_path: Path) -> None:
    stage, came, stuck = Stage(tmp_path), list[Reading](), Undying(pid=4711)
    paused = crew(Supervisor, stage, came, lambda _: stuck)
    paused.start()
    until(lambda: paused.pids() == [4711])
    paused.pause()
    until(lambda: stuck.kills == 1)
    assert paused.pids() == [4711]
    stuck.let_go()
    until(lambda: paused.pids() == [])
    paused.stop(SLOWER)
    until(lambda: stuck.output.closed)
