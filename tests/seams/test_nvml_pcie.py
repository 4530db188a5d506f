"""PCIe: byte counters only where none can be lost, 20 ms samples elsewhere, and never on the path of another reading."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, fault_of

SAMPLES = {gpu.PCIE_THROUGHPUT["transmit"]: 1_200_000.0, gpu.PCIE_THROUGHPUT["receive"]: 34_000_000.0}
RAW = {gpu.PCIE_TRANSMIT_RAW, gpu.PCIE_RECEIVE_RAW}


def part(reading: Reading, metrics: set[Metric]) -> dict[Metric, float]:
    """Return some values of a reading."""
    return {metric: value for metric, value in reading.values.items() if metric in metrics}


def sampled(fake: FakeNvml, card: int) -> Callable[..., bool]:
    """Return whether a round has a sample of this card."""
    return lambda found: part(found.gpu(fake.uuid(card)), set(SAMPLES)) == SAMPLES


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05"])
def test_busy_gpus_are_sampled_on_every_driver_and_idle_ones_are_not(tmp_path: Path, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=2, driver=driver)
    fake.set(0, utilization=90)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        found = worker.until(Tier.NORMAL, sampled(fake, 0))
        idle = found.gpu(fake.uuid(1))
        assert [idle.absent[metric] for metric in SAMPLES] == [Absence.EMPTY, Absence.EMPTY]
        assert fake.calls("nvmlDeviceGetPcieThroughput", gpu=1) == 0
        assert not RAW & set(worker.ask().gpu(fake.uuid(0)).values)


def test_a_sample_is_never_on_the_path_of_another_reading(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.set(0, utilization=90)
    fake.hang(0, "nvmlDeviceGetPcieThroughput")
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        worker.until(Tier.NORMAL, lambda _: fake.calls("nvmlDeviceGetPcieThroughput", gpu=0) == 1)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            for tier in Tier:
                assert worker.ask(tier).busy == []
        assert fake.calls("nvmlDeviceGetPcieThroughput", gpu=0) == 1


def test_one_gpu_is_sampled_at_a_time(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=4)
    for card in range(4):
        fake.set(card, utilization=90)
    fake.hang(1, "nvmlDeviceGetPcieThroughput")
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        worker.until(Tier.NORMAL, sampled(fake, 0))
        calls = [fake.calls("nvmlDeviceGetPcieThroughput", gpu=card) for card in range(4)]
        assert calls == [2, 1, 0, 0]  # the thread is stuck at the second card, and only its samples are missing
        assert all(one.values and one.fault is None for one in worker.ask().of(gpu.GPU).values())
        fake.release(1, "nvmlDeviceGetPcieThroughput")
        worker.until(Tier.NORMAL, sampled(fake, 3))


def test_a_sample_that_fails_costs_itself(tmp_path: Path) -> None:
    expected = {3: Absence.UNSUPPORTED, 999: Absence.FAILED, 4: Absence.DENIED}
    metric = gpu.PCIE_THROUGHPUT["transmit"]
    fake = FakeNvml(tmp_path, gpus=3)
    for card, code in enumerate(expected):
        fake.set(card, utilization=90)
        fake.answer("nvmlDeviceGetPcieThroughput", code, gpu=card)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        whys = list(expected.values())
        found = worker.until(
            Tier.NORMAL, lambda found: whys == [found.gpu(fake.uuid(card)).absent.get(metric) for card in range(3)]
        )
        assert [found.gpu(fake.uuid(card)).fault for card in range(3)] == [None, None, None]
        calls = fake.calls("nvmlDeviceGetPcieThroughput", gpu=0)
        fake.answer("nvmlDeviceGetPcieThroughput", 0)
        worker.until(Tier.NORMAL, sampled(fake, 1))
        worker.until(Tier.NORMAL, sampled(fake, 2))
        assert calls == fake.calls("nvmlDeviceGetPcieThroughput", gpu=0)


def test_a_gpu_found_lost_by_a_sample_is_lost(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    fake.set(0, utilization=90)
    fake.answer("nvmlDeviceGetPcieThroughput", 15)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        worker.until(Tier.FAST, lambda found: fault_of(found.gpu(fake.uuid(0))) == ("lost", 15))


def test_counters_are_read_every_beat_where_the_link_cannot_wrap_them(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2)
    fake.set(0, utilization=90, pcie_generation_max=1, pcie_width_max=4)  # 1 GB/s
    fake.set(1, utilization=90)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.ask(Tier.SLOW)  # tells the link's maximum
        worker.warm()
        found = worker.ask()
        assert part(found.gpu(fake.uuid(0)), RAW) == {gpu.PCIE_TRANSMIT_RAW: 3e9, gpu.PCIE_RECEIVE_RAW: 3.9e9}
        assert part(found.gpu(fake.uuid(1)), RAW) == {}
        found = worker.until(Tier.NORMAL, sampled(fake, 1))
        assert not set(SAMPLES) & (set(found.gpu(fake.uuid(0)).values) | set(found.gpu(fake.uuid(0)).absent))
        assert fake.calls("nvmlDeviceGetPcieThroughput", gpu=0) == 0


def test_counters_that_show_more_than_32_bits_are_trusted_from_then_on(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        assert part(worker.ask().gpu(fake.uuid(0)), RAW) == {}
        fake.set(0, pcie_receive=1 << 33)
        worker.ask(Tier.NORMAL)
        assert {gpu.PCIE_TRANSMIT_RAW: 3e9, gpu.PCIE_RECEIVE_RAW: float(1 << 33)} == part(worker.ask().gpu(fake.uuid(0)), RAW)
        worker.ask(Tier.SLOW)
        fake.set(0, pcie_receive=5)
        assert part(worker.ask().gpu(fake.uuid(0)), RAW) == {gpu.PCIE_TRANSMIT_RAW: 3e9, gpu.PCIE_RECEIVE_RAW: 5.0}


@pytest.mark.parametrize(
    "wide", [{"pcie_transmit": 1 << 33}, {"pcie_receive": 1 << 33}, {"pcie_transmit": 1 << 33, "pcie_receive": 1 << 33}]
)
def test_the_look_that_finds_counters_to_be_wide_gives_neither_of_them(tmp_path: Path, wide: dict[str, int]) -> None:
    """They are the fast tier's from then on: one that stayed in a normal reading would be added up a second time."""
    fake = FakeNvml(tmp_path, gpus=1)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        fake.set(0, **wide)
        assert part(worker.ask(Tier.NORMAL).gpu(fake.uuid(0)), RAW) == {}
        assert set(part(worker.ask().gpu(fake.uuid(0)), RAW)) == RAW
