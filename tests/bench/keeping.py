"""What history costs: a database filled with some hours through the store's API, and its bytes a GPU and day."""

import contextlib
import os
import random
import sqlite3
import time
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch import config
from gpuwatch.model.metric import Kind, Metric
from gpuwatch.model.quantity import Size
from gpuwatch.model.reading import Tier
from gpuwatch.model.view import Entry, View
from gpuwatch.store import Store
from tests.bench.processes import written
from tests.fakes.clock import FakeClock

HOURS = 4
MINUTES = 20  # over which writes are counted: many times round the log
WARM = 360  # rounds before them: an hour, by when each target of a long life fills pages of its own
PERIOD = 10.0
DAY = 86400.0
JITTER = 0.03  # of a value: nothing compresses by being equal, as on a busy host


class Kept(NamedTuple):
    """What HOURS of history came to."""

    rows: int
    size: int  # bytes that the file grew by
    days: float
    cpu: float  # seconds a round: gathering it, and writing it


def fill(folder: Path, view: View) -> Kept:
    """Fill a database with HOURS of this view, its values shaken a little each period."""
    clock, dice = FakeClock(), random.Random(20)
    path = folder / "filled.db"
    store = Store(config.Store(url=f"sqlite:///{path}", max_size=Size(8 << 30)), "bench", clock)
    store.start()
    empty = size(path)[1]
    rounds = int(HOURS * 3600 / PERIOD)
    spent = 0.0
    for number in range(rounds):
        view = later(view, dice, clock.wall(), number)
        began = time.process_time()
        store.observe(view)
        wait_written(store, number)
        spent += time.process_time() - began
        clock.forward(PERIOD)
    assert store.stop(30)
    rows, full = size(path)
    return Kept(rows, full - empty, rounds * PERIOD / DAY, spent / rounds)


class Sent(NamedTuple):
    """What a day of a view costs, by MINUTES of it."""

    disk: float  # bytes that are sent to the disk
    file: float  # bytes that the file grows by


def sent(folder: Path, view: View) -> Sent:
    """Write MINUTES of this view through a store and return what a day of it sends to the disk.

    The kernel counts a page when it gets dirty. That is as it would be in real time: SQLite appends to its log, and syncs both
    files before it begins the log anew.
    """
    clock, dice = FakeClock(), random.Random(20)
    path = folder / "sent.db"
    store = Store(config.Store(url=f"sqlite:///{path}", max_size=Size(8 << 30)), "bench", clock)
    store.start()
    rounds = int(MINUTES * 60 / PERIOD)
    before = 0, 0
    for number in range(WARM + rounds):
        if number == WARM:  # the tables and the targets are there
            before = written(os.getpid()), size(path)[1]
        view = later(view, dice, clock.wall(), number)
        store.observe(view)
        wait_written(store, number)
        clock.forward(PERIOD)
    after = written(os.getpid()), size(path)[1]
    assert store.stop(30)
    days = rounds * PERIOD / DAY
    return Sent((after[0] - before[0]) / days, (after[1] - before[1]) / days)


def size(path: Path) -> tuple[int, int]:
    """Return the rows and the bytes of a history, with what is only in its log yet."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where name like 'raw_%'")]
        rows = sum(connection.execute(f"select count(*) from {name}").fetchone()[0] for name in tables)
        pages, page = (connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return rows, pages * page


def wait_written(store: Store, number: int) -> None:
    """Wait until no round waits."""
    end = time.monotonic() + 10
    while store._rounds.waiting:
        assert time.monotonic() < end, f"round {number} is not written"
        time.sleep(0.002)


def later(view: View, dice: random.Random, wall: float, number: int) -> View:
    """Return the view one period later; readings of the slow tier are new in each sixth."""
    entries = {}
    for target, entry in view.entries.items():
        readings = tuple(
            reading
            if reading.tier is Tier.SLOW and number % 6
            else replace(
                reading, at=wall, values={metric: moved(metric, value, dice) for metric, value in reading.values.items()}
            )
            for reading in entry.readings
        )
        entries[target] = Entry(target, entry.values, entry.absent, readings)
    return View(wall, MappingProxyType(entries))


def moved(metric: Metric, value: float, dice: random.Random) -> float:
    """Return a value a little later: counters grow, gauges move within bounds, whole numbers stay whole."""
    if value in (0.0, 1.0):
        return value  # states, and what is not in use
    if metric.kind is Kind.COUNTER:
        return value + dice.randint(0, 1000)
    moved_by = value * JITTER * (2 * dice.random() - 1)
    return value + (round(moved_by) if value == int(value) else moved_by)
