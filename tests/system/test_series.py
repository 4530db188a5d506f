"""How many series the page has: a large server stays under 1,600, whatever is added."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.scene import DRIVER, INSTANCES, LIMITS, PROCESSES, Training, host
from tests.bench.subject import Subject
from tests.bench.workload import GPUS
from tests.fakes.cgroups import Crowd
from tests.fakes.daemon import Page, Running
from tests.fakes.nvml import FakeNvml

LEAST = 1_500  # fewer, and the scene is not whole


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """Run the daemon with its defaults on a training server: 8 H100 with 18 NVLinks, one of them divided, and 40 processes."""
    fake = FakeNvml(tmp_path, GPUS, "H100", driver=DRIVER)
    tree, config = host(fake)
    Training(fake, Crowd(tree))  # it stands still
    with Subject(tmp_path / "daemon", fake, Path(sys.executable), config).running as daemon:
        yield daemon


def is_whole(page: Page) -> bool:
    """Whether every collector has told, and all cards, instances, disks, users and processes are there."""
    collectors = {labels["collector"] for labels, _ in page.all("gpuwatch_collector_success")}
    told = {labels["collector"] for labels, _ in page.all("gpuwatch_collector_duration_seconds")}
    processes = sum(value for _, value in page.all("gpuwatch_gpu_processes", kind="compute"))
    return (
        bool(collectors)
        and collectors <= told
        and processes == PROCESSES
        and len(page.all("gpuwatch_gpu_temperature_celsius", sensor="core")) == GPUS
        and len(page.all("gpuwatch_mig_sm_active_ratio")) == len(INSTANCES)
        and len(page.all("gpuwatch_disk_temperature_celsius")) > 0
        and len({labels["user"] for labels, _ in page.all("gpuwatch_user_gpu_memory_bytes")}) > 1
        and len(page.all("gpuwatch_job_cpu_allowed_cores")) > 1
    )


def test_eight_gpus_with_nvlink_mig_and_forty_processes_are_fewer_series_than_the_limit(server: Running) -> None:
    server.wait_ready()
    page = server.until(is_whole)
    count = sum(not line.startswith("#") for line in page.text.splitlines())
    assert LEAST < count < LIMITS["series"]
