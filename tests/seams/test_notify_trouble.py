"""Receivers that are dead, refuse, wish to wait or are gone: what is tried again, what is given up, how that is said."""

import dataclasses
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from gpuwatch import notify
from gpuwatch.model.alert import Severity
from gpuwatch.model.delivery import Delivery, DeliveryKind
from gpuwatch.notify.receivers.receiver import HttpReceiver, Request
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, ended, hot, worse
from tests.fakes.journal import Journal
from tests.fakes.receiver import Answer, Got, Receiver
from tests.fakes.telling import HOST, Life, channels, new_id
from tests.fakes.until import until

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


def test_a_receiver_that_was_dead_for_hours_gets_all_in_order_and_how_late_it_is(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    """Three start, one ends, one goes on for long enough to be repeated: a message each, the last word about it."""
    receiver.down()
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(worse(hot(1)))
        life.forward(600)
        life.fire(replace(hot(2), rule="gpu_dropped"), replace(hot(4), rule="other"))
        life.forward(600)
        life.fire(ended(replace(hot(2), rule="gpu_dropped")))
        for _ in range(30):
            life.forward(600)
            life.rests()
        receiver.up()
        life.forward(600)
        got = receiver.wait(3)
        until(lambda: life.value("a", "notification_queue_length") == 0.0)
    assert said(got) == [("firing", "4"), ("resolved", "2"), ("repeat", "1")]
    minutes = [round(found.json["late_seconds"] / 60) for found in got]
    assert (minutes, life.value("a", "notifications_total_suppressed")) == ([320, 320, 330], 2.0)


def test_a_start_that_never_went_out_and_its_end_are_one_message(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.down()
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        life.clock.forward(500)
        life.fire(ended(HOT))
        until(lambda: "superseded" in journal.results)
        life.rests()
        receiver.up()
        life.forward(600)
        (got,) = receiver.wait(1)
        until(lambda: journal.results[-1] == "sent")
    (alert,) = got.json["alerts"]
    assert (got.json["kind"], alert["starts_at"], alert["ends_at"]) == (
        "resolved",
        "2023-11-14T22:11:20.000Z",
        "2023-11-14T22:23:20.000Z",
    )
    assert (got.json["late_seconds"], life.value("a", "notifications_total_suppressed")) == (1110, 1.0)


def test_the_receivers_wish_is_met(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(429, headers={"Retry-After": "90"}))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        life.forward(89.9)
        ready = threading.Event()
        assert (ready.wait(0.2), len(receiver.requests)) == (False, 1)
        life.forward(9.1)
        assert len(receiver.wait(2)) == 2
        life.attempts(2)
    assert journal.results == ["retry", "sent"]


def test_gone_switches_the_channel_off_and_a_restart_tells_what_it_missed(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    receiver.script(Answer(410))
    with Receiver() as other:
        with Life(channels(a=receiver.url, b=other.url), clock, journal) as life:
            life.fire(hot(1))
            life.attempts(2)
            words = "status 410: it wants no more messages"
            until(life.notifier.problems)
            assert life.notifier.problems() == [
                f"receiver a: switched off until gpuwatch starts again: {words}",
                f"receiver a: 1 message given up: {words}",
            ]
            life.clock.forward(600)
            life.fire(worse(hot(2)))
            assert said(other.wait(2)) == [("firing", "1"), ("firing", "2")]
        assert [mark.channel for told, _ in journal.commits for mark in told if mark.incident == hot(2).id] == ["b"]
        assert (len(receiver.requests), sorted(journal.results)[:1]) == (1, ["gone"])
        with Life(channels(a=receiver.url, b=other.url), clock, journal) as life:
            life.forward(10)
            assert said(receiver.wait(2))[1] == ("firing", "2")


def test_a_refused_message_is_given_up_and_the_next_one_goes_out(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(400, b"token-in-the-path"))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        until(lambda: life.notifier.problems() == ["receiver a: 1 message given up: status 400"])
        assert life.value("a", "notifications_total_failed") == 1.0
        life.clock.forward(500)
        life.fire(ended(HOT))
        life.attempts(2)
        until(lambda: life.notifier.problems() == [])
    assert (journal.results, journal.memory().deliveries) == (["refused", "sent"], [])


def test_a_wrong_secret_opens_the_breaker_and_loses_nothing(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.always = Answer(401)
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        for attempt in range(1, 6):
            life.attempts(attempt)
            life.forward(2.0**attempt)
        until(lambda: "tried every 5 min only" in " ".join(life.notifier.problems()))
        for _ in range(4):
            life.forward(60)
        ready = threading.Event()
        assert (ready.wait(0.2), len(receiver.requests)) == (False, 5)
        receiver.always = Answer(204)
        life.forward(60)
        life.attempts(6)
        until(lambda: life.notifier.problems() == [])
    assert journal.results == ["auth"] * 5 + ["sent"]


def test_five_refusals_open_the_breaker(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.always = Answer(404)
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(*(replace(hot(number), rule=f"rule_{number}") for number in range(8)))
        life.attempts(5)
        life.forward(299)
        ready = threading.Event()
        assert (ready.wait(0.2), len(receiver.requests), life.value("a", "notification_queue_length")) == (False, 5, 3.0)
        receiver.always = Answer(200)
        life.forward(2)
        life.attempts(8)
    assert journal.results == ["refused"] * 5 + ["sent"] * 3


@pytest.mark.parametrize(("severity", "hours"), [(Severity.WARNING, 24), (Severity.CRITICAL, 72)])
def test_a_message_is_given_up_after_a_day_or_three(
    receiver: Receiver, clock: FakeClock, journal: Journal, severity: Severity, hours: int
) -> None:
    receiver.down()
    incident = replace(HOT, severity=severity)
    journal.commit(
        deliveries=[Delivery(id="01HF", channel="a", kind=DeliveryKind.FIRING, created=clock.wall() - 60, incidents=(incident,))]
    )
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.attempts(1)
        life.clock.forward(hours * HOUR - 61)
        life.notifier.tick()
        life.attempts(2)
        given_up = life.value("a", "notifications_total_failed")
        life.clock.forward(1)
        life.notifier.tick()
        life.attempts(3)
        until(lambda: life.value("a", "notifications_total_failed") == 1.0)
    assert (given_up, journal.attempts[2][1].words, journal.attempts[2][2]) == (
        0.0,
        f"given up after {hours} h: connection refused",
        None,
    )
    assert journal.memory().deliveries == []


def test_a_message_that_the_receiver_cannot_take_lets_others_pass(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    receiver.script(Answer(500), Answer(500), Answer(500))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(hot(1), replace(hot(2), rule="gpu_dropped"))
        life.attempts(1)
        life.forward(2)
        life.attempts(2)
        life.forward(4)
        got = receiver.wait(4)
    assert [number for _, number in said(got)][:4] == ["1", "1", "1", "2"]


def test_a_fault_in_a_receiver_kind_costs_a_retry_and_not_the_channel(
    receiver: Receiver, clock: FakeClock, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    who = channels(a=receiver.url)
    good = who.by_name["a"].receiver
    faults = [ValueError("token-in-the-path"), *[KeyError("token-in-the-path") for _ in range(3)]]

    def request(delivery: Delivery, options: object, attempt: object) -> Request:
        if faults:
            raise faults.pop()
        return good.request(delivery, options, attempt)  # type: ignore[arg-type]  # handed through as it came

    broken = HttpReceiver(keys=good.keys, configure=good.configure, request=request, judge=good.judge)
    patched = replace(who, by_name={"a": dataclasses.replace(who.by_name["a"], receiver=broken)})
    with Life(patched, clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        for attempt in range(1, 5):
            life.attempts(attempt)
            life.forward(600)
        life.attempts(5)
    assert journal.results == ["retry"] * 4 + ["sent"]
    assert [caplog.text.count(f"could not be built or judged: {kind}") for kind in ("KeyError", "ValueError")] == [1, 1]
    assert "a fault of gpuwatch itself (KeyError)" in caplog.text
    assert "token-in-the-path" not in caplog.text


def test_two_messages_keep_the_pace(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a={"url": receiver.url, "pace": "30s"}), clock, journal) as life:
        life.fire(hot(1), replace(hot(2), rule="gpu_dropped"))
        life.attempts(1)
        life.forward(29)
        ready = threading.Event()
        assert (ready.wait(0.2), len(receiver.requests)) == (False, 1)
        life.forward(1)
        life.attempts(2)
    assert journal.results == ["sent", "sent"]


def test_over_a_thousand_waiting_messages_drop_the_oldest(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    owed = [
        Delivery(id=f"01HF{number:022d}", channel="a", kind=DeliveryKind.FIRING, created=clock.wall(), incidents=(hot(number),))
        for number in range(1005)
    ]
    journal.commit(deliveries=owed)
    receiver.always = Answer(503)
    with Life(channels(a=receiver.url), clock, journal) as life:
        assert (life.value("a", "notifications_total_dropped"), life.value("a", "notification_queue_length")) == (5.0, 1000.0)
    assert sorted(delivery.id for delivery, _, _ in journal.attempts[:5]) == [delivery.id for delivery in owed[:5]]


def test_a_log_of_an_outage_says_its_begin_and_its_end_and_no_secret(
    receiver: Receiver, clock: FakeClock, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.always = Answer(503)
    with Life(channels(a={"url": receiver.url, "secret": "hush-hush"}), clock, journal) as life:
        life.fire(HOT)
        for attempt in range(1, 5):
            life.attempts(attempt)
            life.forward(2.0**attempt)
        life.attempts(5)
        receiver.always = Answer(200)
        life.forward(600)
        life.attempts(6)
        until(lambda: life.notifier.problems() == [])
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("gpuwatch")]
    assert lines == ["receiver a: messages wait: status 503", "receiver a takes messages again after 630 s"]
    assert [word for word in ("token", "hush", "v1,", "127.0.0.1") if word in caplog.text] == []


def test_a_receiver_that_fails_in_turns_is_said_once_to_fail_and_once_to_take_messages_again(
    receiver: Receiver, clock: FakeClock, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """Status has the latest words; the log has the change."""
    caplog.set_level(logging.INFO)
    ways = [Answer(503), Answer(401), Answer(429), Answer(500), *[Answer(401)] * 6, Answer(503), *[Answer(401)] * 6]
    receiver.script(*ways)
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        for attempt in range(1, len(ways)):
            life.attempts(attempt)
            life.forward(600)
        life.attempts(len(ways))
        until(lambda: "status 401" in " ".join(life.notifier.problems()))
        receiver.down()
        life.forward(600)
        life.attempts(len(ways) + 1)
        until(lambda: "connection refused" in " ".join(life.notifier.problems()))
        receiver.up()
        life.forward(600)
        life.attempts(len(ways) + 2)
        until(lambda: life.notifier.problems() == [])
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("gpuwatch")]
    begin, opened, end = lines
    assert begin == "receiver a: messages wait: status 503"
    assert opened == "receiver a: refused 5 times in a row; tried every 300 s only"
    assert end.startswith("receiver a takes messages again after ")


def test_the_receivers_wish_holds_every_message_of_the_channel(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    """By its third failure a message lets others pass, but here it is the receiver that wants peace."""
    receiver.script(Answer(500), Answer(500), Answer(429, headers={"Retry-After": "90"}))
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(hot(1), replace(hot(2), rule="gpu_dropped"))
        for attempt in range(1, 3):
            life.attempts(attempt)
            life.forward(2.0**attempt)
        life.attempts(3)
        life.forward(89)
        ready = threading.Event()
        assert (ready.wait(0.2), len(receiver.requests)) == (False, 3)
        life.forward(10)
        life.attempts(5)
    assert said(receiver.requests) == [("firing", "1")] * 4 + [("firing", "2")]


def test_a_notifier_that_ends_by_a_fault_of_ours_says_that_nobody_is_told_any_more(
    receiver: Receiver, clock: FakeClock, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = cast("float", "soon")  # a mistake in the wiring, where no mistake is expected
    silences = notify.Silences(journal, clock, new_id, {})
    notifier = notify.Notifier(channels(a=receiver.url), journal, clock, HOST, new_id, silences=silences, deadline=wrong)
    notifier.start()
    until(lambda: notifier._thread is not None and not notifier._thread.is_alive())
    notifier.changed([hot(1)])
    words = "nobody is told until gpuwatch starts again: a fault of gpuwatch itself"
    assert notifier.problems() == [f"notifier: {words} (TypeError)"]
    assert caplog.messages == [words]
    notifier.stop(0.1)
