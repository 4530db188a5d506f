"""Files that cannot be used as they are: corrupt, locked, foreign, newer, older, removed, of another machine."""

import logging
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from gpuwatch.catalogue import gpu
from gpuwatch.model.past import UnreadableError
from gpuwatch.store import Memory
from gpuwatch.store.migrations import HISTORY_LAYOUT, STATE_LAYOUT, Layout, Step
from gpuwatch.store.records import incident_row
from tests.fakes.store_home import FILLED, Home, fill, fill_more, powers, run
from tests.fakes.store_nouns import EPOCH, delivery, gpu_target, incident, round_of, silence, told, ulid, view
from tests.fakes.until import PATIENCE, until


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Make stores in the test's folder; all are stopped at the end."""
    home = Home(tmp_path)
    yield home
    home.close()


def files(folder: Path) -> set[str]:
    """Return the names of the databases in a folder, without the logs of those that are open."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


def aside(folder: Path, reason: str) -> list[str]:
    """Return the databases that were moved aside for this reason, without their stamps."""
    return sorted(name.split(".db.")[0] for name in files(folder) if f".db.{reason}-" in name)


@pytest.mark.parametrize("name", ["gpuwatch", "state"])
@pytest.mark.parametrize("damage", ["garbage", "page"])
def test_a_corrupt_file_is_moved_aside_and_a_fresh_one_begun(tmp_path: Path, opened: Home, name: str, damage: str) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    path = tmp_path / f"{name}.db"
    whole = path.read_bytes()
    path.write_bytes(b"no database at all " * 500 if damage == "garbage" else whole[:100] + b"\xff" * 8000 + whole[8100:])
    broken = path.read_bytes()
    second = opened()
    (note,) = run(second)
    assert f"{name}.db" in note
    assert "is corrupt" in note
    assert aside(tmp_path, "corrupt") == [name]
    (kept,) = (path for path in tmp_path.iterdir() if ".corrupt-" in path.name)
    assert kept.read_bytes() == broken
    if name == "gpuwatch":
        assert second.memory() == FILLED
        assert powers(second) == []
    else:
        assert second.memory() == Memory([], [], [])
        assert powers(second) == [1.0] * 8 + [2.0] * 8
    fill_more(second)


@pytest.mark.parametrize("name", ["gpuwatch", "state"])
def test_an_empty_file_is_no_first_start_and_is_told(tmp_path: Path, opened: Home, name: str) -> None:
    first = opened()
    assert run(first) == []  # a first start
    fill(first)
    assert first.stop(10)
    path = tmp_path / f"{name}.db"
    path.write_bytes(b"")  # as a crash of the host leaves it
    second = opened()
    what = "history" if name == "gpuwatch" else "alert memory"
    assert run(second) == [f"the {what} {path} is empty: what it held is lost, and a fresh one is begun"]
    assert second.memory() == (FILLED if name == "gpuwatch" else Memory([], [], []))
    fill_more(second)
    assert second.stop(10)
    assert run(opened()) == []
    assert aside(tmp_path, "empty") == []  # there is nothing to keep


def test_a_file_that_is_empty_since_it_cannot_be_begun_yet_is_told_once(
    tmp_path: Path, opened: Home, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state.db").touch()
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other, caplog.at_level(logging.WARNING):
        other.execute("BEGIN")
        other.execute("SELECT * FROM sqlite_master")
        store = opened()
        notes = store.start()
        until(lambda: store._writer.state.failures >= 2)
        other.execute("ROLLBACK")
        until(lambda: store.problem() == "")
    said = [*notes, *(record.getMessage() for record in caplog.records)]
    assert [line for line in said if "is empty" in line] == [
        f"the alert memory {tmp_path / 'state.db'} is empty: what it held is lost, and a fresh one is begun"
    ]


def test_an_empty_file_with_a_log_is_moved_aside_with_it(tmp_path: Path, opened: Home) -> None:
    (tmp_path / "state.db").write_bytes(b"")
    (tmp_path / "state.db-wal").write_bytes(b"what a crash has left")
    (note,) = run(opened())
    assert f"the alert memory {tmp_path / 'state.db'} is empty; it was moved to state.db.empty-" in note
    (kept,) = tmp_path.glob("state.db.empty-*-wal")
    assert kept.read_bytes() == b"what a crash has left"


def test_a_history_that_becomes_corrupt_is_moved_aside_while_alerts_go_on(
    tmp_path: Path, opened: Home, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened()
    run(first)
    for number in range(40):
        first._rounds.put(round_of(number, targets=100))
    assert first.stop(10)
    path = tmp_path / "gpuwatch.db"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))  # the root pages stay
    second = opened()
    run(second)
    with caplog.at_level(logging.WARNING):
        with pytest.raises(UnreadableError, match="malformed"):
            second.rows(gpu.GPU, [gpu.POWER], 0, 1e12)
        until(lambda: aside(tmp_path, "corrupt") == ["gpuwatch"])
    fill_more(second)
    assert sum("was moved to gpuwatch.db.corrupt-" in record.getMessage() for record in caplog.records) == 1


def test_an_alert_memory_that_is_removed_under_a_run_is_written_anew_with_all_that_counts(tmp_path: Path, opened: Home) -> None:
    first = opened()
    run(first)
    fill(first)
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    first.commit([incident(3)])
    until(lambda: first.problem() == "" and (tmp_path / "state.db").exists())
    assert first.stop(10)
    second = opened()
    run(second)
    assert second.memory() == Memory([incident(1), incident(2), incident(3)], [told(1)], [delivery(1)], [silence(1)])
    assert second.load_state("engine") == (3, b"state")


def test_a_copy_on_another_machine_starts_a_new_identity_and_sends_nothing_old(tmp_path: Path, opened: Home) -> None:
    first = opened("machine-1")
    run(first)
    fill(first)
    assert first.stop(10)
    second = opened("machine-2")
    notes = run(second)
    assert ["belongs to another machine" in note for note in notes] == [True, True]
    assert aside(tmp_path, "other-machine") == ["gpuwatch", "state"]
    assert (second.memory(), second.load_state("engine"), powers(second)) == (Memory([], [], []), None, [])
    assert second.stop(10)
    third = opened("machine-2")
    assert run(third) == []


def test_a_copied_disk_is_known_by_the_board_it_is_in(tmp_path: Path, opened: Home) -> None:  # operator.md S12 c
    first = opened("id-1")  # not root
    run(first)
    fill(first)
    assert first.stop(10)
    for machine in ("id-1/board-1", "id-1"):  # root, who learns the board, and not root again
        store = opened(machine)
        assert run(store) == []
        assert store.memory() == FILLED
        assert store.stop(10)
    clone = opened("id-1/board-2")
    assert ["belongs to another machine" in note for note in run(clone)] == [True, True]
    assert clone.memory() == Memory([], [], [])
    assert aside(tmp_path, "other-machine") == ["gpuwatch", "state"]


def test_a_machine_that_does_not_know_its_identity_keeps_its_files(opened: Home) -> None:
    first = opened("")
    run(first)
    fill(first)
    assert first.stop(10)
    for machine, memory in (("machine-1", FILLED), ("", FILLED), ("machine-2", Memory([], [], []))):
        store = opened(machine)
        run(store)
        assert store.memory() == memory
        assert store.stop(10)


def test_another_programs_database_is_left_alone(tmp_path: Path, opened: Home) -> None:
    path = tmp_path / "gpuwatch.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE dashboard (id INTEGER)")
    other.close()
    store = opened()
    store.start()
    assert "another program's" in store.problem()
    assert files(tmp_path) == {"gpuwatch.db", "state.db"}
    assert store.commit([incident(1)]).wait(PATIENCE)


@pytest.mark.parametrize("name", ["gpuwatch", "state"])
def test_a_locked_file_holds_nothing_up_and_is_used_once_it_is_free(tmp_path: Path, opened: Home, name: str) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    holder = sqlite3.connect(tmp_path / f"{name}.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    second = opened()
    notes = second.start()
    assert "locked" in second.problem()
    assert len(notes) == (1 if name == "state" else 0)
    ticket = second.commit([incident(3)])
    second._rounds.put(round_of(3))
    assert ticket.wait(0.05) is False if name == "state" else ticket.wait(PATIENCE)
    holder.execute("ROLLBACK")
    holder.close()
    assert ticket.wait(PATIENCE)
    until(lambda: len(powers(second)) == 24)
    until(lambda: second.problem() == "")
    assert [item.id for item in second.memory().incidents] == [ulid(1), ulid(2), ulid(3)]
    assert second.memory().deliveries == [delivery(1)]


def newer(path: Path, schema: int, reads: int) -> None:
    """Make a database one of a newer gpuwatch: a table and a column more, and a noun with a field more."""
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (schema,))
        database.execute("UPDATE meta SET value = ? WHERE name = 'reads'", (reads,))
        if path.name == "state.db":
            database.execute("ALTER TABLE incident ADD COLUMN mood TEXT")
            database.execute('UPDATE incident SET data = replace(data, \'{"id"\', \'{"mood":1,"id"\')')
            database.execute("CREATE TABLE acknowledgement (id TEXT)")
    database.close()


@pytest.mark.parametrize("readable", [True, False])
def test_a_downgrade_keeps_the_newer_files_aside_and_alerts_where_their_version_allows(
    tmp_path: Path, opened: Home, *, readable: bool
) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    newer(tmp_path / "gpuwatch.db", 7, 7)
    newer(tmp_path / "state.db", 9, 1 if readable else 9)
    second = opened()
    notes = " | ".join(run(second))
    assert "schema 9, ours is 2" in notes
    assert "schema 7, ours is 1" in notes
    assert (aside(tmp_path, "newer-v7"), aside(tmp_path, "newer-v9")) == (["gpuwatch"], ["state"])
    assert second.memory() == (FILLED if readable else Memory([], [], []))
    assert powers(second) == []
    fill_more(second)
    assert second.stop(10)
    third = opened()
    assert run(third) == []
    assert len(third.memory().incidents) == (3 if readable else 1)


def old_alert_memory(path: Path) -> None:
    """Write an alert memory of schema 0 by hand: its incidents had no `changed_at`, and their rule was called alarm."""
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
            INSERT INTO meta VALUES ('schema', '0'), ('reads', '0'), ('machine', 'machine-1');
            CREATE TABLE incident (id TEXT PRIMARY KEY, alarm TEXT NOT NULL, subject TEXT NOT NULL, key TEXT NOT NULL,
                state TEXT NOT NULL, ended_at REAL, version INTEGER NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
            """
        )
        from_now = STATE_LAYOUT.metadata.tables["incident"]
        assert "changed_at" in from_now.columns
        row = dict(incident_row(incident(1))[1])
        database.execute("INSERT INTO incident VALUES (:id, :rule, :subject, :key, :state, :ended_at, :version, :data)", row)
    database.close()


