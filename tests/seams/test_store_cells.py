"""A cell of a type that nobody wrote, which SQLite takes and finds nothing wrong with: it costs its own row."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection

from gpuwatch.store.migrations import HISTORY_LAYOUT, STATE_LAYOUT, Layout, Step
from tests.fakes.store_home import FILLED, Home, fill, fill_more, powers, run
from tests.fakes.store_nouns import delivery, incident, round_of, silence, ulid
from tests.fakes.until import PATIENCE, until


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Make stores in the test's folder; all are stopped at the end."""
    home = Home(tmp_path)
    yield home
    home.close()


def filled(opened: Home) -> None:
    """Leave what a run has written."""
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)


def damage(path: Path, *statements: str) -> None:
    """Change a database behind our back; SQLite's own check must find nothing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for statement in statements:
            assert other.execute(statement).rowcount > 0
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("UPDATE state SET data = 'text'", "state"),
        ("UPDATE state SET data = 7", "state"),
        ("UPDATE state SET version = 'x'", "state"),
        ("UPDATE state SET version = 1.5", "state"),
        ("UPDATE state SET name = x'ff'", "state"),
        ("UPDATE state SET name = CAST(x'ff' AS TEXT)", "state"),
        ("UPDATE silence SET id = x'ff00'", "silences"),
        ("UPDATE silence SET id = CAST(x'ff' AS TEXT)", "silences"),
        ("UPDATE silence SET data = x'7b7d'", "silences"),
        ("UPDATE silence SET version = 'x'", "silences"),
        ("UPDATE silence SET data = '{\"x\":' || replace(hex(zeroblob(5000)), '00', '[')", "silences"),
        ("UPDATE delivery SET id = x'ff00'", "deliveries"),
        ("UPDATE delivery SET data = CAST(x'ff' AS TEXT)", "deliveries"),
        ("UPDATE told SET at = 'x'", "told"),
        ("UPDATE told SET at = 9e999", "told"),
        ("UPDATE told SET channel = x'ff'", "told"),
        ("UPDATE told SET incident = x'ff'", "told"),
        ("UPDATE told SET state = 7", "told"),
    ],
)
def test_a_cell_of_a_wrong_type_costs_its_own_row_and_is_told_once(
    opened: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture, statement: str, lost: str
) -> None:
    filled(opened)
    damage(tmp_path / "state.db", statement)
    second = opened()
    with caplog.at_level(logging.WARNING):
        assert run(second) == ["1 row of the alert memory could not be read"]
        assert second.memory() == (FILLED if lost == "state" else replace(FILLED, **{lost: []}))
        assert second.load_state("engine") == (None if lost == "state" else (3, b"state"))
        assert powers(second) == [1.0] * 8 + [2.0] * 8
        fill_more(second)
    assert caplog.messages == []


@pytest.mark.parametrize("column", ["id = x'ff00'", "data = 7", "version = 'x'"])
def test_an_incident_that_cannot_be_read_leaves_the_other_and_new_ids_are_above_both(
    opened: Home, tmp_path: Path, column: str
) -> None:
    filled(opened)
    damage(tmp_path / "state.db", f"UPDATE incident SET {column} WHERE id = '{ulid(2)}'")
    second = opened()
    assert run(second) == ["1 row of the alert memory could not be read"]
    assert second.memory() == replace(FILLED, incidents=[incident(1)])
    assert second.ids() > max(silence(1).id, delivery(1).id)


@pytest.mark.parametrize("name", ["state", "gpuwatch"])
@pytest.mark.parametrize("schema", ["'²'", "x'32'", "'1234567890'", "CAST(x'ff' AS TEXT)", "''", "'-1'"])
def test_a_schema_that_is_no_number_of_ours_is_another_programs_and_costs_the_other_file_nothing(
    opened: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, schema: str
) -> None:
    filled(opened)
    damage(tmp_path / f"{name}.db", f"UPDATE meta SET value = {schema} WHERE name = 'schema'")
    second = opened()
    second.start()
    until(lambda: "another program's: gpuwatch leaves it alone" in second.problem())
    what = "alert memory" if name == "state" else "history"
    assert second.problem() == (f"the {what} cannot be used: {tmp_path / name}.db is another program's: gpuwatch leaves it alone")
    if name == "state":
        until(lambda: len(powers(second)) == 16)
        damage(tmp_path / "state.db", "UPDATE meta SET value = '2' WHERE name = 'schema'")
        until(lambda: second.problem() == "")  # or it could not write what is asked of it at its end
    else:
        assert second.commit([incident(3)]).wait(PATIENCE)
    assert not any(record.exc_info for record in caplog.records)


def test_a_newer_memory_that_does_not_say_who_may_read_it_is_not_read(opened: Home, tmp_path: Path) -> None:
    filled(opened)
    damage(
        tmp_path / "state.db",
        "UPDATE meta SET value = '9' WHERE name = 'schema'",
        "UPDATE meta SET value = '²' WHERE name = 'reads'",
    )
    second = opened()
    (note,) = run(second)
    assert "is of a newer gpuwatch (schema 9, ours is 2); it was moved to" in note
    assert second.memory().incidents == []


def fails(connection: Connection) -> None:
    """Stumble as a fault of ours would."""
    raise TypeError(f"not {connection.dialect.name}")


@pytest.mark.parametrize("side", ["state", "history"])
def test_a_fault_of_ours_with_one_file_costs_the_other_nothing_and_is_shown_once(
    opened: Home, caplog: pytest.LogCaptureFixture, side: str
) -> None:
    filled(opened)
    before = STATE_LAYOUT if side == "state" else HISTORY_LAYOUT
    layout = Layout(before.name, before.metadata, (Step(9, fails, reads=9),))
    layouts: dict[str, Any] = {f"{side}_layout": layout}
    with caplog.at_level(logging.WARNING):
        second = opened(**layouts)
        second.start()
        broken = getattr(second._writer, side)
        until(lambda: broken.failures >= 2)
        stumbled = f"the {layout.name} stumbled over a fault of gpuwatch (TypeError)"
        assert second.problem() == stumbled
        if side == "state":
            second._rounds.put(round_of(3))
            second._writer.wake()
            until(lambda: len(powers(second)) == 24)
        else:
            assert second.commit([incident(3)]).wait(PATIENCE)
            assert second.memory().incidents == [*FILLED.incidents, incident(3)]
    shown = [record.getMessage() for record in caplog.records if record.exc_info]
    assert shown == [f"a fault of gpuwatch itself, met with the {layout.name}"]
    assert [line for line in caplog.messages if "stumbled" in line] == [f"{stumbled}; tried again until it answers"]


def layout_of(path: Path) -> list[Any]:
    """Return which layout a file says that it has."""
    with closing(sqlite3.connect(path)) as other:
        return other.execute("SELECT value FROM meta WHERE name = 'layout'").fetchall()


def test_a_file_of_the_other_kind_is_left_alone_and_one_that_does_not_say_is_ours(opened: Home, tmp_path: Path) -> None:
    filled(opened)
    files = {"state": "alert memory", "gpuwatch": "history"}
    assert {name: layout_of(tmp_path / f"{name}.db") for name in files} == {name: [(kind,)] for name, kind in files.items()}
    for name in files:
        damage(tmp_path / f"{name}.db", "DELETE FROM meta WHERE name = 'layout'")
    second = opened()
    assert run(second) == []
    assert (second.memory(), len(powers(second))) == (FILLED, 16)
    assert second.stop(10)
    assert {name: layout_of(tmp_path / f"{name}.db") for name in files} == {name: [(kind,)] for name, kind in files.items()}
    path = (tmp_path / "state.db").rename(tmp_path / "gpuwatch.db")
    third = opened()
    third.start()
    until(lambda: third.problem() != "")
    assert third.problem() == f"the history cannot be used: {path} is a file of gpuwatch, but its alert memory: it is left alone"
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM incident ORDER BY id").fetchall() == [(ulid(1),), (ulid(2),)]
        assert other.execute("SELECT name FROM sqlite_master WHERE name = 'round'").fetchall() == []
    assert [found.name for found in tmp_path.glob("*.db.*")] == []
