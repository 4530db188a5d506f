"""The store over real SQLite files: what comes back."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch import config
from gpuwatch.catalogue import gpu, own
from gpuwatch.config import ConfigError
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.delivery import Outcome
from gpuwatch.model.metric import Metric
from gpuwatch.model.past import UnreadableError
from gpuwatch.store import Store
from tests.fakes.clock import FakeClock
from tests.fakes.store_home import FILLED, Home, fill, powers, run
from tests.fakes.store_nouns import EPOCH, delivery, gpu_target, incident, round_of, told, ulid, view
from tests.fakes.until import PATIENCE, until


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Make stores in the test's folder; all are stopped at the end."""
    home = Home(tmp_path)
    yield home
    home.close()


def test_a_new_run_knows_what_the_last_one_knew(opened: Home) -> None:
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


def test_attempts_and_ends_of_deliveries_are_kept(opened: Home) -> None:
    first = opened()
    run(first)
    first.commit([], [], [delivery(1), delivery(2)])
    first.attempted(delivery(1), Outcome.retry("status 503"), 99.0)
    assert first.attempted(delivery(2), Outcome.sent(), None).wait(PATIENCE)
    assert first.stop(10)
    second = opened()
    run(second)
    assert [(item.id, item.attempt, item.not_before) for item in second.memory().deliveries] == [(delivery(1).id, 1, 99.0)]


def test_a_row_that_no_database_takes_costs_its_own_commit_as_a_whole_and_no_other(
    opened: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """A told-mark without its delivery would be an alert that nobody is told of."""
    first = opened()
    odd = replace(delivery(2), attempt=1 << 70)
    tickets = [  # all wait for the file to be opened, and go into it together
        first.commit([incident(1), incident(2)]),
        first.commit(told=[told(1)], deliveries=[delivery(1)]),
        first.commit(told=[told(2)], deliveries=[odd]),
    ]
    run(first)
    assert [ticket.wait(PATIENCE) for ticket in tickets] == [True, True, False]
    assert len([line for line in caplog.messages if "gives up 2 rows that no database takes" in line]) == 1
    assert first.stop(10)
    second = opened()
    run(second)
    found = second.memory()
    assert (found.incidents, found.told, found.deliveries) == ([incident(1), incident(2)], [told(1)], [delivery(1)])


def test_observed_beats_become_rows(opened: Home) -> None:
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


def test_rows_are_chosen_by_time_and_key(opened: Home) -> None:
    store = opened()
    run(store)
    for number in range(4):
        store._rounds.put(round_of(number, targets=2))
    store._writer.wake()
    until(lambda: len(powers(store)) == 8)
    rows = store.rows(gpu.GPU, [gpu.POWER], EPOCH + 10, EPOCH + 30, key=gpu_target(1).key)
    assert [(row.at, row.values[gpu.POWER]) for row in rows] == [(EPOCH + 10, 1.0), (EPOCH + 20, 2.0)]


def test_a_metric_without_a_value_gives_no_row(opened: Home) -> None:
    store = opened()
    run(store)
    fill(store)
    assert store.rows(gpu.GPU, [gpu.ENERGY], 0, 1e12) == []


def test_labels_are_those_that_the_target_has_now(opened: Home) -> None:
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
    assert first.commit([incident(500_000_000)]).wait(PATIENCE)
    assert first.stop(10)
    second = Store(options, "machine-1", clock)
    second.start()
    assert ulid(500_000_000) < second.ids() < second.ids()
    assert second.stop(10)


def test_vacuum_and_synchronous_are_set_as_the_design_says(tmp_path: Path, opened: Home) -> None:
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


def test_the_stores_own_numbers_say_how_it_goes(opened: Home) -> None:
    store = opened()
    run(store)
    fill(store)

    def told() -> dict[Metric, float]:
        return {metric: value for reading in store.readings(EPOCH) for metric, value in reading.values.items()}

    until(lambda: told()[own.DATABASE_WRITES["ok"]] >= 3.0)  # what was written is counted a moment later
    values = told()
    assert values[own.DATABASE_UP] == 1.0
    assert values[own.DATABASE_WRITES["failed"]] == 0.0
    assert values[own.DATABASE_SIZE] > 50_000
    assert values[own.DATABASE_OLDEST["raw"]] == EPOCH + 10
    queues = {reading.target.key: reading.values for reading in store.readings(EPOCH) if reading.target.subject is own.QUEUE}
    assert queues == {name: {own.QUEUE_DROPPED: 0.0} for name in ("alert_memory", "history", "stored_events")}


def test_the_size_is_what_the_writing_thread_last_saw_and_asks_no_disk(tmp_path: Path, opened: Home) -> None:
    store = opened()
    run(store)
    fill(store)

    def size() -> float:
        return next(found.values[own.DATABASE_SIZE] for found in store.readings(EPOCH) if own.DATABASE_SIZE in found.values)

    until(lambda: not store._writer._untidy)
    before = size()
    for part in tmp_path.glob("gpuwatch.db*"):
        part.rename(part.with_name(f"gone-{part.name}"))
    assert size() == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///var/lib/gpuwatch/gpuwatch.db",
        "oracle9://x/y",
        "postgresql+nodriver://h/d",
    ],
)
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
    with pytest.raises(UnreadableError, match="unable to open database file"):
        store.rows(gpu.GPU, [gpu.POWER], 0, 1e12)
    assert "cannot be used" in store.problem()
    store.stop(5)
