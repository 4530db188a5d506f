"""A disk that is full, broken, stalled, locked or corrupt costs what it must and nothing else: the page answers, sampling,
rules and messages go on, status and log say it, and all is whole again once the disk answers.

The stories are told beside each other, each by a daemon of its own, a few at a time; the tests ask what was seen.
"""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import config
from gpuwatch.model.alert import AlertState, Severity
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.delivery import Told
from gpuwatch.store import Store
from tests.fakes import patient
from tests.fakes.disk import FakeDisk, build
from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, SLOWER, until

MACHINE = "0123456789abcdef0123456789abcdef"  # as GpuServer has it
MIDDLE = ["full", "broken", "stalled", "locked"]
START = ["full", "stalled", "locked"]
CORRUPT = ["gpuwatch", "state"]
AT_A_TIME = 4  # stories: more daemons than that starve each other on two cores


@dataclass
class Seen:
    """What a story showed."""

    message: dict[str, Any] = field(default_factory=dict)
    told_after: float = 0.0  # seconds from the loss to the message
    status: str = ""  # what status said of the store while the fault lasted
    up: float | None = None
    again: str = ""  # and after it
    log: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)  # wall times of stored rounds
    ended: float = 0.0  # wall time at which the fault ended
    expected: list[float | None] = field(default_factory=list)
    stopped: int | None = None
    files: list[str] = field(default_factory=list)
    incidents: list[tuple[str, str, str]] = field(default_factory=list)  # id, rule, key of the open ones on disk
    queued: int = 0

    def lines(self, *words: str) -> list[str]:
        """Return the log's lines that have all these words."""
        return [line for line in self.log if all(word in line for word in words)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The failing disk, compiled."""
    return build(tmp_path_factory.mktemp("disk"))


def database(server: GpuServer, name: str) -> Path:
    """Return a file of the store."""
    return server.daemon.database.with_name(f"{name}.db")


@contextmanager
def faulty(server: GpuServer, disk: FakeDisk, kind: str) -> Iterator[None]:
    """Let the disk be so."""
    if kind == "locked":
        with closing(sqlite3.connect(database(server, "state"))) as one, closing(sqlite3.connect(server.daemon.database)) as two:
            for holder in (one, two):
                holder.isolation_level = None
                until(lambda holder=holder: locks(holder))  # type: ignore[misc] # bound at once
            yield
        return
    if kind == "full":
        disk.fails("enospc", "write")  # a full disk still syncs
    else:
        disk.fails({"broken": "eio", "stalled": "stall"}[kind])
    yield
    disk.works()


def until_well(server: GpuServer, seconds: float = PATIENCE) -> None:
    """Wait until status has nothing to say about the store."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while server.daemon.status()["store"] != "":
        assert time.monotonic() < end, f"{server.daemon.status()['store']}\n{server.daemon.said()}"
        pause.wait(0.1)


def locks(holder: sqlite3.Connection) -> bool:
    """Take the file for ourselves; False where somebody is at it."""
    try:
        holder.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def look(server: GpuServer, seen: Seen) -> Seen:
    """Note what is left behind once the daemon has stopped."""
    seen.log = server.daemon.said().splitlines()
    seen.messages = server.messages()
    seen.files = sorted(path.name for path in server.daemon.database.parent.iterdir())
    with closing(sqlite3.connect(server.daemon.database)) as history:
        seen.rows = [row[0] / 1000 for row in history.execute("SELECT at FROM round ORDER BY id")]
    with closing(sqlite3.connect(database(server, "state"))) as state:
        seen.incidents = state.execute("SELECT id, rule, key FROM incident WHERE ended_at IS NULL ORDER BY id").fetchall()
        seen.queued = state.execute("SELECT count(*) FROM delivery WHERE state = 'queued'").fetchone()[0]
    return seen


# --- in the middle of a run ---------------------------------------------------------------------------------------------


def in_the_middle(folder: Path, library: Path, kind: str) -> Seen:
    """A daemon at work; then the disk fails, and a GPU is lost; then the disk works again."""
    folder.mkdir()
    seen, disk = Seen(), FakeDisk(library, folder / "d/state", folder)
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver, environ=disk.environ) as server:
        server.wait_up(2)
        until_well(server)
        with faulty(server, disk, kind):
            server.nvml.lose(1)
            lost = time.monotonic()
            seen.message = server.wait_message(lambda message: message["kind"] == "firing")
            seen.told_after = time.monotonic() - lost
            seen.status = server.daemon.status()["store"]
            seen.up = server.answers_quickly().value("gpuwatch_database_up")
            server.moves([0])
            assert kind == "locked" or disk.faults > 0
        seen.ended = time.time()
        until_well(server)
        if kind == "stalled":
            until(lambda: server.said("the disk of the store answers again"))
        seen.again = server.daemon.status()["store"]
        seen.stopped = server.daemon.stop()
        return look(server, seen)


