"""What earlier runs knew and owed is read only after this run has begun to tell: a disk was slow, or locked."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gpuwatch.model.alert import AlertState
from gpuwatch.model.delivery import Delivery, DeliveryKind, Told
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, WALL, ended, hot
from tests.fakes.journal import Journal, Memory
from tests.fakes.receiver import Answer, Receiver
from tests.fakes.telling import Life, channels
from tests.fakes.until import until

OLD = replace(HOT, id="01HE0000000000000000000001", since=WALL - 9_000, fired_at=WALL - 9_000)
TOLD = Told(OLD.id, "a", AlertState.FIRING, OLD.severity, WALL - 9_000)
UNITED = replace(HOT, id=OLD.id, since=OLD.since, fired_at=OLD.fired_at)  # as the store unites them


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def journal() -> Journal:
    return Journal()


def recall(life: Life, memory: Memory) -> None:
    """Hand in what earlier runs left, and wait until it is taken over."""
    life.notifier.restore(memory)
    until(lambda: life.notifier._memory is None and life.notifier._mine is None)


def test_what_was_owed_goes_out_and_what_this_run_owes_goes_out_once(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    owed = Delivery(id="01HE", channel="a", kind=DeliveryKind.FIRING, created=WALL - 9_000, incidents=(hot(7),))
    receiver.script(Answer(503))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        (mine,) = journal.memory().deliveries
        recall(life, Memory([HOT], [], [owed, mine]))
        life.attempts(2)
        life.forward(30)
        life.attempts(3)
        life.rests()
    first, second, third = receiver.requests
    assert [got.headers["webhook-id"] for got in (first, second, third)] == [mine.id, owed.id, mine.id]
    assert second.json["late_seconds"] >= 9_000


def test_a_story_that_was_told_before_is_not_told_again_and_ends_under_its_old_id(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        recall(life, Memory([UNITED], [TOLD], []))
        life.forward(600)
        life.rests()
        assert receiver.requests == []
        life.fire(ended(UNITED))
        (got,) = receiver.wait(1)
        life.attempts(1)
    assert (got.json["kind"], got.json["alerts"][0]["incident_id"]) == ("resolved", OLD.id)
    assert (life.notifier._incidents, life.notifier._marks) == ({}, {})


def test_a_story_that_was_told_anew_meanwhile_is_repeated_by_the_later_mark_and_ends_once(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        recall(life, Memory([UNITED], [replace(TOLD, incident=OLD.id)], []))
        assert list(life.notifier._marks) == [(OLD.id, "a")]
        life.forward(86_400 - 9_000)  # the old mark alone would be a day old
        life.rests()
        assert len(receiver.requests) == 1
        life.fire(ended(UNITED))
        receiver.wait(2)
        life.attempts(2)
        life.rests()
    assert [got.json["kind"] for got in receiver.requests] == ["firing", "resolved"]


def test_what_nobody_was_told_of_before_the_memory_came_is_told(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        recall(life, Memory([OLD, ended(hot(8))], [Told(hot(8).id, "a", AlertState.FIRING, OLD.severity, WALL)], []))
        life.forward(10)
        life.attempts(2)
    assert sorted((got.json["kind"], got.json["alerts"][0]["incident_id"]) for got in receiver.requests) == [
        ("firing", OLD.id),
        ("resolved", hot(8).id),
    ]
