"""Names come from a thread that may be lost, and nobody waits for it for long."""

import logging
import threading
import time

import pytest

from gpuwatch.model.clock import SystemClock
from gpuwatch.sources.jobs.lookups import HANGS, MOST, WAITING, Lookups
from tests.fakes.clock import FakeClock
from tests.fakes.until import PATIENCE, SLOWER, until


def test_an_answer_comes_at_once_where_it_is_quick_and_is_asked_for_once() -> None:
    asked: list[int] = []

    def find(question: int) -> tuple[str, float]:
        asked.append(question)
        return f"user {question}", 60.0

    lookups = Lookups("user names", find, SystemClock())
    lookups.begin()
    assert [lookups.get(7) for _ in range(3)] == ["user 7"] * 3
    assert asked == [7]
    lookups.close()


def test_an_answer_that_is_too_old_is_asked_for_again_and_used_meanwhile() -> None:
    clock = FakeClock()
    answers = iter(["ann", "bob"])
    lookups: Lookups[int, str] = Lookups("user names", lambda _: (next(answers), 60.0), clock)
    lookups.begin()
    until(lambda: lookups.get(1) == "ann")
    clock.forward(61)
    lookups.begin()
    first = lookups.get(1)
    assert first in ("ann", "bob")
    until(lambda: lookups.get(1) == "bob")
    lookups.close()


def test_a_look_up_that_hangs_costs_a_moment_once_a_round_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gate = threading.Event()
    clock = FakeClock()

    def find(question: int) -> tuple[str, float]:
        assert gate.wait(PATIENCE)
        return "ann", 60.0

    lookups = Lookups("user names", find, clock)
    lookups.begin()
    began = time.monotonic()
    assert lookups.get(0) is None
    assert [lookups.get(question) for question in range(1000)] == [None] * 1000
    assert time.monotonic() - began < SLOWER
    for _ in range(3):
        clock.forward(HANGS)
        lookups.begin()
    assert caplog.messages == ["user names: a look-up does not come back; what is known stays, and numbers stand for what is not"]
    gate.set()
    until(lambda: lookups.get(0) == "ann")
    until(lambda: lookups.get(WAITING - 1) == "ann")
    lookups.begin()
    assert caplog.messages[-1] == "user names: look-ups come back again"
    lookups.close()


def test_a_bug_of_a_look_up_costs_that_answer_only(caplog: pytest.LogCaptureFixture) -> None:
    def find(question: int) -> tuple[str, float]:
        return str(1 // question), 60.0

    lookups = Lookups("user names", find, SystemClock())
    lookups.begin()
    assert lookups.get(0) is None
    until(lambda: lookups.get(1) == "1")
    assert any("a bug in the look-up of user names" in message for message in caplog.messages)
    lookups.close()


def test_answers_are_bounded() -> None:
    lookups: Lookups[int, int] = Lookups("user names", lambda question: (question, 60.0), SystemClock())
    for question in range(MOST + 50):
        lookups.begin()
        until(lambda question=question: lookups.get(question) == question)  # type: ignore[misc] # bound on purpose
    assert len(lookups._known) <= MOST
    lookups.close()


def test_questions_without_room_are_counted_and_asked_again() -> None:
    gate, began = threading.Event(), threading.Event()

    def find(question: int) -> tuple[int, float]:
        began.set()
        assert gate.wait(PATIENCE)
        return question, 60.0

    lookups: Lookups[int, int] = Lookups("user names", find, SystemClock())
    lookups.get(0)
    assert began.wait(PATIENCE)  # it is taken out of the queue: there is room for so many more
    for question in range(1, WAITING + 4):
        lookups.get(question)
    assert lookups.dropped == 3
    gate.set()
    until(lambda: lookups.get(WAITING + 3) == WAITING + 3)
    lookups.close()


def test_a_full_queue_does_not_keep_the_thread() -> None:
    gate, began, asked = threading.Event(), threading.Event(), []

    def find(question: int) -> tuple[int, float]:
        asked.append(question)
        began.set()
        assert gate.wait(PATIENCE)
        return question, 60.0

    lookups: Lookups[int, int] = Lookups("names of a full queue", find, SystemClock())
    lookups.get(0)
    assert began.wait(PATIENCE)
    for question in range(1, WAITING + 4):
        lookups.get(question)
    lookups.close()
    gate.set()
    until(lambda: all(thread.name != "look-up of names of a full queue" for thread in threading.enumerate()))
    assert asked == [0]


def test_without_a_thread_to_spare_a_name_comes_once_there_is_one() -> None:
    lookups: Lookups[int, str] = Lookups("user names", lambda _: ("ann", 60.0), SystemClock())
    lookups.begin()
    before = threading.stack_size(1 << 46)  # more than there is: no thread can be started
    try:
        assert lookups.get(1) is None
    finally:
        threading.stack_size(before)
    lookups.begin()
    until(lambda: lookups.get(1) == "ann")
    lookups.close()
