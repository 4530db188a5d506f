"""The whole daemon: what it remembers of a GPU over restarts, with an Xid between the values."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import PATIENCE, until


def history(server: GpuServer, *words: str) -> str:
    """Run `gpuwatch history` and return what it prints."""
    command = [sys.executable, "-m", "gpuwatch", "history", *words, "--socket", str(server.daemon.socket)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(server: GpuServer, query: str) -> dict[str, Any]:
    """Ask the daemon."""
    status, body = server.daemon.get(f"/api/v1/history?{query}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def test_an_xid_stands_between_the_values_before_and_after_it(tmp_path: Path) -> None:
    """What of a period is there at a stop is kept, so that nobody has to wait for ten seconds to pass."""
    server = GpuServer(tmp_path, gpus=2)
    uuid = server.nvml.uuid(1)
    server.nvml.set(1, temperature=41)
    with server:
        server.wait_up(2)
        assert server.daemon.stop() == 0
    with server:
        server.wait_up(2)
        server.nvml.xid(1, 31)
        server.nvml.xid(0, 13)
        until(lambda: {event["code"] for event in document(server, "metric=power_watts")["events"]} == {13, 31})
        server.nvml.set(1, temperature=57)
        server.daemon.until(lambda page: page.value("gpuwatch_gpu_temperature_celsius", uuid=uuid, sensor="core") == 57)
        assert server.daemon.stop() == 0
    with server:
        server.daemon.wait_ready()
        found = document(server, "metric=temperature_celsius_core&gpu=1")
        table = history(server, "temperature_celsius_core", "--gpu", "1").splitlines()
    (series,) = found["series"]
    values = [value for _, value in series["points"] if value is not None]
    (event,) = found["events"]
    assert (series["labels"], values[0], values[-1]) == ({"gpu": "1", "uuid": uuid}, 41, 57)
    assert (event["code"], event["gpu"]) == (31, "1")
    assert series["points"][0][0] < event["at"] < series["points"][-1][0]
    order = [next(number for number, line in enumerate(table) if words in line) for words in (" 41", "GPU 1  Xid 31: ", " 57")]
    assert order == sorted(order)
