"""How each number of a GPU is read: one Chain a call or field, with what to try on drivers that lack the first way.

A new metric is one Chain in the list of its tier. Chains whose present way is a Field are read together in one call.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.catalogue import gpu, interconnect
from gpuwatch.catalogue.memory import ECC_LOCATION_ERRORS, MEMORY_UNREPAIRABLE, ROW_REMAP_BANKS
from gpuwatch.catalogue.mig import MIG_MODE
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Tier
from gpuwatch.sources.nvml import memory as memories
from gpuwatch.sources.nvml import recovery
from gpuwatch.sources.nvml.answers import (
    Given,
    bar1,
    compute_mode,
    ecc_mode,
    element,
    engine,
    margin,
    memory,
    memory_size,
    mig_mode,
    number,
    performance_state,
    reasons,
    single,
    utilization,
)
from gpuwatch.sources.nvml.fabric import fabric
from gpuwatch.sources.nvml.fields import ALL, Field

MEMORY_V2 = 0x02000028  # sizeof(nvmlMemory_v2_t) | 2 << 24
NANOSECONDS = 1e-9
MILLI = 1e-3
MEGA = 1e6
KIBI = 1024.0


class Call(msgspec.Struct, frozen=True):
    """One NVML function with its arguments after the handle, and what its answer gives.

    `newer` calls take a number that an old driver may not know: INVALID_ARGUMENT then means that it never will.
    `struct` names the class of pynvml that the call fills, and its version word ("": it has none).
    """

    function: str
    give: Callable[[Any], Given]
    arguments: tuple[int, ...] = ()
    newer: bool = False
    struct: tuple[str, str] | None = None


class Chain(msgspec.Struct, frozen=True, eq=False):
    """What gives these metrics: the first way that this GPU's driver has. Compared by identity."""

    metrics: tuple[Metric, ...]
    ways: tuple[Call | Field, ...]


def one(metric: Metric, *ways: Call | Field) -> Chain:
    """Return a chain of one metric."""
    return Chain((metric,), ways)


def call(metric: Metric, function: str, *arguments: int, scale: float = 1.0, newer: bool = False) -> Call:
    """Return a call that answers with one number."""
    return Call(function, single(metric, scale), arguments, newer)


def violation(metric: Metric, policy: int) -> Call:
    """Return the old way to a time counter; violationTime is in ns, although referenceTime is in us (nvml.md 2.5)."""
    return Call(
        "nvmlDeviceGetViolationStatus",
        lambda answer: {metric: number(answer.violationTime, NANOSECONDS)},
        (policy,),
        newer=True,
    )


CLOCK_REASONS = Chain(
    tuple(gpu.CLOCK_EVENT.values()),
    (
        Call("nvmlDeviceGetCurrentClocksEventReasons", reasons),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons", reasons),  # before R535
    ),
)
PCIE_COUNTERS = (
    one(gpu.PCIE_TRANSMIT_RAW, Field(197, gpu.PCIE_TRANSMIT_RAW)),
    one(gpu.PCIE_RECEIVE_RAW, Field(198, gpu.PCIE_RECEIVE_RAW)),
)
TEMPERATURE_CORE, TEMPERATURE_MEMORY = gpu.TEMPERATURE["core"], gpu.TEMPERATURE["memory"]
FAST = (
    Chain((gpu.UTILIZATION, gpu.MEMORY_ACTIVITY), (Call("nvmlDeviceGetUtilizationRates", utilization),)),
    Chain(
        (gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED),
        (Call("nvmlDeviceGetMemoryInfo", memory, (MEMORY_V2,), newer=True), Call("nvmlDeviceGetMemoryInfo", memory)),
    ),
    one(
        TEMPERATURE_CORE,
        call(TEMPERATURE_CORE, "nvmlDeviceGetTemperatureV", 0, newer=True),  # R570 and later
        call(TEMPERATURE_CORE, "nvmlDeviceGetTemperature", 0),
    ),
    *(
        one(metric, call(metric, "nvmlDeviceGetClockInfo", kind, scale=MEGA))
        for kind, metric in enumerate(gpu.CLOCK.values())  # 0 graphics, 1 SM, 2 memory, 3 video
    ),
    CLOCK_REASONS,
    one(gpu.TEMPERATURE_MARGIN, Call("nvmlDeviceGetMarginTemperature", margin)),
    one(gpu.POWER, Field(186, gpu.POWER, MILLI), call(gpu.POWER, "nvmlDeviceGetPowerUsage", scale=MILLI)),
    one(TEMPERATURE_MEMORY, Field(82, TEMPERATURE_MEMORY)),
)

