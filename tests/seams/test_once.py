"""`once` with real worker processes: what came, what did not, and why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.reading import Tier
from gpuwatch.sampling.once import once
from tests.fakes.scripted import Stage
from tests.fakes.threadless import threadless
from tests.fakes.until import PATIENCE, until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage; at the end no process is left."""
    stage = Stage(tmp_path)
    yield stage
    until(lambda: all(child.poll() is not None for child in stage.children))


def test_once_asks_for_every_tier_and_leaves_nothing_behind(stage: Stage) -> None:
    found = once(["alpha", "beta"], stage.config, PATIENCE, stage.spawn)
    assert ([(name, tier) for tier in Tier for name in ("alpha", "beta")], "") == (
        [(reading.source, reading.tier) for reading in found.readings],
        found.problem,
    )
    assert stage.children[0].poll() is not None


def test_once_gives_what_came_and_says_what_did_not(stage: Stage) -> None:
    stage.play("alpha", items=["a", "b"], b="hang")
    found = once(["alpha"], stage.config, 5, stage.spawn)
    assert (
        [reading.target.key for reading in found.readings],
        found.problem,
    ) == (["a"], "no answer in time, while reading alpha b")
    assert stage.children[0].poll() is not None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ({"all": "crash"}, "the worker process ended (killed by SIGSEGV)"),
        ({"all": "exit"}, "the worker process ended (exit status 1)"),
        ({"all": "raise"}, "alpha raised: ValueError: a bug of this source"),
        ({"build": "no library"}, "alpha cannot be built: RuntimeError: no library"),
        ({"all": "restart"}, "the worker process has to be replaced (driver_change); try again"),
    ],
)
def test_once_says_why_nothing_came(stage: Stage, script: dict[str, str], problem: str) -> None:
    stage.play("alpha", **script)
    assert ([], problem) == (
        (found := once(["alpha"], stage.config, PATIENCE, stage.spawn)).readings,
        found.problem,
    )
    assert stage.children[0].poll() is not None


def test_a_worker_that_no_thread_can_listen_to_is_ended_and_said(stage: Stage) -> None:
    with threadless():
        found = once(["alpha"], stage.config, PATIENCE, stage.spawn)
    assert (found.readings, found.problem) == ([], "the worker process could not be listened to: can't start new thread")
    assert stage.children[0].poll() is not None


def test_the_real_worker_reads_this_host(stage: Stage) -> None:
    found = once(["host"], stage.config, PATIENCE)
    assert found.problem == ""
    assert any(reading.target.subject.name == "host" for reading in found.readings)
