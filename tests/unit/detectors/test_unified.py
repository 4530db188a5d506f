"""Memory of GPUs that share the host's: its size is the host's, its use what the processes have."""

import pytest

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_UNIFIED, MEMORY_USED
from gpuwatch.catalogue.host import HOST
from gpuwatch.catalogue.host import MEMORY_SIZE as HOST_MEMORY_SIZE
from gpuwatch.catalogue.process import GPU_PROCESSES, GPU_PROCESSES_DROPPED
from gpuwatch.detectors.unified import Unified
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes.crowd_view import GIB, holder, uuid

NOW = 1_700_000_000.0
COMPUTE = GPU_PROCESSES["compute"]
CARD = Target(subject=GPU, key=uuid(0), labels={"gpu": "0", "uuid": uuid(0)})
MACHINE = Target(subject=HOST, key="")


def found(card: dict[Metric, float], *holders: Reading, host: dict[Metric, float] | None = None) -> dict[Metric, float]:
    """Return what is derived for the card."""
    readings = [Reading(source="nvml", tier=Tier.SLOW, target=CARD, at=NOW, took=0.0, values=card), *holders]
    size = {HOST_MEMORY_SIZE: 128.0 * GIB} if host is None else host
    readings.append(Reading(source="host", tier=Tier.SLOW, target=MACHINE, at=NOW, took=0.0, values=size))
    view = View(NOW, {one.target: Entry(one.target, one.values, one.absent, (one,)) for one in readings})
    detector = Unified()
    _, findings = detector.step(detector.initial(), view, NOW)
    return {metric: value for reading in findings.readings for metric, value in reading.values.items()}


def test_the_size_is_the_hosts_and_the_use_is_that_of_all_processes_on_this_gpu() -> None:
    listed = {MEMORY_UNIFIED: 1.0, COMPUTE: 2.0, GPU_PROCESSES_DROPPED: 0.0}
    holders = holder(1, 0, memory=3.0 * GIB), holder(2, 0, memory=4.0 * GIB), holder(3, 1, memory=50.0 * GIB)
    assert found(listed, *holders) == {MEMORY_SIZE: 128.0 * GIB, MEMORY_USED: 7.0 * GIB}
    assert found({**listed, COMPUTE: 0.0}) == {MEMORY_SIZE: 128.0 * GIB, MEMORY_USED: 0.0}


def test_a_card_with_memory_of_its_own_is_left_alone() -> None:
    assert found({MEMORY_UNIFIED: 0.0, COMPUTE: 0.0}) == found({COMPUTE: 0.0}) == {}


@pytest.mark.parametrize(
    ("card", "holders"),
    [
        ({}, ()),  # Jetson has no list
        ({COMPUTE: 2.0}, (holder(1, 0, memory=3.0 * GIB), holder(2, 0, memory=None))),
        ({COMPUTE: 9.0, GPU_PROCESSES_DROPPED: 1.0}, (holder(1, 0, memory=3.0 * GIB),)),
    ],
)
def test_a_use_that_is_known_in_part_is_not_told(card: dict[Metric, float], holders: tuple[Reading, ...]) -> None:
    assert found({MEMORY_UNIFIED: 1.0, **card}, *holders) == {MEMORY_SIZE: 128.0 * GIB}
    assert found({MEMORY_UNIFIED: 1.0, **card}, *holders, host={}) == {}
