"""Between which numbers an answer can be true. What lies outside is a failed sample: never a value, never clamped.

The bounds are far beyond any card that is built: they catch memory that was never written, a sentinel in a wider type, and a
dead device, not a wrong sensor.
"""

from collections.abc import Mapping
from functools import cache

from gpuwatch.catalogue import gpu, interconnect
from gpuwatch.catalogue.memory import ECC_SRAM_THRESHOLD, MEMORY_UNREPAIRABLE
from gpuwatch.catalogue.mig import MIG_MODE, MIG_SM_ACTIVE, MIG_SM_OCCUPANCY, MIG_TENSOR_ACTIVE
from gpuwatch.model.metric import Kind, Metric
from gpuwatch.model.reading import Absence

Bounds = tuple[float, float]
COUNT: Bounds = (0, 1e18)
COOLEST_LIMIT = 80.0  # degrees: no card is known whose maximum operating temperature is lower (83 on an RTX 4090, 93 at most)
LOAD: Bounds = (0, 1.01)
BY_UNIT: dict[str, Bounds] = {
    "ratio": (0, 1),
    "celsius": (-60, 250),
    "watts": (0, 10e3),
    "joules": (0, 1e15),  # 10 kW for 3,000 years
    "seconds": (0, 1e10),
    "hertz": (0, 20e9),
    "bytes": (0, 1 << 48),
    "bytes_per_second": (0, 1e13),
    "lanes": (1, 64),
    "rpm": (0, 100e3),
}
SWITCHES = frozenset(
    (
        *gpu.CLOCK_EVENT.values(),
        *gpu.COMPUTE_MODE.values(),
        *gpu.ECC_MODE.values(),
        *gpu.RECOVERY_ACTION.values(),
        *MIG_MODE.values(),
        *interconnect.FABRIC_STATE.values(),
        interconnect.FABRIC_HEALTHY,
        interconnect.NVLINK_UP,
        ECC_SRAM_THRESHOLD,
        MEMORY_UNREPAIRABLE,
        gpu.PERSISTENCE_MODE,
        gpu.ROW_REMAP_PENDING,
        gpu.ROW_REMAP_FAILURE,
        gpu.PAGE_RETIREMENT_PENDING,
        gpu.MEMORY_UNIFIED,
    )
)  # 0 or 1, nothing between
BY_METRIC: dict[Metric, Bounds] = {
    **dict.fromkeys(SWITCHES, (0, 1)),
    gpu.PERFORMANCE_STATE: (0, 15),
    gpu.PCIE_GENERATION: (1, 16),
    gpu.PCIE_GENERATION_MAX: (1, 16),
    gpu.PCIE_TRANSMIT_RAW: COUNT,
    gpu.PCIE_RECEIVE_RAW: COUNT,
    gpu.FAN_SPEED: (0, 5),  # of the nominal speed: over 1 is real
    **dict.fromkeys(gpu.TEMPERATURE_TLIMIT_OFFSET.values(), (-250, 250)),
    # 1 << 48 bytes go over NVLink in minutes
    **dict.fromkeys((interconnect.NVLINK_TRANSMIT, interconnect.NVLINK_RECEIVE), COUNT),
    **dict.fromkeys((interconnect.LINK_TRANSMIT, interconnect.LINK_RECEIVE), COUNT),
    # shares that the driver computes as floating-point numbers from two samples
    **dict.fromkeys((gpu.GRAPHICS_ACTIVE, gpu.SM_ACTIVE, gpu.SM_OCCUPANCY, gpu.DRAM_ACTIVE, *gpu.PIPE_ACTIVE.values()), LOAD),
    **dict.fromkeys((MIG_SM_ACTIVE, MIG_SM_OCCUPANCY, MIG_TENSOR_ACTIVE), LOAD),
}


@cache
def bounds(metric: Metric) -> Bounds | None:
    """Return between which numbers a metric can be, None where nobody has said."""
    return BY_METRIC.get(metric) or BY_UNIT.get(metric.unit) or (COUNT if metric.kind is Kind.COUNTER else None)


def plausible(metric: Metric, value: float | Absence) -> float | Absence:
    """Return an answer where it can be true (NaN cannot), else that it failed."""
    if isinstance(value, Absence):
        return value
    found = bounds(metric)
    if found is None:
        return value
    low, high = found
    can_be = low <= value <= high and (metric not in SWITCHES or value in found)
    return value if can_be else Absence.FAILED


def refuted(values: Mapping[Metric, float]) -> dict[Metric, Absence]:
    """Return what cannot be true beside the other numbers of the same look, and why it is absent then.

    That is a margin of 0 or less on a card that is cool. Core temperature plus margin is about the maximum operating
    temperature (83 to 95 on all captures, two degrees less on a hot card). Where the margin is not implemented 0 and -5 were
    answered all the same (gpud#1208, H100); a card past its limit says such numbers and means them (NVSentinel, ADR 042).
    """
    margin = values.get(gpu.TEMPERATURE_MARGIN)
    if margin is None or margin > 0:
        return {}
    core = values.get(gpu.TEMPERATURE["core"])
    if core is None:
        return {gpu.TEMPERATURE_MARGIN: Absence.EMPTY}
    return {} if core + margin >= COOLEST_LIMIT else {gpu.TEMPERATURE_MARGIN: Absence.UNSUPPORTED}
