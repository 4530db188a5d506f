"""The store over real SQLite files: what comes back, and what is done with files that cannot be used."""

import logging
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from gpuwatch import config
from gpuwatch.catalogue import gpu, own
from gpuwatch.config import ConfigError
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.delivery import Outcome
from gpuwatch.store import Memory, Store
from gpuwatch.store.migrations import HISTORY_LAYOUT, STATE_LAYOUT, Layout, Step
from tests.fakes.clock import FakeClock
from tests.fakes.store_nouns import EPOCH, delivery, gpu_target, incident, round_of, told, ulid, view
from tests.fakes.until import until

Open = Callable[..., Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Make stores in the test's folder; all are stopped at the end."""
    stores: list[Store] = []

    def make(machine: str = "machine-1", **layouts: Layout) -> Store:
        options = config.Store(url=f"sqlite:///{tmp_path / 'gpuwatch.db'}")
        stores.append(Store(options, machine, SystemClock(), **layouts))
        return stores[-1]

    yield make
    for store in stores:
        assert store.stop(10)


def run(store: Store) -> list[str]:
    """Start a store that finds nothing wrong; returns its notes."""
    notes = store.start()
    until(lambda: store._writer.history.ready)
    assert store.problem() == ""
    return notes


def fill(store: Store) -> None:
    """Commit two incidents and a delivery and store two rounds."""
    ticket = store.commit([incident(1), incident(2)], [told(1)], [delivery(1)])
    blob = store.save_state("engine", 3, b"state")
    store._rounds.put(round_of(1))
    store._rounds.put(round_of(2))
    store._writer.wake()
    assert ticket.wait(10)
    assert blob.wait(10)
    until(lambda: len(powers(store)) == 16)


def powers(store: Store) -> list[float]:
    """Return the stored values of power."""
    return [row.values[gpu.POWER] for row in store.rows(gpu.GPU, [gpu.POWER], -math.inf, math.inf)]


FILLED = Memory(incidents=[incident(1), incident(2)], told=[told(1)], deliveries=[delivery(1)])


def files(folder: Path) -> set[str]:
    """Return the names of the databases in a folder, without the logs of those that are open."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


def aside(folder: Path, reason: str) -> list[str]:
    """Return the databases that were moved aside for this reason, without their stamps."""
    return sorted(name.split(".db.")[0] for name in files(folder) if f".db.{reason}-" in name)


def test_a_new_run_knows_what_the_last_one_knew(opened: Open) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    second = opened()
    assert run(second) == []
    assert second.memory() == FILLED
    assert second.load_state("engine") == (3, b"state")
    assert second.load_state("nobody") is None
    assert powers(second) == [1.0] * 8 + [2.0] * 8


def test_attempts_and_ends_of_deliveries_are_kept(opened: Open) -> None:
    first = opened()
    run(first)
    first.commit([], [], [delivery(1), delivery(2)])
    first.attempted(delivery(1), Outcome.retry("status 503"), 99.0)
    assert first.attempted(delivery(2), Outcome.sent(), None).wait(10)
    assert first.stop(10)
    second = opened()
    run(second)
    assert [(item.id, item.attempt, item.not_before) for item in second.memory().deliveries] == [(delivery(1).id, 1, 99.0)]


def test_observed_beats_become_rows(opened: Open) -> None:
    store = opened()
    run(store)
    began = EPOCH
    for beat in range(40):  # of the wall clock; the monotonic one is that of the machine and lets no period end
        store.observe(view([(gpu_target(0), {gpu.POWER: float(beat)})], began + beat))
    assert store.stop(10)
    second = opened()
    run(second)
    (row,) = second.rows(gpu.GPU, [gpu.POWER, gpu.ENERGY], began, began + 60)
    assert (row.key, row.labels, row.at, row.values) == (gpu_target(0).key, gpu_target(0).labels, began + 39, {gpu.POWER: 19.5})


def test_rows_are_chosen_by_time_and_key(opened: Open) -> None:
    store = opened()
    run(store)
    for number in range(4):
        store._rounds.put(round_of(number, targets=2))
    store._writer.wake()
    until(lambda: len(powers(store)) == 8)
    rows = store.rows(gpu.GPU, [gpu.POWER], EPOCH + 10, EPOCH + 30, key=gpu_target(1).key)
    assert [(row.at, row.values[gpu.POWER]) for row in rows] == [(EPOCH + 10, 1.0), (EPOCH + 20, 2.0)]


def test_a_metric_without_a_value_gives_no_row(opened: Open) -> None:
    store = opened()
    run(store)
    fill(store)
    assert store.rows(gpu.GPU, [gpu.ENERGY], 0, 1e12) == []


def test_labels_are_those_that_the_target_has_now(opened: Open) -> None:
    store = opened()
    run(store)
    store.observe(view([(gpu_target(0), {gpu.POWER: 1.0})], EPOCH))
    assert store.stop(10)
    later = opened()
    run(later)
    moved = gpu_target(0)
    later.observe(view([(type(moved)(subject=gpu.GPU, key=moved.key, labels={"gpu": "7"}), {gpu.POWER: 2.0})], EPOCH + 60))
    assert later.stop(10)
    last = opened()
    run(last)
    assert [row.labels for row in last.rows(gpu.GPU, [gpu.POWER], 0, 1e12)] == [{"gpu": "7"}] * 2


def test_ids_sort_after_those_of_the_last_run_though_the_clock_stepped_back(tmp_path: Path, clock: FakeClock) -> None:
    options = config.Store(url=f"sqlite:///{tmp_path / 'gpuwatch.db'}")
    first = Store(options, "machine-1", clock)
    first.start()
    assert first.commit([incident(500_000_000)]).wait(10)
    assert first.stop(10)
    second = Store(options, "machine-1", clock)
    second.start()
    assert ulid(500_000_000) < second.ids() < second.ids()
    assert second.stop(10)


@pytest.mark.parametrize("name", ["gpuwatch", "state"])
@pytest.mark.parametrize("damage", ["garbage", "page"])
def test_a_corrupt_file_is_moved_aside_and_a_fresh_one_begun(tmp_path: Path, opened: Open, name: str, damage: str) -> None:
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


def fill_more(store: Store) -> None:
    """Show that a store takes both kinds of rows."""
    before = len(powers(store))
    store._rounds.put(round_of(50))
    assert store.commit([incident(50)]).wait(10)
    until(lambda: len(powers(store)) == before + 8)


def test_a_history_that_becomes_corrupt_is_moved_aside_while_alerts_go_on(
    tmp_path: Path, opened: Open, caplog: pytest.LogCaptureFixture
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
        second.rows(gpu.GPU, [gpu.POWER], 0, 1e12)  # meets the damage
        until(lambda: aside(tmp_path, "corrupt") == ["gpuwatch"])
    fill_more(second)
    assert sum("was moved to gpuwatch.db.corrupt-" in record.getMessage() for record in caplog.records) == 1


def test_an_alert_memory_that_is_removed_under_a_run_is_written_anew_with_all_that_counts(tmp_path: Path, opened: Open) -> None:
    first = opened()
    run(first)
    fill(first)
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    first.commit([incident(3)])
    until(lambda: first.problem() == "" and (tmp_path / "state.db").exists(), 10)
    assert first.stop(10)
    second = opened()
    run(second)
    assert second.memory() == Memory([incident(1), incident(2), incident(3)], [told(1)], [delivery(1)])
    assert second.load_state("engine") == (3, b"state")


def test_a_copy_on_another_machine_starts_a_new_identity_and_sends_nothing_old(tmp_path: Path, opened: Open) -> None:
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


def test_a_machine_that_does_not_know_its_identity_keeps_its_files(opened: Open) -> None:
    first = opened("")
    run(first)
    fill(first)
    assert first.stop(10)
    for machine, memory in (("machine-1", FILLED), ("", FILLED), ("machine-2", Memory([], [], []))):
        store = opened(machine)
        run(store)
        assert store.memory() == memory
        assert store.stop(10)


def test_another_programs_database_is_left_alone(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "gpuwatch.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE dashboard (id INTEGER)")
    other.close()
    store = opened()
    store.start()
    assert "another program's" in store.problem()
    assert files(tmp_path) == {"gpuwatch.db", "state.db"}
    assert store.commit([incident(1)]).wait(10)


@pytest.mark.parametrize("name", ["gpuwatch", "state"])
def test_a_locked_file_holds_nothing_up_and_is_used_once_it_is_free(tmp_path: Path, opened: Open, name: str) -> None:
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
    assert ticket.wait(0.05) is False if name == "state" else ticket.wait(10)
    holder.execute("ROLLBACK")
    holder.close()
    assert ticket.wait(15)
    until(lambda: len(powers(second)) == 24, 15)
    until(lambda: second.problem() == "", 15)
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
            database.execute("CREATE TABLE silence (id TEXT)")
    database.close()


@pytest.mark.parametrize("readable", [True, False])
def test_a_downgrade_keeps_the_newer_files_aside_and_alerts_where_their_version_allows(
    tmp_path: Path, opened: Open, *, readable: bool
) -> None:
    first = opened()
    run(first)
    fill(first)
    assert first.stop(10)
    newer(tmp_path / "gpuwatch.db", 7, 7)
    newer(tmp_path / "state.db", 9, 1 if readable else 9)
    second = opened()
    notes = " | ".join(run(second))
    assert "schema 9, ours is 1" in notes
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
        row = incident_fields()
        database.execute("INSERT INTO incident VALUES (:id, :rule, :subject, :key, :state, :ended_at, :version, :data)", row)
    database.close()


def incident_fields() -> dict[str, object]:
    """Return the row of incident 1 as it is written now."""
    from gpuwatch.store.records import incident_row  # noqa: PLC0415 - used by this fixture alone

    return dict(incident_row(incident(1))[1])


def rename_alarm(connection: Connection) -> None:
    """Take an alert memory from schema 0 to 1."""
    connection.execute(text("ALTER TABLE incident RENAME COLUMN alarm TO rule"))
    connection.execute(text("ALTER TABLE incident ADD COLUMN changed_at DOUBLE NOT NULL DEFAULT 0"))


def test_an_older_alert_memory_is_copied_and_migrated(tmp_path: Path, opened: Open) -> None:
    old_alert_memory(tmp_path / "state.db")
    steps = (Step(1, rename_alarm, reads=1),)
    store = opened(state_layout=Layout("alert memory", STATE_LAYOUT.metadata, steps, precious=True))
    notes = run(store)
    assert notes == [
        "the alert memory was copied to state.db.schema-0 before its migration",
        "the alert memory was migrated from schema 0 to 1",
    ]
    assert store.memory().incidents == [incident(1)]
    assert store.commit([incident(2)], [told(2)], [delivery(2)]).wait(10)
    with sqlite3.connect(tmp_path / "state.db.schema-0") as copy:
        assert copy.execute("SELECT alarm FROM incident").fetchall() == [("gpu_overheating",)]
    copy.close()


def test_a_migration_that_fails_half_way_leaves_the_old_schema_and_is_tried_again(tmp_path: Path, opened: Open) -> None:
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
    until(lambda: store.problem() == "", 15)
    assert (len(tries), store.memory().incidents) == (2, [incident(1)])


def test_a_long_migration_of_the_history_holds_up_neither_the_start_nor_alerts(opened: Open) -> None:
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
    assert second.commit([incident(3)]).wait(10)
    assert not second._writer.history.ready
    release.set()
    until(lambda: second.problem() == "", 10)
    assert powers(second) == [1.0] * 8 + [2.0] * 8


def test_a_column_that_the_catalogue_has_and_a_table_lacks_is_added(tmp_path: Path, opened: Open) -> None:
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


def test_vacuum_and_synchronous_are_set_as_the_design_says(tmp_path: Path, opened: Open) -> None:
    store = opened()
    run(store)
    found: dict[str, tuple[object, ...]] = {}
    for name, side in (("state", store._writer.state), ("history", store._writer.history)):
        connection = side.connection
        assert connection is not None
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        found[name] = tuple(
            driver.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("auto_vacuum", "journal_mode", "synchronous")
        )
    assert found == {"state": (2, "wal", 2), "history": (2, "wal", 1)}


def test_the_stores_own_numbers_say_how_it_goes(opened: Open) -> None:
    store = opened()
    run(store)
    fill(store)
    values = {metric: value for reading in store.readings(EPOCH) for metric, value in reading.values.items()}
    assert values[own.DATABASE_UP] == 1.0
    assert values[own.DATABASE_WRITES["ok"]] >= 3.0
    assert values[own.DATABASE_WRITES["failed"]] == 0.0
    assert values[own.DATABASE_SIZE] > 50_000
    assert values[own.DATABASE_OLDEST["raw"]] == EPOCH + 10
    queues = {reading.target.key: reading.values for reading in store.readings(EPOCH) if reading.target.subject is own.QUEUE}
    assert queues == {"alert_memory": {own.QUEUE_DROPPED: 0.0}, "history": {own.QUEUE_DROPPED: 0.0}}


@pytest.mark.parametrize("url", ["", "nonsense", "sqlite://", "oracle9://x/y", "postgresql+nodriver://h/d"])
def test_a_url_that_cannot_be_used_is_a_mistake_in_the_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url"):
        Store(config.Store(url=url), "machine-1", SystemClock())


def test_a_folder_that_cannot_be_made_costs_the_memory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(config.Store(url=f"sqlite:///{tmp_path / 'file' / 'gpuwatch.db'}"), "machine-1", SystemClock())
    notes = store.start()
    assert ["without the alert memory" in note for note in notes] == [True]
    assert not store.commit([incident(1)]).wait(0.05)
    assert store.memory().incidents == [incident(1)]
    assert store.rows(gpu.GPU, [gpu.POWER], 0, 1e12) == []
    assert "cannot be used" in store.problem()
    store.stop(5)
