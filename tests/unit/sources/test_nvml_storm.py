"""Events that follow each other closely are few, and none is lost from the count."""

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.nvml.storm import MOST, WINDOW, Fold


def xid(code: int, words: str = "Xid") -> Event:
    """Return an Xid of one GPU."""
    return Event(source="nvml", kind="xid", severity=Severity.WARNING, at=1.0, words=words, subject="gpu", key="GPU-1", code=code)


def counts(events: list[Event]) -> list[tuple[int | None, int]]:
    """Return codes and counts."""
    return [(event.code, event.count) for event in events]


def test_the_first_is_told_at_once_and_the_others_as_one_at_the_end_of_the_window() -> None:
    fold = Fold()
    assert counts(fold.add(xid(31), 0.0)) == [(31, 1)]
    assert [fold.add(xid(31), 0.001 * number) for number in range(1, 100)] == [[]] * 99
    assert fold.due(WINDOW - 0.01) == []
    assert counts(fold.due(WINDOW)) == [(31, 99)]
    assert fold.due(3 * WINDOW) == []


def test_a_storm_is_told_once_a_window_and_its_end_begins_afresh() -> None:
    fold = Fold()
    told = [event for beat in range(10_000) for event in fold.add(xid(31), beat / 1000)]
    told += fold.due(20.0)
    assert sum(event.count for event in told) == 10_000
    assert len(told) <= 12
    assert counts(fold.add(xid(31), 30.0)) == [(31, 1)]


def test_what_is_not_equal_is_told_by_itself() -> None:
    fold = Fold()
    assert counts(fold.add(xid(31), 0.0)) == [(31, 1)]
    assert counts(fold.add(xid(43), 0.0)) == [(43, 1)]
    assert counts(fold.add(xid(31, "Xid (GPU instance 3)"), 0.0)) == [(31, 1)]


def test_the_end_tells_what_is_left() -> None:
    fold = Fold()
    for _ in range(3):
        fold.add(xid(31), 0.0)
    assert counts(fold.rest()) == [(31, 2)]
    assert fold.rest() == []


def test_more_different_ones_than_can_be_are_bounded_and_told_as_lost() -> None:
    fold = Fold()
    told = [event for code in range(1, 1001) for event in fold.add(xid(code), 0.0)]
    assert len(told) == MOST + 1
    told += fold.due(WINDOW)
    lost = [(event.key, event.code, event.count) for event in told if event.kind == "events_lost"]
    assert lost == [("GPU-1", None, 1), ("GPU-1", None, 1000 - MOST - 1)]
    assert sum(event.count for event in told) == 1000
    assert counts(fold.add(xid(1), 5.0)) == [(1, 1)]
