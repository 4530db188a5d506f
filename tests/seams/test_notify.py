"""From an incident to a receiver over real sockets: what arrives, in which order, and what is remembered."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from gpuwatch.notify.resolver import Resolver
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, ended, hot
from tests.fakes.journal import Journal
from tests.fakes.receiver import Answer, Got, Receiver
from tests.fakes.telling import Life, channels
from tests.fakes.until import PATIENCE, SLOWER, until

HOUR = 3600.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(path="/token-in-the-path") as found:
        yield found


@pytest.fixture
def journal() -> Journal:
    return Journal()


def said(requests: Sequence[Got]) -> list[tuple[str, str]]:
    """Return kind and first GPU of each message."""
    return [(got.json["kind"], got.json["alerts"][0]["labels"]["gpu"]) for got in requests]


def test_an_alert_arrives_and_its_end_too(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        receiver.wait(1)
        life.clock.forward(HOUR)
        life.fire(ended(HOT))
        got = receiver.wait(2)
        life.attempts(2)
    assert said(got) == [("firing", "3"), ("resolved", "3")]
    assert (life.notifier._incidents, life.notifier._marks) == ({}, {})  # what is over costs no memory
    assert (journal.results, journal.memory().deliveries, journal.memory().incidents) == (["sent", "sent"], [], [])


def test_a_message_is_on_the_disk_before_its_first_byte(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        journal.stall()
        life.forward(10)
        until(lambda: len(journal.commits) == 2)
        ready = threading.Event()
        assert (ready.wait(0.3), receiver.requests) == (False, [])
        released = time.monotonic()
        journal.flows()
        (got,) = receiver.wait(1)
    assert (got.mono >= released, got.json["stored"]) == (True, True)


def test_marks_and_delivery_are_one_transaction(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        receiver.wait(1)
    told, deliveries = journal.commits[1]
    assert [(mark.incident, mark.channel) for mark in told] == [(HOT.id, "a")]
    assert [[incident.id for incident in delivery.incidents] for delivery in deliveries] == [[HOT.id]]


def test_a_disk_that_stalls_holds_no_message_for_longer_than_three_seconds(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        journal.stall()
        started = time.monotonic()
        life.forward(10)
        until(lambda: life.notifier.problems() == ["receiver a: 1 message not yet stored"])
        (got,) = receiver.wait(1)
        assert (2.9 < got.mono - started < 3.0 + SLOWER, got.json["stored"]) == (True, False)


def test_a_message_that_waits_for_its_receiver_is_no_longer_called_unstored_once_it_is_stored(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    receiver.always = Answer(503, headers={"retry-after": "3600"})
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.tell(HOT)
        journal.stall()
        life.forward(10)
        life.attempts(1)
        before = [words for words in life.notifier.problems() if "stored" in words]
        journal.flows()
        until(lambda: not any("stored" in words for words in life.notifier.problems()))
        assert (before, len(receiver.wait(1))) == (["receiver a: 1 message not yet stored"], 1)


def test_messages_of_a_channel_arrive_in_order(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(delay=0.2), Answer(503), Answer(delay=0.1))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(hot(1), *(replace(hot(number), rule=f"rule_{number}") for number in range(2, 6)))
        life.attempts(2)
        life.forward(2)  # the pause after a first failure is at most that
        got = receiver.wait(6)
    assert [number for _, number in said(got)] == ["1", "2", "2", "3", "4", "5"]


def test_a_retry_keeps_its_id_and_counts_its_attempts(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(503), Answer(how="reset"), Answer(how="silent"))
    with Life(channels(a=receiver.url), clock, journal, deadline=0.5) as life:
        life.fire(HOT)
        for attempt in range(1, 4):
            life.attempts(attempt)
            life.forward(2.0**attempt)
        got = receiver.wait(4)
    assert (len({found.headers["webhook-id"] for found in got}), len({found.json["id"] for found in got})) == (1, 1)
    assert [found.json["alerts"][0]["attempt"] for found in got] == [1, 2, 3, 4]


def test_one_dead_channel_never_delays_another(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Receiver() as dead:
        dead.always = Answer(how="silent")
        with Life(channels(dead=dead.url, alive=receiver.url), clock, journal, deadline=PATIENCE) as life:
            life.tell(HOT)
            started = time.monotonic()
            life.forward(10)
            dead.wait(1)
            (got,) = receiver.wait(1)
            assert got.mono - started < SLOWER


def test_a_name_that_hangs_never_delays_another_channel_nor_the_stop(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    release = threading.Event()

    def hangs(host: str) -> Sequence[str]:
        release.wait(PATIENCE)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    who = channels(dead="http://hook.example/", alive=receiver.url)
    with Life(who, clock, journal, deadline=PATIENCE, resolver=Resolver(hangs)) as life:
        life.tell(HOT)
        started = time.monotonic()
        life.forward(10)
        (got,) = receiver.wait(1)
        assert got.mono - started < SLOWER
    assert time.monotonic() - started < 2 * SLOWER
    release.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "resolve"])
    assert [delivery.channel for delivery in journal.memory().deliveries] == ["dead"]


def test_a_stop_ends_in_time_and_leaves_what_is_not_sent(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.always = Answer(how="silent")
    life = Life(channels(a=receiver.url), clock, journal, deadline=PATIENCE)
    life.fire(hot(1), replace(hot(2), rule="gpu_dropped"))
    receiver.wait(1)
    started = time.monotonic()
    life.notifier.stop(0.5)
    assert 0.4 < time.monotonic() - started < 0.5 + SLOWER
    assert (len(journal.memory().deliveries), journal.results) == (2, [])


def test_a_stop_lets_what_is_due_go_out(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.always = Answer(delay=0.1)
    life = Life(channels(a=receiver.url), clock, journal, deadline=PATIENCE)
    life.fire(hot(1), replace(hot(2), rule="gpu_dropped"), replace(hot(3), rule="other"))
    life.notifier.stop(PATIENCE)
    assert (journal.results, journal.memory().deliveries) == (["sent"] * 3, [])


def test_a_stop_of_an_idle_notifier_is_at_once(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    life = Life(channels(a=receiver.url), clock, journal)
    started = time.monotonic()
    life.notifier.stop(PATIENCE)
    assert time.monotonic() - started < SLOWER
    life.notifier.changed([HOT])
    life.notifier.tick()
    assert [thread for thread in threading.enumerate() if thread.name == "notify"] == []


def test_nobody_to_tell_is_said_and_costs_no_thread(clock: FakeClock, journal: Journal) -> None:
    with Life(channels(), clock, journal) as life:
        life.notifier.changed([HOT])
        assert (life.notifier.nobody, life.notifier.readings(0.0), life.notifier.problems()) == (True, [], [])
        assert [thread for thread in threading.enumerate() if thread.name == "notify"] == []


def test_numbers_of_a_channel_that_never_told_anybody(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        (reading,) = life.notifier.readings(clock.wall())
    assert (reading.source, reading.target.labels, {metric.id: value for metric, value in reading.values.items()}) == (
        "own",
        {"channel": "a"},
        {
            "notifications_total_sent": 0.0,
            "notifications_total_retried": 0.0,
            "notifications_total_failed": 0.0,
            "notifications_total_dropped": 0.0,
            "notifications_total_suppressed": 0.0,
            "notification_queue_length": 0.0,
        },
    )


def test_numbers_of_a_channel_that_waits(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(hot(1))
        life.attempts(1)
        receiver.down()
        life.clock.forward(500)
        life.fire(hot(2))
        life.attempts(2)
        until(lambda: life.value("a", "notifications_total_retried") == 1.0)
        found = [
            life.value("a", name)
            for name in (
                "notifications_total_sent",
                "notification_queue_length",
                "notification_queue_oldest_timestamp_seconds",
                "notification_last_success_timestamp_seconds",
            )
        ]
        problems = life.notifier.problems()
    start = 1_700_000_000.0
    assert found == [1.0, 1.0, start + 520, start + 10]
    assert problems == ["receiver a: 1 message not delivered for 0 s: connection refused"]


def test_messages_of_a_receiver_that_is_gone_from_the_configuration_end(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    receiver.down()
    with Life(channels(old=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
    with Life(channels(new=receiver.url), clock, journal) as life:
        life.clock.forward(500)
        life.tell(ended(HOT))
        until(lambda: journal.memory().incidents == [])
    assert (journal.memory().deliveries, journal.attempts[-1][1].words) == ([], "the receiver is not configured any more")
