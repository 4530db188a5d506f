"""The one thread that writes: alert memory first, then history, then a small step of tidying.

It alone touches the disk. When the disk stalls it sticks, and nobody else does; when the disk refuses, rows wait in bounded
queues and it tries again, with a pause, until the disk answers.
"""

import logging
import sqlite3
import threading
import traceback
from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Connection

from gpuwatch import config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.store import happenings, records
from gpuwatch.store.archive import Archive
from gpuwatch.store.files import DISK_ERRORS, Database, StoreError, Trouble, Verdict, close, trouble, words
from gpuwatch.store.happenings import Happenings
from gpuwatch.store.history import Rounds
from gpuwatch.store.lock import Claim, LockedError
from gpuwatch.store.memory import AlertMemory, Entry, units
from gpuwatch.store.records import Key

log = logging.getLogger(__name__)

IDLE = 10.0  # seconds between two looks at the queues without a call; a side that is in trouble is looked at when it is due
TIDY = 0.05  # seconds between two steps of retention
PAUSES = (0.5, 1.0, 2.0, 5.0)  # seconds before the next try after the first, second, ... failure
STALLED = 3.0  # seconds after which a write counts as stuck (rulings 7)
CALM = 2.0  # seconds without one after which it is said that the disk answers again: a slow disk is said once, not each write
PRUNE = 3600.0  # seconds between two prunings of the alert memory
NAMED = 3  # rows that are named where some are given up
BETWEEN = 200_000  # steps of SQLite's machine after which a long statement lets alerts pass: some 10 ms


class Side(msgspec.Struct):
    """One of the two databases: its connection, and how it goes."""

    database: Database
    connection: Connection | None = None
    ready: bool = False  # opened, migrated and read
    failures: int = 0
    problem: str = ""
    failed_at: float = 0.0  # monotonic
    retry_at: float = 0.0  # monotonic
    opened: threading.Event = msgspec.field(default_factory=threading.Event)  # it was opened and checked, or could not be
    tried: threading.Event = msgspec.field(default_factory=threading.Event)  # it was used for the first time, or could not be


class Counts(msgspec.Struct):
    """What the writing thread has done."""

    ok: int = 0
    failed: int = 0
    seconds: float = 0.0


