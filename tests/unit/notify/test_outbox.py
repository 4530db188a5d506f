"""Which message of a channel comes next, and which is no longer worth sending."""

from msgspec.structs import replace

from gpuwatch.model.alert import Incident
from gpuwatch.model.delivery import Delivery, DeliveryKind
from gpuwatch.notify.outbox import Entry, collapse, entry, pick
from tests.fakes.incidents import WALL, ended, hot, worse

HOUR = 3600.0


def waiting(
    number: int,
    *incidents: Incident,
    kind: DeliveryKind = DeliveryKind.FIRING,
    ready: float = 0.0,
    attempt: int = 0,
    owed: float = 0.0,
) -> Entry:
    delivery = Delivery(id=f"d{number}", channel="a", kind=kind, created=WALL, incidents=incidents, attempt=attempt)
    return Entry(delivery=delivery, ready=ready, owed=owed, until=1e9)


def ids(entries: list[Entry]) -> list[str]:
    return [found.delivery.id for found in entries]


def picked(*entries: Entry, mono: float = 100.0) -> tuple[str | None, float | None]:
    found, look = pick(entries, mono)
    return found.delivery.id if found else None, look


def test_messages_go_out_in_order() -> None:
    assert picked(waiting(1, hot(1)), waiting(2, hot(2))) == ("d1", None)


def test_nothing_is_picked_from_nothing() -> None:
    assert picked() == (None, None)


def test_one_that_waits_holds_up_those_behind_it() -> None:
    assert picked(waiting(1, hot(1), ready=130.0, attempt=2), waiting(2, hot(2))) == (None, 130.0)


def test_one_that_failed_three_times_lets_others_pass() -> None:
    assert picked(waiting(1, hot(1), ready=130.0, attempt=3), waiting(2, hot(2))) == ("d2", None)


def test_nobody_passes_a_message_about_the_same_incident() -> None:
    assert picked(waiting(1, hot(1), hot(2), ready=130.0, attempt=9), waiting(2, hot(2)), waiting(3, hot(3))) == ("d3", None)


def test_nobody_passes_a_message_that_is_itself_held_up() -> None:
    stuck = waiting(1, hot(1), ready=130.0, attempt=9)
    assert picked(stuck, waiting(2, hot(1), hot(2)), waiting(3, hot(2)), waiting(4, hot(3))) == ("d4", None)


def test_a_message_that_passes_and_fails_holds_up_the_rest() -> None:
    stuck = waiting(1, hot(1), ready=130.0, attempt=9)
    assert picked(stuck, waiting(2, hot(2), ready=101.5, attempt=1), waiting(3, hot(3))) == (None, 101.5)


def test_the_oldest_goes_first_once_it_is_due_again() -> None:
    assert picked(waiting(1, hot(1), ready=100.0, attempt=9), waiting(2, hot(2))) == ("d1", None)


def test_a_start_that_nobody_got_goes_once_its_end_is_queued() -> None:
    start, end = waiting(1, hot(1)), waiting(2, ended(hot(1)), kind=DeliveryKind.RESOLVED)
    kept, superseded = collapse([start, end], "")
    assert (ids(kept), ids(superseded)) == (["d2"], ["d1"])


def test_a_start_of_two_stays_while_only_one_has_ended() -> None:
    start, end = waiting(1, hot(1), hot(2)), waiting(2, ended(hot(1)), kind=DeliveryKind.RESOLVED)
    assert ids(collapse([start, end], "")[0]) == ["d1", "d2"]


def test_a_start_of_two_goes_once_both_have_later_messages() -> None:
    entries = [waiting(1, hot(1), hot(2)), waiting(2, ended(hot(1))), waiting(3, worse(hot(2)))]
    kept, superseded = collapse(entries, "")
    assert (ids(kept), ids(superseded)) == (["d2", "d3"], ["d1"])


def test_repeats_of_an_outage_are_one() -> None:
    entries = [waiting(number, hot(1), kind=DeliveryKind.REPEAT) for number in range(5)]
    kept, superseded = collapse(entries, "")
    assert (ids(kept), ids(superseded)) == (["d4"], ["d0", "d1", "d2", "d3"])


def test_what_is_under_way_is_not_superseded() -> None:
    assert ids(collapse([waiting(1, hot(1)), waiting(2, ended(hot(1)))], "d1")[0]) == ["d1", "d2"]


def test_a_message_is_owed_since_the_one_it_replaces() -> None:
    kept, _ = collapse([waiting(1, hot(1), owed=10.0), waiting(2, hot(2), owed=20.0), waiting(3, hot(1), owed=90.0)], "")
    assert [(found.delivery.id, found.owed) for found in kept] == [("d2", 20.0), ("d3", 10.0)]


def test_order_is_kept_by_what_stays() -> None:
    entries = [waiting(number, hot(number)) for number in range(6)]
    assert collapse(entries, "") == (entries, [])


def delivery(created: float, not_before: float = 0.0, *incidents: Incident) -> Delivery:
    found = incidents or (hot(1),)
    return Delivery(
        id="d", channel="a", kind=DeliveryKind.FIRING, created=created, incidents=found, attempt=2, not_before=not_before
    )


def test_a_message_of_the_outbox_keeps_its_age_and_its_pause() -> None:
    found = entry(delivery(WALL - 600, WALL + 30), None, mono=1000.0, wall=WALL)
    assert (found.owed, found.ready, found.until) == (400.0, 1030.0, 400.0 + 24 * HOUR)


def test_a_critical_message_is_given_up_later() -> None:
    found = entry(delivery(WALL, 0.0, hot(1), worse(hot(2))), None, mono=0.0, wall=WALL)
    assert found.until == 72 * HOUR


def test_a_message_from_the_future_counts_as_new() -> None:
    found = entry(delivery(WALL + HOUR), None, mono=1000.0, wall=WALL)
    assert (found.owed, found.until) == (1000.0, 1000.0 + 24 * HOUR)


def test_a_clock_that_was_set_back_holds_no_message_for_longer_than_an_hour() -> None:
    found = entry(delivery(WALL, WALL + 30 * 24 * HOUR), None, mono=1000.0, wall=WALL)
    assert found.ready == 1000.0 + HOUR


def test_a_message_without_incidents_is_dropped_and_harms_nobody() -> None:
    empty = replace(waiting(1, hot(1)), delivery=replace(delivery(WALL), incidents=()))
    assert (entry(empty.delivery, None, mono=0.0, wall=WALL).until, collapse([empty], "")) == (24 * HOUR, ([], [empty]))
