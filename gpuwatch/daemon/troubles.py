"""What is wrong with single things, one line each, in words for people. Pure, over the view.

Not wrong is what somebody wants (a release, a GPU given to a virtual machine or taken out), a disk without SMART, what has not
been read yet, and what is waited for. What is wrong with the driver is said once, and not of each GPU.
"""

from collections.abc import Iterator

from gpuwatch.catalogue import derived, disk, gpu, host
from gpuwatch.daemon.cards import cards, state
from gpuwatch.detectors.inventory import RETIRED
from gpuwatch.model.reading import Fault
from gpuwatch.model.view import Entry, View

NAMED = 4  # disks that are named where they share a trouble
SILENT = {  # of a GPU that gives no readings, where neither its source nor the bus has words for it
    "lost": "it is lost",
    "missing": "it is missing: the driver lists fewer GPUs than this host should have",
    "reset_required": "it must be reset before it works again",
    "hung": "calls to it do not return",
    "no_permission": "no permission to open it",
    "late": "it has not answered for a while, or not yet",
}


def of_things(view: View) -> list[str]:
    """Return what is wrong with the driver, GPUs, disks, file systems and RAID arrays."""
    is_released = driver_state(view) == "released"
    of_these = [] if is_released else [*of_driver(view), *of_gpus(view), *of_dcgm(view)]
    return [*of_these, *of_disks(view), *of_filesystems(view), *of_arrays(view)]


def expects_gpus(view: View) -> bool:
    """Whether this host has NVIDIA GPUs, by its inventory, its PCI bus or its driver. A host without any is well without."""
    for entry in view.of(gpu.GPUS):
        if any(entry.values.get(metric, 0) > 0 for metric in (derived.EXPECTED, *gpu.VISIBLE.values())):
            return True
    return driver_state(view) not in {"no_library", "not_loaded", "ok", ""}


def driver_state(view: View) -> str:
    """Return the state of the driver, "" where it is not known."""
    return next((state(entry, gpu.DRIVER_STATE) for entry in view.of(gpu.DRIVER)), "")


def wrong(entry: Entry) -> Fault | None:
    """Return what is wrong with a thing as a whole, but for what is waited for."""
    return entry.fault if entry.fault and not entry.fault.waits else None


def of_driver(view: View) -> Iterator[str]:
    """Yield what is wrong with the driver: in the words of the reason that it is as long as nothing can be told of the GPUs."""
    if expects_gpus(view):
        yield from (f"driver {fault.kind}: {fault.words}" for entry in view.of(gpu.DRIVER) if (fault := wrong(entry)))


def of_gpus(view: View) -> Iterator[str]:
    """Yield what is wrong with each GPU; what the bus says of one only where that is not the same trouble."""
    bus = {entry.target.key: fault for entry in view.of(host.PCI) if (fault := wrong(entry))}
    whole = {place(entry) for entry in cards(view) if entry.target.key != place(entry)}  # those that are known by UUID
    nameless: dict[str, Fault] = {}  # of a GPU that cannot be opened, and so goes by its address
    for entry in view.of(gpu.GPU):
        if entry.target.key in whole and (fault := wrong(entry)):
            nameless[entry.target.key] = fault
    for entry in view.of(gpu.GPU):
        why, at = state(entry, derived.DOWN_REASON), place(entry)
        if entry.target.key in whole or is_retired(entry):
            continue
        if why == "released":
            bus.pop(at, None)
        elif why != "driver" and (words := of_gpu(entry, why, nameless.get(at) or bus.get(at))):
            if entry.values.get(derived.UP) == 0:
                bus.pop(at, None)
            yield f"{' '.join(dict.fromkeys(('GPU', entry.target.labels.get('gpu', '?'), entry.target.key)))}: {words}"
    yield from (f"PCI device {address}: {fault.words}" for address, fault in bus.items())


def of_gpu(entry: Entry, why: str, other: Fault | None) -> str:
    """Return what is wrong with a GPU, "" where it is well; `other` is what else is known of the card at its address."""
    if fault := wrong(entry):
        return fault.words
    if entry.values.get(derived.UP) != 0:
        return ""
    return other.words if other else SILENT.get(why, "it gives no readings")


def place(entry: Entry) -> str:
    """Return the PCI address of a GPU, "" where it is not known."""
    return entry.target.info.get("pci_bus_id", "") or (entry.target.key if ":" in entry.target.key else "")


def is_retired(entry: Entry) -> bool:
    """Whether a GPU is no more part of this host."""
    return any(reading.fault is not None and reading.fault.kind == RETIRED for reading in entry.readings)


def of_dcgm(view: View) -> Iterator[str]:
    """Yield what is wrong with DCGM where it answers; one that is down is the trouble of its collector."""
    for entry in view.of(gpu.DCGM):
        if entry.values.get(gpu.DCGM_UP) != 0 and (fault := wrong(entry)):
            yield f"DCGM: {fault.words}"


def of_disks(view: View) -> Iterator[str]:
    """Yield what is wrong with disks; several with one trouble, as that there is no smartctl, have one line."""
    found: dict[str, list[str]] = {}
    for entry in view.of(disk.DISK):
        if words := of_disk(entry):
            found.setdefault(words, []).append(entry.target.labels.get("device", "?"))
    for words, names in found.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"disk{'s' if len(names) > 1 else ''} {', '.join(names[:NAMED])}{more}: {words}"


def of_disk(entry: Entry) -> str:
    """Return why a disk could not be read, or what SMART says against it; "" where there is nothing."""
    if fault := wrong(entry):
        return fault.words
    reasons = (reading.target.info.get("reason", "") for reading in entry.readings if reading.source == "smart")
    reason = next(filter(None, reasons), "")
    verdict = state(entry, disk.VERDICT)
    if verdict == "fail":
        return f"it is failing{f': {reason}' if reason else ''}"
    return reason or "it needs a look" if verdict == "warn" else ""


def of_filesystems(view: View) -> Iterator[str]:
    """Yield the file systems that answer with an error or not at all."""
    yield from (f"file system {entry.target.key}: {fault.words}" for entry in view.of(disk.FILESYSTEM) if (fault := wrong(entry)))


def of_arrays(view: View) -> Iterator[str]:
    """Yield the RAID arrays that are not active or lack disks."""
    for entry in view.of(disk.MD):
        missing = entry.values.get(disk.MD_DEGRADED, 0.0)
        if fault := wrong(entry):
            yield f"RAID array {entry.target.key}: {fault.words}"
        elif missing > 0:
            yield f"RAID array {entry.target.key}: it lacks {missing:.0f} disk{'' if missing == 1 else 's'}"