def rename_alarm(connection: Connection) -> None:
    """Take an alert memory from schema 0 to 1."""
    connection.execute(text("ALTER TABLE incident RENAME COLUMN alarm TO rule"))
    connection.execute(text("ALTER TABLE incident ADD COLUMN changed_at DOUBLE NOT NULL DEFAULT 0"))


def test_an_older_alert_memory_is_copied_and_migrated(tmp_path: Path, opened: Home) -> None:
    old_alert_memory(tmp_path / "state.db")
    steps = (Step(1, rename_alarm, reads=1),)
    store = opened(state_layout=Layout("alert memory", STATE_LAYOUT.metadata, steps, precious=True))
    notes = run(store)
    assert notes == [
        "the alert memory was copied to state.db.schema-0 before its migration",
        "the alert memory was migrated from schema 0 to 1",
    ]
    assert store.memory().incidents == [incident(1)]
    assert store.commit([incident(2)], [told(2)], [delivery(2)]).wait(PATIENCE)
    with sqlite3.connect(tmp_path / "state.db.schema-0") as copy:
        assert copy.execute("SELECT alarm FROM incident").fetchall() == [("gpu_overheating",)]
    copy.close()
    assert stat.S_IMODE((tmp_path / "state.db.schema-0").stat().st_mode) == 0o640


