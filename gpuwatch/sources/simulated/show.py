"""The simulated world as Readings, under the names of the sources that would read it on a real host."""

from collections.abc import Iterator, Mapping

from gpuwatch.catalogue import disk as disks
from gpuwatch.catalogue import gpu, host
from gpuwatch.catalogue.process import GPU_PROCESSES
from gpuwatch.catalogue.xids import xid
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.simulated.machine import DISK_SIZE, HOST_MEMORY, SimulatedDisk, SimulatedHost
from gpuwatch.sources.simulated.physics import Card

DRIVER = Target(
    subject=gpu.DRIVER,
    key="",
    info={
        "driver_version": "535.154.05",
        "module_version": "535.154.05",
        "nvml_version": "12.535.154.05",
        "cuda_version": "12.2",
    },
)
LOST = Fault("lost", "GPU is lost: it fell off the bus (simulated)", 15)
OFF_BUS = 79  # the Xid
HUNG = Fault("hung", "calls to this GPU do not return (simulated)")


def gpu_target(card: Card, label: str = "") -> Target:
    """Return the target of a simulated GPU; its UUID says that it is simulated."""
    uuid = f"GPU-51311111-0000-4000-8000-{card.index:012d}"
    info = {
        "name": card.model.name,
        "architecture": card.model.architecture,
        "compute_capability": card.model.compute_capability,
        "serial": f"SIM{card.index:010d}" if card.model.ecc else "",
        "vbios_version": "94.02.5C.00.04",
        "pci_bus_id": address(card.index),
        "minor": str(card.index),
        "label": label,
    }
    return Target(
        subject=gpu.GPU, key=uuid, labels={"gpu": str(card.index), "uuid": uuid}, info={k: v for k, v in info.items() if v}
    )


def address(index: int) -> str:
    """Return the PCI address of a simulated GPU."""
    domain, bus = divmod(0x17 + 8 * index, 256)
    return f"{domain:04x}:{bus:02x}:00.0"


def of_gpu(card: Card, tier: Tier) -> Mapping[Metric, float]:
    """Return what NVML would say of this card at this tier."""
    model = card.model
    if tier is Tier.FAST:
        return {
            gpu.UTILIZATION: round(card.utilization, 2),
            gpu.MEMORY_ACTIVITY: round(card.utilization * 0.55, 2),
            gpu.MEMORY_USED: card.memory_used,
            gpu.MEMORY_FREE: model.memory_size - model.memory_reserved - card.memory_used,
            gpu.MEMORY_RESERVED: model.memory_reserved,
            gpu.TEMPERATURE["core"]: round(card.temperature),
            gpu.POWER: round(card.power, 1),
            gpu.CLOCK["sm"]: card.clock,
            gpu.CLOCK["graphics"]: card.clock,
            gpu.CLOCK["memory"]: model.memory_clock if card.utilization > 0.01 else 405e6,
            gpu.CLOCK_EVENT["gpu_idle"]: float(card.utilization < 0.01),
            gpu.CLOCK_EVENT["sw_power_cap"]: float(card.capped),
            gpu.CLOCK_EVENT["sw_thermal"]: float(card.hot),
            gpu.CLOCK_EVENT["hw_thermal"]: float(card.temperature >= model.slowdown),
        }
    if tier is Tier.NORMAL:
        values = {
            gpu.PERFORMANCE_STATE: 0.0 if card.utilization > 0.01 else 8.0,
            gpu.ENERGY: card.energy,
            gpu.CLOCK_EVENT_SECONDS["sw_power_cap"]: card.capped_seconds,
            gpu.CLOCK_EVENT_SECONDS["sw_thermal"]: card.hot_seconds,
            gpu.ENGINE_UTILIZATION["decoder"]: 0.0,
            **dict.fromkeys(GPU_PROCESSES.values(), 0.0),
            GPU_PROCESSES["compute"]: float(card.is_held),
        }
        if card.utilization > 0.01:
            values[gpu.PCIE_THROUGHPUT["receive"]] = 9e9 * card.utilization
            values[gpu.PCIE_THROUGHPUT["transmit"]] = 0.6e9 * card.utilization
        return values
    values = {
        gpu.MEMORY_SIZE: model.memory_size,
        gpu.TEMPERATURE_LIMIT["slowdown"]: model.slowdown,
        gpu.TEMPERATURE_LIMIT["shutdown"]: model.shutdown,
        gpu.TEMPERATURE_LIMIT["gpu_max"]: model.gpu_max,
        gpu.POWER_LIMIT["enforced"]: card.limit,
        gpu.POWER_LIMIT["requested"]: card.limit,
        gpu.POWER_LIMIT["default"]: model.power_limit,
        gpu.POWER_LIMIT["min"]: model.power_min,
        gpu.POWER_LIMIT["max"]: model.power_limit,
        gpu.CLOCK_MAX["sm"]: model.sm_clock,
        gpu.CLOCK_MAX["memory"]: model.memory_clock,
        gpu.PCIE_GENERATION: model.pcie_generation if card.utilization > 0.01 else 1.0,
        gpu.PCIE_GENERATION_MAX: model.pcie_generation,
        gpu.PCIE_WIDTH: 16.0,
        gpu.PCIE_WIDTH_MAX: 16.0,
        gpu.PCIE_REPLAYS: 0.0,
        gpu.PERSISTENCE_MODE: 1.0,
        **gpu.COMPUTE_MODE.at("default"),
    }
    if model.ecc:
        values |= {gpu.ECC_MODE["current"]: 1.0, gpu.ECC_MODE["pending"]: 1.0, **dict.fromkeys(gpu.ECC_ERRORS.values(), 0.0)}
    return values