class Writer:
    """Runs the thread. `adopted` is called whenever the alert memory was read, with the newest id in it."""

    def __init__(
        self,
        *,
        options: config.Store,
        state: Database,
        history: Database,
        archive: Archive,
        memory: AlertMemory,
        rounds: Rounds,
        events: Happenings,
        clock: Clock,
        claim: Claim,
        adopted: Callable[[str], None],
    ) -> None:
        self.state, self.history = Side(state), Side(history)
        self.counts = Counts()
        self._options, self._archive, self._memory, self._rounds = options, archive, memory, rounds
        self._events = events
        self._clock, self._claim, self._adopted = clock, claim, adopted
        self._wake = threading.Condition()
        self._woken = True  # the files are opened at once
        self._stopping = self._suspect = self._untidy = self._heard = False
        self._notes: list[str] = []
        self._faults: set[tuple[str, str, int | None]] = set()  # of ours, that the log has shown
        self._busy_since: float | None = None
        self._stood: tuple[float, float] | None = None  # monotonic: since when, and until when, the disk stood still
        self._pruned_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to write."""
        with self._wake:
            self._woken = True
            self._wake.notify()

    def suspect(self) -> None:
        """Say that a reader found the history corrupt."""
        self._suspect = True
        self.wake()

    def notes(self) -> list[str]:
        """Return what a person must know so far; what comes later is logged."""
        with self._wake:
            self._heard = True
            return list(self._notes)

    def stop(self, seconds: float) -> bool:
        """Write what is queued and end; False where the disk refused, or took too long, and the thread is left to it."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not (self._thread.is_alive() or self._memory.waiting or self._rounds.waiting or self._events.waiting)

    def stalled(self) -> float:
        """Return for how many seconds the present operation has made no progress, 0 where none runs."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock.mono() - since)

    def watch(self) -> None:
        """Log once that the disk stands still, and once that it moves again. One other thread calls this about every second."""
        now, stalled = self._clock.mono(), self.stalled()
        if stalled > STALLED:
            if self._stood is None:
                self._stood = now - stalled, now
                log.warning("the disk of the store has not answered for %.0f s; messages go out before they are stored", stalled)
            self._stood = self._stood[0], now
        elif self._stood is not None and now - self._stood[1] > CALM:
            log.info("the disk of the store answers again after %.0f s", self._stood[1] - self._stood[0])
            self._stood = None

    def problems(self) -> list[str]:
        """Return what is wrong, in words."""
        stalled = self.stalled()
        found = [f"the disk of the store has not answered for {stalled:.0f} s"] if stalled > STALLED else []
        for side in (self.state, self.history):
            found += [said for said in (side.problem, side.database.migrating) if said]
        return [*found, self._archive.shortage] if self._archive.shortage else found

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._woken and not self._stopping:
                    self._wake.wait(self._pause())
                self._woken, stopping = False, self._stopping
            try:
                self._round(last=stopping)
            except BaseException as error:  # noqa: BLE001 - the root of the thread: no fault must end all writing
                for side in (self.state, self.history):
                    self._stumbled(side, error)
            if stopping:
                close(self.state.connection)
                close(self.history.connection)
                return

    def _pause(self) -> float:
        """Return for how long there is nothing to do, as far as is known now."""
        if self._untidy and self.history.ready:
            return TIDY
        now = self._clock.mono()
        return max(TIDY, min([IDLE, *(side.retry_at - now for side in (self.state, self.history) if side.problem)]))

    def _round(self, *, last: bool) -> None:
        """Write what waits; on the last one each side gets a try at once."""
        self._guard(self.state, self._write_alerts, now=last)
        self._guard(self.history, self._open_history, now=last)
        while self.history.ready and (self._rounds.waiting or self._events.waiting):
            self._guard(self.state, self._write_alerts, now=False)  # alerts overtake history
            self._guard(self.history, self._write_events if self._events.waiting else self._write_round, now=True)
        if self._untidy and self.history.ready and not last:
            self._guard(self.history, self._tidy, now=True)

    def _guard(self, side: Side, act: Callable[[Connection], None], *, now: bool) -> None:
        """Do something with a database, opening it where needed; whatever the disk says ends here."""
        if not now and self._clock.mono() < side.retry_at:
            return
        outer, began = self._busy_since, self._clock.mono()
        self._busy_since = began
        try:
            self._hold()
            if side.connection is None:
                side.connection = side.database.open()
                self._tell(side.database)
                side.opened.set()
            act(side.connection)
        except DISK_ERRORS as error:
            self._failed(side, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours on one side must cost the other nothing
            self._stumbled(side, error)
        else:
            if side.problem:
                log.info("the %s takes writes again after %.0f s", side.database.layout.name, self._clock.mono() - side.failed_at)
            side.failures, side.problem = 0, ""
        finally:
            self._busy_since = outer
            if outer is None:
                self.counts.seconds += self._clock.mono() - began
            self._tell(side.database)
            side.opened.set()
            side.tried.set()

    def _hold(self) -> None:
        """Raise StoreError where another daemon has the files by now: two that write would undo each other's work."""
        try:
            self._claim.keep()
        except LockedError as error:
            raise StoreError(str(error)) from None

    def _failed(self, side: Side, error: Exception) -> None:
        """Close, and either begin afresh or say when the next try is."""
        self.counts.failed += 1
        self._drop(side, f"the {side.database.layout.name} cannot be used: {words(error)}{side.database.fullness()}")
        if trouble(error) is Trouble.CORRUPT:
            try:
                side.database.aside(Verdict("corrupt", f"has become corrupt ({words(error)})"))
                side.retry_at = 0.0
                self.wake()
            except (OSError, StoreError) as refusal:
                side.problem = f"the {side.database.layout.name} is corrupt and cannot be moved aside: {words(refusal)}"

    def _stumbled(self, side: Side, error: BaseException) -> None:
        """Close after a fault of ours, until the next try. The same one is shown in the log but once."""
        self.counts.failed += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        fault = type(error).__name__, last.filename, last.lineno
        if fault not in self._faults:
            self._faults.add(fault)
            log.error("a fault of gpuwatch itself, met with the %s", side.database.layout.name, exc_info=error)
        self._drop(side, f"the {side.database.layout.name} stumbled over a fault of gpuwatch ({fault[0]})")

    def _drop(self, side: Side, problem: str) -> None:
        """Close a database until its next try; the first of a row of failures is logged."""
        if not side.problem:
            side.failed_at = self._clock.mono()
            log.warning("%s; tried again until it answers", problem)
        side.problem = problem
        side.retry_at = self._clock.mono() + PAUSES[min(side.failures, len(PAUSES) - 1)]
        side.failures += 1
        side.ready = False
        close(side.connection)
        side.connection = None

    def _tell(self, database: Database) -> None:
        """Keep what a person must know for `start`, or log it."""
        told, database.notes = database.notes, []
        with self._wake:
            heard = self._heard
            if not heard:
                self._notes += told
        if heard:
            for note in told:
                log.warning("%s", note)

    def _write_alerts(self, connection: Connection) -> None:
        """Write all queued rows of the alert memory in one transaction."""
        if not self.state.ready:
            self._open_state(connection)
        taken = self._memory.take()
        if not taken:
            self._prune(connection)
            return
        try:
            self.state.database.ensure_there()
            self._put(connection, taken)
        except BaseException:
            self._memory.put_back(taken)
            raise
        self.counts.ok += 1
        self._memory.written(taken.values())

    def _put(self, connection: Connection, taken: dict[Key, Entry]) -> None:
        """Write rows together; if one of them is to blame, without it and what goes with it, which is whole or not at all."""
        try:
            with connection.begin():
                records.write(connection, {key: entry.row for key, entry in taken.items()})
        except DISK_ERRORS as error:
            if trouble(error) is not Trouble.BAD_ROW:
                raise
            parts = units(taken)
            if len(parts) == 1:
                which = ", ".join(" ".join(key) for key in list(taken)[:NAMED])
                log.warning("the alert memory gives up %d rows that no database takes (%s): %s", len(taken), which, words(error))
                self._memory.refused(taken.values())
                return
            for part in parts:
                self._put(connection, part)

    def _open_state(self, connection: Connection) -> None:
        """Bring the alert memory up to date and take over what is in it."""
        database = self.state.database
        fresh = database.upgrade(connection)
        found = records.find(connection)
        if database.newer is not None:
            found, fresh = self._inherit(found), True
        if found.refused:
            database.notes.append(f"{found.refused} row{'s' if found.refused > 1 else ''} of the alert memory could not be read")
        self._memory.adopt(found)
        self._adopted(found.newest)
        if fresh:
            self._memory.requeue()
        self.state.ready = True

    def _inherit(self, empty: records.Found) -> records.Found:
        """Read the alert memory of a newer gpuwatch that lets us."""
        database = self.state.database
        engine = database.reader(database.newer)
        try:
            with engine.connect() as connection:
                found = records.find(connection)
        except DISK_ERRORS as error:
            database.notes.append(f"the newer alert memory could not be read after all: {words(error)}")
            found = empty
        else:
            database.notes.append(f"{len(found.incidents)} open incidents were taken over from it")
        database.newer = None
        return found

    def _prune(self, connection: Connection) -> None:
        now = self._clock.mono()
        if self._pruned_at is None or now - self._pruned_at >= PRUNE:
            self._pruned_at = now
            records.prune(connection, self._clock.wall(), self._options.keep_incidents)

    def _open_history(self, connection: Connection) -> None:
        """Bring the history up to date, unless it is; long statements let alerts pass."""
        if self._suspect:
            self._suspect = False
            raise sqlite3.DatabaseError("a reader found it malformed")
        if not self.history.ready:
            driver = connection.connection.driver_connection
            if isinstance(driver, sqlite3.Connection):
                driver.set_progress_handler(self._between, BETWEEN)
            self.history.database.upgrade(connection)
            self._archive.load(connection)
            self.history.ready = self._untidy = True

    def _between(self) -> int:
        """Write alerts in the middle of a long statement on the history."""
        self._busy_since = self._clock.mono()  # it makes progress
        if self._memory.waiting:
            self._guard(self.state, self._write_alerts, now=False)
        return 0

    def _write_round(self, connection: Connection) -> None:
        done = self._rounds.take()
        if done is None:
            return
        try:
            self.history.database.ensure_there()
            self._archive.write(connection, done)
        except BaseException as error:
            if trouble(error) is Trouble.BAD_ROW:
                self._rounds.dropped += 1
            else:
                self._rounds.put_back(done)
            raise
        self.counts.ok += 1
        self._untidy = True

    def _write_events(self, connection: Connection) -> None:
        """Write the oldest events that wait."""
        taken = self._events.take()
        try:
            self.history.database.ensure_there()
            self._keep_events(connection, taken)
        except BaseException:
            self._events.put_back(taken)
            raise
        self._events.written()
        self.counts.ok += 1
        self._untidy = True

    def _keep_events(self, connection: Connection, events: Sequence[Event]) -> None:
        """Write events together; if one of them is to blame, one by one, without it."""
        try:
            happenings.write(connection, events)
        except (*DISK_ERRORS, OverflowError, UnicodeError) as error:
            if trouble(error) is not Trouble.BAD_ROW:
                raise
            if len(events) == 1:
                self._events.dropped += 1
            else:
                for event in events:
                    self._keep_events(connection, [event])

    def _tidy(self, connection: Connection) -> None:
        self._untidy = self._archive.tidy(connection)
