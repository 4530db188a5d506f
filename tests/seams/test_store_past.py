"""The past as it is asked for: values and events of a time, bounded, and in words where the disk gives nothing."""

import sqlite3
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import text

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.host import HOST
from gpuwatch.catalogue.named import named
from gpuwatch.catalogue.own import QUEUE_DROPPED
from gpuwatch.catalogue.process import PROCESS, PROCESS_CPU
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.past import NoTargetError, Past, Question, TooMuchError, UnreadableError
from gpuwatch.model.target import Target
from gpuwatch.store import ASKERS, Store, past
from gpuwatch.store.history import Round
from gpuwatch.store.past import EVENTS, FEW, PLACED, SERIES
from tests.fakes.happenings import told, xid
from tests.fakes.store_history import History
from tests.fakes.store_home import Home, run
from tests.fakes.store_nouns import EPOCH, gpu_target, round_of
from tests.fakes.until import until

UUIDS = [gpu_target(index).key for index in range(3)]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Home]:
    """Stores in one folder."""
    home = Home(tmp_path)
    yield home
    home.close()


def at(number: float) -> float:
    """Return the time of a round."""
    return EPOCH + number * 10


def beat(number: int, values: Mapping[int, Mapping[str, float]]) -> Round:
    """Return a round in which these GPUs had these values."""
    rows = ((gpu_target(index, pci_bus_id=f"0000:{index + 1:02x}:00.0"), row) for index, row in values.items())
    return Round(at(number), tuple(rows))


def process(pid: int) -> Target:
    """Return a process; the first is the one on the GPU."""
    role = "loader" if pid else "gpu"
    return Target(subject=PROCESS, key=f"{pid}-1", labels={"pid": str(pid), "start": "1", "role": role})


def crowd(number: int, count: int) -> Round:
    """Return a round of so many processes."""
    return Round(at(number), tuple((process(pid), {PROCESS_CPU.id: float(pid)}) for pid in range(count)))


def asked(name: str = "power_watts", *, since: float = 0, until: float = 1e6, points: int = 2_500, **choice: str) -> Question:
    """Return a question about rounds; `target` is a key, every other choice a label."""
    key = choice.pop("target", None)
    return Question(metrics=named(name), since=at(since), until=at(until), key=key, labels=choice, points=points)


def points(found: Past) -> dict[str, list[tuple[float, float | None]]]:
    """Return the points by key, times in rounds."""
    return {one.key: [((point[0] - EPOCH) / 10, point[1]) for point in one.points] for one in found.series}


def filled(home: Home, rounds: list[Round], events: list[Event]) -> Store:
    """Return a store that has these on disk."""
    store = home()
    run(store)
    for one in rounds:
        store._rounds.put(one)
    store.record(events)
    store._writer.wake()
    until(lambda: not store._rounds.waiting and not store._events.waiting)
    assert store.stop(10)
    again = home()
    run(again)
    return again


def test_values_and_events_of_a_gpu_lie_on_one_axis(opened: Home) -> None:
    rounds = [beat(number, {index: {"power_watts": 100.0 * index + number} for index in range(3)}) for number in range(4)]
    of_bus = told("aer_corrected", Severity.WARNING, at(2.2), "0000:02:00.0")
    events = [xid(31, UUIDS[1], at(1.5)), of_bus, xid(79, UUIDS[2], at(1.6)), told("oom_kill", Severity.WARNING, at(1.7))]
    store = filled(opened, rounds, events)
    of_one = [events[0], of_bus]
    values = [(float(number), 100.0 + number) for number in range(4)]
    for choice in ({"gpu": "1"}, {"uuid": UUIDS[1]}, {"gpu": UUIDS[1]}, {"gpu": "00000000:02:00.0"}, {"target": UUIDS[1]}):
        found = store.past(asked(**choice))  # type: ignore[arg-type] # names and values are text
        assert (points(found), list(found.events)) == ({UUIDS[1]: values}, of_one)
        assert (found.step, found.oldest, found.truncated, found.series[0].labels["gpu"]) == (10.0, EPOCH, [], "1")
    for key in (UUIDS[1], UUIDS[1].lower(), "0000:02:00.0", "00000000:02:00.0", "02:00.0"):
        assert store.events(0, 2e9, keys=[key]) == of_one
    assert store.events(0, 2e9, keys=["0000:99:00.0"]) == []
    assert store.events(0, 2e9, keys=UUIDS[1:3]) == [events[0], events[2], of_bus]
    found = store.past(asked())
    assert (list(points(found)), list(found.events)) == (UUIDS, sorted(events, key=lambda event: event.at))


