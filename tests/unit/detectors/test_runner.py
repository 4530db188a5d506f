"""The detectors together: one that fails, states that survive, one derived reading a target."""

import logging
from collections.abc import Callable

import msgspec
import pytest

from gpuwatch import detectors
from gpuwatch.catalogue.derived import EXPECTED, STATE, TEMPERATURE_HEADROOM, UP, WORDS
from gpuwatch.catalogue.gpu import GPUS
from gpuwatch.config import Config
from gpuwatch.detectors.accumulate import State as Sums
from gpuwatch.detectors.accumulate import Sum
from gpuwatch.detectors.reboot import Before
from gpuwatch.detectors.usage import Account, Book
from gpuwatch.detectors.usage import State as Books
from gpuwatch.model.finding import Findings
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from tests.fakes.story import LOST, START, Story


class Nothing(msgspec.Struct):
    """The state of the moody detector."""

    beats: int = 0


class Moody:
    """A detector that fails while `angry`."""

    name = "moody"
    version = 2
    angry = False

    def initial(self) -> Nothing:
        """Return nothing."""
        return Nothing()

    def step(self, state: Nothing, view: View, wall: float) -> tuple[Nothing, Findings]:
        """Count the beats, or fail."""
        if self.angry:
            raise KeyError("a mistake")
        return Nothing(state.beats + 1), Findings()


def test_one_detector_that_fails_costs_the_others_nothing_and_is_said_once(
    caplog: pytest.LogCaptureFixture, tell: Callable[..., Story]
) -> None:
    story, moody = tell(gpus=2), Moody()
    story.runner = detectors.Runner((moody, *detectors.build(Config(), None)))
    with caplog.at_level(logging.INFO):
        story.at(10)
        moody.angry = True
        story.at(40)
        assert (story.value(1, UP), story.runner.problem()) == (1, "detectors that fail: moody")
        moody.angry = False
        story.at(50)
    assert [record.getMessage() for record in caplog.records] == [
        "detector moody failed: nothing is derived by it until it works again",
        "detector moody works again, after 30 failures",
    ]
    assert (story.runner.failures["moody"], story.runner.states["moody"].beats, story.runner.problem()) == (30, 20, "")


def test_what_several_detectors_say_of_a_gpu_is_one_reading(tell: Callable[..., Story]) -> None:
    story = tell(gpus=1).gpu(0, slowdown=93.0).at(5)
    found = story.runner.run(story.board.view(story.wall, story.mono), story.wall).readings
    targets = [reading.target for reading in found]
    assert len(targets) == len(set(targets))
    card = next(reading for reading in found if UP in reading.values)
    assert (card.values[TEMPERATURE_HEADROOM], card.values[STATE["ok"]], card.target.labels["gpu"]) == (53.0, 1.0, "0")


def test_states_come_back_and_those_of_another_version_begin_afresh(caplog: pytest.LogCaptureFixture) -> None:
    first = detectors.Runner([Moody()])
    for beat in range(3):
        first.run(View(beat, {}), beat)
    kept = {name: (version, blob) for name, version, blob in first.dump()}
    same, other, broken, deep, empty = (detectors.Runner([Moody()]) for _ in range(5))
    same.restore(kept.get)
    other.restore(lambda name: (1, kept[name][1]))
    damaged: dict[str, tuple[int, bytes]] = {"moody": (2, b"\xff")}
    nothing: dict[str, tuple[int, bytes]] = {}
    broken.restore(damaged.get)
    damaged["moody"] = (2, b"\x81\xa1x" + b"\x91" * 5000 + b"\x90")  # a field that we do not know, nested without an end
    deep.restore(damaged.get)
    empty.restore(nothing.get)
    assert [runner.states["moody"].beats for runner in (same, other, broken, deep, empty)] == [3, 0, 0, 0, 0]
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "its state is of version 1, not 2",
        "its state cannot be read",
        "its state cannot be read",
    ]


