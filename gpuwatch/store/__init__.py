"""SQLite: what must not be lost (alert memory) and what was seen (history), written by one thread.

Two files, so that a history that is full, corrupt, huge or of another version never costs an alert:

- `state.db`, the alert memory: incidents, told-marks, deliveries, silences, small states by name. `synchronous=FULL`, checked
  whole at every start, copied before a migration. It lies beside the history, or in the state folder where that is a server.
- `gpuwatch.db` (`[store] url`), the history: a wide table a subject. `synchronous=NORMAL`: a crash of the host may cost the last
  minutes, a crash of the daemon nothing.

To add a table or change one: schema.py and a step in migrations.py. Metrics come from the catalogue by themselves.
"""

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine

from gpuwatch import config
from gpuwatch.catalogue import own
from gpuwatch.config import ConfigError
from gpuwatch.model.alert import Incident
from gpuwatch.model.clock import Clock
from gpuwatch.model.delivery import Delivery, Outcome, Told
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.past import Past, Question, UnreadableError
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.silence import Silence
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.store import apart, happenings, past
from gpuwatch.store.archive import Archive, Row, read
from gpuwatch.store.files import DISK_ERRORS, Database, Trouble, trouble, words
from gpuwatch.store.happenings import Happenings
from gpuwatch.store.history import Accumulator, Rounds
from gpuwatch.store.lock import Claim, LockedError
from gpuwatch.store.memory import AlertMemory, Memory, Ticket
from gpuwatch.store.migrations import HISTORY_LAYOUT, STATE_LAYOUT, Layout
from gpuwatch.store.ulid import Ulid
from gpuwatch.store.writer import STALLED, Writer

__all__ = ["LockedError", "Memory", "Row", "Store", "Ticket", "Ulid"]

log = logging.getLogger(__name__)

START = 3.0  # seconds that `start` waits for the disk
LOOK = 0.1  # seconds of them between two looks whether it is to end
CLAIM = 1.0  # seconds that `claim` does
READ = 5.0  # seconds that one `rows` may take
READ_STEPS = 10_000  # steps of SQLite's machine between two looks at the time
INTERRUPTED = "interrupted"  # what SQLite says when that time is over (sqlite3ErrStr in main.c)
ASKERS = 2  # questions that are answered at once: each costs the daemon up to a core, and a thread of those that answer HTTP
ASKERS_WAIT = 1.0  # seconds that the next one waits


