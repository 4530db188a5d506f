"""The numbers of the host: CPU, memory, pressure, network, sensors, PCI."""

from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members

HOST = Subject("host", info=("name", "machine", "kernel", "os", "labels"), help="This host; `labels` are those of `[host]`.")
NETWORK = Subject("network", ("interface",))
INFINIBAND = Subject("infiniband", ("device", "port"))
SERVICES = Subject("services", prefix="gpuwatch")
HWMON = Subject("hwmon", ("chip", "sensor"))
PCI = Subject("pci", ("pci_bus_id",), info=("vendor_id", "device_id", "driver"), help="A GPU as the PCI bus sees it.")

CPU_SECONDS = members(
    HOST,
    "cpu",
    "seconds",
    kind=Kind.COUNTER,
    mode=("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    help="CPU time of all cores by mode.",
)
CPU_CORES = gauge(HOST, "cpu_cores", keep=Keep.LAST, help="Logical cores that are online.")
LOAD1 = gauge(HOST, "load1", help="Load average over 1 minute.")
LOAD5 = gauge(HOST, "load5", help="Load average over 5 minutes.")
LOAD15 = gauge(HOST, "load15", help="Load average over 15 minutes.")
RESOURCES = ("cpu", "io", "memory")
PRESSURE_WAITING = members(
    HOST,
    "pressure_waiting",
    "seconds",
    kind=Kind.COUNTER,
    resource=RESOURCES,
    help="Time in which some task waited for this (PSI some).",
)
PRESSURE_STALLED = members(
    HOST,
    "pressure_stalled",
    "seconds",
    kind=Kind.COUNTER,
    resource=RESOURCES[1:],  # for the CPU of a whole host it means nothing (Documentation/accounting/psi.rst)
    help="Time in which all tasks waited for this at once (PSI full).",
)
MEMORY_SIZE = gauge(HOST, "memory_size", "bytes", keep=Keep.LAST, help="Size of the host's memory.")
MEMORY_AVAILABLE = gauge(HOST, "memory_available", "bytes", help="Memory that programs can still get without swapping.")
SWAP_SIZE = gauge(HOST, "swap_size", "bytes", keep=Keep.LAST, help="Size of swap space.")
SWAP_USED = gauge(HOST, "swap_used", "bytes", help="Used swap space.")
CPU_THROTTLES = members(
    HOST, "cpu_throttles", kind=Kind.COUNTER, scope=("core", "package"), help="Times the CPU slowed itself down for heat."
)
MEMORY_ERRORS = members(
    HOST, "memory_errors", kind=Kind.COUNTER, type=("corrected", "uncorrected"), help="Errors of the host's memory (EDAC)."
)
BOOT_TIME = gauge(HOST, "boot_timestamp", "seconds", keep=Keep.LAST, help="When this host was booted.")

DIRECTIONS = ("receive", "transmit")
NETWORK_BYTES = members(NETWORK, "bytes", kind=Kind.COUNTER, direction=DIRECTIONS, help="Bytes over this interface.")
NETWORK_ERRORS = members(NETWORK, "errors", kind=Kind.COUNTER, direction=DIRECTIONS, help="Packets with errors.")
NETWORK_DROPS = members(NETWORK, "drops", kind=Kind.COUNTER, direction=DIRECTIONS, help="Packets dropped.")
NETWORK_CARRIER_CHANGES = counter(NETWORK, "carrier_changes", help="Times the link went up or down.")
NETWORK_UP = gauge(NETWORK, "up", keep=Keep.LAST, help="1 while the link is up.")
NETWORK_SPEED = gauge(NETWORK, "speed", "bytes_per_second", keep=Keep.LAST, help="Speed of the link.")

INFINIBAND_UP = gauge(INFINIBAND, "port_up", keep=Keep.LAST, help="1 while this port of an InfiniBand or RoCE adapter is active.")
INFINIBAND_RATE = gauge(
    INFINIBAND, "port_rate", "bytes_per_second", keep=Keep.LAST, help="Speed of the link while it is up: lanes times signal rate."
)
INFINIBAND_BYTES = members(
    INFINIBAND,
    "bytes",
    kind=Kind.COUNTER,
    direction=DIRECTIONS,
    help="Bytes over this port, with RDMA, which no interface counts.",
)
INFINIBAND_ERRORS = members(
    INFINIBAND,
    "errors",
    kind=Kind.COUNTER,
    type=("symbol", "link_recovery", "link_downed", "rcv", "local_link_integrity", "buffer_overrun"),
    help="Errors that the port counted; many adapters stop at the largest value that their counter can hold.",
)

FABRIC_MANAGER_UP = gauge(
    SERVICES, "fabric_manager_up", keep=Keep.LAST, help="1 while NVIDIA's fabric manager runs; absent where it is not installed."
)
PERSISTENCED_UP = gauge(
    SERVICES,
    "persistenced_up",
    keep=Keep.LAST,
    help="1 while NVIDIA's persistence daemon runs; absent where it is not installed.",
)

HWMON_TEMPERATURE = gauge(HWMON, "temperature", "celsius", keep=Keep.MAX, help="Temperature of a board, CPU or drive sensor.")
HWMON_FAN = gauge(HWMON, "fan", "rpm", help="Fan speed in turns a minute.")

AER_ERRORS = members(
    PCI,
    "aer_errors",
    kind=Kind.COUNTER,
    severity=("correctable", "nonfatal", "fatal"),
    help="PCIe errors that the kernel counted for this device; known even while NVML is dead.",
)
PCI_RESPONDING = gauge(PCI, "responding", keep=Keep.LAST, help="1 while the device answers on the bus; 0 reads as all ones.")
PCI_GENERATION = gauge(PCI, "link_generation", keep=Keep.MAX, help="Present PCIe generation, from sysfs.")
PCI_GENERATION_MAX = gauge(PCI, "link_generation_max", keep=Keep.LAST, help="Highest PCIe generation of the device, from sysfs.")
PCI_WIDTH = gauge(PCI, "link_width", "lanes", keep=Keep.MAX, help="Present PCIe width, from sysfs.")
PCI_WIDTH_MAX = gauge(PCI, "link_width_max", "lanes", keep=Keep.LAST, help="Widest link of the device, from sysfs.")
