"""What belongs together: by place, by time, and never without end."""

import pytest

from gpuwatch.model.event import Event
from gpuwatch.sources.kernel.join import LINES, PASSING, SENTENCES, Join
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


def sentence(address: str) -> tuple[str, str, str]:
    """Return the three records in which the driver tells of a GPU that has fallen off the bus."""
    return (
        f"NVRM: The NVIDIA GPU {address}",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )


@pytest.mark.parametrize("order", ["ABABAB", "ABAABB", "AABABB", "ABBBAA", "ABCABCABC", "ABCCCBBAA"])
def test_gpus_that_fall_at_once_are_all_told_however_their_lines_lie_across_each_other(order: str) -> None:
    addresses = {name: f"0000:{0x19 + number:02x}:00.0" for number, name in enumerate("ABC") if name in order}
    rest = {name: list(sentence(address)) for name, address in addresses.items()}
    log = [(5.0 + number / 1000, rest[name].pop(0)) for number, name in enumerate(order)]
    assert sorted((event.kind, event.key, event.count) for event in told(*log)) == [
        ("off_bus", address, 1) for address in sorted(addresses.values())
    ]


def test_a_gpu_whose_sentence_never_ends_is_not_blamed_for_the_fall_of_the_next() -> None:
    log = (sentence("0000:19:00.0")[0], *sentence("0000:b1:00.0"))
    assert [(event.kind, event.key) for event in told(*((5.0, text) for text in log))] == [("off_bus", "0000:b1:00.0")]


def test_sentences_that_never_end_are_bounded() -> None:
    join = Join()
    for order in range(5000):
        join.feed(record("NVRM: The NVIDIA GPU 0000:19:00.0", 5.0, order), order)
        assert len(join.groups) <= SENTENCES


FALLEN = "NVRM: Xid (PCI:0000:65:00): 79, pid=1, name=a, GPU has fallen off the bus."
AER = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0"
OPENERS = (
    AER,
    HUNG,
    "BUG: unable to handle page fault",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]",
    "oom-kill:constraint=CONSTRAINT_NONE",
    "NVRM: API mismatch: the client has the version 1.2",
    "pci 0000:65:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]",
)


@pytest.mark.parametrize("lines", [(AER,), OPENERS], ids=["one port", "everything at once"])
@pytest.mark.parametrize("pause", [0.04, 0.3, 0.9, 1.05, 2.0])
def test_no_event_is_told_late_whatever_else_the_kernel_prints(lines: tuple[str, ...], pause: float) -> None:
    """Asked once a second: a second for the group that was open, one until its own is over, one until the next ask."""
    stream, seq, waits, ends, most = Stream("b"), 0, list[float](), list[int](), 0
    log = [(number * pause, lines[number % len(lines)]) for number in range(int(60 / pause))]
    log = sorted([*log, *((at + 0.02, FALLEN) for at in (10.0, 20.5, 30.98, 40.01))])
    for now in range(1, 65):
        while seq < len(log) and log[seq][0] <= now:
            stream.feed(record(log[seq][1], log[seq][0], seq))
            seq += 1
            most = max(most, len(stream._waiting))
        stream.settle(float(now))
        events = [event for event, _ in stream.take()]
        ends += [int(event.mark.rpartition(":")[2].rpartition("-")[2]) for event in events]
        waits += [now - event.at for event in events if event.code == 79]
    assert (len(waits), max(waits) <= 3.2) == (4, True), waits
    assert ends == sorted(ends)
    assert most < 100