ENGINES = {
    "encoder": "nvmlDeviceGetEncoderUtilization",
    "decoder": "nvmlDeviceGetDecoderUtilization",
    "jpeg": "nvmlDeviceGetJpgUtilization",
    "ofa": "nvmlDeviceGetOfaUtilization",
}
# reason: field in ns, policy of the old call (None where it has none). The units of 77 to 79 are not documented; ns like
# their neighbours (docs/hardware-notes.md: to be verified first).
EVENT_SECONDS: dict[Metric, tuple[int, int | None]] = {
    gpu.CLOCK_EVENT_SECONDS["sw_power_cap"]: (74, 0),
    gpu.CLOCK_EVENT_SECONDS["sync_boost"]: (76, 2),
    gpu.CLOCK_EVENT_SECONDS["sw_thermal"]: (269, None),
    gpu.CLOCK_EVENT_SECONDS["hw_thermal"]: (270, None),
    gpu.CLOCK_EVENT_SECONDS["hw_power_brake"]: (271, None),
    gpu.CLOCK_EVENT_SECONDS["board_limit"]: (77, 3),
    gpu.CLOCK_EVENT_SECONDS["low_utilization"]: (78, 4),
    gpu.CLOCK_EVENT_SECONDS["reliability"]: (79, 5),
    gpu.CLOCK_EVENT_THERMAL_SECONDS: (75, 1),
}
NORMAL = (
    *(one(metric, Call(ENGINES[name], engine(metric))) for name, metric in gpu.ENGINE_UTILIZATION.items()),
    one(gpu.PERFORMANCE_STATE, Call("nvmlDeviceGetPerformanceState", performance_state)),
    one(gpu.POWER_AVERAGE, Field(185, gpu.POWER_AVERAGE, MILLI)),
    one(gpu.ENERGY, Field(83, gpu.ENERGY, MILLI), call(gpu.ENERGY, "nvmlDeviceGetTotalEnergyConsumption", scale=MILLI)),
    *(
        one(metric, Field(field, metric, NANOSECONDS), *(() if policy is None else (violation(metric, policy),)))
        for metric, (field, policy) in EVENT_SECONDS.items()
    ),
)

POWER_LIMITS: dict[str, tuple[int, str, int | None]] = {  # limit: field, the call before R535, element of its answer
    "enforced": (190, "nvmlDeviceGetEnforcedPowerLimit", None),
    "requested": (192, "nvmlDeviceGetPowerManagementLimit", None),
    "default": (189, "nvmlDeviceGetPowerManagementDefaultLimit", None),
    "min": (187, "nvmlDeviceGetPowerManagementLimitConstraints", 0),
    "max": (188, "nvmlDeviceGetPowerManagementLimitConstraints", 1),
}
PCIE_ERRORS = {
    "correctable": 173,
    "nak_received": 174,
    "receiver": 175,
    "bad_tlp": 176,
    "nak_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_request": 181,
    "lcrc": 182,
    "recovery": 169,
}
ECC_ERRORS = {"corrected_volatile": 3, "uncorrected_volatile": 4, "corrected_aggregate": 5, "uncorrected_aggregate": 6}
PENDING = call(gpu.PAGE_RETIREMENT_PENDING, "nvmlDeviceGetRetiredPagesPendingStatus")


def power_limit(name: str) -> Chain:
    """Return how one power limit is read."""
    metric = gpu.POWER_LIMIT[name]
    field, function, index = POWER_LIMITS[name]
    give = single(metric, MILLI) if index is None else element(metric, index, MILLI)
    return one(metric, Field(field, metric, MILLI), Call(function, give))


