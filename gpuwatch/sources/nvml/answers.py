"""What each answer of NVML gives: numbers in the catalogue's units, or why there is none. Pure; bad samples are no numbers."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.mig import MIG_MODE
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence

Given = Mapping[Metric, float | Absence]
ALL_ONES = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))  # NVML_VALUE_NOT_AVAILABLE in either width
NO_STATE = 32  # NVML_PSTATE_UNKNOWN
# Bits of the clock event reasons, in the order of CLOCK_EVENT (0x1 gpu_idle ... 0x400 reliability).
REASONS = tuple((1 << bit, metric) for bit, metric in enumerate(gpu.CLOCK_EVENT.values()))


def reasons(answer: int) -> Given:
    """Read the reasons that hold the clocks down, one bit each."""
    if answer in ALL_ONES:
        return dict.fromkeys(gpu.CLOCK_EVENT.values(), Absence.UNSUPPORTED)
    return {metric: float(bool(answer & bit)) for bit, metric in REASONS}


def number(raw: float, scale: float = 1.0) -> float | Absence:
    """Return a plain answer in the metric's unit."""
    return Absence.UNSUPPORTED if raw in ALL_ONES else raw * scale


def percent(raw: int) -> float | Absence:
    """Return a share of time; drivers have answered over 100 (Syllo/nvtop#110), which is no share."""
    if raw in ALL_ONES:
        return Absence.UNSUPPORTED
    return Absence.FAILED if raw > 100 else raw / 100


def single(metric: Metric, scale: float = 1.0) -> Callable[[Any], Given]:
    """Return the reader of an answer that is one number."""
    return lambda answer: {metric: number(answer, scale)}


def utilization(answer: Any) -> Given:
    """Read nvmlUtilization_t."""
    return {gpu.UTILIZATION: percent(answer.gpu), gpu.MEMORY_ACTIVITY: percent(answer.memory)}


def memory_amount(answer: Any) -> Absence | None:
    """Return why a memory answer is not to be used, None where it is."""
    if answer.total == 0 or answer.total in ALL_ONES:
        return Absence.UNSUPPORTED  # Jetson and GB10 share the host's memory
    if answer.used in ALL_ONES:
        return Absence.UNSUPPORTED
    parts = (answer.used, answer.free, getattr(answer, "reserved", 0))
    return Absence.FAILED if any(part > answer.total and part not in ALL_ONES for part in parts) else None


def memory(answer: Any) -> Given:
    """Read nvmlMemory_t in either version; version 1 counts the reserved part as used and does not tell it apart."""
    why = memory_amount(answer)
    if why is not None:
        return dict.fromkeys((gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED), why)
    reserved = getattr(answer, "reserved", None)
    return {
        gpu.MEMORY_USED: float(answer.used),
        gpu.MEMORY_FREE: number(answer.free),
        gpu.MEMORY_RESERVED: Absence.UNSUPPORTED if reserved is None else number(reserved),
    }


def memory_size(answer: Any) -> Given:
    """Read the total of nvmlMemory_t, which old cards tell without what is used (a GeForce 8800 under driver 340)."""
    why = memory_amount(answer)
    is_told = answer.total and answer.total not in ALL_ONES and why is not Absence.FAILED
    return {gpu.MEMORY_SIZE: float(answer.total) if is_told else why or Absence.UNSUPPORTED}


def bar1(answer: Any) -> Given:
    """Read nvmlBAR1Memory_t."""
    total, used = answer.bar1Total, answer.bar1Used
    if total in ALL_ONES or total == 0:
        return {gpu.BAR1_SIZE: Absence.UNSUPPORTED, gpu.BAR1_USED: Absence.UNSUPPORTED}
    return {gpu.BAR1_SIZE: float(total), gpu.BAR1_USED: Absence.FAILED if used > total else float(used)}


def margin(answer: int) -> Given:
    """Read degrees left, signed: below 0 is past the maximum operating temperature. `bounds.refuted` says which are not true."""
    return {gpu.TEMPERATURE_MARGIN: float(answer)}


def performance_state(answer: int) -> Given:
    """Read a P-state."""
    return {gpu.PERFORMANCE_STATE: Absence.EMPTY if answer == NO_STATE else number(answer)}


def compute_mode(answer: int) -> Given:
    """Read who may open a compute context; a mode that is newer than we are is none of ours."""
    names = tuple(gpu.COMPUTE_MODE)
    if answer >= len(names):
        return dict.fromkeys(gpu.COMPUTE_MODE.values(), Absence.FAILED)
    return gpu.COMPUTE_MODE.at(names[answer])


def ecc_mode(answer: Any) -> Given:
    """Read (current, pending)."""
    return {gpu.ECC_MODE["current"]: number(answer[0]), gpu.ECC_MODE["pending"]: number(answer[1])}


def mig_mode(answer: Any) -> Given:
    """Read [current, pending]."""
    return {MIG_MODE["current"]: number(answer[0]), MIG_MODE["pending"]: number(answer[1])}


def engine(metric: Metric) -> Callable[[Any], Given]:
    """Return the reader of (percent, sampling period)."""
    return lambda answer: {metric: percent(answer[0])}


def element(metric: Metric, index: int, scale: float = 1.0) -> Callable[[Any], Given]:
    """Return the reader of one element of a tuple."""
    return lambda answer: {metric: number(answer[index], scale)}
