"""What `gpuwatch demo --help` says of the demo is what happens in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch import config, detectors, shipped
from gpuwatch.cli import demo
from gpuwatch.daemon.building import cadences
from gpuwatch.daemon.cards import of_cards
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.places import Places
from gpuwatch.rules import load as rules
from gpuwatch.rules.engine import Engine
from gpuwatch.sampling.board import Board
from gpuwatch.sources import simulated
from tests.fakes.clock import FakeClock

EVERY = {Tier.SLOW: 60, Tier.NORMAL: 10, Tier.FAST: 1}


class Onto:
    """An answer that puts every reading onto a board."""

    def __init__(self, board: Board, clock: FakeClock) -> None:
        self._board, self._clock = board, clock
        self.happened: list[Event] = []

    def reading(self, reading: Reading) -> None:
        """Post it."""
        self._board.post(reading, self._clock.mono())

    def event(self, event: Event) -> None:
        """Keep it for the next beat."""
        self.happened.append(event)

    def working(self, item: str) -> None:
        """Nothing hangs here."""

    def restart(self, reason: str) -> None:
        """Nothing has to."""

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """Nothing waits for it."""


class Course(NamedTuple):
    """What happens in the demo: what begins and ends (rule, GPU, state, severity, second), what is kept, who is on which GPU."""

    heard: list[tuple[str, str | None, str, str, int]]
    kept: list[tuple[int, Event]]
    held: dict[int, str]


def told(seconds: int, clock: FakeClock) -> Course:
    """Return what happens within so many seconds of the demo."""
    found = config.load(None, Places(Path("/nowhere"), Path("/nowhere"), Path("/nowhere")))
    found = msgspec.structs.replace(found, sources=config.Sources(simulated=config.Simulated(enabled=True)))
    board, engine = Board(cadences(found)), Engine(rules.load(shipped.folder("alerts"), {}, "none"))
    source, runner = simulated.source(found, clock), detectors.Runner(detectors.build(found, None))
    course, onto = Course([], [], {}), Onto(board, clock)
    for second in range(seconds):
        for tier, every in EVERY.items():
            if second % every == 0:
                source.ask(tier, frozenset(), onto)
        view = msgspec.structs.replace(board.view(clock.wall(), clock.mono()), events=tuple(onto.happened))
        onto.happened.clear()
        found_now = runner.run(view, clock.wall())
        course.kept.extend((second, event) for event in found_now.events)
        users = {card["gpu"]: [one["user"] for one in card["users"]] for card in of_cards(view)}
        course.held[second] = ", ".join(f"{gpu}: {' '.join(names)}" for gpu, names in users.items())
        for reading in found_now.readings:
            board.post(reading, clock.mono())
        for change in engine.beat(board.view(clock.wall(), clock.mono()), clock.mono(), found_now.evidence):
            gpu = change.target.labels.get("gpu")
            course.heard.append((change.rule, gpu, change.after.value, change.severity.value, second))
        clock.forward(1)
    return course


def test_the_demo_does_what_its_help_says(clock: FakeClock) -> None:
    assert demo.__doc__ is not None
    words = " ".join(demo.__doc__.split())
    assert "GPU 2 fails at 20 s: it is so hot within two minutes that it is critical at once, and cool again within ten" in words
    assert "GPU 5 falls off the bus at 90 s and is back 5 minutes later: critical too" in words
    assert "it is in `gpuwatch events`" in words
    heard, kept, held = told(620, clock)
    ((second, event),) = kept
    assert (second, event.kind, event.code, event.key[-1]) == (90, "xid", 79, "5")
    everybody = "0: ann, 1: ann, 2: ben, 3: ben, 4: cleo, 5: cleo, 6: dan, 7: dan"
    assert (held[80], held[120], held[619]) == (everybody, everybody.replace("5: cleo", "5: "), everybody)
    fired = {(rule, gpu): (severity, second) for rule, gpu, state, severity, second in heard if state == "firing"}
    over = {(rule, gpu): second for rule, gpu, state, _, second in heard if state == "inactive"}
    assert set(fired) == set(over) == {("gpu_overheating", "2"), ("gpu_dropped", "5")}
    severity, second = fired["gpu_overheating", "2"]
    assert (severity, 20 < second <= 120, over["gpu_overheating", "2"] <= 600) == ("critical", True, True)
    severity, second = fired["gpu_dropped", "5"]
    assert (severity, 90 <= second <= 95, 385 <= over["gpu_dropped", "5"] <= 395) == ("critical", True, True)
