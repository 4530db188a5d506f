"""What an answer gives: units, all-ones, bad samples, signs; and every metric has its reader."""

from types import SimpleNamespace

import pytest

from gpuwatch import catalogue
from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.nvml import answers, fields, gpm, readers
from gpuwatch.sources.nvml.fields import Field

U32, U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
DERIVED_HERE = {gpu.MEMORY_UNIFIED, *gpu.PCIE_THROUGHPUT.values(), gpu.PCIE_TRANSMIT_RAW, gpu.PCIE_RECEIVE_RAW}
BY_DETECTORS = {gpu.PCIE_TRANSMIT, gpu.PCIE_RECEIVE}
BY_GPM = {metric for metric, _ in gpm.CARD.values()}


def amount(total: int, used: int, free: int, **more: int) -> SimpleNamespace:
    """Build an nvmlMemory_t as pynvml gives it."""
    return SimpleNamespace(total=total, used=used, free=free, **more)


def field(kind: int, **members: float) -> SimpleNamespace:
    """Build a c_nvmlFieldValue_t as pynvml gives it."""
    return SimpleNamespace(valueType=kind, value=SimpleNamespace(**members))


def test_every_gpu_metric_of_the_catalogue_has_a_reader() -> None:
    read = {metric for tier in Tier for chain in readers.CHAINS[tier] for metric in chain.metrics}
    declared = {metric for metric in catalogue.declared(gpu) if metric.subject is gpu.GPU}
    assert set() == declared - read - DERIVED_HERE - BY_DETECTORS - BY_GPM


def test_no_metric_is_read_twice() -> None:
    read = [metric for tier in Tier for chain in readers.CHAINS[tier] for metric in chain.metrics]
    assert len(set(read)) == len(read)


@pytest.mark.parametrize(
    ("raw", "expected"), [(0, 0.0), (57, 0.57), (100, 1.0), (101, Absence.FAILED), (U32, Absence.UNSUPPORTED)]
)
def test_a_share_over_one_is_a_bad_sample(raw: int, expected: float | Absence) -> None:
    assert expected == answers.percent(raw)


def test_all_ones_are_never_a_number() -> None:
    assert [answers.number(U32, 1e6), answers.number(U64)] == [Absence.UNSUPPORTED] * 2


def test_memory_of_version_2_tells_the_reserved_part_apart() -> None:
    given = answers.memory(amount(100, 30, 60, reserved=10))
    assert given == {gpu.MEMORY_USED: 30.0, gpu.MEMORY_FREE: 60.0, gpu.MEMORY_RESERVED: 10.0}


def test_memory_of_version_1_leaves_the_reserved_part_unknown() -> None:
    given = answers.memory(amount(100, 40, 60))
    assert given == {gpu.MEMORY_USED: 40.0, gpu.MEMORY_FREE: 60.0, gpu.MEMORY_RESERVED: Absence.UNSUPPORTED}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (amount(100, 101, 0), Absence.FAILED),
        (amount(100, 0, 101), Absence.FAILED),
        (amount(0, 0, 0), Absence.UNSUPPORTED),
        (amount(U64, 1, 1), Absence.UNSUPPORTED),
        (amount(100, U64, 1), Absence.UNSUPPORTED),
    ],
)
def test_a_memory_answer_that_cannot_be_gives_no_value(answer: SimpleNamespace, expected: Absence) -> None:
    assert {expected} == set(answers.memory(answer).values())


def test_a_margin_is_signed() -> None:
    assert [answers.margin(raw)[gpu.TEMPERATURE_MARGIN] for raw in (0, -5, 43)] == [0.0, -5.0, 43.0]


def test_an_unknown_performance_state_is_none() -> None:
    assert [answers.performance_state(raw)[gpu.PERFORMANCE_STATE] for raw in (0, 15, 32)] == [0.0, 15.0, Absence.EMPTY]


def test_a_compute_mode_that_is_newer_than_we_are_is_not_guessed() -> None:
    assert gpu.COMPUTE_MODE.at("exclusive_process") == answers.compute_mode(3)
    assert {Absence.FAILED} == set(answers.compute_mode(4).values())


def test_a_full_window_over_its_size_is_a_bad_sample() -> None:
    given = answers.bar1(SimpleNamespace(bar1Total=10, bar1Used=11))
    assert given == {gpu.BAR1_SIZE: 10.0, gpu.BAR1_USED: Absence.FAILED}


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        (0, {"dVal": 1.5}, 1.5),
        (1, {"uiVal": 7}, 7.0),
        (2, {"ulVal": 8}, 8.0),
        (3, {"ullVal": 1 << 40}, float(1 << 40)),
        (4, {"sllVal": -9}, -9.0),
        (5, {"siVal": -2}, -2.0),
        (6, {"usVal": 3}, 3.0),
        (1, {"uiVal": U32}, Absence.UNSUPPORTED),
        (2, {"ulVal": U64}, Absence.UNSUPPORTED),
        (3, {"ullVal": U64}, Absence.UNSUPPORTED),
        (5, {"siVal": -1}, -1.0),
        (7, {}, Absence.FAILED),
    ],
)
def test_a_field_is_read_by_its_type(kind: int, members: dict[str, float], expected: float | Absence) -> None:
    assert expected == fields.value(Field(1, gpu.POWER), field(kind, **members))


@pytest.mark.parametrize(("raw", "expected"), [(0xFFFFFFF8, -8.0), (0xFFFFFFFE, -2.0), (0, 0.0), (5, 5.0)])
def test_an_offset_declared_as_unsigned_is_signed(raw: int, expected: float) -> None:
    offset = gpu.TEMPERATURE_TLIMIT_OFFSET["shutdown"]
    assert expected == fields.value(Field(193, offset, signed=True), field(1, uiVal=raw))


def test_all_ones_of_32_bits_in_a_wider_number_are_no_number_either() -> None:
    found = fields.value(Field(3, gpu.ECC_ERRORS["corrected_volatile"]), field(3, ullVal=U32))
    assert found is Absence.FAILED


@pytest.mark.parametrize("answer", [U32, U64])
def test_all_ones_are_not_all_reasons_at_once(answer: int) -> None:
    assert set(answers.reasons(answer).values()) == {Absence.UNSUPPORTED}


@pytest.mark.parametrize("part", ["used", "free", "reserved"])
def test_a_part_of_the_memory_is_not_larger_than_all_of_it(part: str) -> None:
    given = answers.memory(amount(**{"total": 100, "used": 30, "free": 60, "reserved": 10, part: 101}))
    assert set(given.values()) == {Absence.FAILED}
