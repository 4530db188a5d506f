"""Which whole disks this host has and what identifies each: from sysfs, without asking a device.

The only maker of disk keys (rulings 2): `host` and `smart` both use it. Everything read here is a copy that the kernel
keeps in memory, so that it may be read in the daemon. The one exception is left out: `serial` of a virtio disk is a
request to the device, which hangs when the hypervisor does.
"""

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue.disk import DISK
from gpuwatch.model.reading import Absence
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs

# Made of other disks, of memory or of the network, or with a medium that comes and goes.
NOT_A_DISK = re.compile(r"loop|ram|zram|dm-|md|sr|fd|zd|nbd|rbd|drbd|bcache|pmem|mtdblock|ubiblock|mmcblk\d+(boot|rpmb|gp)")
NO_WWID = re.compile(r"(\w+\.)?[0. -]*")  # some drives leave it at zero
CONTROLLER = re.compile(r"nvme\d+")
SECTOR = 512  # bytes of a sector in /sys/block/*/size and /proc/diskstats, whatever the disk's own is (Documentation/ABI)


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One whole disk. Text is safe to print; what is not known is ""."""

    name: str  # the kernel's: sda, nvme0n1; shifts between boots
    key: str  # WWN, else model and serial, else the name
    model: str = ""
    serial: str = ""
    firmware: str = ""
    protocol: str = ""  # nvme, ata, scsi, usb, virtio, mmc, xen or ""
    controller: str = ""  # what SMART of an NVMe namespace is asked of: nvme0
    rotational: bool = False
    removable: bool = False  # a stick, a card or anything on USB: never part of an inventory
    size: int = 0  # bytes

    def target(self) -> Target:
        """Return the disk as the target of its readings."""
        facts = {"model": self.model, "serial": self.serial, "firmware": self.firmware, "protocol": self.protocol}
        return Target(
            subject=DISK,
            key=self.key,
            labels={"device": self.name},
            info={name: value for name, value in facts.items() if value},
        )


def disks(sys: Path) -> list[Disk]:
    """Return the whole disks under `sys`/block in the order of their names; none where sysfs is not there.

    One whose identity cannot be read this time (too many open files) is left out rather than given another key.

    A key is unique: a WWN that two disks share (two paths to one LUN, a maker that gave all drives the same EUI) counts
    for neither of them.
    """
    found: list[tuple[Disk, str]] = []
    for name in sysfs.entries(sys / "block"):
        with suppress(OSError):
            found += filter(None, [look(sys / "block" / name)])
    wwids, models = Counter(wwid for _, wwid in found), Counter(named(disk) for disk, _ in found)
    return [keyed(disk, wwid if wwids[wwid] == 1 else "", models[named(disk)] == 1) for disk, wwid in found]


def keyed(disk: Disk, wwid: str, distinct: bool) -> Disk:
    """Return the disk with its key."""
    return replace(disk, key=wwid or (named(disk) if disk.serial and distinct else disk.name))


def named(disk: Disk) -> str:
    """Return model and serial as one text."""
    return f"{disk.model} {disk.serial}".strip()


def look(block: Path) -> tuple[Disk, str] | None:
    """Return one disk without its key, and its WWN ("" where it has none); None for what is no disk. Raises OSError."""
    name, device = block.name, block / "device"
    removable, size = sysfs.trait(block / "removable") == "1", whole(sysfs.trait(block / "size")) * SECTOR
    if NOT_A_DISK.match(name) or sysfs.trait(block / "hidden") == "1":  # hidden: one path of an NVMe multipath disk
        return None
    if removable and not size:  # a card reader without a card; a dead disk also has size 0, but is not removable
        return None
    protocol, vendor = spoken(block), sysfs.trait(device / "vendor")
    model = sysfs.trait(device / "model") or sysfs.trait(device / "name") * (protocol == "mmc")
    if protocol == "scsi" and vendor and model:
        model = f"{vendor} {model}"
    wwid = "" if protocol == "virtio" else sysfs.trait(block / "wwid") or sysfs.trait(device / "wwid")
    if protocol == "mmc":
        wwid = sysfs.trait(device / "cid")
    disk = Disk(
        name=name,
        key=name,
        model="" if protocol == "virtio" else model,
        serial="" if protocol == "virtio" else sysfs.trait(device / "serial") or page80(device),
        firmware=sysfs.fact(device / "firmware_rev"),
        protocol=protocol,
        controller=controller(device) if protocol == "nvme" else "",
        rotational=sysfs.trait(block / "queue/rotational") == "1" and protocol not in {"virtio", "xen"},
        removable=removable or protocol == "usb",
        size=size,
    )
    return disk, "" if NO_WWID.fullmatch(wwid) else wwid


def spoken(block: Path) -> str:
    """Return the protocol of a disk by its name and its place in the tree of devices."""
    if block.name.startswith("nvme"):
        return "nvme"
    if block.name.startswith("vd"):
        return "virtio"
    if block.name.startswith("xvd"):
        return "xen"
    if block.name.startswith("mmcblk"):
        return "mmc"
    if not block.name.startswith("sd"):
        return ""
    if any(re.fullmatch(r"usb\d+", part) for part in os.path.realpath(block).split("/")):
        return "usb"
    return "ata" if sysfs.trait(block / "device/vendor") == "ATA" else "scsi"  # libata and SAS controllers alike say "ATA"


def controller(device: Path) -> str:
    """Return the NVMe controller behind a namespace; of a multipath subsystem the first one."""
    name = Path(os.path.realpath(device)).name
    if CONTROLLER.fullmatch(name):
        return name
    return next((entry for entry in sysfs.entries(device) if CONTROLLER.fullmatch(entry)), "")


def page80(device: Path) -> str:
    """Return the unit serial number of a SCSI disk: VPD page 0x80, four bytes of head, then text (SPC-4)."""
    try:
        page = sysfs.read(device / "vpd_pg80")
    except OSError as error:
        if sysfs.why(error) is Absence.FAILED:
            raise
        return ""
    return sysfs.clean(page[4 : 4 + int.from_bytes(page[2:4], "big")]) if len(page) > 4 and page[1] == 0x80 else ""


def whole(text: str) -> int:
    """Return a number, 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() else 0