def test_a_migration_that_fails_half_way_leaves_the_old_schema_and_is_tried_again(tmp_path: Path, opened: Home) -> None:
    old_alert_memory(tmp_path / "state.db")
    tries: list[int] = []

    def stumble(connection: Connection) -> None:
        tries.append(1)
        rename_alarm(connection)
        if len(tries) == 1:
            connection.execute(text("INSERT INTO no_such_table VALUES (1)"))

    steps = (Step(1, stumble, reads=1),)
    store = opened(state_layout=Layout("alert memory", STATE_LAYOUT.metadata, steps, precious=True))
    (note,) = (note for note in store.start() if "without the alert memory" in note)
    assert "no such table" in note
    until(lambda: store.problem() == "")
    assert (len(tries), store.memory().incidents) == (2, [incident(1)])
    assert [path.name for path in tmp_path.glob("state.db.schema-*")] == ["state.db.schema-0"]  # one, whatever the tries


def test_a_second_upgrade_leaves_the_copy_of_the_first_as_it_is(tmp_path: Path, opened: Home) -> None:
    """Between the two lies a downgrade, under which the older gpuwatch began a memory of its own."""
    layout = Layout("alert memory", STATE_LAYOUT.metadata, (Step(1, rename_alarm, reads=1),), precious=True)
    names = ["state.db.schema-0", "state.db.schema-0-2"]
    kept: list[bytes] = []
    for name in names:
        old_alert_memory(tmp_path / "state.db")
        if kept:
            with sqlite3.connect(tmp_path / "state.db") as database:
                database.execute("DELETE FROM incident")
            database.close()
        store = opened(state_layout=layout)
        assert run(store)[0] == f"the alert memory was copied to {name} before its migration"
        assert store.stop(10)
        kept.append((tmp_path / name).read_bytes())
        for path in tmp_path.glob("state.db*"):
            if ".schema-" not in path.name:
                path.unlink()
    assert [(tmp_path / name).read_bytes() for name in names] == kept
    assert kept[0] != kept[1]
    assert sorted(path.name for path in tmp_path.glob("*.schema-*")) == names


