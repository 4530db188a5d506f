"""A system that has no thread to spare: said in one line, and the GPUs are looked at as soon as it has one."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.model.clock import SystemClock
from gpuwatch.model.reading import Tier
from gpuwatch.sources.nvml.lane import Lane, Threads
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, fault_of
from tests.fakes.until import until
from tests.seams.test_nvml_driver import shadow

TOO_MUCH = 1 << 46  # bytes for the stack of a thread: there is none to be had


@pytest.fixture
def no_threads() -> Iterator[None]:
    """No thread can be started in this process."""
    before = threading.stack_size(TOO_MUCH)
    yield
    threading.stack_size(before)


def test_a_lane_without_a_thread_takes_no_job_until_there_is_one(no_threads: None) -> None:
    lane, done = Lane("lane", SystemClock()), list[int]()
    assert lane.submit(lambda: done.append(1)) is False
    threading.stack_size(0)
    assert lane.submit(lambda: done.append(2)) is True
    until(lambda: done)
    assert done == [2]
    lane.close()


def scarce(gate: Path) -> str:
    """Return the rest of a module pynvml with which no thread can be started while there is this file."""
    return (
        "import os, threading\n_count = nvmlDeviceGetCount\ndef nvmlDeviceGetCount():\n"
        f"    threading.stack_size({TOO_MUCH} if os.path.exists({str(gate)!r}) else 0)\n    return _count()\n"
    )


def test_gpus_for_which_no_thread_can_be_started_are_no_lost_gpus_and_are_looked_at_later(tmp_path: Path) -> None:
    fake, gate = FakeNvml(tmp_path, gpus=3), tmp_path / "gate"
    fake.show([0])
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", scarce(gate)))) as worker:
        worker.warm()
        gate.touch()
        fake.show(range(3))
        worker.until(Tier.NORMAL, lambda found: found.visible == 3)
        opened = fake.calls("nvmlDeviceGetHandleByIndex")
        found = worker.survey()
        assert (found.state, fault_of(found.gpu(fake.uuid(0)))) == ("ok", ("", None))
        assert found.gpu(fake.uuid(0)).values
        assert fake.calls("nvmlDeviceGetHandleByIndex") == opened
        gate.unlink()
        healthy = fake.calls("nvmlDeviceGetHandleByIndex", gpu=0)
        worker.until(Tier.NORMAL, lambda found: all(found.gpu(fake.uuid(card)).values for card in range(3)))
        lines = [line for line in worker.log().splitlines() if "NVML " not in line]
        assert ["can't start new thread" in line for line in lines] == [True, False], lines
        assert "threads can be started again" in lines[1], lines
        assert fake.calls("nvmlDeviceGetHandleByIndex", gpu=0) == healthy + 1


def test_a_lost_gpu_that_has_no_thread_to_be_tried_again_costs_the_others_nothing(tmp_path: Path) -> None:
    fake, gate = FakeNvml(tmp_path, gpus=2), tmp_path / "gate"
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", scarce(gate)))) as worker:
        worker.warm()
        healthy = fake.calls("nvmlDeviceGetHandleByIndex", gpu=0)
        fake.lose(1)
        worker.until(Tier.NORMAL, lambda found: fault_of(found.gpu(fake.uuid(1)))[0] == "lost")
        gate.touch()
        worker.until(Tier.NORMAL, lambda _: "can't start new thread" in worker.log())
        gate.unlink()
        fake.find(1)
        worker.until(Tier.NORMAL, lambda found: bool(found.gpu(fake.uuid(1)).values))
        assert fake.calls("nvmlDeviceGetHandleByIndex", gpu=0) == healthy


def nothing() -> None:
    """What a thread does here."""


def test_a_shortage_is_said_each_time_though_what_lacked_a_thread_is_gone(
    no_threads: None, caplog: pytest.LogCaptureFixture
) -> None:
    """A GPU that went away meanwhile is not asked for again; any thread ends the shortage."""
    threads = Threads()
    with caplog.at_level("INFO"):
        for name in ("gpu-0", "gpu-1"):
            threading.stack_size(TOO_MUCH)
            assert not threads.begin(nothing, name)
            threading.stack_size(0)
            assert threads.begin(nothing, "other")
    assert ["can't start" in line for line in caplog.messages] == [True, False, True, False]
