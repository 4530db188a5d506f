"""The kinds of events: what can happen once. A new kind is one line here and one place in the source that tells of it."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.own import OWN
from gpuwatch.catalogue.xids import BEGIN_AT_0
from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members


class EventKind(msgspec.Struct, frozen=True):
    """One kind: `subject` is the thing that it is told of, by name; `counted` says that it has its series in KERNEL_EVENTS."""

    name: str
    subject: str
    help: str
    counted: bool = False


KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            EventKind("xid", "gpu", "An error code of the NVIDIA driver."),
            EventKind("sxid", "nvswitch", "An error code of an NVSwitch."),
            EventKind("off_bus", "gpu", "The driver says that the GPU has fallen off the bus, with or without an Xid."),
            EventKind("gsp", "gpu", "The GPU's system processor does not answer, told without an Xid.", counted=True),
            EventKind("recovery_action", "gpu", "What the driver wants done to the GPU has changed (Xid 154)."),
            EventKind("ecc", "gpu", "NVML tells of an ECC error."),
            EventKind("mig_changed", "gpu", "The MIG layout has changed."),
            EventKind("events_lost", "gpu", "More different events of a GPU came in a second than can be told apart."),
            EventKind("unavailable", "gpu", "NVML tells that the GPU is unavailable."),
            EventKind("oom_suspected", "gpu", "A process ended while its GPU's memory was full; no log tells of it."),
            EventKind("access_lost", "job", "The device rules of a container lack the GPUs that it uses."),
            EventKind("access_back", "job", "A container that lacked its GPUs has them again, or uses them no more."),
            EventKind("bar_unassigned", "gpu", "The BIOS or kernel found no room for the GPU's memory window.", counted=True),
            EventKind("api_mismatch", "driver", "NVIDIA's library and kernel module differ in version.", counted=True),
            EventKind(
                "no_driver", "driver", "The NVIDIA module finds GPUs that another driver holds, or is missing.", counted=True
            ),
            EventKind("released", "driver", "A release of the GPUs has begun."),
            EventKind("resumed", "driver", "The GPUs are read again after a release."),
            EventKind("driver_changed", "driver", "The GPUs are read again after a release, by another driver."),
            EventKind("not_resumed", "driver", "The GPUs are not read after a release: the driver is not back."),
            EventKind("nouveau", "driver", "The nouveau driver holds the GPUs.", counted=True),
            EventKind("aer_corrected", "pci", "A corrected PCIe error.", counted=True),
            EventKind("aer_nonfatal", "pci", "An uncorrected PCIe error that is not fatal.", counted=True),
            EventKind("aer_fatal", "pci", "A fatal PCIe error, or a recovery that failed.", counted=True),
            EventKind("oom_kill", "host", "The kernel killed a process for memory.", counted=True),
            EventKind("soft_lockup", "host", "A CPU was stuck in the kernel.", counted=True),
            EventKind("hung_task", "host", "A task has been blocked for minutes.", counted=True),
            EventKind("kernel_oops", "host", "A fault of the kernel itself.", counted=True),
            EventKind("segfault", "host", "A program of a GPU job crashed inside a library.", counted=True),
            EventKind("file_limit", "host", "The limit of open files is reached.", counted=True),
            EventKind("mce", "host", "A machine check.", counted=True),
            EventKind("cpu_throttle", "host", "The CPU slowed itself down for heat.", counted=True),
            EventKind("overheated", "host", "The host is too hot, and the kernel switches it off.", counted=True),
            EventKind("crash", "host", "The boot before this one ended in a crash.", counted=True),
            EventKind("nvme_timeout", "disk", "An NVMe disk did not answer in time, or was reset.", counted=True),
            EventKind("nvme_disabled", "disk", "An NVMe disk was given up.", counted=True),
            EventKind("io_error", "disk", "A read or write failed.", counted=True),
            EventKind("raid_failure", "disk", "A RAID lost a member or its last path.", counted=True),
            EventKind("fs_readonly", "filesystem", "A file system takes no more writes after an error.", counted=True),
            EventKind("fs_error", "filesystem", "A file system found an error in itself.", counted=True),
            EventKind("nfs_timeout", "filesystem", "A network file system does not answer.", counted=True),
            EventKind("log_lost", "host", "Kernel messages were lost before they could be read."),
        )
    }
)

XID = Subject("xid", ("gpu", "uuid", "xid", "severity"))
SXID = Subject("sxid", ("nvswitch", "sxid", "fatal"))
KERNEL = Subject("kernel", prefix="gpuwatch_kernel")
PORT = Subject("pcie_port", ("port",), help="A PCIe port above several GPUs, while an error of it is told.", brief=True)

XID_ERRORS = counter(
    XID,
    "errors",
    help="Times this GPU reported this Xid, from NVML and the kernel log together. Some critical codes begin at 0 on every GPU: "
    + ", ".join(map(str, BEGIN_AT_0))
    + ". All 32 would be 256 series on 8 GPUs for what hardly ever happens: the others begin with their first event, which"
    " increase() does not see and gpuwatch_gpu_errors_open does. `severity` is the code's own and never changes; events and"
    " alerts also go by what the line says (154: the action it asks for, 144 to 150: Fatal or Nonfatal).",
)
XID_LAST = gauge(XID, "last_timestamp", "seconds", keep=Keep.LAST, help="When it last did.")
SXID_ERRORS = counter(
    SXID,
    "errors",
    help="Times an NVSwitch reported this SXid. Switches and codes are not known before: a series begins with its first event.",
)
BUS_DROPS = counter(GPU, "bus_drops", help="Times this GPU fell off the bus: Xid 79, the words for it, or NVML's code 15.")
ERRORS_OPEN = members(
    GPU,
    "errors_open",
    keep=Keep.MAX,
    severity=("warning", "critical"),
    help="1 while something at least so grave that driver or kernel reported of this GPU is not over.",
)
PORT_ERRORS_OPEN = members(
    PORT,
    "errors_open",
    keep=Keep.MAX,
    severity=("warning", "critical"),
    help="1 while something at least so grave that the kernel reported of this port, or of the switch below it, is not over."
    " Errors on the path of one GPU alone are in gpuwatch_gpu_errors_open.",
)
KERNEL_EVENTS = members(
    KERNEL,
    "events",
    kind=Kind.COUNTER,
    event=tuple(kind.name for kind in KINDS.values() if kind.counted),
    help="Events that the kernel log told of; Xids, SXids, falls from the bus and lost messages have series of their own.",
)
KERNEL_LOG_LOST = counter(
    KERNEL,
    "log_lost",
    help="Kernel messages that were overwritten before they could be read, also while gpuwatch did not run.",
)
EVENTS_UNCOUNTED = counter(
    OWN,
    "events_uncounted",
    help="Events without a series of their own: too many different codes, or too many different ones at once.",
)
LOG_READ = gauge(KERNEL, "log_read", internal=True, help="Number of the last kernel message up to which everything is told.")
