"""What a database of ours looks like, and how an older one becomes a present one.

A new kind of change is a `Step` at the end of `STATE_STEPS` or `HISTORY_STEPS`: steps run in order, each in one transaction,
on databases that are older; a fresh database is made whole from schema.py. Columns that the catalogue has and a table lacks
need no step: `add_columns` adds them at every start.
"""

from collections.abc import Callable, Mapping

import msgspec
from sqlalchemy import Connection, MetaData, Table, inspect, select, text
from sqlalchemy.schema import CreateColumn

from gpuwatch.store.schema import HISTORY, STATE

FIRST = 1  # the schema number of a layout without steps


class Step(msgspec.Struct, frozen=True):
    """One numbered change. After it the schema is `number`, and gpuwatch can read it if its own schema is at least `reads`."""

    number: int
    apply: Callable[[Connection], None]
    reads: int


class Layout(msgspec.Struct, frozen=True):
    """The tables of one database and the steps that lead to them. `precious` ones are checked whole and copied before a step."""

    name: str
    metadata: MetaData
    steps: tuple[Step, ...] = ()
    precious: bool = False

    @property
    def version(self) -> int:
        """The schema number of this gpuwatch."""
        return self.steps[-1].number if self.steps else FIRST

    @property
    def reads(self) -> int:
        """The oldest schema number whose gpuwatch can still read what we write."""
        return self.steps[-1].reads if self.steps else FIRST

    @property
    def meta(self) -> Table:
        """The table that says whose database this is."""
        return self.metadata.tables["meta"]


def add_silences(connection: Connection) -> None:
    """Make the table of silences, as it was when it came."""
    columns = "id VARCHAR NOT NULL PRIMARY KEY, starts_at DOUBLE NOT NULL, ends_at DOUBLE NOT NULL"
    connection.execute(text(f"CREATE TABLE silence ({columns}, version INTEGER NOT NULL, data TEXT NOT NULL)"))


STATE_STEPS: tuple[Step, ...] = (Step(2, add_silences, reads=1),)  # who knows no silences finds all else where it was
HISTORY_STEPS: tuple[Step, ...] = ()
STATE_LAYOUT = Layout("alert memory", STATE, STATE_STEPS, precious=True)
HISTORY_LAYOUT = Layout("history", HISTORY, HISTORY_STEPS)


def read_meta(connection: Connection, layout: Layout) -> dict[str, str] | None:
    """Return what the database says of itself; {} for an empty database, None for one that is not ours."""
    with connection.begin():
        tables = inspect(connection).get_table_names()
        if "meta" in tables:
            rows = connection.execute(select(layout.meta)).all()
            return {row.name: row.value for row in rows if isinstance(row.name, str) and isinstance(row.value, str)}
        return None if tables else {}


def write_meta(connection: Connection, layout: Layout, values: Mapping[str, str]) -> None:
    """Set these names, within the caller's transaction."""
    names = list(values)
    connection.execute(layout.meta.delete().where(layout.meta.c.name.in_(names)))
    connection.execute(layout.meta.insert(), [{"name": name, "value": values[name]} for name in names])


def create(connection: Connection, layout: Layout, machine: str) -> None:
    """Make an empty database a present one, in one transaction."""
    with connection.begin():
        layout.metadata.create_all(connection)
        versions = {"schema": str(layout.version), "reads": str(layout.reads)}
        write_meta(connection, layout, {**versions, "machine": machine, "layout": layout.name})


def migrate(connection: Connection, layout: Layout, version: int) -> None:
    """Run the steps above `version`, each in one transaction, then add new tables and columns."""
    for step in layout.steps:
        if step.number > version:
            with connection.begin():
                step.apply(connection)
                write_meta(connection, layout, {"schema": str(step.number), "reads": str(step.reads)})
    with connection.begin():
        layout.metadata.create_all(connection)  # tables of subjects that are new in the catalogue
        add_columns(connection, layout)


def add_columns(connection: Connection, layout: Layout) -> None:
    """Add the columns that a table lacks; they are NULL in the rows that are there."""
    inspector = inspect(connection)
    for table in layout.metadata.sorted_tables:
        present = {column["name"] for column in inspector.get_columns(table.name)}
        name = connection.dialect.identifier_preparer.format_table(table)
        for column in table.columns:
            if column.name not in present:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {definition}"))
