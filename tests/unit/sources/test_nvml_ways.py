"""Which way of a chain is in use, what is given up for how long, and what fails again and again."""

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import ways
from gpuwatch.sources.nvml.fields import Field
from gpuwatch.sources.nvml.readers import Call, Chain, call
from gpuwatch.sources.nvml.ways import DAY, GONE_FIELD, Ways

FIELD = Field(186, gpu.POWER)
NEW = call(gpu.POWER, "nvmlNew", newer=True)
OLD = call(gpu.POWER, "nvmlOld")
CHAIN = Chain((gpu.POWER,), (FIELD, NEW, OLD))


def test_a_chain_goes_on_to_its_next_way_and_at_last_to_none() -> None:
    state = Ways()
    seen: list[Call | Field | None] = []
    for code in (2, 25, 13):
        way = state.present(CHAIN)
        assert way is not None
        seen.append(way)
        assert state.refused(CHAIN, way, code, now=0.0)
    assert seen == [FIELD, NEW, OLD]
    assert state.present(CHAIN) is None


@pytest.mark.parametrize("code", [3, 13, 25, 26])
def test_codes_that_are_for_good_are_never_asked_again_that_day(code: int) -> None:
    state = Ways()
    assert state.refused(CHAIN, FIELD, code, now=10.0)
    state.refresh(10.0 + DAY - 1)
    assert state.present(CHAIN) is NEW
    state.refresh(10.0 + DAY)
    assert state.present(CHAIN) is FIELD


def test_a_number_that_was_there_is_asked_for_again_soon() -> None:
    state = Ways()
    state.worked(CHAIN)
    assert state.refused(CHAIN, FIELD, 3, now=0.0)
    state.refresh(GONE_FIELD)
    assert state.present(CHAIN) is FIELD


@pytest.mark.parametrize("code", [4, 6, 7, 8, 10, 11, 14, 17, 20, 21, 27, 29, 999])
def test_other_codes_are_never_remembered(code: int) -> None:
    state = Ways()
    assert not state.refused(CHAIN, FIELD, code, now=0.0)
    assert state.present(CHAIN) is FIELD
    assert state.version == 0


def test_invalid_argument_is_for_good_only_where_it_means_that_the_driver_is_older() -> None:
    state = Ways()
    assert not state.refused(CHAIN, OLD, 2, now=0.0)
    assert (
        ways.why(2, FIELD),
        ways.why(2, NEW),
        ways.why(2, OLD),
    ) == (Absence.UNSUPPORTED, Absence.UNSUPPORTED, Absence.FAILED)


@pytest.mark.parametrize("code", [999, 17])
def test_three_unknown_errors_in_a_row_on_a_call_that_worked_are_a_fault(code: int) -> None:
    state = Ways()
    state.worked(CHAIN)
    found = []
    for _ in range(3):
        state.refused(CHAIN, FIELD, code, now=0.0)
        found.append(state.failing((CHAIN,)))
    assert [None, None, (CHAIN, code, 3)] == found
    state.worked(CHAIN)
    assert state.failing((CHAIN,)) is None


def test_unknown_errors_that_do_not_follow_each_other_are_no_fault() -> None:
    state = Ways()
    state.worked(CHAIN)
    for code in (999, 999, 6, 999, 999, 10, 999):
        state.refused(CHAIN, FIELD, code, now=0.0)
        assert state.failing((CHAIN,)) is None


def test_a_call_that_never_worked_is_no_fault_of_the_gpu() -> None:
    state = Ways()
    for _ in range(9):
        state.refused(CHAIN, FIELD, 999, now=0.0)
    assert state.failing((CHAIN,)) is None
