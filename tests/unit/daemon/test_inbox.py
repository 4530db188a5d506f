"""The queue of events between the sources and the beat."""

from gpuwatch.catalogue import own
from gpuwatch.daemon.inbox import Inbox
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event


def xid(code: int, mark: int = 0, key: str = "0000:65:00.0") -> Event:
    return Event(
        source="kernel",
        kind="xid",
        severity=Severity.WARNING,
        at=float(mark),
        words="x",
        subject="gpu",
        key=key,
        code=code,
        mark=f"boot:{mark}",
    )


def dropped(inbox: Inbox) -> float:
    return inbox.reading(0.0).values[own.QUEUE_DROPPED]


def test_events_come_out_once_and_as_they_came() -> None:
    inbox = Inbox()
    inbox.put(xid(79, 1))
    inbox.put(xid(45, 2))
    inbox.put(xid(45, 3))
    assert [inbox.take(), inbox.take()] == [(xid(79, 1), xid(45, 2), xid(45, 3)), ()]


def test_a_flood_adds_up_and_pushes_nothing_out() -> None:
    inbox = Inbox(limit=3)
    inbox.put(xid(79, 1))
    for mark in range(2, 100_002):
        inbox.put(xid(45, mark))
    came = inbox.take()
    assert [(event.code, event.count, event.mark) for event in came] == [
        (79, 1, "boot:1"),
        (45, 1, "boot:2"),
        (45, 99_999, "boot:3-100001"),
    ]
    assert dropped(inbox) == 0


def test_what_has_no_like_in_a_full_queue_pushes_out_the_oldest_which_is_counted() -> None:
    inbox = Inbox(limit=2)
    for code in (1, 2, 2, 2, 3, 4):
        inbox.put(xid(code))
    assert [(event.code, event.count) for event in inbox.take()] == [(3, 1), (4, 1)]
    assert dropped(inbox) == 4


def test_a_queue_that_was_emptied_keeps_single_events_again() -> None:
    inbox = Inbox(limit=1)
    inbox.put(xid(45, 1))
    inbox.put(xid(45, 2))
    inbox.take()
    inbox.put(xid(45, 3))
    assert inbox.take() == (xid(45, 3),)
