"""`gpuwatch read nvml` looks by itself, and tells of what is wrong with the look, too."""

import subprocess
import sys
from pathlib import Path

from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import PATIENCE


def test_gpuwatch_read_says_when_its_worker_dies(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    server.nvml.crash("nvmlInitWithFlags")
    command = [sys.executable, "-m", "gpuwatch", "read", "nvml", "--config", str(server.daemon.file)]
    done = subprocess.run(command, env=server.daemon.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, "the worker process ended" in done.stderr) == (1, True), done


def test_gpuwatch_read_tells_of_what_does_not_return(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    server.nvml.hang(1)
    read = server.read_nvml()
    assert (read[f"gpu {server.nvml.uuid(0)}"]["fault"], read[f"gpu {server.nvml.uuid(1)}"]["fault"]["kind"]) == (None, "hung")
    server.nvml.release(1)
    server.nvml.hang(None, "nvmlInitWithFlags")
    assert "has not returned" in server.read_nvml()["driver"]["fault"]["words"]


def test_gpuwatch_read_tells_of_gpus_that_hang_however_long_nvml_takes_to_begin(tmp_path: Path) -> None:
    """Its rounds end within the deadline, and by then what hangs has hung for less: it is asked for again."""
    server = GpuServer(tmp_path, gpus=3)
    server.nvml.delay(1.2, "nvmlInitWithFlags")  # of a deadline of 2 s
    server.nvml.hang(1)
    server.nvml.hang(2, "nvmlDeviceGetUtilizationRates")
    read = server.read_nvml()
    faults = [read[f"gpu {server.nvml.uuid(card)}"]["fault"] for card in range(3)]
    assert [fault and fault["kind"] for fault in faults] == [None, "hung", "hung"]
