"""Codes become verdicts: every row of nvml.md 1.2 and 1.3."""

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue.gpu import DRIVER_STATE
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.verdicts import Traces

LOADED = Traces(module="535.154.05", nodes=True, nouveau=False, container=False)
ABSENT = Traces(module=None, nodes=False, nouveau=False, container=False)
MISSED = Traces(module="535.154.05", nodes=False, nouveau=False, container=False, nodeless=120.0)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((3, 13, 26), Absence.UNSUPPORTED),
        ((6, 10, 21, 27), Absence.EMPTY),
        ((4,), Absence.DENIED),
        ((15, 16), Absence.LOST),
        ((1, 2, 5, 7, 8, 9, 11, 12, 14, 17, 18, 19, 20, 22, 23, 24, 25, 28, 29, 30, 999, 4711), Absence.FAILED),
    ],
)
def test_each_code_says_why_a_value_is_absent(codes: tuple[int, ...], expected: Absence) -> None:
    assert [expected] * len(codes) == [verdicts.absence(code) for code in codes]


@pytest.mark.parametrize(
    ("code", "traces", "kind", "words"),
    [
        (12, ABSENT, "no_library", "libnvidia-ml.so.1 is not installed"),
        (9, ABSENT, "not_loaded", "modprobe nvidia"),
        (9, Traces(module=None, nodes=False, nouveau=True, container=False), "nouveau", "blacklist nouveau"),
        (9, LOADED, "not_loaded", "no usable GPU although the kernel module 535.154.05 is loaded"),
        (9, MISSED, "no_nodes", "run nvidia-modprobe -c 0 -u"),
        (4, MISSED, "no_nodes", "run nvidia-modprobe -c 0 -u"),
        (999, replace(MISSED, container=True), "no_nodes", "run nvidia-modprobe -c 0 -u"),
        (9, replace(MISSED, nodeless=0.0), "no_nodes", "waited for for up to 120 s"),
        (1, MISSED, "failed", "is being initialised again"),
        (18, LOADED, "version_mismatch", "loaded module: 535.154.05"),
        (18, ABSENT, "version_mismatch", "reboot, or reload"),
        (4, LOADED, "no_permission", "check the mode"),
        (999, LOADED, "access_lost", "in a container, recreate it"),
        (17, ABSENT, "access_lost", "device cgroup"),
        (2, LOADED, "failed", "NVML answers"),
        (20, LOADED, "failed", "(20)"),
    ],
)
def test_each_failure_of_init_is_a_state_of_the_driver_with_its_remedy(code: int, traces: Traces, kind: str, words: str) -> None:
    fault = verdicts.not_started(code, "some words. NVML answers them", traces)
    assert (kind, code) == (fault.kind, fault.code)
    assert words in fault.words
    assert fault.kind in DRIVER_STATE


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (15, "lost", "power cycle"),
        (16, "reset_required", "--gpu-reset"),
        (4, "no_permission", "/dev/nvidia*"),
        (8, "unknown_error", "external power cable"),
        (11, "unknown_error", "interrupts"),
        (14, "unknown_error", "InfoROM"),
        (999, "unknown_error", "Unknown Error (999)"),
        (17, "unknown_error", "(17)"),
    ],
)
def test_a_gpu_that_cannot_be_opened_says_what_is_in_the_way(code: int, kind: str, words: str) -> None:
    fault = verdicts.not_opened(code, "Unknown Error")
    assert (kind, code) == (fault.kind, fault.code)
    assert words in fault.words


def test_codes_8_11_and_14_are_told_in_words_while_values_go_on() -> None:
    told = {code: verdicts.ailing(code) for code in (8, 11, 14)}
    assert dict.fromkeys(told, "unknown_error") == {code: fault.kind for code, fault in told.items()}
    assert len({fault.words for fault in told.values()}) == 3


@pytest.mark.parametrize(
    ("codes", "count", "kind"),
    [
        ({999}, 1, None),
        ({999}, 2, None),
        ({999}, 3, "unknown_error"),
        ({17, 6}, 3, "unknown_error"),
        ({20}, 9, None),
        ({2}, 1, "unknown_error"),
        ({4}, 1, "no_permission"),
        ({2, 999}, 1, None),
    ],
)
def test_a_gpu_without_one_value_is_at_fault_after_three_times(codes: set[int], count: int, kind: str | None) -> None:
    fault = verdicts.barren(frozenset(codes), count)
    assert kind == (fault.kind if fault else None)


@pytest.mark.parametrize(
    ("code", "traces", "kind"),
    [
        (999, LOADED, "access_lost"),
        (4, LOADED, "no_permission"),
        (999, MISSED, "no_nodes"),
    ],
)
def test_all_gpus_out_of_reach_at_once_is_the_drivers_fault(code: int, traces: Traces, kind: str) -> None:
    assert kind == verdicts.no_access(code, traces).kind


def test_nodes_are_waited_for_for_two_minutes_in_the_same_words_and_missed_from_then_on() -> None:
    early, late, over = (verdicts.not_started(4, "", replace(MISSED, nodeless=seconds)) for seconds in (0.0, 119.9, 120.0))
    assert (early.waits, late.waits, over.waits) == (True, True, False)
    assert early.words == late.words
    assert ("run nvidia-modprobe" in late.words, "run nvidia-modprobe" in over.words) == (False, True)
    assert not any(verdicts.not_started(code, "", LOADED).waits for code in (1, 2, 4, 9, 12, 18, 999))


def test_the_words_of_a_hung_call_hold_no_number_that_would_stand_still() -> None:
    assert [char for char in verdicts.HUNG.words if char.isdigit()] == []