# --- at the start -------------------------------------------------------------------------------------------------------


def earlier(folder: Path) -> None:
    """An earlier run: four GPUs, of which 1 and 2 are lost; of 1 people were told."""
    server = GpuServer(folder, gpus=4, environ=patient.environ(folder / "never"))
    server.daemon.module = patient.MODULE  # nobody is told of anything
    with server:
        server.wait_up(4)
        server.nvml.lose(1)
        server.nvml.lose(2)
        server.until_dropped(2)
        assert server.daemon.stop() == 0
        store = Store(config.Store(url=f"sqlite:///{server.daemon.database}"), MACHINE, SystemClock())
        assert store.start() == []
        (told,) = (found for found in store.memory().incidents if found.key == server.nvml.uuid(1))
        assert store.commit(told=[Told(told.id, "oncall", AlertState.FIRING, Severity.CRITICAL, time.time())]).wait(PATIENCE)
        assert store.stop(PATIENCE)


def at_the_start(folder: Path, library: Path, left: Path, kind: str) -> Seen:
    """A daemon that starts while its disk fails, with three of its GPUs; the disk works once alerts fire again.

    Its notifier lets no time pass until the memory is back: else a slow machine would rightly tell what it does not remember.
    """
    folder.mkdir()
    seen, disk = Seen(), FakeDisk(library, folder / "d/state", folder)
    with Receiver() as receiver, ExitStack() as fault:
        gate = folder / "gate"
        server = GpuServer(folder, gpus=3, receiver=receiver, environ={**disk.environ, **patient.environ(gate)})
        server.daemon.module = patient.MODULE
        shutil.copytree(left, folder / "d/state", dirs_exist_ok=True)
        server.nvml.lose(1)
        server.nvml.lose(2)
        fault.enter_context(faulty(server, disk, kind))
        with server:
            until(lambda: server.daemon.get("/-/healthy")[0] == 200)
            server.until_dropped(2)
            seen.status = server.daemon.status()["store"]
            page = server.answers_quickly()
            seen.up, seen.expected = page.value("gpuwatch_database_up"), [page.value("gpuwatch_gpus_expected")]
            fault.close()
            seen.ended = time.time()
            page = server.daemon.until(lambda page: page.value("gpuwatch_gpus_expected") == 4)
            seen.expected.append(page.value("gpuwatch_gpus_expected"))
            gate.touch()
            until_well(server)
            server.wait_message(lambda message: message["kind"] == "firing")
            server.moves([0])
            seen.stopped = server.daemon.stop()
            return look(server, seen)


# --- corrupt ------------------------------------------------------------------------------------------------------------