def remapped(metric: Metric, field: int, index: int) -> Chain:
    """Return how one number of the row remapper is read."""
    return one(metric, Field(field, metric), Call("nvmlDeviceGetRemappedRows", element(metric, index)))


def located(kind: str, lifetime: str, location: str) -> Chain:
    """Return how the ECC errors of one memory are read: by a field where it has one, which costs no call."""
    name = f"{kind}_{lifetime}"
    metric, field = ECC_LOCATION_ERRORS[f"{name}_{location}"], memories.FIELDS[name].get(location)
    numbers = memories.TYPES[kind], memories.LIFETIMES[lifetime], memories.LOCATIONS[location]
    counted = call(metric, "nvmlDeviceGetMemoryErrorCounter", *numbers, newer=True)
    return one(metric, *(() if field is None else (Field(field, metric),)), *((counted,) if location in ("dram", "sram") else ()))


LOCATIONS = (
    *(
        located(kind, lifetime, location)
        for kind in memories.TYPES
        for lifetime in memories.LIFETIMES
        for location in memories.LOCATIONS
        if f"{kind}_{lifetime}_{location}" in ECC_LOCATION_ERRORS
    ),
    Chain(
        memories.SRAM_STATUS,
        (
            Call(
                "nvmlDeviceGetSramEccErrorStatus",
                memories.sram_status,
                struct=("c_nvmlEccSramErrorStatus_v1_t", "nvmlEccSramErrorStatus_v1"),
            ),
        ),
    ),
    Chain(tuple(ROW_REMAP_BANKS.values()), (Call("nvmlDeviceGetRowRemapperHistogram", memories.histogram),)),
    one(MEMORY_UNREPAIRABLE, call(MEMORY_UNREPAIRABLE, "nvmlDeviceGetUnrepairableMemoryFlag_v1")),  # R590 and later
)
# type: its field, and the total over all links of drivers in which that field cannot sum. 161 to 163 end with Blackwell.
NVLINK_ERRORS = {
    "replay": (161, 52),
    "recovery": (162, 59),
    "crc": (163, 38),
    "ecc": (160, None),
    "symbol": (221, None),
    "recovery_failed": (214, None),
}


def linked(metric: Metric, field: int, older: int | None = None, scale: float = 1.0) -> Chain:
    """Return how a number of all NVLinks together is read."""
    return one(metric, Field(field, metric, scale, ALL), *(() if older is None else (Field(older, metric),)))


FABRIC = (*interconnect.FABRIC_STATE.values(), interconnect.FABRIC_HEALTHY)
INTERCONNECT = (
    # 138 and 139 count KiB, despite their name; NVLink 5 has byte counters in their place
    *(
        one(metric, Field(kibibytes, metric, KIBI, ALL), Field(count, metric, 1.0, ALL))
        for metric, kibibytes, count in ((interconnect.NVLINK_TRANSMIT, 138, 202), (interconnect.NVLINK_RECEIVE, 139, 204))
    ),
    *(linked(metric, *NVLINK_ERRORS[name]) for name, metric in interconnect.NVLINK_ERRORS.items()),
    *(one(metric, Field({"crc": 231, "replay": 232}[name], metric)) for name, metric in interconnect.C2C_ERRORS.items()),
    Chain(
        FABRIC,
        (
            Call("nvmlDeviceGetGpuFabricInfoV", fabric, newer=True, struct=("c_nvmlGpuFabricInfo_v3_t", "nvmlGpuFabricInfo_v3")),
            Call("nvmlDeviceGetGpuFabricInfoV", fabric, newer=True, struct=("c_nvmlGpuFabricInfo_v2_t", "nvmlGpuFabricInfo_v2")),
            Call("nvmlDeviceGetGpuFabricInfo", fabric, struct=("c_nvmlGpuFabricInfo_t", "")),  # before R550: no health
        ),
    ),
)