def test_a_time_begins_with_since_and_ends_before_until(opened: Home) -> None:
    store = filled(opened, [round_of(number, targets=1) for number in range(6)], [xid(31, UUIDS[0], at(n)) for n in range(6)])
    found = store.past(asked(since=2, until=4))
    assert points(found) == {UUIDS[0]: [(2.0, 2.0), (3.0, 3.0)]}
    assert [event.at for event in found.events] == [at(2), at(3)]
    assert store.past(asked(since=9)).series == []


def test_what_was_not_there_is_no_value_and_a_zero_is_one(opened: Home) -> None:
    """Released for ten periods, and the daemon away for ten more."""
    there = [beat(number, {0: {"power_watts": 0.0, "utilization_ratio": 0.5}}) for number in (0, 1, 2, 3, 24, 25, 26)]
    released = [beat(number, {0: {"memory_size_bytes": 1.0}}) for number in range(4, 14)]
    store = filled(opened, [*there[:4], *released, *there[4:]], [])
    found = points(store.past(asked(gpu="0")))[UUIDS[0]]
    assert found == [(0, 0), (1, 0), (2, 0), (3, 0), (4, None), (24, 0), (25, 0), (26, 0)]


def test_members_of_a_family_are_series_of_their_own(opened: Home) -> None:
    row = {"temperature_celsius_core": 40.0, "temperature_celsius_memory": 60.0}
    store = filled(opened, [beat(0, {0: row, 1: {"temperature_celsius_core": 41.0}})], [])
    found = store.past(asked("gpuwatch_gpu_temperature_celsius"))
    shown = {(one.key, dict(one.metric.labels)["sensor"]): one.points for one in found.series}
    first = EPOCH
    assert shown == {
        (UUIDS[0], "core"): [(first, 40.0)],
        (UUIDS[0], "memory"): [(first, 60.0)],
        (UUIDS[1], "core"): [(first, 41.0)],
    }


def test_more_rows_than_points_become_longer_steps(opened: Home) -> None:
    store = filled(opened, [round_of(number, targets=2) for number in range(50)], [])
    found = store.past(asked(points=10))
    assert (found.step, len(found.series)) == (60.0, 2)
    assert found.series[0].points[1] == (EPOCH + 100, 7.5, 5.0, 10.0)  # EPOCH is 20 s past a minute


@pytest.mark.parametrize("count", [3, PLACED + 4, FEW + 4])
def test_processes_lie_by_time_and_are_found_one_by_one_and_together(opened: Home, count: int) -> None:
    store = filled(opened, [crowd(number, count) for number in range(3)], [])
    name = "process.cpu_seconds_total"
    assert points(store.past(asked(name, pid="2"))) == {"2-1": [(0, 2.0), (1, 2.0), (2, 2.0)]}
    assert points(store.past(asked(name, target="1-1", since=1))) == {"1-1": [(1, 1.0), (2, 1.0)]}
    loaders = [f"{pid}-1" for pid in range(1, count)]
    assert list(points(store.past(asked(name)))) == ["0-1", *loaders]
    assert list(points(store.past(asked(name, role="loader")))) == loaders


