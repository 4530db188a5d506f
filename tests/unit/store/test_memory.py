"""The alert memory in RAM: what a new run gets, what waits for the disk, and what a ticket says."""

from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Severity
from gpuwatch.model.delivery import Outcome
from gpuwatch.store.memory import QUEUE_LIMIT, AlertMemory, units
from gpuwatch.store.records import Found
from tests.fakes.store_nouns import EPOCH, delivery, incident, silence, told, ulid

NOTHING = Found(incidents=[], told=[], deliveries=[], blobs={}, newest="", refused=0)


def test_a_new_run_gets_open_incidents_and_what_was_told_of_them() -> None:
    memory = AlertMemory()
    memory.commit([incident(2), incident(1)], [told(1)], [delivery(1)])
    found = memory.snapshot()
    assert (found.incidents, found.told, found.deliveries) == ([incident(1), incident(2)], [told(1)], [delivery(1)])


def test_an_ended_incident_stays_until_its_end_is_told() -> None:
    memory = AlertMemory()
    memory.commit([incident(1)], [told(1)], [])
    memory.commit([incident(1, ended=5.0)], [], [])
    assert memory.snapshot().incidents == [incident(1, ended=5.0)]
    memory.commit([], [told(1, AlertState.INACTIVE)], [])
    assert memory.snapshot().incidents == []


def test_an_end_that_one_of_two_channels_has_not_heard_of_is_still_owed() -> None:
    memory = AlertMemory()
    memory.commit([incident(1, ended=5.0)], [told(1, AlertState.INACTIVE), told(1, channel="mail")], [])
    assert memory.snapshot().incidents == [incident(1, ended=5.0)]


def test_an_incident_that_nobody_was_told_of_is_forgotten_at_its_end() -> None:
    memory = AlertMemory()
    memory.commit([incident(1, ended=5.0)], [], [])
    assert memory.snapshot().incidents == []


def test_attempts_are_counted_even_if_the_caller_keeps_the_first_copy() -> None:
    memory = AlertMemory()
    memory.commit([], [], [delivery(1)])
    for retry_at in (10.0, 20.0, 40.0):
        memory.attempted(delivery(1), Outcome.retry("status 503"), retry_at)
    (found,) = memory.snapshot().deliveries
    assert (found.attempt, found.not_before, found.id) == (3, 40.0, delivery(1).id)


def test_a_delivery_that_is_over_is_not_owed() -> None:
    memory = AlertMemory()
    memory.commit([], [], [delivery(1), delivery(2)])
    memory.attempted(delivery(1), Outcome.sent(), None)
    memory.attempted(delivery(2), Outcome.refused("status 400"), None)
    assert memory.snapshot().deliveries == []
    assert [entry.row["state"] for key, entry in memory.take().items() if key[0] == "delivery"] == ["sent", "dead"]


def test_a_ticket_says_no_until_its_rows_are_written() -> None:
    memory = AlertMemory()
    ticket = memory.commit([incident(1)], [], [])
    taken = memory.take()
    assert not ticket.wait(0)
    memory.written(taken.values())
    assert ticket.wait(0)


def test_what_was_committed_together_stays_together_and_apart_from_the_rest() -> None:
    """Also where nobody holds the ticket any more, and where the rows came back from a disk that refused."""
    memory = AlertMemory()
    memory.commit([], [told(1)], [delivery(1)])
    memory.commit([incident(2)], [told(2)], [])
    memory.put_back(memory.take())
    memory.save("engine", 1, b"state")
    memory.commit([incident(3)], [], [delivery(1)])  # in place of a row of the first: these two cannot be told apart
    found = [sorted(key[0] for key in part) for part in units(memory.take())]
    assert sorted(found) == [["delivery", "incident", "told"], ["incident", "told"], ["state"]]


def test_rows_that_are_written_again_and_again_while_the_disk_is_dead_cost_no_more_each_time() -> None:
    memory = AlertMemory()
    memory.commit([incident(1)], [], [delivery(1)])
    for attempt in range(5_000):
        memory.attempted(delivery(1), Outcome.retry("status 503"), float(attempt))
    taken = memory.take()
    assert len(units(taken)) == 1
    steps = 0
    for entry in taken.values():
        unit = entry.unit
        while unit.into is not None:
            unit, steps = unit.into, steps + 1
    assert steps <= 2


def test_a_commit_of_nothing_is_on_disk_at_once() -> None:
    assert AlertMemory().commit([], [], []).wait(0)


def test_the_newer_row_takes_the_place_of_the_one_that_waits_and_both_tickets_are_settled_by_it() -> None:
    memory = AlertMemory()
    first = memory.commit([incident(1)], [], [])
    second = memory.commit([incident(1, ended=5.0)], [], [])
    taken = memory.take()
    assert [entry.row["ended_at"] for entry in taken.values()] == [5.0]
    memory.written(taken.values())
    assert (first.wait(0), second.wait(0)) == (True, True)


def test_what_could_not_be_written_comes_back_before_what_is_newer() -> None:
    memory = AlertMemory()
    ticket = memory.commit([incident(1), incident(2)], [], [])
    taken = memory.take()
    memory.commit([incident(1, ended=5.0), incident(3)], [], [])
    memory.put_back(taken)
    waiting = memory.take()
    assert {key[1]: entry.row["ended_at"] for key, entry in waiting.items()} == {ulid(1): 5.0, ulid(2): None, ulid(3): None}
    memory.written(waiting.values())
    assert ticket.wait(0)


