"""What happened, on disk: it comes back as it was told, once, and its table has a bound."""

import math
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import select

from gpuwatch import config
from gpuwatch.model.alert import Severity
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import Event
from gpuwatch.store import happenings
from gpuwatch.store.archive import Archive
from gpuwatch.store.files import Database
from gpuwatch.store.happenings import BATCH, LIMIT, Happenings
from gpuwatch.store.migrations import HISTORY_LAYOUT
from gpuwatch.store.schema import EVENT
from tests.fakes.store_home import Home, run
from tests.fakes.store_nouns import EPOCH, round_of
from tests.fakes.until import PATIENCE, until


def event(number: int, **facts: object) -> Event:
    """Return an Xid; `facts` are fields of it."""
    told = Event(
        source="kernel",
        kind="xid",
        severity=Severity.CRITICAL,
        at=EPOCH + number,
        words=f"NVRM: Xid {number}",
        subject="gpu",
        key="GPU-1",
        code=79,
        facts={"pid": "7", "name": "train"},
        count=3,
        mark=f"boot:{number}",
    )
    return replace(told, **facts)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Stores in one folder."""
    home = Home(tmp_path)
    yield home
    home.close()


def kept(home: Home, count: int) -> list[Event]:
    """Return all events of a store once there are so many."""
    store = home()
    run(store)
    until(lambda: len(store.events(-math.inf, math.inf)) == count)
    return store.events(-math.inf, math.inf)


def test_events_come_back_as_they_were_after_a_restart(opened: Home) -> None:
    store = opened()
    run(store)
    odd = event(2, kind="oom_kill", subject="host", key="", code=None, mark="", words="n\udcffme", at=EPOCH - 5.5)
    store.record([event(1), odd])
    assert store.stop(10)
    assert kept(opened, 2) == [replace(odd, words="n\\udcffme"), event(1)]


def test_a_question_is_answered_with_the_newest_that_fit(opened: Home) -> None:
    store = opened()
    run(store)
    store.record([event(number, key=f"GPU-{number % 2}", kind="xid" if number % 3 else "off_bus") for number in range(10)])

    def numbers(**asked: object) -> list[int]:
        limits = {"since": EPOCH, "until": EPOCH + 100} | asked
        return [int(found.at - EPOCH) for found in store.events(**limits)]  # type: ignore[arg-type] # named as they are

    until(lambda: numbers() == list(range(10)))
    assert numbers(limit=3) == [7, 8, 9]
    assert numbers(limit=0) == numbers(limit=-1) == []
    assert numbers(since=EPOCH + 2, until=EPOCH + 5) == [2, 3, 4]
    assert numbers(keys=["GPU-1"]) == [1, 3, 5, 7, 9]
    assert numbers(kinds=["off_bus"], keys=["GPU-0"]) == [0, 6]
    assert numbers(kinds=[]) == []


def test_a_log_that_is_read_again_adds_nothing(opened: Home) -> None:
    """After a kill the detector may know less than the disk."""
    store = opened()
    run(store)
    store.record([event(1), event(1, kind="off_bus", code=None)])
    until(lambda: len(store.events(0, math.inf)) == 2)
    store.record([event(1), event(1, kind="off_bus", code=None), event(2), event(2, mark=""), event(2, mark="")])
    until(lambda: len(store.events(0, math.inf)) == 5)
    assert store.stop(10)


def test_an_event_that_no_database_takes_costs_no_other(opened: Home) -> None:
    store = opened()
    run(store)
    store.record([event(1), event(2, code=2**70), event(3)])
    until(lambda: [found.at for found in store.events(0, math.inf)] == [EPOCH + 1, EPOCH + 3])
    until(lambda: store._events.dropped == 1)
    assert store.problem() == ""


def test_a_history_of_a_gpuwatch_without_events_gets_their_table(opened: Home, tmp_path: Path) -> None:
    store = opened()
    run(store)
    assert store.stop(10)
    with sqlite3.connect(tmp_path / "gpuwatch.db") as file:
        file.execute("DROP TABLE event")
    file.close()
    again = opened()
    run(again)
    again.record([event(1)])
    until(lambda: again.events(0, math.inf) == [event(1)])


@pytest.mark.parametrize("mark", ["boot:7", ""])
def test_what_a_history_that_refuses_was_told_before_a_kill_is_in_it_once_it_takes_writes(
    opened: Home, tmp_path: Path, mark: str
) -> None:
    """Rooms remember that they have told it, and do not tell it again: it is on disk as soon as that is."""
    store = opened()
    run(store)
    before, lost = event(6), event(7, mark=mark)
    store.record([before])
    until(lambda: store.events(0, math.inf) == [before])
    holder = sqlite3.connect(tmp_path / "gpuwatch.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store.record([lost])
    assert store.save_state("detector.events", 1, b"has told it").wait(PATIENCE)
    late = tmp_path / "as the kill left it"
    late.mkdir()
    for file in tmp_path.glob("*.db*"):
        shutil.copy(file, late)
    holder.close()
    killed = Home(late)
    assert kept(killed, 2) == [before, lost]
    killed.close()  # its last save still names what has been written since
    assert kept(killed, 2) == [before, lost]
    killed.close()


def test_what_was_recalled_and_is_told_again_is_in_the_history_once(opened: Home) -> None:
    """The rest of an earlier run and the log that is read again after it may come to the disk together."""
    store = opened()
    run(store)
    store.record([event(1), event(1)])
    until(lambda: [found.mark for found in store.events(0, math.inf)] == ["boot:1"])


@pytest.mark.parametrize("mark", ["boot:7", ""])
def test_an_alert_memory_that_is_opened_anew_brings_back_nothing_of_this_run(mark: str) -> None:
    """Both files may refuse for a while: what waits is kept in the one, and still waits here."""
    queue = Happenings()
    queue.recall(None)
    queue.put([event(7, mark=mark)])
    blob = saved(queue)
    assert blob is not None
    queue.recall((1, blob))
    assert queue.take() == [event(7, mark=mark)]


@pytest.mark.parametrize("mark", ["boot:7", ""])
def test_what_waits_while_both_files_refuse_is_in_the_history_once(opened: Home, tmp_path: Path, mark: str) -> None:
    store = opened()
    run(store)
    held = {name: sqlite3.connect(tmp_path / name, isolation_level=None) for name in ("gpuwatch.db", "state.db")}
    held["gpuwatch.db"].execute("BEGIN IMMEDIATE")
    store.record([event(7, mark=mark)])
    assert store.save_state("detector.events", 1, b"has told it").wait(PATIENCE)
    held["state.db"].execute("BEGIN IMMEDIATE")
    ticket = store.save_state("detector.events", 1, b"and more")
    until(lambda: {"history", "alert"} <= set(store.problem().split()))
    held["state.db"].close()
    assert ticket.wait(PATIENCE)  # it was opened anew
    held["gpuwatch.db"].close()
    store.record([event(8)])
    until(lambda: store.events(0, math.inf)[-1:] == [event(8)])
    assert store.events(0, math.inf) == [event(7, mark=mark), event(8)]


def saved(queue: Happenings) -> bytes | None:
    """Return what is saved now of a queue, None for nothing."""
    found: list[bytes] = []
    queue.keep(found.append)
    return found[0] if found else None


def test_of_two_that_save_at_once_the_later_one_saves_what_is_newer() -> None:
    queue, found = Happenings(), list[bytes]()
    queue.recall(None)

    def later() -> None:
        queue.put([event(2)])
        queue.keep(found.append)

    other = threading.Thread(target=later)

    def slowly(blob: bytes) -> None:
        other.start()
        other.join(0.3)  # by then it would have overtaken us
        found.append(blob)

    queue.put([event(1)])
    queue.keep(slowly)
    other.join(PATIENCE)
    assert [msgspec.msgpack.decode(blob, type=list[Event]) for blob in found] == [[event(1)], [event(1), event(2)]]


def test_what_waits_is_kept_with_the_next_state_alone_and_once() -> None:
    queue = Happenings()
    assert saved(queue) is None
    queue.put([event(0)])
    assert saved(queue) is None  # what an earlier run has left is not read yet
    assert queue.take() == [event(0)]
    queue.written()
    queue.recall(None)
    queue.put([event(1)])
    queue.take()
    (one, again) = saved(queue), saved(queue)
    assert (msgspec.msgpack.decode(one or b"", type=list[Event]), again) == ([event(1)], None)
    queue.put([event(2)])
    queue.written()
    assert msgspec.msgpack.decode(saved(queue) or b"", type=list[Event]) == [event(2)]
    queue.take()
    queue.written()
    assert (saved(queue), saved(queue)) == (b"", None)
    queue.put([event(3)])
    queue.take()
    queue.written()
    assert saved(queue) is None  # it was on disk before anybody asked


def test_a_full_queue_drops_the_oldest_and_counts() -> None:
    queue = Happenings()
    queue.put([event(number) for number in range(LIMIT + 10)])
    first = queue.take()
    assert (queue.dropped, len(first), first[0], queue.waiting) == (10, BATCH, event(10), LIMIT - BATCH)
    queue.put([event(LIMIT + 10 + number) for number in range(BATCH)])
    queue.put_back(first)
    assert (queue.dropped, queue.waiting, queue.take()[0]) == (10 + BATCH, LIMIT, event(10 + BATCH))


def test_the_table_is_bounded_by_rows_and_by_recorded_time(tmp_path: Path) -> None:
    """A clock that jumps by years makes nothing old."""
    options = config.Store(url=f"sqlite:///{tmp_path / 'x.db'}")
    database = Database(options.url, HISTORY_LAYOUT, "m", SystemClock(), synchronous="OFF")
    archive = Archive(options, database)
    connection = database.open()
    database.upgrade(connection)
    archive.load(connection)

    def numbers() -> list[int]:
        with connection.begin():
            return [at // 1000 - int(EPOCH) for (at,) in connection.execute(select(EVENT.c.at).order_by(EVENT.c.id))]

    happenings.write(connection, [event(number) for number in range(1_500)])
    happenings.prune(connection, 1e9, 1 << 20)
    assert numbers() == list(range(500, 1_500))
    happenings.prune(connection, 1e9, None)
    assert len(numbers()) == 1_000
    archive.write(connection, round_of(1))
    happenings.write(connection, [event(2_000, at=EPOCH + 5 * 31_536_000)])
    archive.write(connection, round_of(2))
    happenings.prune(connection, 20.0, None)
    assert len(numbers()) == 1_001
    happenings.prune(connection, 10.0, None)
    assert len(numbers()) == 1
    connection.close()