def whole(values: Mapping[Metric, float]) -> Mapping[Metric, float]:
    """Return the values with whole bytes, as every real device counts them."""
    return {metric: float(round(value)) if metric.unit == "bytes" else value for metric, value in values.items()}


def gpu_reading(card: Card, target: Target, tier: Tier, at: float) -> Reading:
    """Return one look at one card: everything lost with a fault where it is off the bus or hangs."""
    values = whole(of_gpu(card, tier))
    if card.lost or card.hung:
        why = Absence.LOST if card.lost else Absence.LATE
        fault = LOST if card.lost else HUNG
        return Reading(
            source="nvml", tier=tier, target=target, at=at, took=0.0, values={}, absent=dict.fromkeys(values, why), fault=fault
        )
    return Reading(source="nvml", tier=tier, target=target, at=at, took=0.0, values=values)


def fall(card: Card, at: float) -> Event:
    """Return what the driver writes to the kernel log when a card falls off the bus."""
    place = address(card.index)
    words = f"NVRM: Xid (PCI:{place.removesuffix('.0')}): {OFF_BUS}, GPU has fallen off the bus."
    severity = xid(OFF_BUS).severity
    return Event(source="kernel", kind="xid", severity=severity, at=at, words=words, subject="gpu", key=place, code=OFF_BUS)


def host_values(simulated: SimulatedHost, tier: Tier, booted: float) -> Mapping[Metric, float]:
    """Return what the host source would say."""
    if tier is Tier.SLOW:
        return {host.BOOT_TIME: booted, host.CPU_CORES: float(simulated.cores)}
    if tier is Tier.NORMAL:
        return {}
    values = {
        host.CPU_SECONDS["user"]: simulated.user,
        host.CPU_SECONDS["system"]: simulated.system,
        host.CPU_SECONDS["idle"]: simulated.idle,
        host.CPU_SECONDS["iowait"]: 0.0,
        host.LOAD1: simulated.load,
        host.PRESSURE_WAITING["cpu"]: simulated.waiting,
        host.MEMORY_SIZE: float(HOST_MEMORY),
        host.MEMORY_AVAILABLE: HOST_MEMORY - simulated.memory_used,
    }
    return whole(values)


def disk_target(drive: SimulatedDisk) -> Target:
    """Return the target of a simulated drive."""
    return Target(
        subject=disks.DISK,
        key=f"eui.5131{drive.index:012x}",
        labels={"device": f"nvme{drive.index}n1"},
        info={"model": "SIMULATED NVMe 3.84TB", "serial": f"SIMD{drive.index:08d}", "firmware": "1.0", "protocol": "nvme"},
    )


def disk_readings(drive: SimulatedDisk, tier: Tier, at: float) -> Iterator[Reading]:
    """Yield what /proc/diskstats, smartctl and statvfs would say of this drive."""
    target = disk_target(drive)
    if tier is Tier.FAST:
        values = {
            disks.DISK_IO["read"]: drive.read_bytes,
            disks.DISK_IO["write"]: drive.written_bytes,
            disks.DISK_IO_TIME: drive.busy,
        }
        yield Reading(source="host", tier=tier, target=target, at=at, took=0.0, values=whole(values))
    if tier is not Tier.SLOW:
        return
    verdict = "fail" if drive.spare < 0.1 else "warn" if drive.wear >= 1 else "ok"
    values = {
        disks.SMART_LAST_SUCCESS: at,
        disks.SMART_HEALTHY: float(verdict != "fail"),
        disks.TEMPERATURE: round(drive.temperature),
        disks.POWER_ON: 9000 * 3600.0,
        disks.WEAR_USED: int(drive.wear * 100) / 100,
        disks.SPARE_AVAILABLE: drive.spare,
        disks.SPARE_THRESHOLD: 0.1,
        disks.MEDIA_ERRORS: 0.0,
        disks.LIFETIME_BYTES["read"]: 4e14 + drive.read_bytes,
        disks.LIFETIME_BYTES["write"]: 1e14 + drive.written_bytes,
        **disks.VERDICT.at(verdict),
    }
    yield Reading(source="smart", tier=tier, target=target, at=at, took=0.0, values=whole(values))
    mount = "/" if drive.index == 0 else f"/data{drive.index}"
    values = {
        disks.FILESYSTEM_SIZE: DISK_SIZE,
        disks.FILESYSTEM_AVAILABLE: DISK_SIZE * (1 - drive.fill),
        disks.FILESYSTEM_READ_ONLY: 0.0,
        disks.FILESYSTEM_STUCK: 0.0,
        disks.FILESYSTEM_ERRORS: 0.0,
    }
    place = Target(subject=disks.FILESYSTEM, key=mount, labels={"mountpoint": mount, "fstype": "ext4"})
    yield Reading(source="filesystem", tier=tier, target=place, at=at, took=0.0, values=whole(values))


def pci_reading(card: Card, at: float) -> Reading:
    """Return what sysfs would say: a card off the bus reads as all ones."""
    target = Target(
        subject=host.PCI,
        key=address(card.index),
        labels={"pci_bus_id": address(card.index)},
        info={"vendor_id": "0x10de", "device_id": "0x2235", "driver": "nvidia"},
    )
    values = {
        host.PCI_RESPONDING: float(not card.lost),
        host.PCI_GENERATION_MAX: card.model.pcie_generation,
        host.PCI_WIDTH_MAX: 16.0,
    }
    return Reading(source="pci", tier=Tier.SLOW, target=target, at=at, took=0.0, values=values)
