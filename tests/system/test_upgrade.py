"""Another version of gpuwatch, another machine, another user: what is kept, what goes aside, and what they are told.

The stories are told at the same time, each by a daemon of its own.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import Running
from tests.fakes.gpu_server import GpuServer
from tests.fakes.ordinary import NOBODY
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
TOMORROW = "tests.fakes.tomorrow"


def until_status(server: GpuServer, words: str) -> None:
    """Wait until it answers and status says so of the store; "" is that all is well."""
    until(lambda: server.daemon.get("/-/healthy")[0] == 200)
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while True:
        found = server.daemon.status()["store"]
        if words in found if words else not found:
            return
        assert time.monotonic() < end, f"{found!r}\n{server.daemon.said()}"
        pause.wait(0.1)


def files(server: GpuServer, reason: str) -> list[str]:
    """Return the databases that were moved aside for this reason, without their stamps."""
    found = {path.name for path in server.daemon.database.parent.iterdir()}
    return sorted(name.partition(".db")[0] for name in found if f".db.{reason}-" in name and not name.endswith(("-wal", "-shm")))


def alert(server: GpuServer) -> tuple[str, float]:
    """Return id and age of the one alert that fires."""
    (found,) = server.daemon.status()["alerts"]
    return found["id"], found["since"]


def silences(server: GpuServer) -> list[dict[str, Any]]:
    """Return the silences that it knows."""
    status, body = server.daemon.get("/api/v1/silences")
    assert status == 200, body
    found: list[dict[str, Any]] = json.loads(body)["silences"]
    return found


def rounds(server: GpuServer) -> int:
    """Return how many rounds the history has."""
    with closing(sqlite3.connect(server.daemon.database)) as history:
        (count,) = history.execute("SELECT count(*) FROM round").fetchone()
    return int(count)


def today(folder: Path) -> Path:
    """A daemon of today: GPU 1 is lost, people were told, another GPU is silenced. Returns the state that it leaves."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        server.nvml.lose(1)
        server.daemon.until(lambda page: page.all("gpuwatch_alert_state", rule="gpu_dropped", state="firing"))
        assert server.daemon.stop() == 0
        server.daemon.start()  # what nobody was told of goes out at once
        receiver.wait(1)
        until(lambda: server.daemon.get("/-/healthy")[0] == 200)
        wish = b'{"matchers": [{"name": "gpu", "value": "0"}], "seconds": 86400, "comment": "waits for its fan"}'
        assert server.daemon.client.post("/api/v1/silences", wish).status == 200
        assert server.daemon.stop() == 0
    return server.daemon.database.parent


def there(folder: Path, left: Path, receiver: Receiver, **options: Any) -> GpuServer:
    """Return a server on which that state lies, not started."""
    server = GpuServer(folder, gpus=2, receiver=receiver, **options)
    shutil.copytree(left, server.daemon.database.parent, dirs_exist_ok=True)
    server.nvml.lose(1)
    return server


def versions(folder: Path, left: Path) -> None:
    """An upgrade to tomorrow's version, and back."""
    gate = folder / "gate"
    environ = {"TOMORROW_GATE": str(gate), "PYTHONPATH": str(ROOT)}
    with Receiver() as receiver:
        server = there(folder, left, receiver, environ=environ)
        before = rounds(server)
        server.daemon.module = TOMORROW
        with server:
            until_status(server, "the history is being migrated from schema 1 to 2")
            server.answers_quickly()
            server.daemon.until(lambda page: page.value("gpuwatch_gpus_expected") == 2)
            server.moves([0])
            known, quiet = alert(server), silences(server)
            assert [(silence["of"], silence["state"]) for silence in quiet] == [("gpu=0", "active")]
            gate.touch()
            until_status(server, "")
            assert server.said("the alert memory was copied to state.db.schema-2 before its migration") == 1
            assert server.said("the history was migrated from schema 1 to 2") == 1
            assert server.said("the alert memory was migrated from schema 2 to 3") == 1
            assert (alert(server), silences(server)) == (known, quiet)
            assert server.daemon.stop() == 0
            with closing(sqlite3.connect(left / "state.db")) as state:
                assert state.execute("SELECT id, json_extract(data, '$.since') FROM incident").fetchall() == [known]
            assert rounds(server) > before > 0

            server.daemon.module = "gpuwatch"
            server.daemon.start()
            server.daemon.wait_ready()
            until_status(server, "")
            assert (alert(server), silences(server)) == (known, quiet)
            notes = " | ".join(server.daemon.status()["notes"])
            assert "is of a newer gpuwatch (schema 2, ours is 1)" in notes
            assert "1 open incidents were taken over from it" in notes
            server.moves([0])
            assert server.daemon.stop() == 0
            assert (files(server, "newer-v2"), files(server, "newer-v3")) == (["gpuwatch"], ["state"])
            assert 1 <= rounds(server) < 5  # a fresh one

            server.daemon.start()
            server.daemon.wait_ready()
            until_status(server, "")
            assert (server.daemon.status()["notes"], alert(server), silences(server)) == ([], known, quiet)
            assert server.daemon.stop() == 0
        assert (files(server, "newer-v2"), files(server, "newer-v3")) == (["gpuwatch"], ["state"])
        assert receiver.requests == []


