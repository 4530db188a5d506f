"""One database and its file: opened, checked, made or migrated, and moved aside where it cannot be used.

Nothing is ever deleted: a corrupt, foreign or newer file is renamed beside itself with the reason and the time in its name
(`gpuwatch.db.corrupt-20231114T221320Z`), and a fresh one is begun.
"""

import contextlib
import filecmp
import os
import sqlite3
import time
from collections.abc import Mapping
from enum import Enum
from itertools import zip_longest
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from gpuwatch.config import ConfigError
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.store.migrations import Layout, create, migrate, read_meta, write_meta
from gpuwatch.store.private import closed, make_file, make_folder, odd, tighten
from gpuwatch.store.schema import PAGE

BUSY = 1.0  # seconds to wait for another process's lock
COMPANIONS = ("-wal", "-shm", "-journal")
LOG = 4 << 20  # bytes to which SQLite's log grows before it is copied into the database
CACHE = 2**19  # bytes of pages that each connection keeps: SQLite's own 2 MB are no faster here
FULL = 1 << 20  # free bytes below which a disk is called full: SQLite needs some for its log and index
DIGITS, NAME = 9, 40  # characters of a schema number, and of another layout's name as it is shown
ASIDE_LIMIT = 4  # moves aside within one opening: each reason once, and an end


class StoreError(Exception):
    """The database cannot be used now; the words say why, to a person."""


# the last two: a row holds what SQLite has no place for; SQLAlchemy lets them through as they are
DISK_ERRORS = (StoreError, SQLAlchemyError, sqlite3.Error, OSError, UnicodeError, OverflowError)


class Verdict(msgspec.Struct, frozen=True):
    """Why a file must go aside: a word for its new name, words for people, and whether we can still read its rows."""

    reason: str
    note: str
    readable: bool = False


class Trouble(Enum):
    """What is wrong with a database, as far as it changes what is done."""

    CORRUPT = "corrupt"
    LOCKED = "locked"
    BAD_ROW = "bad row"  # this statement, not the database
    OTHER = "other"


def trouble(error: BaseException) -> Trouble:
    """Classify an error. By SQLite's words (sqlite3ErrStr in main.c): Python 3.10 does not give the code."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = str(cause)
    if "malformed" in words or "not a database" in words:
        return Trouble.CORRUPT
    if "locked" in words:
        return Trouble.LOCKED
    if isinstance(cause, (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeError, OverflowError)):
        return Trouble.BAD_ROW
    return Trouble.OTHER


def words(error: BaseException) -> str:
    """Return an error in one line, without SQLAlchemy's statement and link."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).splitlines() or [type(cause).__name__])[0]


