"""What the kernel says of the PCIe bus: errors by AER and DPC, and memory windows (BARs) for which there was no room."""

import re

from gpuwatch.model.alert import Severity
from gpuwatch.sources.kernel.addresses import PCI, gpu_address, known
from gpuwatch.sources.kernel.record import Found, Known

RECEIVED = re.compile(rf"pcieport ({PCI}): AER: (?:Multiple )?(.*?) error (?:message )?received(?:(?: from|:) ({PCI}))?")
BUS_ERROR = re.compile(rf"^(\S+) ({PCI}): (?:AER: )?PCIe Bus Error: severity=([\w() -]+?)(?:,|$)", re.MULTILINE)
BIT = re.compile(rf"^\S+ {PCI}: +\[ ?\d+\] ([A-Za-z][\w ]*?)(?:  |\(|$)", re.MULTILINE)
FAILED = re.compile(rf"^\S+ ({PCI}): AER: (?:device recovery failed|can't recover)", re.MULTILINE)
CONTAINED = re.compile(rf"pcieport ({PCI}): DPC: containment event")

NVIDIA = re.compile(rf"pci ({PCI}): \[10de:[0-9a-f]{{4}}\] .*class 0x03")
# `BAR 1: no space for [mem size 0x1000000000 64bit pref]`; since Linux 6.8 `BAR 1 [mem size ...]: can't assign; no space`.
# The windows of a GPU are BAR 0 to 4, in memory. It works without its I/O ports, and before 6.8 the kernel calls the expansion
# ROM "BAR 6" and what virtual functions would need "BAR 7" to "BAR 12": on many a healthy host there is no room for these.
UNASSIGNED = re.compile(
    rf"^\S+ ({PCI}): BAR ([0-4])(?::| )(?=.*\[mem ).*(?:no space|failed to assign|can't assign)", re.MULTILINE
)
ASSIGNED = re.compile(rf"^\S+ ({PCI}): BAR (\d+)(?:: assigned \[| \[.*\]: assigned)", re.MULTILINE)
SIZE = re.compile(r"mem size 0x([0-9a-f]+)")
WINDOW = 1 << 28  # bytes; where the log no longer says what the device is: nothing else on a server asks for as much
REGION = re.compile(rf"NVRM: This PCI I/O region assigned .*BAR(\d) is .*\(PCI:({PCI})\)", re.DOTALL)
SWITCH = 'switch on "Above 4G Decoding" (and "Resizable BAR", "MMIO High Size" where there are such) in the BIOS'

KINDS = {
    "corrected": ("aer_corrected", Severity.INFO),
    "nonfatal": ("aer_nonfatal", Severity.WARNING),
    "fatal": ("aer_fatal", Severity.CRITICAL),
}


def find(text: str, learned: Known) -> list[Found]:
    """Return what this message says."""
    if "BAR" in text:
        region = REGION.match(text)
        if region is None:
            return without_room(text, learned)
        return [no_room(gpu_address(region[2]) or "", region[1], Severity.CRITICAL)]
    if device := NVIDIA.match(text):
        learned.finds(gpu_address(device[1]) or "")
        return []
    error = an_error(text)
    return [error] if error else []


def an_error(text: str) -> Found | None:
    """Read one error with its lines of detail. The port that told of it is the place, unless a device below it is named."""
    told, bus, contained = RECEIVED.match(text), BUS_ERROR.search(text), CONTAINED.match(text)
    if contained:  # the port has cut the link off
        return Found("aer_fatal", Severity.CRITICAL, contained[1].lower(), facts={"port": contained[1].lower(), "errors": "DPC"})
    failed = FAILED.search(text)
    if told is None and bus is None:  # a recovery may fail long after the error was told
        return Found("aer_fatal", Severity.CRITICAL, failed[1].lower()) if failed else None
    said = (bus[3] if bus else "") or (told[2] if told else "")
    kind, severity = KINDS["fatal" if failed else degree(said)]
    port = told[1].lower() if told else None
    # Some ports give 0000:00:00.0 for a device that they did not identify.
    source = told[3].lower() if told and told[3] and not told[3].startswith("0000:00:00") else None
    key = (bus[2].lower() if bus else None) or source or port or ""
    errors = " ".join(dict.fromkeys(name.strip() for name in BIT.findall(text)))
    return Found(kind, severity, key, facts=known(port=port, errors=errors))


def degree(said: str) -> str:
    """Return how bad an error is: `Corrected` and `Correctable`, `Uncorrectable (Non-Fatal)`, `Uncorrected (Fatal)`."""
    words = said.lower()
    if words.startswith("correct"):
        return "corrected"
    return "fatal" if "fatal" in words and "non" not in words else "nonfatal"


def without_room(text: str, learned: Known) -> list[Found]:
    """Return the GPUs whose window has no place at the end of a group."""
    lines: dict[tuple[str, str], str] = {}
    for line in text.split("\n"):
        if failed := UNASSIGNED.match(line):
            lines[failed[1], failed[2]] = line
        elif assigned := ASSIGNED.match(line):
            lines.pop((assigned[1], assigned[2]), None)
    found: dict[str, Found] = {}
    for (place, bar), line in lines.items():
        address = gpu_address(place) or ""
        size = SIZE.search(line)
        if address in learned.gpus or (size and int(size[1], 16) >= WINDOW):
            found.setdefault(address, no_room(address, bar, Severity.WARNING, int(size[1], 16) if size else 0))
    return list(found.values())


def no_room(address: str, bar: str, severity: Severity, size: int = 0) -> Found:
    """Say that a window has no room, and which switch gives it some."""
    window = f"BAR {bar}" + (f" of {size >> 20} MiB" if size >> 20 else "")
    words = f"no room for the memory window ({window}) of the GPU at {address}: {SWITCH}"
    return Found("bar_unassigned", severity, address, facts={"bar": bar}, words=words)