def clone(folder: Path, left: Path) -> None:
    """The state folder of a host, on another host whose GPUs are well."""
    with Receiver() as receiver:
        server = there(folder, left, receiver)
        server.nvml.find(1)
        server.host.write(server.host.root / "etc/machine-id", "fedcba9876543210fedcba9876543210\n")
        with closing(sqlite3.connect(server.daemon.database.with_name("state.db"))) as state, state:
            state.execute("UPDATE delivery SET state = 'queued'")  # the host of origin owed something too
        with server:
            server.wait_up(2)
            until_status(server, "")
            assert (server.daemon.status()["alerts"], silences(server)) == ([], [])
            notes = server.daemon.status()["notes"]
            assert ["belongs to another machine: nothing in it is used or sent" in note for note in notes] == [True, True]
            assert server.said("belongs to another machine") == 2
            assert server.daemon.stop() == 0
            assert files(server, "other-machine") == ["gpuwatch", "state"]
            server.daemon.start()
            server.wait_up(2)
            assert server.daemon.status()["notes"] == []
            assert server.daemon.stop() == 0
        assert receiver.requests == []


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell both stories."""
    left = today(tmp_path_factory.mktemp("today"))
    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(story, tmp_path_factory.mktemp("later"), left) for story in (clone, versions)}


def test_a_copy_on_another_machine_begins_a_new_identity_and_sends_nothing_old(told: dict[str, Future[None]]) -> None:
    told["clone"].result()


def test_alerts_and_silences_keep_their_id_and_age_over_an_upgrade_and_a_downgrade_while_the_page_answers(
    told: dict[str, Future[None]],
) -> None:
    told["versions"].result()


# --- another user -------------------------------------------------------------------------------------------------------


def as_nobody(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user."""
    command = [sys.executable, "-m", "tests.fakes.ordinary", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=cwd)


def test_every_user_of_the_host_may_read(open_folder: Path) -> None:
    with Running(open_folder, config="[sources.simulated]\nenabled = true") as daemon:
        daemon.wait_ready()
        daemon.until(lambda page: [value for _, value in page.all("gpuwatch_gpu_up")] == [1] * 8)
        status = as_nobody("status", "--socket", str(daemon.socket))
        assert (status.returncode, status.stderr) == (0, "")
        assert "8 of 8 up" in status.stdout
        assert as_nobody("status", "--json", "--socket", str(daemon.socket)).stdout.startswith("{")
        assert as_nobody("silence", "--list", "--socket", str(daemon.socket)).stdout == "nothing is silenced\n"
        shown = as_nobody("config", "show", "--config", str(daemon.file))
        assert (shown.returncode, shown.stderr) == (0, "")
        assert json.loads(shown.stdout)["http"]["socket"] == str(daemon.socket)
        assert daemon.stop() == 0
    assert as_nobody("metrics").returncode == 0
    assert as_nobody("version").returncode == 0


def as_stranger(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as an ordinary user from its first instruction on, with what this one can import."""
    environ = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "HOME": "/nonexistent",
        "PATH": "/usr/bin:/bin",
    }
    other: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    command = [python, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/", env=environ, **other)


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that an ordinary user may run, and in which that user can import gpuwatch."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            if as_stranger(candidate, "-c", "import gpuwatch.cli.read").returncode == 0:
                return candidate
        except PermissionError:
            continue
    pytest.skip("the folder of this Python or of gpuwatch is closed to other users, and /usr/bin/python3 cannot stand in")


def test_every_user_of_the_host_may_read_a_source_and_the_api(open_folder: Path, python: str) -> None:
    """`read` starts a worker, which only a Python that this user may run can do."""
    read = as_stranger(python, "-m", "gpuwatch", "read", "host")
    assert (read.returncode, read.stderr) == (0, "")
    assert {reading["subject"] for reading in json.loads(read.stdout)} >= {"host"}
    with Running(open_folder, config="[sources.simulated]\nenabled = true") as daemon:
        daemon.wait_ready()
        for path in ("/api/v1/alerts", "/api/v1/view", "/api/v1/status", "/api/v1/silences", "/metrics", "/-/ready"):
            ask = f"from gpuwatch.client import Client; print(Client({str(daemon.socket)!r}).get({path!r}).status)"
            asked = as_stranger(python, "-c", ask)
            assert (path, asked.stdout, asked.stderr) == (path, "200\n", "")
        assert daemon.stop() == 0


@pytest.mark.parametrize("command", ["run", "config check"])
def test_a_file_that_the_daemons_user_may_not_read_is_named_with_the_reason(open_folder: Path, command: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files that another user may not read")
    secret = open_folder / "url"
    secret.write_text("https://example.org/hook")
    secret.chmod(0o600)
    daemon = Running(open_folder / "d", config=f'[[receivers]]\nname = "oncall"\nkind = "webhook"\nurl_file = "{secret}"')
    os.chown(daemon.folder, NOBODY, NOBODY)  # else it is the socket that cannot be made
    for path in (secret, daemon.file):
        path.chmod(0o600)
        found = as_nobody(*command.split(), "--config", str(daemon.file))
        assert (found.returncode, "Traceback" in found.stderr) == (2, False), found.stderr
        assert str(path) in found.stderr
        assert "permission denied" in found.stderr.lower()
        assert "example.org" not in found.stderr
