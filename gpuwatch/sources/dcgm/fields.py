"""What DCGM's fields mean: field name or id -> metric, unit and the largest value that can be true.

Names are those that a dcgm-exporter prints: of DCGM 1.x (dcgm_gpu_temp), of 2 to 4.5, and the new spellings of 4.6, which
keep the old ones as aliases (dcgm_fields.h). Fields whose unit differs between releases (the violation times: us or ns) are
left to NVML, and so is the last Xid, which sticks.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence

MEBI = float(1 << 20)
PERCENT, MEGA, MILLI = 1e-2, 1e6, 1e-3
FULL = 1.1  # a ratio may be a little over 1: counters and clock are not read at one moment
COUNT = 2.0**53
RATE = 1e13  # bytes a second
HOT, STRONG, HUGE = 200.0, 5000.0, 2.0**44  # celsius, watts, bytes

# Blank values (dcgm_structs.h): the first of each kind says nothing, then not found, not supported, no permission, ...
BLANK_INT32, BLANK_INT64, BLANK_DOUBLE = float(0x7FFFFFF0), float(0x7FFFFFFFFFFFFFF0), 140737488355328.0
NOT_SUPPORTED, NO_PERMISSION = 2, 3


class Field(NamedTuple):
    """One field of DCGM as a metric: its value times `scale`, at most `most` then."""

    metric: Metric
    scale: float
    most: float
    least: float = 0.0


def ratio(metric: Metric) -> Field:
    """Return a field between 0 and 1."""
    return Field(metric, 1.0, FULL)


def percent(metric: Metric) -> Field:
    """Return a field between 0 and 100."""
    return Field(metric, PERCENT, FULL)


def count(metric: Metric) -> Field:
    """Return a plain number."""
    return Field(metric, 1.0, COUNT)


PROFILING: Mapping[int, tuple[str, str, Field]] = {  # by id: heading in `dcgmi dmon`, name, meaning
    1001: ("GRACT", "GR_ENGINE_ACTIVE", ratio(gpu.GRAPHICS_ACTIVE)),
    1002: ("SMACT", "SM_ACTIVE", ratio(gpu.SM_ACTIVE)),
    1003: ("SMOCC", "SM_OCCUPANCY", ratio(gpu.SM_OCCUPANCY)),
    1004: ("TENSO", "PIPE_TENSOR_ACTIVE", ratio(gpu.PIPE_ACTIVE["tensor"])),
    1005: ("DRAMA", "DRAM_ACTIVE", ratio(gpu.DRAM_ACTIVE)),
    1006: ("FP64A", "PIPE_FP64_ACTIVE", ratio(gpu.PIPE_ACTIVE["fp64"])),
    1007: ("FP32A", "PIPE_FP32_ACTIVE", ratio(gpu.PIPE_ACTIVE["fp32"])),
    1008: ("FP16A", "PIPE_FP16_ACTIVE", ratio(gpu.PIPE_ACTIVE["fp16"])),
    # Rates, although an exporter's counter file once called them counters (dcgm-exporter#87).
    1009: ("PCITX", "PCIE_TX_BYTES", Field(gpu.PCIE_THROUGHPUT["transmit"], 1.0, RATE)),
    1010: ("PCIRX", "PCIE_RX_BYTES", Field(gpu.PCIE_THROUGHPUT["receive"], 1.0, RATE)),
    1011: ("NVLTX", "NVLINK_TX_BYTES", Field(gpu.NVLINK_THROUGHPUT["transmit"], 1.0, RATE)),
    1012: ("NVLRX", "NVLINK_RX_BYTES", Field(gpu.NVLINK_THROUGHPUT["receive"], 1.0, RATE)),
}

DEVICE: Mapping[str, Field] = {
    "GPU_UTIL": percent(gpu.UTILIZATION),
    "MEM_COPY_UTIL": percent(gpu.MEMORY_ACTIVITY),
    "ENC_UTIL": percent(gpu.ENGINE_UTILIZATION["encoder"]),
    "DEC_UTIL": percent(gpu.ENGINE_UTILIZATION["decoder"]),
    "SM_CLOCK": Field(gpu.CLOCK["sm"], MEGA, 1e11),
    "MEM_CLOCK": Field(gpu.CLOCK["memory"], MEGA, 1e11),
    "GPU_TEMP": Field(gpu.TEMPERATURE["core"], 1.0, HOT),
    "MEMORY_TEMP": Field(gpu.TEMPERATURE["memory"], 1.0, HOT, 1.0),  # 0 where the memory has no sensor
    "POWER_USAGE": Field(gpu.POWER, 1.0, STRONG),
    "TOTAL_ENERGY_CONSUMPTION": Field(gpu.ENERGY, MILLI, COUNT),
    "FB_TOTAL": Field(gpu.MEMORY_SIZE, MEBI, HUGE),
    "FB_FREE": Field(gpu.MEMORY_FREE, MEBI, HUGE),
    "FB_USED": Field(gpu.MEMORY_USED, MEBI, HUGE),
    "FB_RESERVED": Field(gpu.MEMORY_RESERVED, MEBI, HUGE),
    "PCIE_REPLAY_COUNTER": count(gpu.PCIE_REPLAYS),
    "CORRECTABLE_REMAPPED_ROWS": count(gpu.REMAPPED_ROWS["correctable"]),
    "UNCORRECTABLE_REMAPPED_ROWS": count(gpu.REMAPPED_ROWS["uncorrectable"]),
    "ROW_REMAP_FAILURE": Field(gpu.ROW_REMAP_FAILURE, 1.0, 1.0),
    "ROW_REMAP_PENDING": Field(gpu.ROW_REMAP_PENDING, 1.0, 1.0),
    "RETIRED_SBE": count(gpu.RETIRED_PAGES["single_bit"]),
    "RETIRED_DBE": count(gpu.RETIRED_PAGES["double_bit"]),
    "ECC_SBE_VOL_TOTAL": count(gpu.ECC_ERRORS["corrected_volatile"]),
    "ECC_DBE_VOL_TOTAL": count(gpu.ECC_ERRORS["uncorrected_volatile"]),
    "ECC_SBE_AGG_TOTAL": count(gpu.ECC_ERRORS["corrected_aggregate"]),
    "ECC_DBE_AGG_TOTAL": count(gpu.ECC_ERRORS["uncorrected_aggregate"]),
}

SINCE_4_6: Mapping[str, str] = {
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_SM_UTIL_RATIO": "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": "DCGM_FI_PROF_SM_OCCUPANCY",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_FP64_UTIL_RATIO": "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    "DCGM_FI_PROF_FP32_UTIL_RATIO": "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    "DCGM_FI_PROF_FP16_UTIL_RATIO": "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    "DCGM_FI_PROF_INT_UTIL_RATIO": "DCGM_FI_PROF_PIPE_INT_ACTIVE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS": "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL": "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL": "DCGM_FI_DEV_RETIRED_DBE",
}
OF_1_X: Mapping[str, str] = {
    "dcgm_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "dcgm_memory_clock": "DCGM_FI_DEV_MEM_CLOCK",
    "dcgm_memory_temp": "DCGM_FI_DEV_MEMORY_TEMP",
    "dcgm_gpu_temp": "DCGM_FI_DEV_GPU_TEMP",
    "dcgm_power_usage": "DCGM_FI_DEV_POWER_USAGE",
    "dcgm_total_energy_consumption": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "dcgm_pcie_replay_counter": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "dcgm_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "dcgm_mem_copy_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "dcgm_enc_utilization": "DCGM_FI_DEV_ENC_UTIL",
    "dcgm_dec_utilization": "DCGM_FI_DEV_DEC_UTIL",
    "dcgm_fb_free": "DCGM_FI_DEV_FB_FREE",
    "dcgm_fb_used": "DCGM_FI_DEV_FB_USED",
    "dcgm_ecc_sbe_volatile_total": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "dcgm_ecc_dbe_volatile_total": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "dcgm_ecc_sbe_aggregate_total": "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "dcgm_ecc_dbe_aggregate_total": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "dcgm_retired_pages_sbe": "DCGM_FI_DEV_RETIRED_SBE",
    "dcgm_retired_pages_dbe": "DCGM_FI_DEV_RETIRED_DBE",
}
# The same number under two names and two scales: field 203 (whole percent) was called so in 4.6, field 1613 (a ratio with
# decimals) is since 4.7; likewise the others. How the exporter prints it tells them apart.
PERCENT_OR_RATIO: Mapping[str, str] = {
    "DCGM_FI_DEV_GPU_UTIL_RATIO": "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEMORY_UTIL_RATIO": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL_RATIO": "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL_RATIO": "DCGM_FI_DEV_DEC_UTIL",
}
HEADS = ("DCGM_", "dcgm_")  # of every name that a dcgm-exporter gives a number of DCGM


def named() -> dict[str, Field]:
    """Return all fields by every name that a page may have for them."""
    found = {f"DCGM_FI_PROF_{name}": field for _, name, field in PROFILING.values()}
    found["DCGM_FI_PROF_PIPE_INT_ACTIVE"] = ratio(gpu.PIPE_ACTIVE["int"])
    found |= {f"DCGM_FI_DEV_{name}": field for name, field in DEVICE.items()}
    found |= {new: found[old] for new, old in SINCE_4_6.items()}
    found |= {old: found[new] for old, new in OF_1_X.items()}
    return found | {name.lower(): field for name, field in found.items() if name.startswith("DCGM_FI_PROF_")}


FIELDS: Mapping[str, Field] = named()


def find(name: str, text: str) -> Field | None:
    """Return what a number on a page means, None for one that we do not take."""
    other = PERCENT_OR_RATIO.get(name)
    if other is None:
        return FIELDS.get(name)
    field = FIELDS[other]
    return field._replace(scale=1.0) if "." in text else field


def read(field: Field, text: str) -> float | Absence:
    """Return a number of DCGM in our unit, or why it is none: blank, or no value that this field can have."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan  # 1_0 is Python, and so are Arabic digits
    except ValueError:
        return Absence.EMPTY if text == "N/A" else Absence.FAILED
    if not math.isfinite(value):
        return Absence.FAILED
    for blank in (BLANK_INT32, BLANK_DOUBLE):
        if blank <= value < blank + 16:
            return why(int(value - blank))
    if value >= BLANK_INT64:  # as a float all 64-bit blanks are one number; the digits are still in the text
        return why(int(text) - 0x7FFFFFFFFFFFFFF0 if text.isdigit() and len(text) == 19 else 0)
    value *= field.scale
    return value if field.least <= value <= field.most else Absence.FAILED


def why(code: int) -> Absence:
    """Return what a blank value says."""
    return {NOT_SUPPORTED: Absence.UNSUPPORTED, NO_PERMISSION: Absence.DENIED}.get(code, Absence.EMPTY)


def read_all(found: Iterable[tuple[Field, str]]) -> tuple[dict[Metric, float], dict[Metric, Absence]]:
    """Return what is there and what is not; of two fields for one metric the first with a value counts."""
    values: dict[Metric, float] = {}
    absent: dict[Metric, Absence] = {}
    for field, text in found:
        value = read(field, text)
        if isinstance(value, Absence):
            absent.setdefault(field.metric, value)
        else:
            values.setdefault(field.metric, value)
    return values, {metric: reason for metric, reason in absent.items() if metric not in values}
