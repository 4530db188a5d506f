"""Events on disk: a table of the history in the order of writing, the queue before it, and what goes when there is too much.

They are kept for as long as incidents, counted as raw rows are: in rounds that were recorded, not on the calendar. A flood is
folded before it comes here; a number of rows, a small part of what the history may take, is the bound for all others.

What the history has not written yet is kept in the alert memory beside what rooms remember (`Store.save_state`): they go on from
where they were, and tell of nothing twice, so that it would be lost for good if a history refuses until we are killed.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, Connection, delete, func, insert, select

from gpuwatch.catalogue.events import KINDS
from gpuwatch.model.alert import Severity
from gpuwatch.model.escape import visible
from gpuwatch.model.event import Event
from gpuwatch.store.history import PERIOD
from gpuwatch.store.schema import EVENT, ROUND, milliseconds

LIMIT = 4096  # events that wait for the disk
BATCH = 200  # of one transaction
MOST, LEAST = 200_000, 1_000  # rows
SHARE, ROW = 0.05, 400  # of the bytes that the history may take; bytes of a row with its part of the indexes
ANSWER = 10_000  # rows of one answer
LARGEST = 2**53  # of a count: what every reader of JSON takes
STATE, VERSION = "unwritten_events", 1  # of the alert memory
REMEMBERED = 1024  # of those that wait, the newest: 0.4 MB with each state that is saved while the history refuses

log = logging.getLogger(__name__)


class Happenings:
    """The events that wait for the writing thread; a full queue drops the oldest. Any thread may call it."""

    def __init__(self) -> None:
        self.dropped = 0
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque()
        self._taken: list[Event] = []  # by the writing thread, which is at it
        self._has_changed = False  # since what is not written was saved
        self._is_recalled = False  # what the run before had not written is here
        self._told = b""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, events: Sequence[Event]) -> None:
        """Add the newest."""
        with self._lock:
            self._waiting.extend(events)
            self._trim()
            self._has_changed = True

    def take(self) -> list[Event]:
        """Return the oldest and remove them; `written` or `put_back` follows."""
        with self._lock:
            self._taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            return self._taken

    def written(self) -> None:
        """Say that what was taken is on disk."""
        with self._lock:
            self._taken, self._has_changed = [], True

    def put_back(self, events: Sequence[Event]) -> None:
        """Return what could not be written; where the queue is full by now the oldest go."""
        with self._lock:
            self._taken = []
            self._waiting.extendleft(reversed(events))
            self._trim()
            self._has_changed = True

    def keep(self, save: Callable[[bytes], object]) -> None:
        """Have what is not on disk saved, packed, unless that is what was saved before; of two callers the later saves later.

        Nothing is saved until what an earlier run could not write is here: that would be overwritten.
        """
        with self._lock:
            if not (self._is_recalled and self._has_changed):
                return
            self._has_changed = False
            events = [*self._taken, *self._waiting][-REMEMBERED:]
            before, self._told = self._told, msgspec.msgpack.encode(events) if events else b""
            if self._told != before:
                save(self._told)

    def recall(self, stored: tuple[int, bytes] | None) -> None:
        """Take up what an earlier run could not write, before what this one has; once, for later it is what this run has left."""
        version, told = stored or (VERSION, b"")
        with self._lock:
            if self._is_recalled:
                return
            self._is_recalled, self._told = True, told
            if not told or version != VERSION:
                return
            try:
                self._waiting.extendleft(reversed(msgspec.msgpack.decode(told, type=list[Event])))
                self._trim()
                self._has_changed = True
            except msgspec.MsgspecError:
                log.warning("events that the last run had not written to the history cannot be read: they are not in it")

    def _trim(self) -> None:
        while len(self._waiting) > LIMIT:
            self._waiting.popleft()
            self.dropped += 1


def write(connection: Connection, events: Sequence[Event]) -> None:
    """Store events in one transaction, but for those that are stored already.

    A kernel log is read again after a kill, and what an earlier run had not written may have been written in its last moment.
    """
    with connection.begin():
        number = connection.scalar(select(func.max(ROUND.c.id))) or 0
        rows = [row(event, number) for event in events]
        there = stored(connection, EVENT.c.mark, [one["mark"] for one in rows if one["mark"]])
        there |= stored(connection, EVENT.c.at, [one["at"] for one in rows if not one["mark"]])
        fresh: list[dict[str, object]] = []
        for one in rows:
            if identity(one) not in there:
                fresh.append(one)
                there |= {identity(one)} if one["mark"] else set()  # a kernel record is one; two of one time are two
        if fresh:
            connection.execute(insert(EVENT), fresh)


def stored(connection: Connection, column: Column[Any], values: Sequence[object]) -> set[tuple[object, ...]]:
    """Return the identities of the events that have one of these values."""
    if not values:
        return set()
    found = connection.execute(select(EVENT).where(column.in_(set(values)))).mappings()
    return {identity(one) for one in found}


def identity(one: Mapping[Any, Any]) -> tuple[object, ...]:
    """Return by what a row is known again: its kernel record, or its time and words."""
    which = (one["mark"],) if one["mark"] else (one["at"], one["source"], one["words"])
    return *which, one["kind"], one["key"], one["code"]


def row(event: Event, number: int) -> dict[str, object]:
    """Return an event as a row; `number` is the round before it."""
    return {
        "round": number,
        "at": milliseconds(event.at),
        "source": event.source,
        "kind": event.kind,
        "severity": event.severity.value,
        "subject": event.subject,
        "key": visible(event.key),
        "code": event.code,
        "count": min(event.count, LARGEST),
        "words": visible(event.words),
        "facts": msgspec.json.encode(visible(dict(event.facts))).decode(),
        "mark": event.mark,
    }


def read(
    connection: Connection, since: float, until: float, limit: int, *, kinds: Collection[str] | None, keys: Collection[str] | None
) -> Iterator[Event]:
    """Yield the newest events with since <= at < until, the oldest of them first."""
    query = (
        select(EVENT)
        .where(EVENT.c.at >= milliseconds(since), EVENT.c.at < milliseconds(until))
        .order_by(EVENT.c.at.desc(), EVENT.c.id.desc())
        .limit(max(0, min(limit, ANSWER)))
    )
    if kinds is not None:
        query = query.where(EVENT.c.kind.in_(kinds))
    if keys is not None:
        query = query.where(EVENT.c.key.in_(keys))
    with connection.begin():
        found = connection.execute(query).all()
    for one in reversed(found):
        if one.kind in KINDS:  # another version may have had more
            yield Event(
                source=one.source,
                kind=one.kind,
                severity=Severity(one.severity),
                at=one.at / 1000,
                words=one.words,
                subject=one.subject,
                key=one.key,
                code=one.code,
                facts=msgspec.json.decode(one.facts, type=dict[str, str]),
                count=one.count,
                mark=one.mark,
            )


def prune(connection: Connection, keep: float, limit: int | None) -> int:
    """Delete what is older than `keep` seconds of recorded time, or over the rows that `limit` bytes of history allow."""
    most = MOST if limit is None else max(LEAST, min(MOST, int(limit * SHARE / ROW)))
    with connection.begin():
        last_round = connection.scalar(select(func.max(ROUND.c.id))) or 0
        last = connection.scalar(select(func.max(EVENT.c.id))) or 0
        old = EVENT.c.round < last_round - int(keep // PERIOD)
        return connection.execute(delete(EVENT).where(old | (EVENT.c.id <= last - most))).rowcount
