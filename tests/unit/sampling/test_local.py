"""The collector that is a thread of the daemon."""

import logging
import threading
from collections.abc import Iterator

import pytest

from gpuwatch.catalogue import own
from gpuwatch.catalogue.host import HOST, LOAD1
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.local import Local
from gpuwatch.sources.source import Answer
from tests.fakes.clock import FakeClock
from tests.fakes.until import PATIENCE, until


class Gated:
    """A source whose rounds wait for the test."""

    def __init__(self) -> None:
        self.asked: list[Tier] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: BaseException | None = None
        self.is_closed = False

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Give one reading when the gate is open."""
        self.asked.append(tier)
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        target = Target(subject=HOST, key="")
        answer.reading(Reading(source="host", tier=tier, target=target, at=50.0, took=0.0, values={LOAD1: 1.0}))
        answer.done()

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


class Scene:
    """A collector, its source, its clock, and what came."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.source = clock, Gated()
        self.came: list[Reading] = []
        self.told_of: list[Event] = []
        self.local = Local("host", self.source, post=self.came.append, happened=self.told_of.append, clock=clock, deadline=5)
        self.local.start()

    def told(self) -> dict[Metric, float]:
        """Return what the collector tells of itself."""
        return dict(self.local.readings(0.0)[0].values)


@pytest.fixture
def scene(clock: FakeClock) -> Iterator[Scene]:
    """A running collector, stopped at the end."""
    scene = Scene(clock)
    yield scene
    scene.source.gate.set()
    scene.local.stop(5)
    assert scene.source.is_closed


def test_an_ask_is_answered_and_told(scene: Scene) -> None:
    assert own.COLLECTOR_SUCCESS not in scene.told()
    scene.local.ask(Tier.FAST)
    until(lambda: own.COLLECTOR_SUCCESS in scene.told())
    told = scene.told()
    assert [told[own.COLLECTOR_SUCCESS], told[own.COLLECTOR_HUNG], told[own.COLLECTOR_LAST_SUCCESS]] == [1.0, 0.0, 50.0]
    assert (len(scene.came), scene.local.problem(), scene.local.pids()) == (1, "", [])


def test_a_tier_under_way_is_not_asked_again(scene: Scene) -> None:
    scene.source.gate.clear()
    for _ in range(100):
        scene.local.ask(Tier.FAST)
        scene.local.ask(Tier.SLOW)
    until(lambda: scene.source.asked)
    scene.source.gate.set()
    until(lambda: len(scene.came) == 2)
    assert scene.source.asked == [Tier.FAST, Tier.SLOW]
    scene.local.ask(Tier.FAST)
    until(lambda: len(scene.came) == 3)


def test_a_round_that_does_not_return_is_told_and_waited_for(scene: Scene) -> None:
    scene.local.ask(Tier.FAST)
    until(lambda: scene.told().get(own.COLLECTOR_SUCCESS))
    scene.source.gate.clear()
    scene.local.ask(Tier.FAST)
    until(lambda: len(scene.source.asked) == 2)
    scene.clock.forward(6)
    told = scene.told()
    assert (told[own.COLLECTOR_HUNG], told[own.COLLECTOR_DURATION], scene.local.problem()) == (
        1.0,
        6.0,
        "has not answered for 6 s",
    )
    scene.source.gate.set()
    until(lambda: not scene.local.problem())
    assert scene.told()[own.COLLECTOR_HUNG] == 0.0


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit("x")])
def test_a_source_that_raises_is_said_once_and_asked_again(
    scene: Scene, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level(logging.INFO)
    scene.source.error, said = error, f"raised {type(error).__name__}: x"
    for count in range(1, 4):
        scene.local.ask(Tier.FAST)
        until(lambda count=count: len(scene.source.asked) == count and scene.local.problem() == said)  # type: ignore[misc]  # default
        until(lambda: scene.told().get(own.COLLECTOR_SUCCESS) == 0.0 and not scene.local._open)
    assert caplog.messages == ["host raised; it is asked again at its pace"]
    scene.source.error = None
    scene.local.ask(Tier.FAST)
    until(lambda: scene.came and not scene.local.problem())
    assert scene.told()[own.COLLECTOR_SUCCESS] == 1.0
    assert caplog.messages[1:] == ["host answers again"]


def test_stop_does_not_wait_for_a_round_that_does_not_return(clock: FakeClock) -> None:
    scene = Scene(clock)
    scene.source.gate.clear()
    scene.local.ask(Tier.FAST)
    until(lambda: scene.source.asked)
    scene.local.stop(0.05)
    assert not scene.source.is_closed  # it is still in use
    scene.source.gate.set()
    until(lambda: not scene.local._thread.is_alive())