def test_a_full_queue_drops_the_oldest_row_counts_it_and_its_ticket_says_so() -> None:
    memory = AlertMemory()
    tickets = [memory.commit([incident(number)], [], []) for number in range(QUEUE_LIMIT + 2)]
    assert (memory.waiting, memory.dropped) == (QUEUE_LIMIT, 2)
    memory.written(memory.take().values())
    assert [ticket.wait(0) for ticket in tickets[:4]] == [False, False, True, True]


def test_what_was_dropped_and_still_counts_is_written_when_the_disk_answers() -> None:
    memory = AlertMemory()
    for number in range(QUEUE_LIMIT + 2):
        memory.commit([incident(number)], [], [])
    memory.written(memory.take().values())
    assert ("incident", ulid(0)) in memory.take()


def test_a_dead_disk_costs_one_row_a_thing_and_not_one_a_change() -> None:
    memory = AlertMemory()
    for attempt in range(5_000):
        memory.attempted(delivery(1), Outcome.retry("status 503"), float(attempt))
        memory.save("engine", 1, b"%d" % attempt)
    assert (memory.waiting, memory.dropped) == (2, 0)


def test_a_memory_found_late_does_not_undo_what_was_decided_since() -> None:
    memory = AlertMemory()
    memory.save("engine", 2, b"new")
    memory.commit([incident(1, ended=5.0)], [told(1, AlertState.INACTIVE)], [])
    memory.attempted(delivery(1), Outcome.sent(), None)
    memory.adopt(
        Found(
            incidents=[incident(1), incident(2)],
            told=[told(1), told(2)],
            deliveries=[delivery(1), delivery(2)],
            blobs={"engine": (1, b"old"), "inventory": (1, b"gpus")},
            newest="",
            refused=0,
        )
    )
    found = memory.snapshot()
    assert (found.incidents, found.told, found.deliveries) == ([incident(2)], [told(2)], [delivery(2)])
    assert (memory.blob("engine"), memory.blob("inventory")) == ((2, b"new"), (1, b"gpus"))


def test_an_incident_found_late_goes_on_under_its_old_id_and_age_where_this_run_has_begun_it_anew() -> None:
    memory = AlertMemory()
    heir = incident(9, key="GPU-1")
    ticket = memory.commit([heir], [told(9)], [])
    memory.adopt(Found(incidents=[incident(1)], told=[told(1)], deliveries=[], blobs={}, newest="", refused=0))
    merged = replace(heir, id=ulid(1), since=incident(1).since, fired_at=incident(1).fired_at)
    assert (memory.snapshot().incidents, memory.snapshot().told) == ([merged], [replace(told(9), incident=ulid(1))])
    rows = memory.take()
    assert sorted(rows) == [("incident", ulid(1)), ("told", ulid(1), "oncall")]
    memory.written(rows.values())
    assert ticket.wait(0)


def test_what_is_still_said_under_the_new_id_of_a_united_incident_is_kept_under_its_old_one() -> None:
    memory = AlertMemory()
    memory.commit([incident(9, key="GPU-1")], [], [])
    memory.adopt(Found(incidents=[incident(1)], told=[], deliveries=[], blobs={}, newest="", refused=0))
    memory.take()
    memory.commit([replace(incident(9, key="GPU-1"), severity=Severity.CRITICAL)], [told(9)], [])
    assert sorted(memory.take()) == [("incident", ulid(1)), ("told", ulid(1), "oncall")]
    (found,) = memory.snapshot().incidents
    assert (found.id, found.severity, found.fired_at) == (ulid(1), Severity.CRITICAL, incident(1).fired_at)


def test_a_new_run_gets_the_silences_as_they_were_last() -> None:
    memory = AlertMemory()
    memory.commit([], [], [], [silence(2), silence(1)])
    over = silence(2, ends_at=EPOCH + 5, ended_by="root")
    memory.commit([], [], [], [over])
    assert memory.snapshot().silences == [silence(1), over]


def test_a_silence_found_late_does_not_undo_its_end() -> None:
    memory, over = AlertMemory(), silence(1, ended_by="root")
    memory.commit([], [], [], [over])
    memory.adopt(replace(NOTHING, silences=[silence(1), silence(2)]))
    assert memory.snapshot().silences == [over, silence(2)]


def test_a_long_run_forgets_silences_that_ended_long_ago_and_none_that_holds() -> None:
    memory, long = AlertMemory(), silence(0, ends_at=EPOCH + 1e6)
    memory.commit([], [], [], [long])
    for number in range(1, 3_000):
        memory.commit([], [], [], [silence(number, ends_at=EPOCH + number + 1)])
        memory.written(memory.take().values())
    kept = memory.snapshot().silences
    assert (len(kept) <= 1_000, kept[0], kept[-1].id) == (True, long, silence(2_999).id)


def test_a_fresh_file_gets_all_that_is_known() -> None:
    memory = AlertMemory()
    memory.commit([incident(1)], [told(1)], [delivery(1)], [silence(1)])
    memory.save("engine", 1, b"state")
    memory.written(memory.take().values())
    memory.requeue()
    assert {key[0] for key in memory.take()} == {"incident", "told", "delivery", "silence", "state"}


def test_a_long_run_forgets_ended_incidents() -> None:
    memory = AlertMemory()
    memory.adopt(NOTHING)
    for number in range(3_000):
        memory.commit([incident(number, ended=5.0)], [told(number)], [])
        memory.written(memory.take().values())
    assert len(memory.snapshot().incidents) <= 1_000
    assert len(memory._told) <= 1_001
