"""Killed at every step between firing and delivery: the next run tells it, at most once more, under the same id."""

from collections.abc import Iterator

import pytest

from gpuwatch.model.alert import AlertState
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, ended, hot
from tests.fakes.journal import Journal
from tests.fakes.receiver import Answer, Got, Receiver
from tests.fakes.telling import Life, channels
from tests.fakes.until import until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def journal() -> Journal:
    return Journal()


def ids(requests: list[Got]) -> list[str]:
    return [got.headers["webhook-id"] for got in requests]


def live_on(receiver: Receiver, clock: FakeClock, journal: Journal, count: int) -> list[Got]:
    """Live again for ten minutes, wait for so many messages in all, and return all that came."""
    journal.dead = journal.dies_after_commit = False
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.forward(10)
        receiver.wait(count)
        for _ in range(10):
            life.rests()
            life.forward(60)
        life.rests()
    return list(receiver.requests)


def test_killed_before_the_decision_it_is_told_once(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        life.forward(5)
    assert receiver.requests == []
    assert len(live_on(receiver, clock, journal, 1)) == 1


def test_killed_again_and_again_within_the_wait_of_a_group_it_is_told_all_the_same(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
    for _ in range(3):
        clock.forward(2)
        with Life(channels(a=receiver.url), clock, journal) as life:
            receiver.wait(1)
            life.attempts(1)
    assert len(receiver.requests) == 1


def test_killed_before_the_commit_reached_the_disk_it_is_told_once(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    """The commit waits for the disk, the message waits for the commit, and then we die."""
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        journal.stall()
        life.forward(10)
        until(lambda: len(journal.commits) == 2)
        journal.dead = True
    journal.flows()  # into nothing
    assert (receiver.requests, journal.memory().told) == ([], [])
    assert len(live_on(receiver, clock, journal, 1)) == 1


def test_killed_after_the_commit_and_before_the_send_it_is_told_once_under_its_id(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    receiver.down()
    journal.dies_after_commit = True
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
    (owed,) = journal.memory().deliveries
    receiver.up()
    assert ids(live_on(receiver, clock, journal, 1)) == [owed.id]


def test_killed_after_the_send_and_before_the_mark_it_is_told_once_more_under_the_same_id(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    journal.dies_after_commit = True
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    (owed,) = journal.memory().deliveries
    assert ids(live_on(receiver, clock, journal, 2)) == [owed.id, owed.id]


def test_killed_while_the_answer_was_awaited_it_is_told_once_more_under_the_same_id(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    receiver.script(Answer(how="silent"))
    with Life(channels(a=receiver.url), clock, journal, deadline=15.0) as life:
        life.fire(HOT)
        receiver.wait(1)
    (owed,) = journal.memory().deliveries
    assert ids(live_on(receiver, clock, journal, 2)) == [owed.id, owed.id]


def test_killed_between_two_tries_the_pause_and_the_count_go_on(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(429, headers={"Retry-After": "300"}))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    (owed,) = journal.memory().deliveries
    assert (owed.attempt, 300 <= owed.not_before - clock.wall() <= 330) == (1, True)
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.forward(299)
        life.rests()
        assert len(receiver.requests) == 1
        life.forward(32)
        first, second = receiver.wait(2)
    assert [got.json["alerts"][0]["attempt"] for got in (first, second)] == [1, 2]


def test_killed_after_everything_nothing_is_told_again(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    assert len(live_on(receiver, clock, journal, 1)) == 1


def test_killed_between_the_end_and_its_message_the_end_is_told(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        life.tell(ended(HOT))
    got = live_on(receiver, clock, journal, 2)
    assert [found.json["kind"] for found in got] == ["firing", "resolved"]
    assert (journal.memory().incidents, {told.state for told in journal.memory().told}) == ([], {AlertState.INACTIVE})


def test_killed_again_and_again_each_incident_is_told_and_none_more_than_once_a_kill(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    """Eight lives, each dies unheard at another step; an incident fires in each."""
    lives = 8
    for number in range(lives):
        journal.dead = journal.dies_after_commit = False
        with Life(channels(a=receiver.url), clock, journal) as life:
            life.forward(130)
            life.rests()
            life.tell(hot(number))
            journal.dies_after_commit = number % 3 == 1
            if number % 3 > 0:
                life.forward(130)
                life.rests()
    got = live_on(receiver, clock, journal, 1)
    told = [alert["labels"]["gpu"] for found in got for alert in found.json["alerts"]]
    first = {found.headers["webhook-id"]: found for found in got}
    told_first = [alert["labels"]["gpu"] for found in first.values() for alert in found.json["alerts"]]
    assert sorted(told_first) == [str(number) for number in range(lives)]
    assert max(told.count(str(number)) for number in range(lives)) <= 2