SLOW = (
    Chain((gpu.BAR1_SIZE, gpu.BAR1_USED), (Call("nvmlDeviceGetBAR1MemoryInfo", bar1),)),
    *(power_limit(name) for name in gpu.POWER_LIMIT),
    one(gpu.PCIE_GENERATION, call(gpu.PCIE_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration")),
    one(gpu.PCIE_WIDTH, call(gpu.PCIE_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth")),
    one(gpu.PCIE_REPLAYS, Field(94, gpu.PCIE_REPLAYS), call(gpu.PCIE_REPLAYS, "nvmlDeviceGetPcieReplayCounter")),
    one(gpu.PCIE_REPLAY_ROLLOVERS, Field(95, gpu.PCIE_REPLAY_ROLLOVERS)),
    *(one(metric, Field(PCIE_ERRORS[name], metric)) for name, metric in gpu.PCIE_ERRORS.items()),
    one(gpu.PERSISTENCE_MODE, call(gpu.PERSISTENCE_MODE, "nvmlDeviceGetPersistenceMode")),
    Chain(tuple(gpu.COMPUTE_MODE.values()), (Call("nvmlDeviceGetComputeMode", compute_mode),)),
    Chain(tuple(MIG_MODE.values()), (Call("nvmlDeviceGetMigMode", mig_mode),)),
    Chain(tuple(gpu.RECOVERY_ACTION.values()), (Field(230, gpu.RECOVERY_ACTION["none"], states=recovery.states),)),
    Chain(tuple(gpu.ECC_MODE.values()), (Call("nvmlDeviceGetEccMode", ecc_mode),)),
    *(one(metric, Field(ECC_ERRORS[name], metric)) for name, metric in gpu.ECC_ERRORS.items()),
    remapped(gpu.REMAPPED_ROWS["correctable"], 142, 0),
    remapped(gpu.REMAPPED_ROWS["uncorrectable"], 143, 1),
    remapped(gpu.ROW_REMAP_PENDING, 144, 2),
    remapped(gpu.ROW_REMAP_FAILURE, 145, 3),
    *LOCATIONS,
    *INTERCONNECT,
    one(gpu.RETIRED_PAGES["single_bit"], Field(29, gpu.RETIRED_PAGES["single_bit"])),
    one(gpu.RETIRED_PAGES["double_bit"], Field(30, gpu.RETIRED_PAGES["double_bit"])),
    one(gpu.PAGE_RETIREMENT_PENDING, Field(31, gpu.PAGE_RETIREMENT_PENDING), PENDING),
)

THRESHOLDS = {"shutdown": 0, "slowdown": 1, "mem_max": 2, "gpu_max": 3, "acoustic": 5}
OFFSETS = {"shutdown": 193, "slowdown": 194, "mem_max": 195, "gpu_max": 196}
STATIC = (  # read once for each time a GPU is opened, sent with every slow round
    Chain(
        (gpu.MEMORY_SIZE,),
        (Call("nvmlDeviceGetMemoryInfo", memory_size, (MEMORY_V2,), newer=True), Call("nvmlDeviceGetMemoryInfo", memory_size)),
    ),
    *(
        one(metric, call(metric, "nvmlDeviceGetMaxClockInfo", kind, scale=MEGA))
        for kind, metric in enumerate(gpu.CLOCK_MAX.values())
    ),
    *(
        one(metric, call(metric, "nvmlDeviceGetTemperatureThreshold", THRESHOLDS[name], newer=True))
        for name, metric in gpu.TEMPERATURE_LIMIT.items()
    ),
    *(one(metric, Field(OFFSETS[name], metric, signed=True)) for name, metric in gpu.TEMPERATURE_TLIMIT_OFFSET.items()),
    one(gpu.PCIE_GENERATION_MAX, call(gpu.PCIE_GENERATION_MAX, "nvmlDeviceGetMaxPcieLinkGeneration")),
    one(gpu.PCIE_WIDTH_MAX, call(gpu.PCIE_WIDTH_MAX, "nvmlDeviceGetMaxPcieLinkWidth")),
)
CHAINS = {Tier.FAST: FAST, Tier.NORMAL: NORMAL, Tier.SLOW: SLOW + STATIC}
