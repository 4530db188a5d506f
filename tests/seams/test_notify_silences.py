"""A running notifier and silences: what is silenced is not sent, and what is still true at the end is sent once."""

from collections.abc import Iterator

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, ended, hot, worse
from tests.fakes.journal import Journal, Memory
from tests.fakes.receiver import Receiver
from tests.fakes.telling import Life, channels
from tests.fakes.until import until

HOUR = 3600.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def journal() -> Journal:
    return Journal()


def silence(life: Life, seconds: float = HOUR) -> str:
    """Silence the whole host, and wait until the notifier knows."""
    kept = life.silences.add((), seconds, author="lena", comment="")
    assert kept is not None
    looks(life)
    return kept[0].id


def looks(life: Life) -> None:
    """Tick, and wait until the notifier has seen which silences hold, if anything is open that they could hold back."""
    life.notifier.tick()
    wall = life.clock.wall()
    until(lambda: not life.notifier._incidents or life.notifier._active == {one.id for one in life.silences.lasting(wall)})


def forward(life: Life, seconds: float) -> None:
    """Let time pass, and wait until the notifier has seen which silences hold."""
    life.clock.forward(seconds)
    looks(life)


def told(receiver: Receiver) -> list[tuple[str, list[str]]]:
    """Return kind and GPUs of every message."""
    return [(got.json["kind"], [alert["labels"]["gpu"] for alert in got.json["alerts"]]) for got in receiver.requests]


def test_what_still_fires_when_a_silence_ends_by_itself_is_sent_then_and_once(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        silence(life)
        life.tell(HOT, hot(4))
        forward(life, 60)
        life.tell(ended(hot(4)))
        forward(life, HOUR - 61)
        assert (receiver.requests, journal.memory().deliveries) == ([], [])
        forward(life, 1)
        life.forward(10)
        receiver.wait(1)
        life.attempts(1)
        life.forward(600)
        life.rests()
    assert told(receiver) == [("firing", ["3"])]


def test_a_silence_that_is_ended_by_a_person_lets_messages_out_without_news(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        identity = silence(life)
        life.tell(HOT)
        forward(life, 60)
        life.silences.end(identity, by="root")
        looks(life)
        life.forward(10)
        receiver.wait(1)
        life.attempts(1)
    assert told(receiver) == [("firing", ["3"])]


def test_a_wall_clock_that_is_set_forth_ends_a_silence(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        silence(life)
        life.tell(HOT)
        clock.step(2 * HOUR)
        looks(life)
        life.forward(10)
        receiver.wait(1)
        life.attempts(1)
    assert told(receiver) == [("firing", ["3"])]


def test_a_silence_holds_over_a_restart_for_what_fired_before_it(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        silence(life)
        life.tell(HOT)
        forward(life, 60)
    with Life(channels(a=receiver.url), clock, journal) as life:
        looks(life)
        forward(life, 60)
        assert (receiver.requests, journal.memory().deliveries) == ([], [])
        forward(life, HOUR)
        life.forward(10)
        receiver.wait(1)
        life.attempts(1)
    assert told(receiver) == [("firing", ["3"])]


def test_a_silence_that_is_found_late_holds_from_then_on(receiver: Receiver, clock: FakeClock, journal: Journal) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        silence(life)
        (found,) = life.silences.known()
    with Life(channels(a=receiver.url), clock, Journal()) as late:
        late.notifier.restore(Memory(silences=[found]))
        looks(late)
        late.tell(HOT)
        forward(late, 60)
        assert (receiver.requests, late.journal.memory().deliveries) == ([], [])


def test_a_critical_alert_that_a_silence_was_made_for_is_told_while_the_disk_does_not_say_so(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    """Told once too often rather than never: the silence cannot be known before the alert memory is read."""
    with Life(channels(a=receiver.url), clock, journal) as life:
        silence(life)
        (found,) = life.silences.known()
    with Life(channels(a=receiver.url), clock, Journal()) as late:
        late.fire(worse(HOT), wait=5.0)
        receiver.wait(1)
        late.attempts(1)
        late.notifier.restore(Memory(silences=[found]))
        looks(late)
        late.tell(ended(worse(HOT)), hot(4))
        forward(late, 600)
    assert told(receiver) == [("firing", ["3"])]


def test_the_end_of_what_was_told_before_is_sent_after_the_silence(
    receiver: Receiver, clock: FakeClock, journal: Journal
) -> None:
    with Life(channels(a=receiver.url), clock, journal) as life:
        life.fire(HOT)
        life.attempts(1)
        silence(life)
        life.tell(ended(HOT))
        forward(life, 600)
        assert len(receiver.requests) == 1
    with Life(channels(a=receiver.url), clock, journal) as life:
        looks(life)
        forward(life, HOUR)
        life.forward(10)
        receiver.wait(2)
        life.attempts(2)
    assert told(receiver) == [("firing", ["3"]), ("resolved", ["3"])]
