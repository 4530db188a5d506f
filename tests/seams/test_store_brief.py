"""Processes and jobs in the history: there are hundreds of them, and they must not wear out the disk that is watched."""

from pathlib import Path

from sqlalchemy import func, select, text, update

from gpuwatch.catalogue.process import PROCESS, PROCESS_CPU, PROCESS_RESIDENT
from gpuwatch.model.metric import Metric
from gpuwatch.model.quantity import Duration
from gpuwatch.model.target import Target
from gpuwatch.store.archive import CHUNK, PRUNE_EVERY, SEEN_EVERY, question, read
from gpuwatch.store.files import raw
from gpuwatch.store.history import Round
from gpuwatch.store.schema import PAGE, RAW, TARGET
from tests.fakes.store_history import History
from tests.fakes.store_nouns import EPOCH

CROWD = range(1000, 1200)
HOUR = Duration(3600)


def process(pid: int) -> Target:
    """Return a process."""
    return Target(subject=PROCESS, key=f"{pid}-1", labels={"pid": str(pid), "start": "1", "role": "loader"})


def processes_of(number: int, *pids: int) -> Round:
    """Return round `number` of these processes."""
    return Round(
        EPOCH + number * 10,
        tuple((process(pid), {PROCESS_CPU.id: number + 0.5, PROCESS_RESIDENT.id: pid * 1e6}) for pid in pids),
    )


def seconds(history: History, pid: int | None, since: int, until: int, metric: Metric = PROCESS_CPU) -> list[float]:
    """Return one number of a process, or of all, over these rounds."""
    key = None if pid is None else process(pid).key
    rows = read(history.connection, PROCESS, [metric], EPOCH + since * 10, EPOCH + until * 10, key=key)
    return [row.values[metric] for row in rows]


def targets(history: History) -> int:
    """Return how many targets the history knows."""
    return history.count(select(func.count()).select_from(TARGET))


def test_a_round_of_two_hundred_processes_dirties_a_few_pages(tmp_path: Path) -> None:
    history, log = History(tmp_path), tmp_path / "gpuwatch.db-wal"
    for number in range(70):  # rows of one target would by now fill a third of a page
        history.write(processes_of(number, *CROWD))
    raw(history.connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(70, 80):
        history.write(processes_of(number, *CROWD))
    assert 10 <= log.stat().st_size / PAGE <= 10 * 12
    history.connection.close()


def test_the_past_of_one_process_and_of_all_is_read_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(6):
        history.write(processes_of(number, 7, *((8,) if number % 2 else ())))
    assert seconds(history, 8, 0, 6) == [1.5, 3.5, 5.5]
    assert seconds(history, 7, 2, 4) == [2.5, 3.5]
    assert seconds(history, None, 1, 3, PROCESS_RESIDENT) == [7e6, 8e6, 7e6]
    history.connection.close()


def test_one_process_is_looked_up_round_by_round_and_all_without_a_list_of_them(tmp_path: Path) -> None:
    history = History(tmp_path)
    plans = []
    for key in ("7-1", None):
        query = question(PROCESS, [PROCESS_CPU], EPOCH, EPOCH + 600, key)
        words = query.compile(history.connection.engine, compile_kwargs={"literal_binds": True})
        steps = history.connection.execute(text(f"EXPLAIN QUERY PLAN {words}")).all()
        plans.append([str(step.detail).partition(" USING ")[2] for step in steps if step.detail.startswith("SEARCH")])
    assert "PRIMARY KEY (at=? AND target=?)" in plans[0]
    assert plans[1] == ["PRIMARY KEY (at>? AND at<?)", "INTEGER PRIMARY KEY (rowid=?)"]
    history.connection.close()


def test_what_processes_did_goes_with_its_time_as_all_history_does(tmp_path: Path) -> None:
    history = History(tmp_path, keep_raw=HOUR)
    history.write(processes_of(0, *CROWD))
    last = PRUNE_EVERY * 2
    for number in range(1, last + 1):
        history.write(processes_of(number, 7))
    kept = history.count(select(func.count()).select_from(RAW[PROCESS]))
    assert PRUNE_EVERY <= kept < PRUNE_EVERY + CHUNK
    assert seconds(history, 7, 0, last + 1) == [number + 0.5 for number in range(last + 1 - kept, last + 1)]
    assert targets(history) == 1
    history.connection.close()


def test_a_process_that_was_not_seen_for_long_is_the_same_when_it_is_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(PRUNE_EVERY + 1):
        history.write(processes_of(number, 7, *((8,) if number in (0, PRUNE_EVERY) else ())))
    assert targets(history) == 2
    assert seconds(history, 8, 0, PRUNE_EVERY + 1) == [0.5, PRUNE_EVERY + 0.5]
    history.connection.close()


def test_targets_of_a_history_without_marks_go_too_but_not_before_their_rows(tmp_path: Path) -> None:
    history = History(tmp_path, keep_raw=HOUR)
    for number in range(30):
        history.write(processes_of(number, 7, 8))
    with history.connection.begin():
        history.connection.execute(update(TARGET).values(last_round=None))
    history.connection.close()
    again = History(tmp_path, keep_raw=HOUR)
    for number in range(30, PRUNE_EVERY + 1):
        again.write(processes_of(number, 7))
    assert targets(again) == 2
    assert len(seconds(again, 8, 0, 30)) == 30
    for number in range(PRUNE_EVERY + 1, 2 * PRUNE_EVERY + SEEN_EVERY):
        again.write(processes_of(number, 7))
    assert targets(again) == 1
    again.connection.close()
