"""`kill -9` in the middle of full-speed writing loses no commit whose ticket said that it is on disk."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuwatch import config
from gpuwatch.model.clock import SystemClock
from gpuwatch.store import Store
from tests.fakes.store_nouns import EPOCH, ulid
from tests.fakes.until import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def killed(kills: int, folder: Path, seed: int) -> tuple[int, int]:
    """Kill a writing process so many times, on the same files, and check them after each; returns acknowledged and stored."""
    dice = random.Random(seed)
    program = [sys.executable, "-m", "tests.fakes.store_child", str(folder), "flood"]
    acknowledged: set[int] = set()
    moment = threading.Event()
    first, stored = int(time.time() - EPOCH), 0  # deliveries of today: finished ones of old are pruned beyond the newest 1,000
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(kills):
            parent.stdin.write(f"{first}\n")
            parent.stdin.flush()
            pid = int(parent.stdout.readline())
            wanted = dice.randrange(1, 60)
            for seen, line in enumerate(parent.stdout, 1):
                if line == "gone\n":
                    break
                if line.strip():
                    acknowledged.add(int(line))
                    first = max(first, int(line) + 1_000)
                if seen == wanted:
                    moment.wait(dice.random() / 100)  # somewhere in the next few commits, not always right after one
                    os.kill(pid, signal.SIGKILL)
            stored = check(folder, acknowledged)
        parent.stdin.close()
        assert parent.wait(PATIENCE) == 0
    return len(acknowledged), stored


def check(folder: Path, acknowledged: set[int]) -> int:
    """Hold the files against what was acknowledged, before any of our code has touched them; returns how many are stored."""
    with sqlite3.connect(folder / "state.db") as state:
        assert state.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        incidents = {row[0] for row in state.execute("SELECT id FROM incident")}
        told = {row[0] for row in state.execute("SELECT incident FROM told")}
        deliveries = {row[0] for row in state.execute("SELECT id FROM delivery")}
    state.close()
    with sqlite3.connect(folder / "gpuwatch.db") as history:
        assert history.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    history.close()
    assert {ulid(number) for number in acknowledged} - incidents == set()
    assert told == incidents
    assert deliveries == {identity[:-1] + "1" for identity in incidents}
    return len(incidents)


def test_ten_kills_lose_no_acknowledged_commit(tmp_path: Path) -> None:
    acknowledged, stored = killed(10, tmp_path, seed=2)
    assert stored >= acknowledged >= 50
    store = Store(config.Store(url=f"sqlite:///{tmp_path / 'gpuwatch.db'}"), "machine-1", SystemClock())
    assert store.start() == []
    memory = store.memory()
    assert len(memory.incidents) == len(memory.told) == stored
    assert 0 < len(memory.deliveries) < stored  # every second one was sent
    assert store.stop(10)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_hundred_kills_lose_no_acknowledged_commit(tmp_path: Path) -> None:
    """Bound: 10 minutes."""
    acknowledged, stored = killed(200, tmp_path, seed=3)
    assert stored >= acknowledged >= 2_000
