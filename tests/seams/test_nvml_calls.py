"""How many calls a beat costs, and that the fake is one for other clients too."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.reading import Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import CARDS, FUNCTIONS, NOT_THERE, VALUES
from tests.fakes.nvml_worker import NvmlWorker
from tests.fakes.until import PATIENCE

CLIENT = """
import pynvml as nv
nv.nvmlInit()
handle = nv.nvmlDeviceGetHandleByIndex(1)
print(nv.nvmlDeviceGetCount(), nv.nvmlDeviceGetName(handle), nv.nvmlDeviceGetTemperature(handle, 0))
print([(one.pid, one.usedGpuMemory) for one in nv.nvmlDeviceGetComputeRunningProcesses(handle)])
same = nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(handle))
print(nv.nvmlDeviceGetGraphicsRunningProcesses(handle), nv.nvmlDeviceGetIndex(same))
"""


@pytest.mark.parametrize(
    ("model", "driver", "fast"), [("A40", "470.256.02", 9), ("A40", "535.154.05", 9), ("H100", "595.71.05", 10)]
)
def test_a_fast_beat_costs_at_most_ten_calls_a_gpu(tmp_path: Path, model: str, driver: str, fast: int) -> None:
    fake = FakeNvml(tmp_path, gpus=8, model=model, driver=driver)
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        worker.ask(Tier.NORMAL)
        before = fake.calls()
        assert len(worker.ask().of(GPU)) == 8
        assert 8 * fast == fake.calls() - before
        worker.ask(Tier.SLOW)
        before = fake.calls()
        worker.ask(Tier.SLOW)
        assert fake.calls() - before <= 8 * 17


def test_static_values_are_read_once_and_sent_with_every_slow_round(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    with closing(NvmlWorker(fake)) as worker:
        first, second, third = (worker.ask(Tier.SLOW).gpu(fake.uuid(0)) for _ in range(3))
    assert set(first.values) == set(second.values) == set(third.values)
    assert (fake.calls("nvmlDeviceGetMaxClockInfo", gpu=0), fake.calls("nvmlDeviceGetMaxPcieLinkWidth", gpu=0)) == (4, 1)


def test_a_host_of_sixteen_gpus_is_read_whole(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=16)
    with closing(NvmlWorker(fake)) as worker:
        found = worker.warm().of(GPU)
    assert {fake.uuid(card): str(card) for card in range(16)} == {key: one.target.labels["gpu"] for key, one in found.items()}


@pytest.mark.parametrize("profile", ["470", "595"])
def test_the_fake_serves_any_client_of_nvidia_ml_py(tmp_path: Path, profile: str) -> None:
    fake = FakeNvml(tmp_path, gpus=2, profile=profile)
    fake.run_process(1, (4711, 1 << 30), (4712, -1))
    if profile == "470":  # nvidia-ml-py raises no NVMLError for a driver without _v3 (nvml.md 1.9); its _v2 wrapper works
        client = CLIENT.replace("ComputeRunningProcesses(", "ComputeRunningProcesses_v2(")
        client = client.replace("GraphicsRunningProcesses(", "GraphicsRunningProcesses_v2(")
    else:
        client = CLIENT
    done = subprocess.run(
        [sys.executable, "-c", client],
        env={**os.environ, **fake.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines() == ["2 NVIDIA A40 34", f"[(4711, {1 << 30}), (4712, None)]", "[] 1"]
    assert fake.calls("nvmlDeviceGetTemperature", gpu=1) == 1
    assert fake.inside()[0] > 0


def test_the_lists_of_the_fake_are_read_whole() -> None:
    assert (CARDS, VALUES[0], VALUES[-1]) == (32, "utilization", "banks_none")
    assert (FUNCTIONS[0], FUNCTIONS[-1]) == ("nvmlInitWithFlags", "nvmlDeviceGetSamples")
    assert NOT_THERE == -(2**63)