class Store:
    """Keeps alerts and history. `rows`, `events` and `past` raise for a disk; they, `start` and `stop` alone wait for one.

    `observe` belongs to one thread; everything else may be called from any. `ids` makes ULIDs above all stored ones.
    Construction raises ConfigError for a url or a state that cannot be used.
    """

    def __init__(
        self,
        options: config.Store,
        machine: str,
        clock: Clock,
        *,
        state_layout: Layout = STATE_LAYOUT,
        history_layout: Layout = HISTORY_LAYOUT,
    ) -> None:
        self.ids = Ulid(clock)
        self._clock = clock
        self._history = Database(options.url, history_layout, machine, clock, synchronous="NORMAL")
        self.state = file = self._state_file(options)
        for key, path in (("store.url", self._history.path), ("store.state", file)):
            if path is not None and os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - Path's may raise
                raise ConfigError("configuration", key, f"expected a file, {path} is none")
        lock = file.with_suffix(".lock")
        apart.check(self._history.path, file, lock, is_named=bool(options.state))
        self._claim = Claim(lock)
        state = Database(f"sqlite:///{file}", state_layout, machine, clock, synchronous="FULL")
        self._archive = Archive(options, self._history)
        self._memory, self._rounds, self._accumulator = AlertMemory(), Rounds(), Accumulator()
        self._events = Happenings()
        self._writer = Writer(
            options=options,
            state=state,
            history=self._history,
            archive=self._archive,
            memory=self._memory,
            rounds=self._rounds,
            events=self._events,
            clock=clock,
            claim=self._claim,
            adopted=self._adopted,
        )
        self._reader: Engine = self._history.reader()
        self._askers = threading.BoundedSemaphore(ASKERS)

    def claim(self) -> None:
        """Take the files for this process, for as long as it lives; raises LockedError where another daemon uses them.

        A disk that stands still does not hold the start up; if the files turn out to be taken later, the log says so. Where
        another one is let in since somebody removed the lock, the store is failing until that one has gone.
        """
        found: list[LockedError] = []
        late = threading.Event()

        def take() -> None:
            try:
                self._claim.take()
            except LockedError as error:
                found.append(error)
                if late.is_set():
                    log.error("%s", error)  # noqa: TRY400 - who has them says it all

        thread = threading.Thread(target=take, name="store-claim", daemon=True)
        thread.start()
        thread.join(CLAIM)
        late.set()
        if found:
            raise found[0]

    def start(self, is_ending: Callable[[], bool] = lambda: False) -> list[str]:
        """Open both files; returns what a person must know. Waits a few seconds at most: what takes longer goes on by itself."""
        self._writer.start()
        deadline = time.monotonic() + START
        for done in (self._writer.state.tried, self._writer.history.opened):
            while time.monotonic() < deadline and not is_ending() and not done.wait(LOOK):
                pass
        notes = self._writer.notes()
        if not self._writer.state.ready:
            why = self._writer.state.problem or "the disk does not answer"
            notes.append(f"started without the alert memory ({why}): what earlier runs left is taken over once it can be read")
        return notes

    @property
    def cap(self) -> int | None:
        """The bytes to which the history may grow; None on a server, and where its file system cannot be asked."""
        return self._archive.cap

    @property
    def remembers(self) -> bool:
        """Whether the alert memory has been read, even if it was empty; until then `memory` knows this run only."""
        return self._memory.adopted

    def memory(self) -> Memory:
        """Return open incidents and those whose end somebody waits to hear of, unfinished deliveries and silences, by id."""
        return self._memory.snapshot()

    def commit(
        self,
        incidents: Sequence[Incident] = (),
        told: Sequence[Told] = (),
        deliveries: Sequence[Delivery] = (),
        silences: Sequence[Silence] = (),
    ) -> Ticket:
        """Keep these in one transaction, before any history. The ticket says whether it is on disk."""
        ticket = self._memory.commit(incidents, told, deliveries, silences)
        self._writer.wake()
        return ticket

    def attempted(self, delivery: Delivery, outcome: Outcome, retry_at: float | None) -> Ticket:
        """Count an attempt at a delivery (given as it was before it); without `retry_at` it is over, sent or dead."""
        ticket = self._memory.attempted(delivery, outcome, retry_at)
        self._writer.wake()
        return ticket

    def load_state(self, name: str) -> tuple[int, bytes] | None:
        """Return version and bytes of a room's state, None where there is none."""
        return self._memory.blob(name)

    def save_state(self, name: str, version: int, blob: bytes) -> Ticket:
        """Keep a room's state by name, in the alert memory, and what it has recorded until the history has written that."""
        self._events.keep(lambda unwritten: self._memory.save(happenings.STATE, happenings.VERSION, unwritten))
        ticket = self._memory.save(name, version, blob)
        self._writer.wake()
        return ticket

    def observe(self, view: View) -> None:
        """Count one beat; every 10 s this becomes one row a target. Also says in the log when the disk begins to stand still."""
        self._writer.watch()
        done = self._accumulator.add(view, self._clock.mono())
        if done is not None:
            self._rounds.put(done)
            self._writer.wake()

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float, key: str | None = None) -> list[Row]:
        """Return the 10 s rows with since <= at < until, the oldest first, at most 100,000.

        A value stands in the row of the 10 s in which it was read: a metric read every 60 s is in one row of six. Reads the
        disk in the caller's thread, for 5 s at most as far as the disk answers. Raises KeyError for a metric that is not kept,
        and UnreadableError where the disk refuses or is too slow.
        """
        with self._reading() as connection:
            return list(read(connection, subject, metrics, since, until, key=key))

    def record(self, events: Sequence[Event]) -> None:
        """Keep what happened, in the history; never waits."""
        if events:
            self._events.put(events)
            self._writer.wake()

    def events(
        self,
        since: float,
        until: float,
        limit: int = 1000,
        kinds: Collection[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> list[Event]:
        """Return the newest events with since <= at < until, the oldest of them first, at most 10,000. Reads as `rows` does.

        `keys` may be UUIDs of GPUs or their addresses on the bus: both give all that was told of them.
        """
        with self._reading() as connection:
            all_keys = None if keys is None else past.aliases(connection, keys)
            return list(happenings.read(connection, since, until, limit, kinds=kinds, keys=all_keys))

    def past(self, question: Question) -> Past:
        """Return some metrics over a time, thinned to what one answer holds, and what happened meanwhile. Reads as `rows` does.

        Raises NoTargetError, TooMuchError, and UnreadableError where the disk refuses, is too slow, or two others are reading.
        """
        if not self._writer.history.opened.is_set():
            raise UnreadableError("the history is not open yet")
        if not self._askers.acquire(timeout=ASKERS_WAIT):
            raise UnreadableError("others are reading the history: ask again")
        try:
            with self._reading() as connection:
                return past.read(connection, question)
        finally:
            self._askers.release()

    def _adopted(self, newest: str) -> None:
        """Go on from what the alert memory held; called by the writing thread."""
        self.ids.follow(newest)
        self._events.recall(self._memory.blob(happenings.STATE))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Connect for reading; a statement is interrupted when the time is over. What the disk refuses is an UnreadableError."""
        try:
            with self._reader.connect() as connection:
                driver = connection.connection.driver_connection
                if isinstance(driver, sqlite3.Connection):
                    deadline = time.monotonic() + READ
                    driver.set_progress_handler(lambda: time.monotonic() > deadline, READ_STEPS)
                yield connection
        except (*DISK_ERRORS, msgspec.DecodeError) as error:  # the last: labels that are none
            raise UnreadableError(f"the history cannot be read: {self._refused(error)}") from None

    def _refused(self, error: Exception) -> str:
        """Return what the disk refused, in words; what is corrupt is looked at by the writing thread."""
        if trouble(error) is Trouble.CORRUPT:
            self._writer.suspect()
        said = words(error)
        return f"it took more than {READ:g} s; ask for a shorter time, or for fewer targets" if said == INTERRUPTED else said

    def readings(self, wall: float) -> list[Reading]:
        """Return the store's own numbers."""
        counts, rounds = self._writer.counts, self._rounds
        up = self._writer.history.ready and self._writer.stalled() <= STALLED
        values = {
            own.DATABASE_WRITES["ok"]: float(counts.ok),
            own.DATABASE_WRITES["failed"]: float(counts.failed),
            own.DATABASE_WRITES["dropped"]: float(rounds.dropped),
            own.DATABASE_WRITE_SECONDS: counts.seconds,
            own.DATABASE_UP: float(up),
        }
        if up and self._archive.size is not None:
            values[own.DATABASE_SIZE] = float(self._archive.size)
        if self._archive.oldest is not None:
            values[own.DATABASE_OLDEST["raw"]] = self._archive.oldest
        queues = {"alert_memory": self._memory.dropped, "history": rounds.dropped, "stored_events": self._events.dropped}
        return [
            reading(Target(subject=own.OWN, key=""), wall, values),
            *(
                reading(Target(subject=own.QUEUE, key=name, labels={"queue": name}), wall, {own.QUEUE_DROPPED: float(dropped)})
                for name, dropped in queues.items()
            ),
        ]

    def problem(self) -> str:
        """Return what is wrong, in words; "" where all is well."""
        return "; ".join(self._writer.problems())

    def stop(self, seconds: float) -> bool:
        """Write what is queued and close; False where the disk did not allow it in that time."""
        last = self._accumulator.finish()
        if last is not None:
            self._rounds.put(last)
        return self._writer.stop(seconds)

    def _state_file(self, options: config.Store) -> Path:
        """Return where the alert memory lies: `options.state`, else beside the history's file."""
        if options.state and not Path(options.state).is_absolute():
            whole = "expected the whole path of a file, such as /var/lib/gpuwatch/state.db"
            problem = f"{whole}, found {config.shown(options.state)}"
            raise ConfigError("configuration", "store.state", problem)
        if options.state:
            return Path(options.state)
        if self._history.path is None:
            raise ConfigError("configuration", "store.state", "a history on a server needs a file for the alert memory")
        return self._history.path.with_name("state.db")


def reading(target: Target, wall: float, values: dict[Metric, float]) -> Reading:
    """Return one reading of our own."""
    return Reading(source="store", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values=values)
