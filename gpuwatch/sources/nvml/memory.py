"""What NVML tells of memory errors by place, and of the spare rows: answers -> numbers. Pure.

From Ampere on a driver tells DRAM and SRAM apart and no more; before it, each memory by itself.
"""

from typing import Any

from gpuwatch.catalogue.memory import ECC_SRAM_SOURCES, ECC_SRAM_THRESHOLD, ROW_REMAP_BANKS
from gpuwatch.model.metric import Metric
from gpuwatch.sources.nvml.answers import Given, number

TYPES = {"corrected": 0, "uncorrected": 1}  # nvmlMemoryErrorType_t
LIFETIMES = {"volatile": 0, "aggregate": 1}  # nvmlEccCounterType_t
LOCATIONS = {"l1": 0, "l2": 1, "dram": 2, "register": 3, "texture": 4, "cbu": 6, "sram": 7}  # nvmlMemoryLocation_t
# The field of each, where it has one: SRAM has none, and the convergence barrier unit only uncorrected ones.
FIELDS = {
    "corrected_volatile": {"l1": 7, "l2": 9, "dram": 11, "register": 13, "texture": 15},
    "uncorrected_volatile": {"l1": 8, "l2": 10, "dram": 12, "register": 14, "texture": 16, "cbu": 17},
    "corrected_aggregate": {"l1": 18, "l2": 20, "dram": 22, "register": 24, "texture": 26},
    "uncorrected_aggregate": {"l1": 19, "l2": 21, "dram": 23, "register": 25, "texture": 27, "cbu": 28},
}
SRAM_STATUS: tuple[Metric, ...] = (*ECC_SRAM_SOURCES.values(), ECC_SRAM_THRESHOLD)
BUCKETS = {"l2": "L2", "sm": "Sm", "pcie": "Pcie", "microcontroller": "Mcu", "other": "Other"}


def sram_status(answer: Any) -> Given:
    """Read what only nvmlEccSramErrorStatus_t tells (R535.161 and later); its totals are those of the single calls."""
    return {
        **{metric: number(getattr(answer, f"aggregateUncBucket{BUCKETS[name]}")) for name, metric in ECC_SRAM_SOURCES.items()},
        ECC_SRAM_THRESHOLD: number(answer.bThresholdExceeded),
    }


def histogram(answer: Any) -> Given:
    """Read nvmlRowRemapperHistogramValues_t: banks by the spare rows that they have left."""
    return {metric: number(getattr(answer, name)) for name, metric in ROW_REMAP_BANKS.items()}