def test_what_is_left_out_of_an_answer_is_said(opened: Home) -> None:
    events = [xid(31, UUIDS[0], at(number / 1000)) for number in range(EVENTS + 5)]
    store = filled(opened, [crowd(0, SERIES + 7)], events)
    found = store.past(asked("process.cpu_seconds_total"))
    assert (len(found.series), len(found.events), found.events[-1]) == (SERIES, EVENTS, events[-1])
    assert found.truncated == [
        f"targets: 7 more than the {SERIES} series of one answer have values",
        f"events: only the newest {EVENTS} are told",
    ]


def test_an_unknown_target_is_said_with_those_that_there_are(opened: Home) -> None:
    store = filled(opened, [round_of(0, targets=2), crowd(0, 30)], [])
    known = "it has gpu=0, gpu=1"
    with pytest.raises(NoTargetError, match=f"^the history has no gpu with gpu=7; {known}$"):
        store.past(asked(gpu="7"))
    with pytest.raises(
        NoTargetError, match=rf"^the history has no gpu with target=GPU-x, gpu=0; it has target={UUIDS[0]} \(gpu=0\), "
    ):
        store.past(asked(target="GPU-x", gpu="0"))
    with pytest.raises(NoTargetError, match=r"pid=0 start=1 role=gpu, .*, pid=8 start=1 role=loader, \.\.\.$") as raised:
        store.past(asked("process.cpu_seconds_total", pid="99"))
    assert len(str(raised.value)) < 320


def test_a_label_that_a_thing_does_not_have_is_said_and_nothing_is_named_in_its_place(opened: Home) -> None:
    host = Round(at(0), ((Target(subject=HOST, key=""), {"load1": 1.0}),))
    store = filled(opened, [round_of(0, targets=2), host], [])
    with pytest.raises(NoTargetError, match=r"^the history has no host with gpu=0, which has no label gpu$"):
        store.past(asked("load1", gpu="0"))
    with pytest.raises(NoTargetError, match=r"^the history has no host with target=x, of which there is one alone$"):
        store.past(asked("load1", target="x"))
    with pytest.raises(NoTargetError, match=r"^the history has no gpu with pid=1, which has no label pid$"):
        store.past(asked(pid="1"))


def test_a_gpu_without_a_value_in_that_time_still_has_its_events(opened: Home) -> None:
    store = filled(opened, [round_of(0, targets=2)], [xid(79, UUIDS[1], at(5)), xid(31, UUIDS[0], at(5))])
    found = store.past(asked(gpu="1", since=4))
    assert (found.series, [event.code for event in found.events]) == ([], [79])


def test_before_the_first_row_there_is_no_history_and_no_target_is_unknown(opened: Home) -> None:
    store = opened()
    run(store)
    found = store.past(asked(gpu="7"))
    assert (found.oldest, found.series, found.events) == (None, [], [])


def test_a_history_that_is_not_open_locked_gone_or_busy_is_said_in_words(tmp_path: Path, opened: Home) -> None:
    with pytest.raises(UnreadableError, match=r"^the history is not open yet$"):
        opened().past(asked())
    store = filled(opened, [round_of(0)], [])
    for _ in range(ASKERS):
        assert store._askers.acquire(timeout=0)
    with pytest.raises(UnreadableError, match=r"^others are reading the history: ask again$"):
        store.past(asked())
    store._askers.release(ASKERS)
    assert len(store.past(asked()).series) == 8
    assert store.stop(10)
    file = tmp_path / "gpuwatch.db"
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("CREATE TABLE held (x)")
    with pytest.raises(UnreadableError, match=r"^the history cannot be read: database is locked$"):
        store.past(asked())
    holder.close()
    assert len(store.past(asked()).series) == 8
    file.rename(tmp_path / "elsewhere.db")
    for question in (
        lambda: store.past(asked()),
        lambda: store.events(0, 2e9),
        lambda: store.rows(gpu.GPU, [gpu.POWER], 0, 2e9),
    ):
        with pytest.raises(UnreadableError, match=r"^the history cannot be read: unable to open database file$"):
            question()
    (tmp_path / "elsewhere.db").rename(file)
    assert len(store.past(asked()).series) == 8