def test_every_state_survives_the_store(tell: Callable[..., Story]) -> None:
    story = tell(gpus=2, expected=3).at(30)
    story.gpu(1, fault=LOST).at(40)
    story.save()
    again = detectors.Runner(detectors.build(story.config, None))
    again.restore(story.blobs.get)
    for state in story.runner.states.values():
        if hasattr(state, "clock"):
            state.clock.mono = None  # the one thing that is of no use to another process
    assert again.dump(clean=True) == story.runner.dump(clean=True)


def test_every_piece_of_evidence_has_the_words_that_are_declared(tell: Callable[..., Story]) -> None:
    before = Before(boot_id="boot-0", clean=False, at=START - 10)
    story = tell(gpus=3, expected=4, before=before).at(40)
    story.gpu(1, fault=LOST).at(60)
    evidence = story.runner.run(story.board.view(story.wall, story.mono), story.wall).evidence
    assert {metric for _, metric in evidence} == {
        STATE["lost"],
        STATE["missing"],
        *(m for m in WORDS if m.subject.name == "host"),
    }
    assert all({*found.words, *found.otherwise} == set(WORDS[metric]) for (_, metric), found in evidence.items())


def test_the_inventory_says_how_many_gpus_are_expected(tell: Callable[..., Story]) -> None:
    every = Target(subject=GPUS, key="")
    story = tell(gpus=3).at(30)
    story.gpu(1, fault=LOST).at(60)
    assert story.board.view(story.wall, story.mono).value(every, EXPECTED) == 3
    story = tell(gpus=3, expected=4).at(30)
    assert story.board.view(story.wall, story.mono).value(every, EXPECTED) == 4


def test_sums_that_have_begun_go_on_where_the_old_ones_come_late() -> None:
    """A counter that leaps to its old total would look like a huge rate."""
    old, begun, calm = (detectors.Runner(detectors.build(Config(), None)) for _ in range(3))
    old.states["accumulate"] = Sums({"GPU-1": {"energy_joules_total": Sum(total=1e9)}})
    begun.states["accumulate"] = Sums({"GPU-1": {"energy_joules_total": Sum(total=5.0)}})
    for present, total in ((begun, 5.0), (calm, 1e9)):
        fresh = detectors.Runner(detectors.build(Config(), None))
        fresh.restore({name: (version, blob) for name, version, blob in old.dump(clean=True)}.get)
        fresh.keep_counts(present)
        assert fresh.states["accumulate"].gpus["GPU-1"]["energy_joules_total"].total == total


def test_counters_that_are_told_as_they_are_begin_at_0_after_a_kill() -> None:
    """A fall is taken for a reset and the whole value counted again, so that what a kill leaves must not be gone on with."""
    old, fresh = (detectors.Runner(detectors.build(Config(), None)) for _ in range(2))
    old.states["accumulate"] = Sums({"GPU-1": {"energy_joules_total": Sum(total=1e9)}})
    fresh.restore({name: (version, blob) for name, version, blob in old.dump()}.get)
    assert fresh.states["accumulate"] == Sums()


def test_accounts_that_come_late_are_added_to_what_was_counted_meanwhile() -> None:
    old, begun, fresh = (detectors.Runner(detectors.build(Config(), None)) for _ in range(3))
    old.states["usage"] = Books(
        {"GPU-1": Book(users={"1": Account({"user": "ann"}, held=100.0, busy=1.0), "2": Account({"user": "bob"})})}
    )
    begun.states["usage"] = Books({"GPU-1": Book(9.0, users={"1": Account({"user": "ann"}, held=5.0)}), "GPU-2": Book(8.0)})
    fresh.restore({name: (version, blob) for name, version, blob in old.dump()}.get)
    fresh.keep_counts(begun)
    books = fresh.states["usage"].gpus
    assert (books["GPU-1"].at, books["GPU-2"].at, set(books["GPU-1"].users)) == (9.0, 8.0, {"1", "2"})
    assert (books["GPU-1"].users["1"].held, books["GPU-1"].users["1"].busy) == (105.0, 1.0)
