"""The tables of both databases, made from the catalogue.

`state.db`, the alert memory, is small and holds what must never be lost. `gpuwatch.db`, the history, has one wide table a
subject: a column a metric, named by its id. What the catalogue adds becomes a column at the next start; anything else is a
numbered migration (migrations.py).
"""

from types import MappingProxyType

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text, UniqueConstraint

from gpuwatch.catalogue import METRICS
from gpuwatch.model.metric import Metric, Subject

EVER = 2.0**62  # milliseconds


def meta_table(metadata: MetaData) -> Table:
    """Return the table that says whose file this is: schema, reads, machine."""
    return Table("meta", metadata, Column("name", String, primary_key=True), Column("value", String, nullable=False))


# The alert memory: always SQLite, `synchronous=FULL`.
STATE = MetaData()
STATE_META = meta_table(STATE)
INCIDENT = Table(
    "incident",
    STATE,
    Column("id", String, primary_key=True),
    Column("rule", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("key", String, nullable=False),
    Column("state", String, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("version", Integer, nullable=False),  # of `data`
    Column("data", Text, nullable=False),
    Index("incident_ended", "ended_at"),
)
TOLD = Table(
    "told",
    STATE,
    Column("incident", String, primary_key=True),
    Column("channel", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("at", Double, nullable=False),
    sqlite_with_rowid=False,
)
DELIVERY = Table(
    "delivery",
    STATE,
    Column("id", String, primary_key=True),
    Column("channel", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("created", Double, nullable=False),
    Column("state", String, nullable=False),  # queued, sent, dead
    Column("attempt", Integer, nullable=False),
    Column("not_before", Double, nullable=False),
    Column("words", String, nullable=False),  # what came of the last attempt
    Column("version", Integer, nullable=False),  # of `data`
    Column("data", Text, nullable=False),
    Index("delivery_state", "state"),
)
SILENCE = Table(
    "silence",
    STATE,
    Column("id", String, primary_key=True),
    Column("starts_at", Double, nullable=False),
    Column("ends_at", Double, nullable=False),
    Column("version", Integer, nullable=False),  # of `data`
    Column("data", Text, nullable=False),
)
BLOB = Table(
    "state",
    STATE,
    Column("name", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

# The history. SQLite moves a row of a WITHOUT ROWID table over a quarter of a page to pages of its own (fileformat2.html, 1.6:
# the local payload of an index b-tree), eight times its size; with 8 KiB a row of 225 numbers still stays where it belongs.
PAGE = 8192
LOCAL = (PAGE - 12) * 64 // 255 - 23
HISTORY = MetaData()
HISTORY_META = meta_table(HISTORY)
TARGET = Table(
    "target",
    HISTORY,
    Column("id", Integer, primary_key=True),
    Column("subject", String, nullable=False),
    Column("key", String, nullable=False),
    Column("labels", Text, nullable=False),  # JSON
    Column("info", Text, nullable=False),  # JSON
    Column("first_seen", BigInteger, nullable=False),  # milliseconds since 1970, as every time of the history
    Column("last_seen", BigInteger, nullable=False),  # written every ten minutes
    Column("last_round", Integer),  # written with it; its rows are of no later round than the next sixty
    UniqueConstraint("subject", "key"),
)
# One row every 10 s in the order of writing. Retention counts these, so that no clock step makes a row old, and `at` is
# unique here, so that an hour lived twice after a step back is kept twice.
ROUND = Table(
    "round",
    HISTORY,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False, unique=True),
)

# What happened, in the order of writing; `round` is the one before it, so that its age is counted as that of all history.
EVENT = Table(
    "event",
    HISTORY,
    Column("id", Integer, primary_key=True),
    Column("round", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("source", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("key", String, nullable=False),
    Column("code", Integer),
    Column("count", BigInteger, nullable=False),
    Column("words", Text, nullable=False),
    Column("facts", Text, nullable=False),  # JSON
    Column("mark", String, nullable=False),  # of a kernel record
    Index("event_at", "at"),
    Index("event_mark", "mark"),
)


def stored(metric: Metric) -> bool:
    """Whether history keeps this metric."""
    return not metric.internal


def raw_table(subject: Subject, metrics: tuple[Metric, ...]) -> Table:
    """Return the table of one subject's 10 s rows, in the order of its key.

    Rows of a target lie together, so that its past is read at once; each round then dirties a page a target. Brief subjects
    have hundreds of targets (processes): theirs lie by time, a round in a page or two, or they would wear out the disk.
    """
    key = ("at", "target") if subject.brief else ("target", "at")
    types = {"target": Integer, "at": BigInteger}
    return Table(
        f"raw_{subject.name}",
        HISTORY,
        *(Column(name, types[name], primary_key=True, autoincrement=False) for name in key),
        *(Column(metric.id, Double) for metric in metrics),
        sqlite_with_rowid=False,
    )


def raw_tables() -> dict[Subject, Table]:
    """Return a table for every subject that has something to keep."""
    columns: dict[Subject, list[Metric]] = {}
    for metric in METRICS:
        if stored(metric):
            columns.setdefault(metric.subject, []).append(metric)
    return {subject: raw_table(subject, tuple(metrics)) for subject, metrics in columns.items()}


RAW: MappingProxyType[Subject, Table] = MappingProxyType(raw_tables())


def milliseconds(at: float) -> int:
    """Return seconds as the history's milliseconds; a time beyond all clocks becomes the last one that a database takes."""
    return int(max(-EVER, min(EVER, at * 1000)))
