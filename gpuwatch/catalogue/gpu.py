"""The numbers of a GPU, its fans and its driver. Names and sources: docs/metrics.md is generated from here."""

from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members, states

GPU = Subject(
    "gpu",
    ("gpu", "uuid"),
    info=(
        "name",
        "architecture",
        "compute_capability",
        "serial",
        "part_number",
        "vbios_version",
        "inforom_version",
        "pci_bus_id",
        "numa_node",
        "minor",
        "label",
    ),
    help="What a GPU is; `label` is the operator's own (`[gpus]` in the configuration).",
)
FAN = Subject("gpu_fan", ("gpu", "uuid", "fan"))
DRIVER = Subject(
    "driver",
    info=("driver_version", "module_version", "nvml_version", "cuda_version", "module_type"),
    help="The NVIDIA driver: user-space library and loaded kernel module.",
)
DRIVER_LIBRARY = Subject(
    "driver_library",
    info=("library_version", "module_version"),
    help="The NVML library that the next program will load, as it lies on disk, and the kernel module that is loaded.",
)
NEXT_BOOT = Subject(
    "next_boot",
    info=("running_kernel", "next_kernel", "chosen_by"),
    help="The kernel that boots next: the one that GRUB was told (`grub`), else the newest that is installed (`newest`).",
)
GPUS = Subject("gpus")
DCGM = Subject("dcgm")

# Driver
DRIVER_STATE = states(
    DRIVER,
    "state",
    "state",
    (
        "ok",
        "no_library",
        "not_loaded",
        "version_mismatch",
        "no_permission",
        "no_nodes",
        "access_lost",
        "nouveau",
        "released",
        "failed",
    ),
    help="Whether NVML can be used, and what is in the way.",
)
DRIVER_MISMATCH = gauge(
    DRIVER, "version_mismatch", keep=Keep.LAST, help="1 while the NVML library and the loaded kernel module differ in version."
)
RELEASED_SINCE = gauge(
    DRIVER, "released_since_timestamp", "seconds", internal=True, help="When the present or last release of the GPUs began."
)
RELEASED_UNTIL = gauge(DRIVER, "released_until_timestamp", "seconds", internal=True, help="When it ended; absent while it lasts.")
RELEASED_BEFORE_SINCE = gauge(
    DRIVER, "released_before_since_timestamp", "seconds", internal=True, help="When the release just before that one began."
)
RELEASED_BEFORE_UNTIL = gauge(
    DRIVER, "released_before_until_timestamp", "seconds", internal=True, help="When the release just before that one ended."
)
DRIVER_LIBRARY_CHANGED = gauge(
    DRIVER_LIBRARY,
    "changed",
    keep=Keep.LAST,
    help="1 while the NVML library on disk is of another version than the loaded kernel module: the next CUDA program will fail.",
)
NEXT_BOOT_DRIVER_MISSING = gauge(
    NEXT_BOOT,
    "driver_missing",
    keep=Keep.LAST,
    help="1 where the kernel that boots next has no nvidia module: a reboot would lose all GPUs.",
)

# Presence
VISIBLE = members(GPUS, "visible", keep=Keep.LAST, source=("nvml", "pci"), help="GPUs that this source sees now.")
DCGM_UP = gauge(DCGM, "up", keep=Keep.LAST, help="1 while DCGM gives what it is asked for.")
DCGM_GPUS = members(
    DCGM,
    "gpus",
    keep=Keep.LAST,
    state=("seen", "missing"),
    help="GPUs of which DCGM gives numbers; missing are those it gave numbers of before, and gaps in its numbering.",
)

# Utilisation
UTILIZATION = gauge(GPU, "utilization", "ratio", short="UTIL", help="Share of time in which at least one kernel ran.")
MEMORY_ACTIVITY = gauge(
    GPU, "memory_activity", "ratio", short="MEMACT", help="Share of time in which memory was read or written."
)
ENGINE_UTILIZATION = members(
    GPU,
    "engine_utilization",
    "ratio",
    engine=("encoder", "decoder", "jpeg", "ofa"),
    help="Share of time in which this engine was busy.",
)

# Real load: GPM (Hopper and later) or DCGM's profiling fields (Volta and later)
GRAPHICS_ACTIVE = gauge(GPU, "graphics_active", "ratio", help="Share of time in which the graphics or compute engines were busy.")
SM_ACTIVE = gauge(
    GPU, "sm_active", "ratio", short="SMACT", help="Share of time in which an SM had at least one warp, averaged over all SMs."
)
SM_OCCUPANCY = gauge(GPU, "sm_occupancy", "ratio", short="SMOCC", help="Resident warps as a share of those that fit.")
DRAM_ACTIVE = gauge(
    GPU, "dram_active", "ratio", short="DRAM", help="Share of cycles in which the memory interface sent or received."
)
PIPE_ACTIVE = members(
    GPU,
    "pipe_active",
    "ratio",
    pipe=("tensor", "fp64", "fp32", "fp16", "int"),
    help="Share of cycles in which this pipe was busy.",
)

