"""A daemon that is told to be silent: nobody hears of a GPU that is lost meanwhile, over a kill too, until the silence ends.

The stories are told at the same time, each by a daemon of its own.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.daemon import Page, Running
from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]


def gpuwatch(module: str, daemon: Running, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that asks a daemon."""
    command = [sys.executable, "-m", module, *words, "--socket", str(daemon.socket)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)


def silence(daemon: Running, *words: str) -> str:
    """Run `gpuwatch silence` and return the id that it says."""
    done = gpuwatch("gpuwatch", daemon, "silence", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()[0]


def dropped(page: Page) -> bool:
    """Whether the alert of the lost GPU fires."""
    return bool(page.all("gpuwatch_alert_state", rule="gpu_dropped", state="firing"))


def in_maintenance(value: float) -> Callable[[Page], bool]:
    """Return whether the page says so."""
    return lambda page: page.value("gpuwatch_maintenance_mode") == value


def by_itself(folder: Path) -> None:
    """A silence of some seconds in which a GPU is lost."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        began = time.time()
        silence(server.daemon, "--for", "4s", "--comment", "fans")
        server.nvml.lose(1)
        server.daemon.until(dropped)
        (got,) = receiver.wait(1, PATIENCE)
        assert got.wall >= began + 4
        assert [(alert["labels"]["rule"], alert["labels"]["gpu"]) for alert in got.json["alerts"]] == [("gpu_dropped", "1")]
        assert server.daemon.status()["silences"] == []
        assert server.daemon.stop() == 0
        assert len(receiver.requests) == 1


def killed(folder: Path) -> None:
    """A silence of an hour, a GPU that is lost in it, and a kill; then a person ends it."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        server.daemon.until(in_maintenance(0))
        identity = silence(server.daemon, "--for", "1h", "--comment", "fans")
        server.nvml.lose(1)
        server.daemon.until(dropped)
        (alert,) = server.daemon.status()["alerts"]
        assert alert["silenced_by"] == [identity]
        server.daemon.until(in_maintenance(1))
        server.daemon.kill()
        server.daemon.start()
        until(lambda: server.daemon.get("/-/healthy")[0] == 200)
        until(lambda: server.daemon.status()["silences"])  # once the memory is read, which the page does not wait for
        assert [found["id"] for found in server.daemon.status()["silences"]] == [identity]
        server.daemon.until(in_maintenance(1))
        (after,) = server.daemon.status()["alerts"]
        assert (after["id"], after["silenced_by"]) == (alert["id"], [identity])
        assert receiver.requests == []
        began = time.time()
        assert silence(server.daemon, "--end", identity) == identity
        (got,) = receiver.wait(1, PATIENCE)
        assert got.wall >= began
        assert [found["incident_id"] for found in got.json["alerts"]] == [alert["id"]]
        server.daemon.until(in_maintenance(0))
        assert server.daemon.stop() == 0
        assert len(receiver.requests) == 1
        assert server.said(rf"the whole host is silenced until .* \({identity}\) by \S+: fans") == 1
        assert server.said(f"silence {identity} of the whole host is ended by ") == 1


def by_host_label(folder: Path) -> None:
    """A silence of all hosts of a rack: what shows it, and what holds messages back, know the same labels of this host."""
    config = '[host]\nname = "vision-07"\nlabels = { rack = "A3" }\n'
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver, config=config) as server:
        server.wait_up(2)
        refused = gpuwatch("gpuwatch", server.daemon, "silence", "--for", "1h", "rack=B1")
        assert (refused.returncode, refused.stderr.partition("LABEL=VALUE: ")[2]) == (2, "this host has rack=A3, not B1\n")
        silence(server.daemon, "--for", "1h", "rack=A3", "gpu=0")
        identity = silence(server.daemon, "--for", "1h", "rack=A3")
        server.nvml.lose(1)
        server.daemon.until(dropped)
        (alert,) = server.daemon.status()["alerts"]
        (same,) = json.loads(server.daemon.get("/api/v1/alerts")[1])["alerts"]
        assert (alert["silenced_by"], same["silenced_by"]) == ([identity], [identity])
        began = time.time()
        silence(server.daemon, "--end", identity)
        (got,) = receiver.wait(1, PATIENCE)
        assert got.wall >= began
        (alert,) = server.daemon.status()["alerts"]
        assert alert["silenced_by"] == []
        assert server.daemon.stop() == 0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell all stories."""
    stories: tuple[Callable[[Path], None], ...] = (by_itself, killed, by_host_label)
    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(story, tmp_path_factory.mktemp(story.__name__)) for story in stories}


def test_a_gpu_that_is_lost_in_a_silence_is_told_once_it_has_ended_by_itself(told: dict[str, Future[None]]) -> None:
    told["by_itself"].result()


def test_a_silence_survives_a_kill_and_shows_as_maintenance_until_a_person_ends_it(told: dict[str, Future[None]]) -> None:
    told["killed"].result()


def test_a_silence_by_a_label_of_the_host_shows_in_the_alert_and_holds_its_message(told: dict[str, Future[None]]) -> None:
    told["by_host_label"].result()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the command as another user than the daemon's")
def test_an_ordinary_user_sees_silences_and_can_make_or_end_none(open_folder: Path) -> None:  # operator.md S11
    with Running(open_folder, config="[sources.simulated]\nenabled = true") as daemon:
        daemon.wait_ready()
        identity = silence(daemon, "--for", "1h", "gpu=7", "--comment", "fans")
        ordinary = "tests.fakes.ordinary"
        listed = gpuwatch(ordinary, daemon, "silence", "--list")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert re.fullmatch(rf"{identity}  gpu=7 until .*, by \S+: fans\n", listed.stdout)
        for words in (["--for", "2h"], ["--end", identity]):
            refused = gpuwatch(ordinary, daemon, "silence", *words)
            said = "gpuwatch silence: needs root or group gpuwatch-admin\n"
            assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", said)
        assert gpuwatch(ordinary, daemon, "silence", "--list").stdout.startswith(f"{identity}  gpu=7 until ")
        assert [found["id"] for found in daemon.status()["silences"]] == [identity]
        assert daemon.stop() == 0
    for path in ("/api/v1/silences", "/api/v1/silences/end"):
        assert len(re.findall(rf"POST {path} refused: user \S+: needs root or group gpuwatch-admin\n", daemon.said())) == 1