def corrupt(folder: Path, left: Path, name: str) -> Seen:
    """A daemon that finds one of its files full of garbage."""
    folder.mkdir()
    seen = Seen()
    with Receiver() as receiver:
        server = GpuServer(folder, gpus=4, receiver=receiver)
        shutil.copytree(left, folder / "d/state", dirs_exist_ok=True)
        garbage = b"no database at all " * 500
        database(server, name).write_bytes(garbage)
        server.nvml.lose(1)
        server.nvml.lose(2)
        with server:
            server.daemon.wait_ready()
            until(lambda: sum(len(message["alerts"]) for message in server.messages()) == {"gpuwatch": 1, "state": 2}[name])
            server.moves([0])
            notes = server.daemon.status()["notes"]
            seen.status = " | ".join(notes)
            until_well(server)
            seen.stopped = server.daemon.stop()
            look(server, seen)
    (aside,) = (path for path in database(server, name).parent.iterdir() if ".corrupt-" in path.name)
    assert aside.read_bytes() == garbage
    return seen


# --- to the end ---------------------------------------------------------------------------------------------------------


def to_the_end(folder: Path, library: Path, kind: str) -> Seen:
    """A daemon that is stopped while its disk stands still, or refuses."""
    folder.mkdir()
    seen, disk = Seen(), FakeDisk(library, folder / "d/state", folder)
    with GpuServer(folder, gpus=1, environ=disk.environ) as server:
        server.wait_up(1)
        until_well(server)
        with faulty(server, disk, kind):
            server.nvml.lose(0)
            server.until_dropped(1)
            seen.stopped = server.daemon.stop(5.0 + SLOWER)
        seen.log = server.daemon.said().splitlines()
    return seen


# --- all of them ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder that an earlier run left."""
    folder = tmp_path_factory.mktemp("left")
    earlier(folder)
    return folder / "d/state"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, library: Path, left: Path) -> Iterator[Callable[[str, str], Seen]]:
    """Tell all stories; returns what was seen of one, by the moment of the fault and its kind."""
    folder = tmp_path_factory.mktemp("disks")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        found = {("corrupt", name): pool.submit(corrupt, folder / f"corrupt-{name}", left, name) for name in CORRUPT}
        for kind in START:
            found["start", kind] = pool.submit(at_the_start, folder / f"start-{kind}", library, left, kind)
        for kind in MIDDLE:
            found["middle", kind] = pool.submit(in_the_middle, folder / f"middle-{kind}", library, kind)
        for kind in MIDDLE:
            found["end", kind] = pool.submit(to_the_end, folder / f"end-{kind}", library, kind)
        yield lambda moment, kind: found[moment, kind].result()


@pytest.fixture
def middle(told: Callable[[str, str], Seen], kind: str) -> Seen:
    """What was seen of a disk that failed in the middle of a run."""
    return told("middle", kind)


@pytest.fixture
def start(told: Callable[[str, str], Seen], kind: str) -> Seen:
    """What was seen of a disk that failed at the start."""
    return told("start", kind)


def test_an_earlier_run_leaves_two_incidents_of_which_one_was_told(left: Path) -> None:
    with closing(sqlite3.connect(left / "state.db")) as state:
        assert state.execute("SELECT count(*), count(ended_at) FROM incident").fetchone() == (2, 0)
        assert state.execute("SELECT count(*) FROM told").fetchone() == (1,)


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_file_is_moved_aside_with_a_message_and_all_goes_on(told: Callable[[str, str], Seen], name: str) -> None:
    seen = told("corrupt", name)
    assert (seen.stopped, len(seen.incidents), len(seen.rows) > 0) == (0, 2, True)
    assert [file.partition(".corrupt-")[0] for file in seen.files if ".corrupt-" in file] == [f"{name}.db"]
    assert len(seen.lines(f"{name}.db is corrupt", "was moved to", "a fresh one is begun")) == 1
    assert f"{name}.db is corrupt" in seen.status


def test_a_corrupt_history_costs_no_alert_and_a_corrupt_memory_tells_anew(told: Callable[[str, str], Seen]) -> None:
    heard = {
        name: [alert["labels"]["gpu"] for got in told("corrupt", name).messages for alert in got["alerts"]] for name in CORRUPT
    }
    assert heard == {"gpuwatch": ["2"], "state": ["1", "2"]}


