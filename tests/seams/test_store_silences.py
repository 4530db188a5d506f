"""Silences on the disk: over restarts, over a migration from the layout without them, and their end."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.store import Memory
from gpuwatch.store.records import KEEP_NEWEST, blob_row, delivery_row, incident_row, prune, told_row
from tests.fakes.store_home import Home, fill_more, run
from tests.fakes.store_nouns import EPOCH, delivery, incident, silence, told
from tests.fakes.until import PATIENCE

BEFORE = """
CREATE TABLE meta (name VARCHAR NOT NULL, value VARCHAR NOT NULL, PRIMARY KEY (name));
CREATE TABLE incident (id VARCHAR NOT NULL, rule VARCHAR NOT NULL, subject VARCHAR NOT NULL, "key" VARCHAR NOT NULL,
    state VARCHAR NOT NULL, changed_at DOUBLE NOT NULL, ended_at DOUBLE, version INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (id));
CREATE INDEX incident_ended ON incident (ended_at);
CREATE TABLE told (incident VARCHAR NOT NULL, channel VARCHAR NOT NULL, state VARCHAR NOT NULL, severity VARCHAR NOT NULL,
    at DOUBLE NOT NULL, PRIMARY KEY (incident, channel)) WITHOUT ROWID;
CREATE TABLE delivery (id VARCHAR NOT NULL, channel VARCHAR NOT NULL, kind VARCHAR NOT NULL, created DOUBLE NOT NULL,
    state VARCHAR NOT NULL, attempt INTEGER NOT NULL, not_before DOUBLE NOT NULL, words VARCHAR NOT NULL,
    version INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (id));
CREATE INDEX delivery_state ON delivery (state);
CREATE TABLE state (name VARCHAR NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name));
INSERT INTO meta VALUES ('schema', '1'), ('reads', '1'), ('machine', 'machine-1');
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Make stores in the test's folder; all are stopped at the end."""
    home = Home(tmp_path)
    yield home
    home.close()


def without_silences(path: Path) -> None:
    """Write an alert memory of schema 1, with something of everything in it."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(BEFORE)
        for key, row in (
            incident_row(incident(1)),
            told_row(told(1)),
            delivery_row(delivery(1)),
            blob_row("engine", 3, b"state"),
        ):
            columns = ", ".join(f'"{name}"' for name in row)
            database.execute(f"INSERT INTO {key[0]} ({columns}) VALUES ({', '.join('?' * len(row))})", [*row.values()])


def test_silences_are_read_back_as_they_were_last(opened: Home) -> None:
    first = opened()
    run(first)
    over = silence(2, ends_at=EPOCH + 9, ended_by="root")
    assert first.commit(silences=[silence(1), silence(2)]).wait(PATIENCE)
    assert first.commit(silences=[over]).wait(PATIENCE)
    assert first.stop(PATIENCE)
    second = opened()
    run(second)
    assert second.memory() == Memory([], [], [], [silence(1), over])
    assert second.ids() > over.id


def test_an_alert_memory_without_silences_is_copied_and_migrated_with_all_that_is_in_it(tmp_path: Path, opened: Home) -> None:
    without_silences(tmp_path / "state.db")
    first = opened()
    assert run(first) == [
        "the alert memory was copied to state.db.schema-1 before its migration",
        "the alert memory was migrated from schema 1 to 2",
    ]
    assert first.memory() == Memory([incident(1)], [told(1)], [delivery(1)])
    assert first.load_state("engine") == (3, b"state")
    assert first.commit(silences=[silence(1)]).wait(PATIENCE)
    fill_more(first)
    assert first.stop(PATIENCE)
    second = opened()
    assert run(second) == []
    assert second.memory().silences == [silence(1)]
    with closing(sqlite3.connect(tmp_path / "state.db.schema-1")) as copy:
        assert copy.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() == [("1",)]
        assert copy.execute("SELECT id FROM incident").fetchall() == [(incident(1).id,)]


def test_a_migrated_alert_memory_has_the_layout_of_a_fresh_one(tmp_path: Path, opened: Home) -> None:
    without_silences(tmp_path / "state.db")
    run(opened())
    (tmp_path / "fresh").mkdir()
    fresh = Home(tmp_path / "fresh")
    run(fresh())
    fresh.close()
    layouts = []
    for folder in (tmp_path, tmp_path / "fresh"):
        with closing(sqlite3.connect(folder / "state.db")) as database:
            columns = 'SELECT m.name, c.name, c.type, c."notnull", c.pk FROM sqlite_schema m, pragma_table_info(m.name) c'
            layouts.append(sorted(database.execute(f"{columns} WHERE m.type = 'table'").fetchall()))
    assert layouts[0] == layouts[1] != []


def test_silences_that_ended_long_ago_are_forgotten_and_the_newest_are_not(opened: Home) -> None:
    store = opened()
    run(store)
    count = KEEP_NEWEST + 200
    made = [silence(number, ends_at=EPOCH + number) for number in range(count)]
    made[5] = replace(made[5], ends_at=EPOCH + 1e9)  # it still holds
    for start in range(0, count, 400):
        assert store.commit(silences=made[start : start + 400]).wait(PATIENCE)
    assert store.stop(PATIENCE)
    connection = store._writer.state.database.open()
    try:
        prune(connection, EPOCH + count + 100, 50.0)
        kept = {str(row[0]) for row in connection.exec_driver_sql("SELECT id FROM silence")}
    finally:
        connection.close()
    assert kept == {one.id for one in (made[5], *made[-KEEP_NEWEST - 1 :])}


def test_a_silence_that_cannot_be_read_costs_nothing_else(tmp_path: Path, opened: Home) -> None:
    first = opened()
    run(first)
    assert first.commit([incident(1)], silences=[silence(1), silence(2)]).wait(PATIENCE)
    assert first.stop(PATIENCE)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("UPDATE silence SET data = '{' WHERE id = ?", (silence(1).id,))
    second = opened()
    assert run(second) == ["1 row of the alert memory could not be read"]
    assert (second.memory().incidents, second.memory().silences) == ([incident(1)], [silence(2)])