class Database:
    """One database of ours. All methods but `reader` belong to the writing thread."""

    def __init__(self, url: str, layout: Layout, machine: str, clock: Clock, *, synchronous: str) -> None:
        self.layout = layout
        self.notes: list[str] = []  # what a person must know; whoever tells them empties it
        self.newer: Path | None = None  # the file of a newer gpuwatch, moved aside, whose rows we can still read
        self.migrating = ""  # what is going on, to a person
        self._file: tuple[int, int] | None = None  # device and inode
        self._begun: tuple[int, int] | None = None  # of a file that may be empty: we have made it, or told of it
        self._machine, self._clock, self._synchronous = machine, clock, synchronous
        try:
            parsed = make_url(url)
            self.path = Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None
            if self.path is not None and not self.path.is_absolute():
                form = "sqlite:////var/lib/gpuwatch/gpuwatch.db"
                whole = f"expected the whole path of a file, after four slashes: {form}, found one that does not begin with /"
                raise ConfigError("configuration", "store.url", whole)
            self._engine = sqlite(self.path) if self.path else remote(url)
        except ImportError as error:
            problem = f"cannot be used: the Python package {error.name} is not installed, which speaks to this database"
            raise ConfigError("configuration", "store.url", problem) from None
        except ArgumentError:  # its text names modules of SQLAlchemy
            problem = "cannot be used: it is no whole address, or names a driver that SQLAlchemy does not know"
            raise ConfigError("configuration", "store.url", problem) from None
        except ValueError:  # make_url's int(); its text would quote a part of the address
            raise ConfigError("configuration", "store.url", "cannot be used: the port in it is not a number") from None

    def open(self) -> Connection:
        """Connect and check; the result is ours and of this machine, but not yet of this schema. Raises DISK_ERRORS."""
        for _ in range(ASIDE_LIMIT):
            connection = None
            self._prepare()
            try:
                connection = self._engine.connect()
                verdict = self._check(connection)
                if verdict is None:
                    self._file, self._begun = self._identity(), None
                    return connection
            except (SQLAlchemyError, sqlite3.Error) as error:
                if trouble(error) is not Trouble.CORRUPT:
                    close(connection)
                    raise
                verdict = Verdict("corrupt", f"is corrupt ({words(error)})")
            except BaseException:
                close(connection)
                raise
            close(connection)
            moved = self.aside(verdict)
            if verdict.readable:
                self.newer = moved
        raise StoreError(f"the {self.layout.name} cannot be begun afresh")

    def upgrade(self, connection: Connection) -> bool:
        """Bring the schema up to date, which may take long for a history; True if the database was empty. Raises DISK_ERRORS."""
        meta = read_meta(connection, self.layout)
        if not meta:
            create(connection, self.layout, self._machine)
            return True
        version = int(meta["schema"])
        if version < self.layout.version:
            self.migrating = f"the {self.layout.name} is being migrated from schema {version} to {self.layout.version}"
            if self.layout.precious:
                self._copy(connection, version)
        try:
            migrate(connection, self.layout, version)
        finally:
            self.migrating = ""
        if version < self.layout.version:
            self.notes.append(f"the {self.layout.name} was migrated from schema {version} to {self.layout.version}")
        known = {"machine": completed(meta.get("machine", ""), self._machine), "layout": self.layout.name}
        if any(meta.get(name, "") != value for name, value in known.items()):
            with connection.begin():
                write_meta(connection, self.layout, known)
        return False

    def ensure_there(self) -> None:
        """Raise StoreError if the file that is open is no longer the one under its name: writes would go nowhere."""
        if self._file is not None and self._identity() != self._file:
            raise StoreError("its file was removed or replaced")

    def aside(self, verdict: Verdict) -> Path:
        """Rename the file and its companions, and leave a note. The connection must be closed. Raises DISK_ERRORS."""
        if self.path is None:
            raise StoreError(f"the {self.layout.name} {verdict.note}")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock.wall()))
        name = f"{self.path.name}.{verdict.reason}-{stamp}"
        target, number = self.path.with_name(name), 1
        while target.exists():
            number += 1
            target = self.path.with_name(f"{name}-{number}")
        # The log goes first: SQLite would replay one that is left behind into the fresh file.
        for suffix in (*COMPANIONS, ""):
            part = Path(f"{self.path}{suffix}")
            if part.exists():
                part.rename(f"{target}{suffix}")
        told = f"the {self.layout.name} {self.path} {verdict.note}; it was moved to {target.name} and a fresh one is begun"
        self.notes.append(told)
        return target

    def reader(self, path: Path | None = None) -> Engine:
        """Return an engine that only reads, for any thread; of `path` where it is not our own file."""
        source = path or self.path
        return self._engine if source is None else sqlite(source, read_only=True, garbled=path is not None)

    def fullness(self) -> str:
        """Say that the file system is full where it is: for SQLite that can be an I/O error (it cannot grow its -shm file)."""
        try:
            space = os.statvfs(self.path.parent) if self.path else None
        except OSError:
            return ""
        return " (its file system is full)" if space and space.f_bavail * space.f_frsize < FULL else ""

    def size(self) -> int:
        """Return the bytes that the file and its log take, 0 where there is none."""
        return self.size_of("") + self.size_of("-wal")

    def size_of(self, suffix: str) -> int:
        """Return the bytes of the file or of a companion."""
        try:
            return Path(f"{self.path}{suffix}").stat().st_size if self.path else 0
        except OSError:  # not there yet, or the folder is gone
            return 0

    def _prepare(self) -> None:
        """Make the folder and the file with their modes; SQLite gives its companions the mode of the file."""
        if self.path is None:
            return
        make_folder(self.path.parent)
        for path in (self.path, *(Path(f"{self.path}{suffix}") for suffix in COMPANIONS)):
            if kind := odd(path):
                raise StoreError(f"{path} is no regular file but {kind}")
            if why := closed(path):
                raise StoreError(why)
            tighten(path)
        with contextlib.suppress(OSError):  # SQLite will say what is in the way
            if not make_file(self.path) and self.path.stat().st_size == 0 and self._identity() != self._begun:
                self._tell_empty(self.path)
            self._begun = self._identity()  # the next try finds it as we leave it

    def _tell_empty(self, path: Path) -> None:
        """Tell of a file without a byte, which a crash of the host may leave: to SQLite it is a database that was never used."""
        if any(self.size_of(suffix) for suffix in COMPANIONS):  # SQLite would delete a log without its database
            self.aside(Verdict("empty", "is empty"))
            make_file(path)
        else:
            self.notes.append(f"the {self.layout.name} {path} is empty: what it held is lost, and a fresh one is begun")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat() if self.path else None
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino) if found else None

    def _check(self, connection: Connection) -> Verdict | None:
        """Return why this file must go aside, None where it is fine."""
        if self.path is not None:
            # page_size and auto_vacuum count only before the first page is written, and journal_mode=WAL writes it.
            pragmas = (f"page_size={PAGE}", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", f"synchronous={self._synchronous}")
            limits = (f"wal_autocheckpoint={LOG // PAGE}", f"journal_size_limit={LOG}", f"cache_size={-CACHE // 1024}")
            for pragma in (*pragmas, *limits):
                raw(connection, f"PRAGMA {pragma}")
            if self.layout.precious and (found := raw(connection, "PRAGMA integrity_check(1)")) != [("ok",)]:
                return Verdict("corrupt", f"is corrupt ({str(found[0][0]).splitlines()[-1]})")
        meta = read_meta(connection, self.layout)
        name = self.path or "the database"
        if meta is None or (meta and number(meta.get("schema", "")) is None):
            raise StoreError(f"{name} is another program's: gpuwatch leaves it alone")
        layout = meta.get("layout", self.layout.name)
        if layout != self.layout.name:
            raise StoreError(f"{name} is a file of gpuwatch, but its {printable(layout, NAME)}: it is left alone")
        return self._judge(meta)

    def _judge(self, meta: Mapping[str, str]) -> Verdict | None:
        owner, version = meta.get("machine", ""), number(meta.get("schema", "")) or 0
        if not can_be_one(owner, self._machine):
            return Verdict("other-machine", "belongs to another machine: nothing in it is used or sent")
        if version > self.layout.version:
            note = f"is of a newer gpuwatch (schema {version}, ours is {self.layout.version})"
            reads = number(meta.get("reads", ""))
            return Verdict(f"newer-v{version}", note, readable=reads is not None and reads <= self.layout.version)
        return None

    def _copy(self, connection: Connection, version: int) -> None:
        """Keep a copy of a small database before its schema changes; an earlier copy stays as it is."""
        if self.path is None:
            return
        name = f"{self.path.name}.schema-{version}"
        copy, fresh, number = self.path.with_name(name), self.path.with_name(f"{name}.new"), 1
        fresh.unlink(missing_ok=True)
        make_file(fresh)  # SQLite takes an empty one
        raw(connection, "VACUUM INTO ?", str(fresh))
        while copy.exists():  # that of an upgrade before a downgrade, or of this migration, which is tried again
            if filecmp.cmp(copy, fresh, shallow=False):
                fresh.unlink()
                return
            number += 1
            copy = self.path.with_name(f"{name}-{number}")
        fresh.rename(copy)
        self.notes.append(f"the {self.layout.name} was copied to {copy.name} before its migration")


def number(text: str) -> int | None:
    """Return a schema number, None where a text is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def can_be_one(owner: str, mine: str) -> bool:
    """Whether two identities can be those of one machine: no part that both know differs (machine-id, then DMI uuid)."""
    return all(not theirs or not ours or theirs == ours for theirs, ours in parts(owner, mine))


def completed(owner: str, mine: str) -> str:
    """Return an identity with the parts that only the other one knows: who is not root cannot read the DMI uuid."""
    return "/".join(theirs or ours for theirs, ours in parts(owner, mine)).rstrip("/")


def parts(owner: str, mine: str) -> list[tuple[str, str]]:
    """Return the parts of two identities side by side, "" for one that is not known."""
    return list(zip_longest(owner.split("/"), mine.split("/"), fillvalue=""))


def sqlite(path: Path, *, read_only: bool = False, garbled: bool = True) -> Engine:
    """Return an engine for one SQLite file, with transactions that we begin ourselves (Python would not for DDL).

    A text that is no UTF-8 is given as its bytes where it may be `garbled`: sqlite3 itself would refuse every row for it.
    """
    mode = "ro" if read_only else "rwc"

    def connect() -> sqlite3.Connection:
        made = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        if garbled:
            made.text_factory = text_or_bytes
        return made

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def text_or_bytes(found: bytes) -> str | bytes:
    """Return a text of SQLite, its bytes where these are no text."""
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found


def remote(url: str) -> Engine:
    """Return an engine for a database server; every wait ends."""
    arguments: dict[str, str | int] = {}
    if make_url(url).get_backend_name() == "postgresql":
        options = "-c statement_timeout=10000 -c lock_timeout=1000"
        arguments = {"connect_timeout": 3, "tcp_user_timeout": 10000, "options": options}
    return create_engine(url, poolclass=NullPool, connect_args=arguments)


def raw(connection: Connection, statement: str, *arguments: str | int) -> list[tuple[object, ...]]:
    """Run a statement on SQLite outside of any transaction (PRAGMA, VACUUM), to its end."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise StoreError(f"{statement.split(maxsplit=1)[0]} is for SQLite only")
    return driver.execute(statement, arguments).fetchall()


def close(connection: Connection | None) -> None:
    """Close a connection whose disk may be gone."""
    if connection is None:
        return
    try:
        connection.close()
    except DISK_ERRORS:
        connection.invalidate()