def test_a_corrupt_history_is_said_and_moved_aside_and_the_next_is_read(tmp_path: Path, opened: Home) -> None:
    store = filled(opened, [round_of(number, targets=100) for number in range(40)], [])
    assert store.stop(10)
    file = tmp_path / "gpuwatch.db"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))  # the root pages stay
    again = opened()
    run(again)
    with pytest.raises(UnreadableError, match=r"malformed"):
        again.past(asked())
    until(lambda: list(tmp_path.glob("gpuwatch.db.corrupt-*")))
    again._rounds.put(round_of(50))
    again._writer.wake()

    def values() -> int:
        try:
            return len(again.past(asked()).series)
        except UnreadableError:  # between the two files
            return 0

    until(lambda: values() == 8)


def test_labels_that_are_none_are_said_in_words(tmp_path: Path, opened: Home) -> None:
    store = filled(opened, [round_of(0)], [])
    with sqlite3.connect(tmp_path / "gpuwatch.db") as file:
        file.execute("UPDATE target SET labels = '{'")
    file.close()
    for choice in ({}, {"gpu": "0"}):
        with pytest.raises(UnreadableError, match=r"^the history cannot be read: Input data was truncated$"):
            store.past(asked(**choice))  # type: ignore[arg-type] # names and values are text


def test_a_question_that_the_disk_answers_too_slowly_ends(tmp_path: Path, opened: Home) -> None:
    """To find out that this table has no row of that time takes a minute."""
    store = filled(opened, [round_of(0)], [])
    with sqlite3.connect(tmp_path / "gpuwatch.db") as file:
        file.execute("DROP TABLE raw_queue")
        slow = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000000)"
        file.execute(f"CREATE VIEW raw_queue AS {slow} SELECT x AS target, -x AS at, 1 AS dropped_total FROM n")
    file.close()
    with pytest.raises(UnreadableError, match=r"^the history cannot be read: it took more than 5 s; ask for a shorter time"):
        store.past(asked("queue.dropped_total"))


def many(history: History, targets: int, rows: int) -> None:
    """Fill a narrow table by SQL: so many rows one by one would take long."""
    queues = [Target(subject=QUEUE_DROPPED.subject, key=str(n), labels={"queue": str(n)}) for n in range(targets)]
    history.archive.write(history.connection, Round(EPOCH - 10, tuple((one, {QUEUE_DROPPED.id: 0.0}) for one in queues)))
    numbers = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < :rows - 1)"
    fill = f"INSERT INTO raw_queue {numbers} SELECT target.id, :since + x * 10000, x % 7 FROM target, n ORDER BY 1, 2"
    with history.connection.begin():
        history.connection.execute(text(fill), {"rows": rows, "since": int(EPOCH * 1000)})


def test_a_hundred_thousand_rows_take_no_more_memory_than_their_points(tmp_path: Path) -> None:
    history = History(tmp_path)
    many(history, 4, 25_000)
    tracemalloc.start()
    found = past.read(history.connection, asked("queue.dropped_total", points=1_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    history.connection.close()
    assert (found.step, [len(one.points) for one in found.series]) == (300.0, [834] * 4)
    assert [one.points[1][2:] for one in found.series] == [(0.0, 6.0)] * 4
    assert peak < 6e6  # the rows alone would be 20 MB


def test_more_rows_than_one_question_may_read_are_refused_with_the_limit(tmp_path: Path) -> None:
    history = History(tmp_path)
    many(history, 4, 250_001)
    with pytest.raises(
        TooMuchError, match=r"^more than 1000000 rows lie in that time: ask for a shorter one, or for fewer targets$"
    ):
        past.read(history.connection, asked("queue.dropped_total"))
    one = past.read(history.connection, asked("queue.dropped_total", queue="2"))
    assert [series.key for series in one.series] == ["2"]
    history.connection.close()
