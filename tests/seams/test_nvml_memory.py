"""Memory errors by place: what each generation tells apart, by fields where there are any, and nothing that a card has not."""

from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.memory import (
    ECC_LOCATION_ERRORS,
    ECC_SRAM_SOURCES,
    ECC_SRAM_THRESHOLD,
    MEMORY_UNREPAIRABLE,
    ROW_REMAP_BANKS,
)
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker

BEFORE_AMPERE = ("dram", "l1", "l2", "register", "texture", "cbu")
COUNTER = "nvmlDeviceGetMemoryErrorCounter"


def located(reading: Reading) -> dict[str, float]:
    """Return the errors by place, those there are."""
    return {name: reading.values[metric] for name, metric in ECC_LOCATION_ERRORS.items() if metric in reading.values}


def counts(places: tuple[str, ...]) -> dict[str, int]:
    """Return a count of its own for each of these places."""
    names = [name for name in ECC_LOCATION_ERRORS if name.rpartition("_")[2] in places]
    return {name: 10 + number for number, name in enumerate(names)}


@pytest.mark.parametrize(("places", "calls"), [(BEFORE_AMPERE, 0), (("dram", "sram"), 4)])
def test_each_generation_tells_its_own_places(tmp_path: Path, places: tuple[str, ...], calls: int) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    fake.no_memory_errors(0, places)
    fake.memory_errors(0, **counts(places))
    with closing(NvmlWorker(fake)) as worker:
        first = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
        before = fake.calls(COUNTER, gpu=0)
        second = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
        assert counts(places) == located(first) == located(second)
        others = {metric for name, metric in ECC_LOCATION_ERRORS.items() if name not in counts(places)}
        assert {second.absent[metric] for metric in others} == {Absence.UNSUPPORTED}
        assert fake.calls(COUNTER, gpu=0) - before == calls  # SRAM has no field, and what is not there is not asked for again


def test_a_driver_without_the_fields_is_asked_by_the_call_in_the_same_look(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    fake.memory_errors(0, **counts(("dram", "sram")))
    for field in (11, 12, 22, 23):
        fake.field(0, field, 2)
    with closing(NvmlWorker(fake)) as worker:
        found = [worker.ask(Tier.SLOW).gpu(fake.uuid(0)) for _ in range(2)]
    assert [located(one) for one in found] == [counts(("dram", "sram"))] * 2


def test_a_card_without_ecc_has_none_of_it_and_is_asked_once(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="RTX 3090", driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.SLOW)
        before = fake.calls()
        found = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
        all_: set[Metric] = {*ECC_LOCATION_ERRORS.values(), *ECC_SRAM_SOURCES.values(), *ROW_REMAP_BANKS.values()}
        all_ |= {ECC_SRAM_THRESHOLD, MEMORY_UNREPAIRABLE}
        assert {found.absent[metric] for metric in all_} == {Absence.UNSUPPORTED}
        assert fake.calls() - before <= 8