# Memory
MEMORY_SIZE = gauge(GPU, "memory_size", "bytes", keep=Keep.LAST, short="MEMSIZE", help="Size of the GPU's memory.")
MEMORY_USED = gauge(
    GPU,
    "memory_used",
    "bytes",
    short="MEM",
    help="Memory in use; without the reserved part where the driver tells it apart (R510 and later).",
)
MEMORY_FREE = gauge(GPU, "memory_free", "bytes", help="Memory free to allocate.")
MEMORY_RESERVED = gauge(GPU, "memory_reserved", "bytes", keep=Keep.LAST, help="Memory the driver keeps for itself.")
MEMORY_UNIFIED = gauge(
    GPU, "memory_unified", keep=Keep.LAST, help="1 where the GPU shares the host's memory and has none of its own."
)
BAR1_SIZE = gauge(GPU, "bar1_size", "bytes", keep=Keep.LAST, help="Size of the window through which the CPU sees GPU memory.")
BAR1_USED = gauge(GPU, "bar1_used", "bytes", keep=Keep.LAST, help="Used part of that window.")

# Temperature and fans
TEMPERATURE = members(
    GPU,
    "temperature",
    "celsius",
    keep=Keep.MAX,
    short="TEMP",
    sensor=("core", "memory"),
    help="Temperature, as the driver reports it.",
)
TEMPERATURE_LIMIT = members(
    GPU,
    "temperature_limit",
    "celsius",
    keep=Keep.LAST,
    limit=("slowdown", "shutdown", "gpu_max", "mem_max", "acoustic"),
    help="Absolute limits of this card; many cards from Ada on give offsets instead.",
)
TEMPERATURE_MARGIN = gauge(
    GPU,
    "temperature_margin",
    "celsius",
    short="MARGIN",
    help="Degrees left to the maximum operating temperature, as the driver counts them; below 0 past it.",
)
TEMPERATURE_TLIMIT_OFFSET = members(
    GPU,
    "temperature_tlimit_offset",
    "celsius",
    keep=Keep.LAST,
    limit=("shutdown", "slowdown", "mem_max", "gpu_max"),
    help="Margin at which this limit acts (Ada and later).",
)
FAN_SPEED = gauge(FAN, "speed", "ratio", short="FAN", help="Commanded fan speed, not measured; may exceed 1.")
FAN_RPM = gauge(FAN, "speed", "rpm", help="Fan speed in turns a minute.")

# Power and energy
POWER = gauge(GPU, "power", "watts", short="POWER", help="Power drawn, instantaneous where the driver gives it.")
POWER_AVERAGE = gauge(GPU, "power_average", "watts", help="Power drawn, averaged by the driver over a second.")
POWER_LIMIT = members(
    GPU,
    "power_limit",
    "watts",
    keep=Keep.LAST,
    limit=("enforced", "requested", "default", "min", "max"),
    help="Power limits; enforced is the one in force, with out-of-band limits.",
)
ENERGY = counter(GPU, "energy", "joules", short="ENERGY", help="Energy used since the driver was loaded.")

# Clocks
CLOCK_DOMAINS = ("graphics", "sm", "memory", "video")
CLOCK = members(GPU, "clock", "hertz", short="CLOCK", domain=CLOCK_DOMAINS, help="Present clock.")
CLOCK_MAX = members(GPU, "clock_max", "hertz", keep=Keep.LAST, domain=CLOCK_DOMAINS, help="Highest clock of this card.")
CLOCK_EVENT = members(
    GPU,
    "clock_event_active",
    reason=(
        "gpu_idle",
        "applications_clocks",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal",
        "hw_thermal",
        "hw_power_brake",
        "display",
        "board_limit",
        "reliability",
    ),
    help="1 while this reason holds the clocks down; only reasons that the card supports.",
)
CLOCK_EVENT_SECONDS = members(
    GPU,
    "clock_event",
    "seconds",
    kind=Kind.COUNTER,
    reason=(
        "sw_power_cap",
        "sync_boost",
        "sw_thermal",
        "hw_thermal",
        "hw_power_brake",
        "board_limit",
        "low_utilization",
        "reliability",
    ),
    help="Time for which this reason held the clocks down.",
)
CLOCK_EVENT_THERMAL_SECONDS = counter(
    GPU, "clock_event_thermal", "seconds", help="Time for which heat held the clocks down, in software or hardware (all drivers)."
)