@pytest.mark.parametrize("kind", START)
def test_a_daemon_whose_disk_fails_at_the_start_judges_at_once_and_says_what_it_lacks(start: Seen, kind: str) -> None:
    words = {"full": "full", "stalled": "has not answered", "locked": "locked"}[kind]
    assert words in start.status
    assert len(start.lines("started without the alert memory")) == 1
    assert start.up == 0.0
    assert start.expected[0] == 3.0


@pytest.mark.parametrize("kind", START)
def test_what_an_earlier_run_knew_comes_back_with_the_disk(left: Path, start: Seen, kind: str) -> None:
    assert start.expected[-1] == 4.0  # the inventory: a GPU that did not come back is not forgotten
    with closing(sqlite3.connect(left / "state.db")) as state:
        before = state.execute("SELECT id, rule, key FROM incident ORDER BY id").fetchall()
    assert start.incidents == before  # the same stories, under the same ids
    assert (start.stopped, start.queued) == (0, 0)
    assert len(start.lines("are taken over")) == 1


@pytest.mark.parametrize("kind", START)
def test_only_what_nobody_was_told_of_is_told(start: Seen, kind: str) -> None:
    (message,) = start.messages
    assert [alert["labels"]["gpu"] for alert in message["alerts"]] == ["2"]
    assert message["alerts"][0]["incident_id"] in {identity for identity, _, _ in start.incidents}


@pytest.mark.parametrize("kind", MIDDLE)
def test_a_critical_alert_is_told_within_seconds_although_it_cannot_be_stored(middle: Seen, kind: str) -> None:
    assert middle.message["stored"] is False
    assert middle.told_after < 14 + SLOWER, f"{middle.told_after:.1f} s: group wait 5, disk 3, a beat, a busy machine"
    assert [message["kind"] for message in middle.messages] == ["firing"]  # and not again once it is stored


@pytest.mark.parametrize("kind", MIDDLE)
def test_status_says_what_is_wrong_with_the_disk_and_then_that_all_is_well(middle: Seen, kind: str) -> None:
    words = {"full": "full", "broken": "disk I/O error", "stalled": "has not answered", "locked": "locked"}[kind]
    assert words in middle.status
    assert middle.again == ""


@pytest.mark.parametrize("kind", MIDDLE)
def test_the_log_says_once_that_the_disk_fails_and_once_that_it_works_again(middle: Seen, kind: str) -> None:
    if kind == "stalled":
        assert (
            len(middle.lines("disk of the store has not answered")),
            len(middle.lines("disk of the store answers again")),
        ) == (1, 1)
        assert middle.lines("cannot be used") == []
        return
    assert (len(middle.lines("the alert memory cannot be used")), len(middle.lines("the alert memory takes writes again"))) == (
        1,
        1,
    )
    assert len(middle.lines("the history cannot be used")) == len(middle.lines("the history takes writes again")) <= 1


@pytest.mark.parametrize("kind", MIDDLE)
def test_all_that_happened_meanwhile_is_stored_and_history_goes_on(middle: Seen, kind: str) -> None:
    assert (middle.stopped, middle.queued, [rule for _, rule, _ in middle.incidents]) == (0, 0, ["gpu_dropped"])
    assert middle.rows[-1] >= middle.ended - 1
    gaps = [later - earlier for earlier, later in zip(middle.rows, middle.rows[1:], strict=False)]
    assert max(gaps, default=0) < 16  # the rounds of the fault waited


@pytest.mark.parametrize("kind", MIDDLE)
def test_a_daemon_whose_disk_takes_nothing_stops_in_its_time_and_says_so(told: Callable[[str, str], Seen], kind: str) -> None:
    seen = told("end", kind)
    assert seen.stopped == 0
    assert len(seen.lines("the disk did not take everything")) == 1
    assert seen.lines("Traceback") == []
