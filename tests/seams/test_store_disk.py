"""A disk that is full, broken or stalled costs rows at most: nobody waits for it, and all is whole once it answers."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.disk import FakeDisk, build
from tests.fakes.store_nouns import delivery, ulid
from tests.fakes.until import PATIENCE, SLOWER, until

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2.0  # seconds: a call that waited for the disk would take as long as the fault, or the 3 s after which it is stuck


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The failing disk, compiled."""
    return build(tmp_path_factory.mktemp("disk"))


class Remote:
    """A store in a process of its own."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        program = [sys.executable, "-m", "tests.fakes.store_child", str(folder)]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ)

    def ask(self, *command: object) -> Any:
        """Do one thing there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def close(self) -> None:
        """End the process, by its pipe."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
        self.process.stdout.close()


@pytest.fixture
def disk(tmp_path: Path, library: Path) -> FakeDisk:
    """A disk under the store's folder."""
    (tmp_path / "store").mkdir()
    return FakeDisk(library, tmp_path / "store", tmp_path)


@pytest.fixture
def run(tmp_path: Path, disk: FakeDisk) -> Iterator[Callable[[], Remote]]:
    """Start stores on the disk."""
    remotes: list[Remote] = []

    def start() -> Remote:
        remotes.append(Remote(tmp_path / "store", disk.environ))
        return remotes[-1]

    yield start
    disk.works()
    for remote in remotes:
        remote.close()


FAULTS = [
    ("enospc", "write", 1),
    ("enospc", "write", 2),
    ("enospc", "write", 4),
    ("eio", "write", 1),
    ("eio", "write", 3),
    ("eio", "sync", 1),
    ("enospc", "sync", 2),
    ("stall", "write", 1),
    ("stall", "sync", 1),
]


def test_every_fault_in_the_middle_of_a_run_holds_nobody_up_and_loses_nothing(disk: FakeDisk, run: Callable[[], Remote]) -> None:
    store = run()
    assert store.ask("start") == []
    assert store.ask("commit", 0, PATIENCE)["stored"] is True
    number = 0
    rounds: set[float] = set()
    for fault, call, first in FAULTS:
        name = f"{fault} {call} {first}"
        before = disk.faults
        disk.fails(fault, call, first)
        tickets = []
        while disk.faults == before:  # the n-th call may come only in a later commit
            number += 1
            tickets.append(store.ask("commit", number, 0.05))
            assert tickets[-1]["took"] < AT_ONCE, name
            assert store.ask("round", number) < AT_ONCE, name
            rounds.add(float(number))
            assert len(tickets) < 40, name
        assert store.ask("observe", number * 100, 12) < AT_ONCE, name
        assert store.ask("memory")["incidents"] == [ulid(one) for one in range(number + 1)], name
        disk.works()
        number += 1
        assert store.ask("commit", number, PATIENCE)["stored"] is True, name
        store.ask("round", number)  # what is free is looked at after a round
        rounds.add(float(number))
        until(lambda: store.ask("problem") == "")
    numbers = store.ask("numbers")
    assert numbers["database_writes_total_failed"] > 0
    assert (numbers["dropped_totalalert_memory"], numbers["dropped_totalhistory"]) == (0, 0)
    assert store.ask("stop", PATIENCE)["whole"] is True
    again = run()
    assert again.ask("start") == []
    memory = again.ask("memory")
    assert memory["incidents"] == [ulid(one) for one in range(number + 1)]
    assert memory["deliveries"] == [delivery(one).id for one in range(number + 1)]
    assert rounds - set(again.ask("rows")) == set()
    assert again.ask("stop", PATIENCE)["whole"] is True


@pytest.mark.parametrize(
    ("fault", "call"), [("enospc", "write"), ("eio", "write"), ("eio", "sync"), ("stall", "write"), ("stall", "sync")]
)
def test_a_ticket_says_no_while_the_disk_refuses_and_yes_once_it_answers(
    disk: FakeDisk, run: Callable[[], Remote], fault: str, call: str
) -> None:
    store = run()
    store.ask("start")
    assert store.ask("commit", 1, PATIENCE)["stored"] is True
    disk.fails(fault, call)
    assert store.ask("commit", 2, 0.3)["stored"] is False
    assert disk.faults > 0
    disk.works()
    assert store.ask("again", PATIENCE) is True


def test_a_disk_that_is_full_from_the_start_costs_the_memory_and_nothing_else(disk: FakeDisk, run: Callable[[], Remote]) -> None:
    disk.fails("enospc")
    store = run()
    (note,) = store.ask("start")
    assert "without the alert memory" in note
    assert "disk" in store.ask("problem")
    assert store.ask("commit", 1, 0.05)["stored"] is False
    assert store.ask("round", 1) < AT_ONCE
    assert disk.faults > 0
    disk.works()
    assert store.ask("commit", 2, PATIENCE)["stored"] is True
    until(lambda: store.ask("rows") == [1.0] * 8)
    assert store.ask("memory")["incidents"] == [ulid(1), ulid(2)]
    assert store.ask("problem") == ""


def test_a_disk_that_hangs_from_the_start_lets_the_daemon_start_and_stop(disk: FakeDisk, run: Callable[[], Remote]) -> None:
    disk.fails("stall")
    store = run()
    (note,) = store.ask("start")
    assert "without the alert memory" in note
    assert "has not answered for" in store.ask("problem")
    assert store.ask("numbers")["database_up"] == 0.0
    assert store.ask("commit", 1, 0.05)["stored"] is False
    stopped = store.ask("stop", 0.3)
    assert stopped["whole"] is False
    assert 0.3 <= stopped["took"] < 0.3 + SLOWER
    assert disk.faults > 0


def test_a_dead_disk_costs_a_bounded_queue_that_drops_the_oldest(disk: FakeDisk, run: Callable[[], Remote]) -> None:
    store = run()
    assert store.ask("start") == []
    disk.fails("stall")
    store.ask("commit", 0, 0)
    until(lambda: disk.faults > 0)  # from now on the disk takes nothing
    for number in range(1, 400):  # three rows each
        store.ask("commit", number, 0)
    for number in range(70):
        store.ask("round", number)
    numbers = store.ask("numbers")
    assert 190 <= numbers["dropped_totalalert_memory"] <= 200  # the first commits may be on their way to the disk
    assert 8 <= numbers["dropped_totalhistory"] <= 10
    assert numbers["database_writes_total_dropped"] == numbers["dropped_totalhistory"]
    disk.works()
    assert store.ask("commit", 400, PATIENCE)["stored"] is True
    assert store.ask("stop", PATIENCE)["whole"] is True
    again = run()
    again.ask("start")
    assert again.ask("memory")["incidents"] == [ulid(number) for number in range(401)]
    assert again.ask("stop", PATIENCE)["whole"] is True