# PCIe
PCIE_GENERATION = gauge(GPU, "pcie_link_generation", keep=Keep.MAX, help="Present PCIe generation; an idle GPU goes down to 1.")
PCIE_GENERATION_MAX = gauge(GPU, "pcie_link_generation_max", keep=Keep.LAST, help="Highest generation of GPU and slot together.")
PCIE_WIDTH = gauge(GPU, "pcie_link_width", "lanes", keep=Keep.MAX, help="Present PCIe width.")
PCIE_WIDTH_MAX = gauge(GPU, "pcie_link_width_max", "lanes", keep=Keep.LAST, help="Widest link of GPU and slot together.")
PCIE_TRANSMIT_RAW = gauge(GPU, "pcie_transmit_raw", "bytes", internal=True, help="Byte counter as the driver gives it, may wrap.")
PCIE_RECEIVE_RAW = gauge(GPU, "pcie_receive_raw", "bytes", internal=True, help="Byte counter as the driver gives it, may wrap.")
PCIE_TRANSMIT = counter(GPU, "pcie_transmit", "bytes", help="Bytes sent by the GPU over PCIe; only where no wrap can hide any.")
PCIE_RECEIVE = counter(GPU, "pcie_receive", "bytes", help="Bytes received by the GPU over PCIe; only where no wrap can hide any.")
PCIE_THROUGHPUT = members(
    GPU,
    "pcie_throughput",
    "bytes_per_second",
    short="PCIE",
    direction=("transmit", "receive"),
    help="PCIe throughput, where byte counters cannot be trusted: 20 ms sampled every 10 s while busy, or a mean by DCGM.",
)
PCIE_TRANSMIT_MEAN = gauge(
    GPU, "pcie_transmit_mean", "bytes_per_second", internal=True, help="Mean since the last reading: all bytes are in it."
)
PCIE_RECEIVE_MEAN = gauge(
    GPU, "pcie_receive_mean", "bytes_per_second", internal=True, help="Mean since the last reading: all bytes are in it."
)
PCIE_REPLAYS = counter(GPU, "pcie_replays", help="PCIe packets sent again; judge the rate, not the value.")
PCIE_REPLAY_ROLLOVERS = counter(GPU, "pcie_replay_rollovers", help="Times the replay counter rolled over.")
PCIE_ERRORS = members(
    GPU,
    "pcie_errors",
    kind=Kind.COUNTER,
    type=(
        "correctable",
        "nak_received",
        "receiver",
        "bad_tlp",
        "nak_sent",
        "bad_dllp",
        "non_fatal",
        "fatal",
        "unsupported_request",
        "lcrc",
        "recovery",
    ),
    help="PCIe errors that the GPU counted.",
)

# NVLink
NVLINK_THROUGHPUT = members(
    GPU,
    "nvlink_throughput",
    "bytes_per_second",
    direction=("transmit", "receive"),
    help="NVLink throughput of all links together, with headers, as GPM or DCGM gives it.",
)

# Modes
PERFORMANCE_STATE = gauge(GPU, "performance_state", keep=Keep.LAST, short="PSTATE", help="0 (fastest) to 15.")
PERSISTENCE_MODE = gauge(GPU, "persistence_mode", keep=Keep.LAST, help="1 while the driver stays loaded without clients.")
COMPUTE_MODE = states(
    GPU,
    "compute_mode",
    "mode",
    ("default", "exclusive_thread", "prohibited", "exclusive_process"),
    help="Who may open a compute context.",
)
RECOVERY_ACTION = states(
    GPU,
    "recovery_action",
    "action",
    (
        "none",
        "gpu_reset",
        "node_reboot",
        "drain_p2p",
        "drain_and_reset",
        "recover_imex",
        "bus_reset",
        "system_reboot",
        "unknown",
    ),
    help="What the driver says has to be done before this GPU is well again.",
)

# Memory errors
ECC_MODE = members(GPU, "ecc_mode", keep=Keep.LAST, which=("current", "pending"), help="1 while ECC is on, now or after a reset.")
ECC_ERRORS = members(
    GPU,
    "ecc_errors",
    kind=Kind.COUNTER,
    type=("corrected", "uncorrected"),
    lifetime=("volatile", "aggregate"),
    help="ECC errors since the driver was loaded (volatile) or ever (aggregate).",
)
REMAPPED_ROWS = members(
    GPU,
    "remapped_rows",
    kind=Kind.COUNTER,
    cause=("correctable", "uncorrectable"),
    help="Memory rows replaced by spare ones (Ampere and later).",
)
ROW_REMAP_PENDING = gauge(GPU, "row_remap_pending", keep=Keep.LAST, help="1 while a row waits for a reset to be replaced.")
ROW_REMAP_FAILURE = gauge(
    GPU, "row_remap_failure", keep=Keep.LAST, help="1 once a row could not be replaced: the card is for return."
)
RETIRED_PAGES = members(
    GPU,
    "retired_pages",
    kind=Kind.COUNTER,
    cause=("single_bit", "double_bit"),
    help="Memory pages taken out of use (Turing and older).",
)
PAGE_RETIREMENT_PENDING = gauge(
    GPU, "page_retirement_pending", keep=Keep.LAST, help="1 while a page waits for a reset to be taken out of use."
)
