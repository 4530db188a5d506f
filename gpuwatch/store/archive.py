"""The history on disk: rounds in, rows out, and what goes when there is too much of it.

Retention counts rounds in the order of writing. `keep_raw` of 7 days is 60,480 rounds of 10 s: time that was recorded, not
time on the calendar. So neither a wall clock that jumps five years nor a host that was off for a month makes anything old, and
what is deleted is always what was written first. The size cap wins over it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, delete, func, insert, select, update

from gpuwatch import config
from gpuwatch.model.escape import visible
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.target import Target
from gpuwatch.store import happenings
from gpuwatch.store.files import Database, raw
from gpuwatch.store.history import PERIOD, Round
from gpuwatch.store.schema import RAW, ROUND, TARGET, milliseconds

CHUNK = 30  # rounds that one step of retention deletes
LEAST = 6  # rounds that the cap leaves in any case
VACUUM_PAGES = 500  # pages that one step gives back to the file system
DEFAULT_CAP = 2 << 30
DEFAULT_SHARE = 0.05  # of the file system
LOW_SPACE = 1 << 30  # free bytes below which the history stops growing
FLOOR = 16 << 20  # bytes to which it grows all the same: some hours of one GPU
LOG_ROOM = 8 << 20  # bytes of the cap that are left to SQLite's log, which grows to 4 MiB and beyond in a large transaction
SEEN_EVERY = 60  # rounds between two marks that a target still exists
PRUNE_EVERY = 360  # rounds between two prunings of targets whose rows are all gone
ROW_LIMIT = 100_000  # rows of one answer

Place = tuple[str, str]  # subject, key


class Row(msgspec.Struct, frozen=True):
    """What one target had in one period. A metric that was not read in it is missing in `values`."""

    key: str
    labels: Mapping[str, str]
    at: float  # wall clock
    values: Mapping[Metric, float]


class Known(msgspec.Struct):
    """What the target table says of one target."""

    id: int
    labels: str
    info: str
    seen: int  # the last round of which it says that the target was there


class Archive:
    """The history database as the writing thread sees it; its connection is handed in."""

    def __init__(self, options: config.Store, database: Database) -> None:
        self.oldest: float | None = None  # wall clock of the oldest round
        self.size: int | None = None  # bytes of the file and its log; None on a server, and before it is known
        self.shortage = ""  # why it does not grow, to a person
        self._database = database
        self._cap = options.max_size
        self._keep = max(LEAST, int(options.keep_raw // PERIOD))
        self._keep_events = options.keep_incidents
        self._known: dict[Place, Known] = {}
        self._first, self._last = 1, 0  # ids of the oldest and the newest round

    @property
    def cap(self) -> int | None:
        """The bytes to which the history may grow; None on a server, and where its file system cannot be asked.

        The folder need not be there yet: it is asked of the nearest one above that is.
        """
        path = self._database.path
        if self._cap or path is None:
            return self._cap
        for folder in path.parents:
            try:
                space = os.statvfs(folder)
            except FileNotFoundError:
                continue
            except OSError:
                break
            return usual(space.f_blocks * space.f_frsize)
        return None

    def load(self, connection: Connection) -> None:
        """Learn what is there."""
        with connection.begin():
            first, last = connection.execute(select(func.min(ROUND.c.id), func.max(ROUND.c.id))).one()
            self.oldest = seconds(connection.scalar(select(ROUND.c.at).where(ROUND.c.id == first)))
            # of a history that was begun before targets had this mark
            connection.execute(update(TARGET).where(TARGET.c.last_round.is_(None)).values(last_round=last or 0))
        self._known = {}
        self._first, self._last = (first, last) if first is not None else (1, 0)
        self._weigh()

    def write(self, connection: Connection, done: Round) -> None:
        """Store one round in one transaction."""
        at, fresh = milliseconds(done.at), dict[Place, Known]()
        grouped: dict[Subject, list[dict[str, float | None]]] = {}
        with connection.begin():
            while connection.scalar(select(ROUND.c.id).where(ROUND.c.at == at)) is not None:
                at += 1  # this moment is lived a second time after the clock was set back: both are kept
            connection.execute(insert(ROUND), {"id": self._last + 1, "at": at})
            for target, values in done.rows:
                place = target.subject.name, str(visible(target.key))
                fresh[place] = known = self._target(connection, place, target, at)
                row = dict.fromkeys(RAW[target.subject].columns.keys())
                row.update(values, target=known.id, at=at)
                grouped.setdefault(target.subject, []).append(row)
            for subject, rows in grouped.items():
                connection.execute(insert(RAW[subject]), rows)
        # Only now: a transaction that failed left nothing behind.
        self._known.update(fresh)
        self._last += 1
        if self.oldest is None:
            self.oldest = at / 1000

    def tidy(self, connection: Connection) -> bool:
        """Do one small step of what retention and the cap ask for; True while there is more."""
        more = self._step(connection)
        self._weigh()
        return more

    def _weigh(self) -> None:
        if self._database.path is not None:
            self.size = self._database.size() or None  # 0: the file is gone

    def _step(self, connection: Connection) -> bool:
        if self._last % PRUNE_EVERY == 0:
            happenings.prune(connection, self._keep_events, self._cap or self._room())
            self._prune(connection)
        if self._last - self._first + 1 >= self._keep + CHUNK:
            return self._delete_oldest(connection, CHUNK)
        if self._database.path is None:
            return False  # a database server has its own limits
        return self._shrink(connection)

    def _target(self, connection: Connection, place: Place, target: Target, at: int) -> Known:
        """Return the row of this target, found, made or brought up to date."""
        labels, info, now = text(target.labels), text(target.info), self._last + 1
        known = self._known.get(place) or find(connection, place)
        if known is None:
            row = dict(zip(("subject", "key"), place, strict=True), labels=labels, info=info, first_seen=at)
            made = connection.execute(insert(TARGET), row | {"last_seen": at, "last_round": now}).inserted_primary_key
            return Known(made[0] if made else 0, labels, info, now)
        if (labels, info) != (known.labels, known.info) or now - known.seen >= SEEN_EVERY:
            change = {"labels": labels, "info": info, "last_seen": at, "last_round": now}
            connection.execute(update(TARGET).where(TARGET.c.id == known.id).values(change))
            return Known(known.id, labels, info, now)
        return known

    def _delete_oldest(self, connection: Connection, count: int) -> bool:
        """Delete the rounds that were written first, in one transaction; False where none may go."""
        upto = min(self._first + count - 1, self._last - LEAST)
        if upto < self._first:
            return False
        with connection.begin():
            times = select(ROUND.c.at).where(ROUND.c.id <= upto)
            for subject, table in RAW.items():
                gone = delete(table).where(table.c.at.in_(times))
                if not subject.brief:  # its key begins with the target
                    gone = gone.where(table.c.target.in_(select(TARGET.c.id).where(TARGET.c.subject == subject.name)))
                connection.execute(gone)
            connection.execute(delete(ROUND).where(ROUND.c.id <= upto))
            oldest = connection.scalar(select(ROUND.c.at).where(ROUND.c.id == upto + 1))
        self._first, self.oldest = upto + 1, seconds(oldest)
        return True

    def _shrink(self, connection: Connection) -> bool:
        """Hold the cap: delete the oldest while the live pages are over it, then give free pages back."""
        page, pages, unused = (
            int(str(raw(connection, f"PRAGMA {name}")[0][0])) for name in ("page_size", "page_count", "freelist_count")
        )
        log = self._database.size_of("-wal")
        limit = self._limit(page * pages + log)
        room = min(LOG_ROOM, limit // 4)
        if log > room:
            raw(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            log = self._database.size_of("-wal")
        if page * (pages - unused) > limit - room:
            return self._delete_oldest(connection, max(1, min(CHUNK, (self._last - self._first) // 16)))
        if page * pages + log > limit and unused:
            raw(connection, f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            raw(connection, "PRAGMA wal_checkpoint(TRUNCATE)")  # the file shrinks when the log is copied into it
            return True
        return False

    def _limit(self, total: int) -> int:
        """Return the bytes that the history and its log may take now, where they take `total`."""
        assert self._database.path is not None
        space = os.statvfs(self._database.path.parent)
        free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        place = f"the file system of {self._database.path}"
        self.shortage = "" if free >= LOW_SPACE else f"only {free >> 20} MiB are free on {place}: the history does not grow"
        return allowance(total, free=free, size=size, cap=self._cap)

    def _room(self) -> int | None:
        """Return the bytes that the history may take at most; None on a server."""
        if self._database.path is None:
            return None
        space = os.statvfs(self._database.path.parent)
        return usual(space.f_blocks * space.f_frsize)

    def _prune(self, connection: Connection) -> None:
        """Delete the targets that have no row any more, and forget those that are not there now."""
        with connection.begin():
            connection.execute(delete(TARGET).where(TARGET.c.last_round < self._first - SEEN_EVERY))
        self._known = {place: known for place, known in self._known.items() if known.seen >= self._last - SEEN_EVERY}


def find(connection: Connection, place: Place) -> Known | None:
    """Return what the target table says of a target, None where it is new."""
    subject, key = place
    row = connection.execute(select(TARGET).where(TARGET.c.subject == subject, TARGET.c.key == key)).one_or_none()
    return None if row is None else Known(row.id, row.labels, row.info, row.last_round)


def read(
    connection: Connection, subject: Subject, metrics: Sequence[Metric], since: float, until: float, *, key: str | None
) -> Iterator[Row]:
    """Yield the rows with since <= at < until, the oldest first, at most `ROW_LIMIT` of them."""
    query = question(subject, metrics, since, until, key)
    labels: dict[str, dict[str, str]] = {}
    with connection.begin():
        for name, words, at, *numbers in connection.execute(query):
            if words not in labels:
                labels[words] = msgspec.json.decode(words, type=dict[str, str])
            values = {metric: value for metric, value in zip(metrics, numbers, strict=True) if value is not None}
            if values:
                yield Row(name, labels[words], at / 1000, values)


def question(subject: Subject, metrics: Sequence[Metric], since: float, until: float, key: str | None) -> Select[Any]:
    """Return the query of `read`, which goes along the key of the table.

    Rows of a brief subject lie by time: those of one target are looked up round by round, those of all need no list of targets.
    """
    table = RAW[subject]
    query = (
        select(TARGET.c.key, TARGET.c.labels, table.c.at, *(table.c[metric.id] for metric in metrics))
        .join(TARGET, TARGET.c.id == table.c.target)
        .order_by(table.c.at, TARGET.c.key)
        .limit(ROW_LIMIT)
    )
    first, end = milliseconds(since), milliseconds(until)
    if key is not None or not subject.brief:
        query = query.where(TARGET.c.subject == subject.name)
    if key is not None:
        query = query.where(TARGET.c.key == key)
        if subject.brief:
            return query.where(table.c.at.in_(select(ROUND.c.at).where(ROUND.c.at >= first, ROUND.c.at < end)))
    return query.where(table.c.at >= first, table.c.at < end)


def usual(size: int) -> int:
    """Return the bytes to which a history grows on a file system of this size, where the configuration does not say it."""
    return min(DEFAULT_CAP, int(size * DEFAULT_SHARE))


def allowance(total: int, *, free: int, size: int, cap: int | None) -> int:
    """Return the bytes that a history of `total` may take on a file system of this size with so much free.

    `cap` is what the operator said; otherwise the smaller of 2 GiB and a twentieth of the file system.
    """
    limit = cap or usual(size)
    return limit if free >= LOW_SPACE else min(limit, max(total, FLOOR))


def text(words: Mapping[str, str]) -> str:
    """Return labels or info as JSON."""
    return msgspec.json.encode(visible(dict(words))).decode()


def seconds(at: int | None) -> float | None:
    """Return the history's milliseconds as seconds."""
    return None if at is None else at / 1000
