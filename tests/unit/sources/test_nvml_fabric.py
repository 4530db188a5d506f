"""The state and the health of a fabric, from every version of nvmlGpuFabricInfo."""

from types import SimpleNamespace

import pytest

from gpuwatch.catalogue.interconnect import FABRIC_HEALTHY, FABRIC_STATE
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml.fabric import fabric, healthy

WELL = 0xAA | 1 << 8  # no trouble in any group, no misconfiguration


def answer(state: int, status: int = 0, **more: int) -> SimpleNamespace:
    """Return an answer of NVML."""
    return SimpleNamespace(state=state, status=status, **more)


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [(1, 0, "not_started"), (2, 99, "in_progress"), (3, 0, "completed"), (3, 99, "failed")],
)
def test_the_status_counts_only_when_the_gpu_has_joined(state: int, status: int, expected: str) -> None:
    assert fabric(answer(state, status)) == FABRIC_STATE.at(expected) | {FABRIC_HEALTHY: Absence.UNSUPPORTED}


def test_a_gpu_in_no_fabric_has_no_state_and_one_in_an_unknown_state_a_failed_sample() -> None:
    assert set(fabric(answer(0, healthMask=WELL, healthSummary=1)).values()) == {Absence.UNSUPPORTED}
    assert set(fabric(answer(7, healthMask=WELL, healthSummary=1)).values()) == {Absence.FAILED}


@pytest.mark.parametrize(
    ("summary", "mask", "expected"),
    [
        (0, 0, Absence.UNSUPPORTED),
        (0, WELL, 1.0),
        (1, 0x1, 1.0),  # the driver's own verdict comes first
        (2, WELL, 0.0),
        (3, WELL, 0.0),
        (0, 0x1, 0.0),  # bandwidth degraded
        (0, 0x1 << 2, 0.0),  # route recovery
        (0, 0x1 << 4, 0.0),  # route unhealthy
        (0, 0x1 << 6, 0.0),  # access timeout recovery
        (0, 0x5 << 8, 0.0),  # too few NVLinks
        (0, 0x1 << 8, 1.0),
        (0, 0x2 << 12, Absence.UNSUPPORTED),  # no partition is assigned: nothing is said of health
        (0, WELL | 0x2 << 12, 1.0),
    ],
)
def test_health_is_the_summary_or_what_the_mask_says(summary: int, mask: int, expected: float | Absence) -> None:
    assert healthy(summary, mask) == expected
