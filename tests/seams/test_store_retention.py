"""What goes when there is too much: rounds by the order of writing, never by a clock that jumped, and a cap over all."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from gpuwatch.catalogue import gpu
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.delivery import Outcome
from gpuwatch.model.quantity import Duration, Size
from gpuwatch.store import records
from gpuwatch.store.archive import CHUNK, LEAST
from gpuwatch.store.files import Database
from gpuwatch.store.history import Round
from gpuwatch.store.migrations import STATE_LAYOUT
from gpuwatch.store.schema import DELIVERY, INCIDENT, RAW, ROUND, TARGET, TOLD
from tests.fakes.store_history import History
from tests.fakes.store_nouns import EPOCH, delivery, gpu_target, incident, round_of, told

YEARS = 5 * 365 * 86400.0


def test_raw_rows_beyond_their_time_go_in_small_steps(tmp_path: Path) -> None:
    history = History(tmp_path, keep_raw=Duration(600))
    for number in range(200):
        history.write(round_of(number, targets=2))
    kept = history.powers()
    assert 60 <= len(kept) < 60 + CHUNK
    assert kept == [float(number) for number in range(200 - len(kept), 200)]
    assert history.count(select(func.count()).select_from(ROUND)) == len(kept)
    assert history.archive.oldest == EPOCH + 10 * kept[0]
    history.connection.close()


@pytest.mark.parametrize("step", [YEARS, -YEARS])
def test_a_clock_that_jumps_five_years_makes_no_row_old(tmp_path: Path, step: float) -> None:
    history = History(tmp_path, keep_raw=Duration(600))
    for number in range(50):
        history.write(round_of(number, targets=1))
    for number in range(50, 59):
        history.write(round_of(number, EPOCH + step, targets=1))
    assert sorted(history.powers()) == [float(number) for number in range(59)]
    history.connection.close()


def test_after_a_jump_and_a_restart_those_written_first_go_first(tmp_path: Path) -> None:
    history = History(tmp_path, keep_raw=Duration(600))
    for number in range(60):
        history.write(round_of(number, EPOCH + YEARS if number < 20 else EPOCH, targets=1))
    history.connection.close()
    again = History(tmp_path, keep_raw=Duration(600))
    for number in range(60, 60 + CHUNK):
        again.write(round_of(number, targets=1))
    assert sorted(again.powers()) == [float(number) for number in range(CHUNK, 60 + CHUNK)]
    again.connection.close()


def test_an_hour_lived_twice_is_kept_twice(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in (1, 2, 1, 2):
        history.write(round_of(number, targets=1))
    assert history.powers() == [1.0, 1.0, 2.0, 2.0]
    history.connection.close()


def size(folder: Path) -> int:
    """Return the bytes of the database with its log."""
    return sum(path.stat().st_size for path in folder.glob("gpuwatch.db*") if not path.name.endswith("-shm"))


def full_round(number: int) -> Round:
    """Return a round of 40 GPUs with all their numbers: some 45 kB."""
    columns = [str(column) for column in RAW[gpu.GPU].columns.keys()[2:]]
    rows = tuple((gpu_target(index), dict.fromkeys(columns, number + 0.1)) for index in range(40))
    return Round(EPOCH + number * 10, rows)


def test_the_cap_wins_over_the_times_and_counts_the_log(tmp_path: Path) -> None:
    cap = 4 << 20
    history = History(tmp_path, max_size=Size(cap))
    largest = 0
    for number in range(120):
        history.write(full_round(number))
        largest = max(largest, size(tmp_path))
    assert largest < cap * 1.05
    kept = history.count(select(func.count()).select_from(ROUND))
    assert 20 < kept < 120
    assert history.count(select(func.max(ROUND.c.at))) == int((EPOCH + 1190) * 1000)
    history.connection.close()


def test_a_cap_that_was_lowered_gives_the_space_back(tmp_path: Path) -> None:
    history = History(tmp_path, max_size=Size(63 << 20))
    for number in range(110):
        history.write(full_round(number))
    before = size(tmp_path)
    history.connection.close()
    lower = History(tmp_path, max_size=Size(3 << 20))
    steps = 0
    while lower.archive.tidy(lower.connection):
        steps += 1
    assert before > 4 << 20
    assert size(tmp_path) <= 3 << 20
    assert steps > 3
    lower.connection.close()


def test_a_cap_too_small_for_anything_leaves_the_last_rounds(tmp_path: Path) -> None:
    history = History(tmp_path, max_size=Size(1000))
    for number in range(100):
        history.write(round_of(number, targets=1))
    assert history.powers() == [float(number) for number in range(100 - LEAST, 100)]
    history.connection.close()


def test_targets_go_with_their_last_row(tmp_path: Path) -> None:
    history = History(tmp_path, keep_raw=Duration(600))
    history.write(round_of(0, targets=3))
    for number in range(1, 730):
        history.write(round_of(number, targets=1))
    assert history.count(select(func.count()).select_from(TARGET)) == 1
    history.write(round_of(730, targets=2))
    assert history.count(select(func.count()).select_from(TARGET)) == 2
    history.connection.close()


def alerts(folder: Path) -> Connection:
    """Open an alert memory, without the writing thread."""
    database = Database(f"sqlite:///{folder / 'state.db'}", STATE_LAYOUT, "machine-1", SystemClock(), synchronous="OFF")
    connection = database.open()
    database.upgrade(connection)
    return connection


def put(connection: Connection, rows: list[tuple[records.Key, records.Row]]) -> None:
    """Write rows of the alert memory."""
    with connection.begin():
        records.write(connection, dict(rows))


def counts(connection: Connection) -> tuple[int, ...]:
    """Return how many incidents, told-marks and deliveries there are."""
    with connection.begin():
        return tuple(connection.scalar(select(func.count()).select_from(table)) or 0 for table in (INCIDENT, TOLD, DELIVERY))


def test_finished_incidents_and_deliveries_go_with_age_but_for_the_newest_thousand(tmp_path: Path) -> None:
    connection = alerts(tmp_path)
    for start in range(0, 1_600, 400):
        numbers = range(start, start + 400)
        put(connection, [records.incident_row(incident(number, ended=EPOCH + number)) for number in numbers])
        put(connection, [records.told_row(told(number)) for number in numbers])
        put(connection, [records.delivery_row(delivery(number), Outcome.sent(), finished=True) for number in numbers])
    records.prune(connection, EPOCH + 10 * 86400, 20 * 86400)
    assert counts(connection) == (1_600, 1_600, 1_600)
    records.prune(connection, EPOCH + 21 * 86400, 20 * 86400)
    assert counts(connection) == (1_100, 1_100, 1_600)
    for _ in range(5):
        records.prune(connection, EPOCH + YEARS, 20 * 86400)  # the clock jumps
    assert counts(connection) == (1_001, 1_001, 1_001)
    connection.close()


def test_what_is_open_or_owed_never_goes(tmp_path: Path) -> None:
    connection = alerts(tmp_path)
    for start in range(0, 1_200, 400):
        numbers = range(start, start + 400)
        put(connection, [records.incident_row(incident(number)) for number in numbers])
        put(connection, [records.delivery_row(delivery(number)) for number in numbers])
    records.prune(connection, EPOCH + YEARS, 86400)
    assert counts(connection) == (1_200, 0, 1_200)
    connection.close()
