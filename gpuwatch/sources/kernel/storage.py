"""What the kernel says of disks, RAID and file systems."""

import re

from gpuwatch.model.alert import Severity
from gpuwatch.sources.kernel.addresses import known
from gpuwatch.sources.kernel.record import Found, Known

DEVICE = r"([\w!.-]{1,32})"
TIMEOUT = re.compile(
    rf"nvme {DEVICE}: I/O (?:tag )?\d+.* timeout|nvme {DEVICE}: .*(?:timeout, |resetting controller|frozen state error)"
)
DOWN = re.compile(rf"nvme {DEVICE}: controller is down; will reset: CSTS=(0x[0-9a-f]+)(?:, PCI_STATUS=(0x[0-9a-f]+))?")
# A register that reads as all ones is not there to be read: the disk has left the bus.
ONES = {"0xffffffff", "0xffff"}
DISABLED = re.compile(
    rf"nvme {DEVICE}: (?:Disabling device after reset failure|Removing after probe failure|Device not ready; aborting|"
    r"failed to mark controller)"
)
NO_PATH = re.compile(rf"block {DEVICE}: no (available|usable) path")
MEMBER = re.compile(rf"md/raid[^:\s]*?:?(md\d+|md_\w+): Disk failure on {DEVICE}[ ,]*(?:detected)?(.*)")
IO_ERROR = re.compile(
    rf"(?:(?:blk_update_request|print_req_error): )?(?:I/O|critical (?:medium|target|nexus|space allocation)) error, "
    rf"dev {DEVICE}, |Buffer I/O error on dev(?:ice)? {DEVICE},"
)
READ_ONLY = re.compile(
    rf"(?:EXT[234]-fs|F2FS-fs) \({DEVICE}\): [Rr]emounting filesystem read-only"
    rf"|XFS \({DEVICE}\): .*(?:[Ss]hutting down filesystem|Log I/O [Ee]rror [Dd]etected)"
    rf"|BTRFS(?:: error| error| info| warning)? \(device {DEVICE}[^)]*\).*forced readonly"
)
FS_ERROR = re.compile(
    rf"(?:EXT[234]-fs) error \(device {DEVICE}\)|EXT4-fs \({DEVICE}\): I/O error"
    rf"|XFS \({DEVICE}\): .*(?:metadata I/O error|[Mm]etadata corruption|Corruption (?:of|detected)|Internal error)"
    rf"|BTRFS(?:: | )(?:error|critical) \(device {DEVICE}[^)]*\)"
)
NFS = re.compile(r"n?fs4?: server (\S{1,255}) not responding(?:, (still trying|timed out))?", re.IGNORECASE)


def find(text: str, _learned: Known) -> Found | None:
    """Return what this message says."""
    return of_nvme(text) or of_disks(text) or of_filesystems(text)


def of_nvme(text: str) -> Found | None:
    """Read what the NVMe driver says."""
    if not text.startswith("nvme "):
        return None
    if down := DOWN.match(text):
        if down[2] in ONES or down[3] in ONES:
            return Found("nvme_timeout", Severity.CRITICAL, down[1], facts={"gone": "yes"})
        return Found("nvme_timeout", Severity.WARNING, down[1], facts={"csts": down[2]})
    if disabled := DISABLED.match(text):
        return Found("nvme_disabled", Severity.CRITICAL, disabled[1])
    found = TIMEOUT.match(text)
    return Found("nvme_timeout", Severity.WARNING, found[1] or found[2]) if found else None


def of_disks(text: str) -> Found | None:
    """Read what block layer and RAID say."""
    if path := NO_PATH.match(text):  # "available": I/O fails; "usable": it waits for a path
        return Found("raid_failure", Severity.CRITICAL if path[2] == "available" else Severity.WARNING, path[1])
    if member := MEMBER.match(text):
        return Found("raid_failure", Severity.CRITICAL, member[1], facts={"member": member[2].rstrip(",")})
    found = IO_ERROR.match(text)
    return Found("io_error", Severity.WARNING, found[1] or found[2]) if found else None


def of_filesystems(text: str) -> Found | None:
    """Read what file systems say; one that was mounted again for writing (`re-mounted ... r/w`) is well."""
    if found := READ_ONLY.match(text):
        return Found("fs_readonly", Severity.CRITICAL, first(found))
    if found := FS_ERROR.match(text):
        return Found("fs_error", Severity.WARNING, first(found))
    if found := NFS.match(text):
        return Found("nfs_timeout", Severity.WARNING, found[1].rstrip(","), facts=known(state=found[2]))
    return None


def first(found: re.Match[str]) -> str:
    """Return the device, in whichever of the alternatives it stands."""
    return next((group for group in found.groups() if group), "")