def test_a_long_migration_of_the_history_holds_up_neither_the_start_nor_alerts(opened: Home) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    release = threading.Event()

    def slow(connection: Connection) -> None:
        while not release.is_set():  # a long statement, as one that rewrites a table of 1 GiB
            connection.execute(
                text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) SELECT max(i) FROM n")
            )

    steps = (Step(2, slow, reads=2),)
    second = opened(history_layout=Layout("history", HISTORY_LAYOUT.metadata, steps))
    second.start()
    until(lambda: "the history is being migrated from schema 1 to 2" in second.problem())
    assert second.commit([incident(3)]).wait(PATIENCE)
    assert not second._writer.history.ready
    release.set()
    until(lambda: second.problem() == "")
    assert powers(second) == [1.0] * 8 + [2.0] * 8


def test_a_column_that_the_catalogue_has_and_a_table_lacks_is_added(tmp_path: Path, opened: Home) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    with sqlite3.connect(tmp_path / "gpuwatch.db") as database:
        database.execute("ALTER TABLE raw_gpu DROP COLUMN energy_joules_total")
        database.execute("DROP TABLE raw_pci")
    database.close()
    second = opened()
    assert run(second) == []
    assert powers(second) == [1.0] * 8 + [2.0] * 8
    second.observe(view([(gpu_target(0), {gpu.ENERGY: 5.0})], EPOCH + 100))
    assert second.stop(10)
    third = opened()
    run(third)
    assert [row.values for row in third.rows(gpu.GPU, [gpu.ENERGY], 0, 1e12)] == [{gpu.ENERGY: 5.0}]
