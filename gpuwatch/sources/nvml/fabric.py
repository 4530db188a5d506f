"""How a GPU stands in its NVSwitch fabric, from nvmlGpuFabricInfo in any of its versions (nvml.md 2.9). Pure."""

from typing import Any

from gpuwatch.catalogue.interconnect import FABRIC_HEALTHY, FABRIC_STATE
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml.answers import Given

STATES = ("", "not_started", "in_progress", "completed")  # 0: this GPU is in no fabric
COMPLETED = 3
# healthMask: bit of each group of two (0 not supported, 1 it is so, 2 it is not)
TROUBLES = {"bandwidth degraded": 0, "route recovery": 2, "route unhealthy": 4, "access timeout recovery": 6}
TRUE = 1
MISCONFIGURED = 8  # bit of a group of four: 0 not supported, 1 none, others what is wrong
NONE = 1
# healthSummary, version 3 only (0 not supported, 2 unhealthy, 3 limited capacity)
HEALTHY = 1


def fabric(answer: Any) -> Given:
    """Read the state, and the health where the driver tells it. That no partition is assigned may be meant: it is not judged."""
    if not 0 <= answer.state < len(STATES):
        return {**dict.fromkeys(FABRIC_STATE.values(), Absence.FAILED), FABRIC_HEALTHY: Absence.FAILED}
    if not answer.state:
        return {**dict.fromkeys(FABRIC_STATE.values(), Absence.UNSUPPORTED), FABRIC_HEALTHY: Absence.UNSUPPORTED}
    failed = answer.state == COMPLETED and answer.status != 0  # the status says nothing before that
    return {
        **FABRIC_STATE.at("failed" if failed else STATES[answer.state]),
        FABRIC_HEALTHY: healthy(getattr(answer, "healthSummary", 0), getattr(answer, "healthMask", 0)),
    }


def healthy(summary: int, mask: int) -> float | Absence:
    """Return whether all is well: by the summary where there is one, else by what the mask says."""
    if summary:
        return float(summary == HEALTHY)
    groups = [mask >> bit & 0x3 for bit in TROUBLES.values()]
    wrong = mask >> MISCONFIGURED & 0xF
    if not any(groups) and not wrong:
        return Absence.UNSUPPORTED
    return float(TRUE not in groups and wrong <= NONE)
