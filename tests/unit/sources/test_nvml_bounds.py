"""Numbers that no card can give are failed samples."""

import math

import pytest

from gpuwatch import catalogue
from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml.bounds import bounds, plausible

WRONG = [
    (gpu.PCIE_GENERATION, 2147483648.0),
    (gpu.PCIE_GENERATION_MAX, 0.0),
    (gpu.PCIE_WIDTH, 65.0),
    (gpu.ECC_MODE["current"], 2.1e9),
    (gpu.PERSISTENCE_MODE, 0.5),
    (gpu.CLOCK["sm"], 2e15),
    (gpu.FAN_SPEED, 2e7),
    (gpu.MEMORY_USED, 9.2e18),
    (gpu.POWER, 10_001.0),
    (gpu.TEMPERATURE["core"], -61.0),
    (gpu.ENERGY, 1.8e16),
    (gpu.ECC_ERRORS["corrected_volatile"], 1.8e19),
    (gpu.ECC_ERRORS["corrected_volatile"], -1.0),
    (gpu.PERFORMANCE_STATE, 16.0),
    (gpu.POWER, math.nan),
    (gpu.CLOCK_EVENT_SECONDS["sw_thermal"], math.inf),
]


@pytest.mark.parametrize(("metric", "value"), WRONG)
def test_a_number_that_no_card_can_give_is_a_failed_sample(metric: Metric, value: float) -> None:
    assert plausible(metric, value) is Absence.FAILED


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (gpu.ECC_MODE["pending"], 1.0),
        (gpu.FAN_SPEED, 1.25),
        (gpu.TEMPERATURE["core"], -20.0),
        (gpu.TEMPERATURE_TLIMIT_OFFSET["shutdown"], -8.0),
        (gpu.ENERGY, 987654.321),
        (gpu.PCIE_WIDTH, 16.0),
        (gpu.PCIE_TRANSMIT_RAW, float(1 << 59)),
    ],
)
def test_a_number_that_a_card_can_give_stays_as_it_is(metric: Metric, value: float) -> None:
    assert plausible(metric, value) == value


def test_why_there_is_no_number_stays_as_it_is() -> None:
    assert plausible(gpu.POWER, Absence.UNSUPPORTED) is Absence.UNSUPPORTED


def test_every_number_of_a_gpu_and_its_fans_has_bounds() -> None:
    assert [one for one in catalogue.declared(gpu) if one.subject in (gpu.GPU, gpu.FAN) and bounds(one) is None] == []
