"""What one event is beside others: its name in a story, its rank among causes, where it belongs, what to do about it. Pure.

The order of causes is that of failure-modes.md 2.7: 79 > 119/120/62 > 48/95/140 > 64 > 74/149 fatal > 94/63 > 31/13/43 > 45;
codes that it does not name stand with those that mean as much.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.xids import NVLINK5, RECOVERY_CHANGED, xid
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event

LOST, STUCK, BROKEN, UNREPAIRED, LINK, GRAVE, CONTAINED, OTHER, PROGRAM, ASIDE = range(10)
RANKS: Mapping[int | None, int] = MappingProxyType(
    {
        79: LOST,
        **dict.fromkeys((119, 120, 62), STUCK),
        **dict.fromkeys((48, 95, 140, 171, 172), BROKEN),  # 171 and 172 say which memory a 48 was in
        64: UNREPAIRED,
        74: LINK,
        **dict.fromkeys((94, 63), CONTAINED),
        **dict.fromkeys((13, 31, 32, 43, 68, 69), PROGRAM),
        **dict.fromkeys((45, 154), ASIDE),
    }
)
RECOVERY_KINDS = frozenset({"recovery_action"})  # what NVML tells by its own event, the kernel log tells as Xid 154
RECOVERIES: Mapping[str, str] = MappingProxyType(
    {
        "1": "GPU reset",
        "2": "reboot",
        "3": "drain its peers",
        "4": "drain and reset",
        "5": "recover the IMEX domain",
        "6": "bus reset",
        "7": "system reboot",
    }
)
KIND_RANKS: Mapping[str, int] = MappingProxyType({"off_bus": LOST, "unavailable": LOST, "gsp": STUCK, "nvme_disabled": BROKEN})
# They are counted or listed, and are no trouble of any thing.
SILENT = frozenset({"log_lost", "events_lost", "mig_changed", "released", "resumed", "driver_changed", "not_resumed"})
STORAGE = frozenset({"nvme_timeout", "nvme_disabled", "io_error", "raid_failure", "fs_readonly", "fs_error"})
ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "off_bus": "drain; power cycle the host, a warm reboot is often not enough; then reseat the card and its power cables",
        "unavailable": "drain; reset the GPU, or reboot",
        "gsp": "leave it alone until it is reset; reboot if NVML hangs",
        "ecc": "drain; reset the GPU",
        "bar_unassigned": "switch on Above 4G Decoding (and Resizable BAR) in the BIOS",
        "aer_corrected": "reseat the card, clean its contacts; look at riser and cable; switch ASPM off for this port",
        "aer_nonfatal": "reseat the card; look at riser and cable",
        "aer_fatal": "drain; power cycle the host; reseat the card, look at riser and cable",
        "api_mismatch": "reboot, or reload the NVIDIA modules; then hold their packages",
        "nouveau": "blacklist nouveau (or nova_core) and install NVIDIA's driver, if this host is meant for CUDA",
        "oom_kill": "fewer or smaller processes, or a higher limit",
        "oom_suspected": "a smaller batch or model; see what else was on the GPU",
        "access_lost": "restart the container; give its GPUs by CDI, or keep systemd from writing its device rules anew",
        "soft_lockup": "look what the CPU was stuck in; again: update kernel and driver, or reboot",
        "hung_task": "look what it waits for; a hung driver needs a reboot",
        "kernel_oops": "save the log, reboot at a quiet moment; then update the kernel, or the module that is named",
        "segfault": "a fault of the program or its library, not of the GPU; again after an upgrade: do the versions fit?",
        "file_limit": "raise fs.file-max or the limit of the service, or find the program that leaves files open",
        "mce": "run the vendor's memory and CPU test; uncorrected ones: drain the host",
        "cpu_throttle": "look at CPU cooling, fans and room: a slow CPU starves the GPUs",
        "overheated": "let it cool down; look at fans, air path and room before it works again",
        "crash": "read what the kernel left (pstore, kdump); again: power supply, memory, driver, in this order",
        "nvme_timeout": "look at its SMART data and temperature; reseat it; again: replace it",
        "nvme_disabled": "replace the disk; its data are out of reach",
        "io_error": "look at the SMART data of this disk and its cable; save its data",
        "raid_failure": "replace the member that failed (/proc/mdstat, mdadm --detail, zpool status) before another one does",
        "fs_readonly": "check disk and file system before it is mounted again",
        "fs_error": "save its data, then check it unmounted (fsck, xfs_repair, btrfs scrub); look at its disk",
        "nfs_timeout": "look at the server and the network to it; jobs that use it wait",
        "not_resumed": "see what the driver says (dmesg), load it, then: gpuwatch resume",
    }
)
# An SXid by the word in its line: 20009 and 28002 are the common ones of a bad link.
SWITCH: Mapping[str, str] = MappingProxyType(
    {
        "yes": "drain; reset all GPUs and switches together, or reboot; again: have the NVLink tray or cable replaced",
        "no": "the link goes on; again on the same link: reset all GPUs together, then have its tray or cable looked at",
    }
)
# no_driver by what the line says of why: what it is called, and what to do.
NO_DRIVER: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "held": ("Another driver holds the GPUs", "unload the driver that holds the GPUs, load nvidia"),
        "missing": (
            "This kernel has no nvidia module",
            "install the headers of the running kernel and have DKMS build the module, or install the driver's package for it",
        ),
        "other_kernel": (
            "The nvidia module is built for another kernel",
            "have DKMS build the module for the running kernel (dkms autoinstall), or boot the kernel that it is for",
        ),
        "unsupported": (
            "This driver does not support the GPU",
            "install a driver that supports this GPU: the line says which branch, or that it takes the open kernel modules",
        ),
    }
)
NO_PATH = "look at the disk, its cable and what it hangs on (nvme list-subsys); again: replace it"
UNTOLD = "see why the module does not load: dmesg, modprobe nvidia, dkms status"


def is_path(event: Event) -> bool:
    """Say whether it tells of the paths to a disk, and of no array."""
    return event.kind == "raid_failure" and "path" in event.facts


def is_recovery(event: Event) -> bool:
    """Say whether it tells what the driver wants done to the GPU."""
    return event.kind in RECOVERY_KINDS or (event.kind == "xid" and event.code == RECOVERY_CHANGED)


def is_end(event: Event) -> bool:
    """Say whether it tells that the driver wants nothing done any more."""
    return is_recovery(event) and event.facts.get("recovery") == "0"


def label(event: Event) -> str:
    """Return what an event is called: equal labels of one thing are the same trouble."""
    if is_recovery(event):
        return f"Xid {RECOVERY_CHANGED}"
    if event.kind == "xid":
        return f"Xid {event.code}"
    if event.kind == "sxid":
        link = event.facts.get("link", "")
        return f"SXid {event.code}" + (f" link {link}" if link else "")
    return "no_path" if is_path(event) else event.kind


def title(event: Event) -> str:
    """Return what a cause is called to a person."""
    if event.kind == "xid" and event.code is not None:
        return f"{label(event)} {xid(event.code).name}"
    if event.kind == "no_driver" and (known := NO_DRIVER.get(event.facts.get("why", ""))):
        return known[0]
    if event.kind == "raid_failure" and event.key:  # the array, since a story may be that of the disk below it
        member = event.facts.get("member", "")
        what = f"RAID {event.key} lost {member}" if member else f"RAID {event.key} failed"
        return f"No path to {event.key} is left" if is_path(event) else what
    return label(event) if event.kind == "sxid" else KINDS[event.kind].help.rstrip(".")


def action(kind: str, code: int | None, facts: Mapping[str, str]) -> str:
    """Return what to do about a cause, by what its line says of it."""
    if kind == "no_driver":
        return NO_DRIVER.get(facts.get("why", ""), ("", UNTOLD))[1]
    if kind == "sxid":
        return SWITCH.get(facts.get("fatal", ""), SWITCH["no"])
    if kind == "raid_failure" and "path" in facts:
        return NO_PATH
    return xid(code).action if kind == "xid" and code is not None else ACTIONS.get(kind, "")


def rank(event: Event) -> int:
    """Return where an event stands among causes; the lower, the more of the others follow from it."""
    if is_recovery(event):
        return ASIDE
    code = event.code if event.kind == "xid" else None
    if code in RANKS:
        return RANKS[code]
    if code in NVLINK5:
        return LINK if event.severity is Severity.CRITICAL else OTHER
    if event.kind == "ecc":
        return BROKEN if event.severity is Severity.CRITICAL else CONTAINED
    if is_path(event):
        return OTHER  # what an array above it lost by that is graver
    grade = {Severity.CRITICAL: GRAVE, Severity.WARNING: OTHER, Severity.INFO: ASIDE}[event.severity]
    return KIND_RANKS.get(event.kind, grade)


def place(event: Event) -> tuple[str, str]:
    """Return the thing whose story an event belongs to: a subject and a key."""
    if event.kind == "hung_task":
        return ("driver", "hung") if event.facts.get("nvidia") else ("host", "hung_task")
    if event.kind == "oom_kill":
        return "host", f"oom_kill {event.facts.get('pid', '')}"  # each victim is a story of its own
    if event.kind in STORAGE:
        return "disk", disk(event.key)
    if event.kind == "gsp" and not event.key:
        return event.subject, f"number {event.facts.get('index', '?')} of the driver"  # which need not be NVML's index
    if event.subject in {"host", "driver"} or event.kind == "nouveau":
        return KINDS[event.kind].subject, event.kind
    return event.subject, event.key


def disk(name: str) -> str:
    """Return the disk that a block device is on, as far as its name says it: nvme4n1p2 is on nvme4."""
    if name.startswith("nvme"):
        return "nvme" + name.removeprefix("nvme").partition("n")[0].partition("c")[0]
    return name.rstrip("0123456789") if name.startswith(("sd", "vd", "hd")) else name
