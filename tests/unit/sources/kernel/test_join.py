"""What belongs together: by place, by time, and never without end."""

from gpuwatch.model.event import Event
from gpuwatch.sources.kernel.join import LINES, PASSING, Join
from gpuwatch.sources.kernel.record import Record
from gpuwatch.sources.kernel.stream import Stream

HUNG = "INFO: task python3:812 blocked for more than 120 seconds."
FRAME = "os_acquire_mutex+0x3a/0x50 [nvidia]"
XID = "NVRM: Xid (PCI:0000:65:00): 45, pid=812, name=a"


def record(text: str, stamp: float, seq: int = 0) -> Record:
    """Return one message of the kernel."""
    return Record(stamp, text, True, seq, seq, stamp=stamp)


def told(*log: tuple[float, str]) -> list[Event]:
    """Return the events of a log of (stamp, text)."""
    stream = Stream("b")
    for seq, (stamp, text) in enumerate(log):
        stream.feed(record(text, stamp, seq))
    stream.end()
    return [event for event, _ in stream.take()]


def test_lines_of_a_trace_that_come_much_later_are_of_another_one() -> None:
    assert [event.facts.get("nvidia") for event in told((5.0, HUNG), (5.1, "Call Trace:"), (7.5, FRAME))] == [None]
    assert [event.facts.get("nvidia") for event in told((5.0, HUNG), (5.1, "Call Trace:"), (5.5, FRAME))] == ["yes"]


def test_a_group_stays_open_while_it_is_young() -> None:
    stream = Stream("b")
    stream.feed(record(HUNG, 5.0, 0))
    stream.settle(5.5)
    stream.feed(record(FRAME, 5.6, 1))
    stream.settle(5.9)
    assert stream.take() == []
    stream.settle(7.0)
    assert [(event.mark, event.facts["nvidia"]) for event, _ in stream.take()] == [("b:0-1", "yes")]


def test_a_trace_without_end_is_cut() -> None:
    join = Join()
    whole = [
        message
        for order in range(3 * LINES)
        for _, message in join.feed(record(HUNG if order == 0 else FRAME, 5.0, order), order)
    ]
    assert whole[0].text.count("\n") == LINES - 1
    assert whole[0].seq == LINES - 1


def test_a_flood_does_not_wait_for_an_open_group() -> None:
    stream = Stream("b")
    stream.feed(record(HUNG, 5.0, 0))
    for seq in range(1, 5 * PASSING):
        stream.feed(record(XID, 5.0, seq))
        assert len(stream._waiting) <= PASSING
    stream.end()
    assert [(event.kind, event.count) for event, _ in stream.take()] == [("hung_task", 1), ("xid", 5 * PASSING - 1)]


def test_a_log_whose_time_runs_backwards_closes_its_groups() -> None:
    events = told((500.0, HUNG), (20.0, FRAME), (21.0, XID))
    assert [(event.kind, event.facts.get("nvidia")) for event in events] == [("hung_task", None), ("xid", None)]


def test_two_processors_that_swap_their_lines_at_the_turn_of_a_second_make_one_event() -> None:
    assert [(event.count, event.mark) for event in told((6.00001, XID), (5.99999, XID), (6.5, XID))] == [(3, "b:0-2")]


def test_one_lost_record_is_counted() -> None:
    stream = Stream("b")
    stream.feed(record("nothing", 5.0, 0))
    stream.feed(record("nothing", 5.0, 2))
    stream.end()
    assert [(event.kind, event.count, event.mark) for event, _ in stream.take()] == [("log_lost", 1, "b:1")]
