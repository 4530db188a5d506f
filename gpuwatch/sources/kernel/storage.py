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
    r"failed to mark controller|IO queues lost)"
)
NO_PATH = re.compile(rf"block {DEVICE}: no (available|usable) path")
ARRAY = r"md/(?:raid|linear|multipath)[^:\s]*?:?(md\d+|md_[\w-]+)"
MEMBER = re.compile(rf"{ARRAY}: Disk failure on {DEVICE}[ ,]*(?:detected)?(.*)")
BROKEN = re.compile(
    rf"{ARRAY}: (?:Cannot continue operation|{DEVICE}: unrecoverable I/O read error|not enough operational|cannot start dirty)"
)
IO_ERROR = re.compile(
    rf"(?:(?:blk_update_request|print_req_error): )?"
    rf"(?:I/O|timeout|device offline|protection|recoverable transport|critical (?:medium|target|nexus|space allocation)) error, "
    rf"dev {DEVICE}, |Buffer I/O error on dev(?:ice)? {DEVICE},"
)
# ZFS names the path of the disk (`/dev/disk/by-id/...`), which is none of the kernel's names, and the pool.
ZIO = re.compile(r"zio pool=(\S{1,255}) vdev=\S+ error=\d+ ")
SUSPENDED = re.compile(
    r"WARNING: (?:Pool '([^']{1,255})' has encountered an uncorrectable I/O failure"
    r"|MMP writes to pool '([^']{1,255})' have not succeeded)"
)
READ_ONLY = re.compile(
    rf"(?:EXT[234]-fs|F2FS-fs) \({DEVICE}\): (?:[Rr]emounting filesystem read-only|shut down requested|Stopped filesystem due to)"
    rf"|XFS \({DEVICE}\): .*(?:[Ss]hutting down filesystem|has been shut down due to|Log I/O [Ee]rror [Dd]etected)"
    rf"|BTRFS(?:: error| error| info| warning)? \(device {DEVICE}[^)]*\).*forced readonly"
)
FS_ERROR = re.compile(
    rf"(?:EXT[234]-fs) error \(device {DEVICE}\)|EXT4-fs \({DEVICE}\): I/O error"
    rf"|XFS \({DEVICE}\): .*(?:(?:metadata|log) I/O error|writeback error|Failing async write|log mount/recovery failed"
    r"|[Mm]etadata corruption|Corruption (?:of|detected)|Internal error)"
    rf"|BTRFS(?:: | )(?:error|critical) \(device {DEVICE}[^)]*\)"
    rf"|BTRFS warning \(device {DEVICE}[^)]*\): (?:csum failed|checksum|lost .* write|i/o error)"
)
# The journal of ext4 and ocfs2 is named by its device and inode: sda1-8, dm-0-8; one on a device of its own by that alone.
JOURNAL = re.compile(
    r"(?:Aborting journal on device|JBD2: .*(?:updating journal superblock for|flushing file data on)) "
    r"(dm-\d+|[\w!]+)"
)
# What the kernel kept back of a flood, told before the first line of it that is printed again.
SUPPRESSED = re.compile(r"([\w-]+(?: error)?): (\d{1,9}) callbacks suppressed")
FLOODS = {
    **dict.fromkeys(("buffer_io_error", "blk_update_request", "print_req_error", "blk_print_req_error"), "io_error"),
    **dict.fromkeys(("EXT4-fs error", "btrfs_dev_stat_print_on_error", "btrfs_dev_stat_inc_and_print"), "fs_error"),
}
NFS = re.compile(r"n?fs4?: server (\S{1,255}) not responding(?:, (still trying|timed out))?", re.IGNORECASE)


def find(text: str, learned: Known) -> Found | None:
    """Return what this message says."""
    if suppressed := SUPPRESSED.match(text):
        kind = FLOODS.get(suppressed[1])
        return Found(kind, Severity.WARNING, learned.troubled.get(kind, ""), times=int(suppressed[2])) if kind else None
    found = of_nvme(text) or of_disks(text) or of_filesystems(text)
    if found:
        learned.troubled[found.kind] = found.key
    return found


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
        severity = Severity.CRITICAL if path[2] == "available" else Severity.WARNING
        return Found("raid_failure", severity, path[1], facts={"path": path[2]})
    if member := MEMBER.match(text):
        return Found("raid_failure", Severity.CRITICAL, member[1], facts={"member": member[2].rstrip(",")})
    if broken := BROKEN.match(text):
        return Found("raid_failure", Severity.CRITICAL, broken[1])
    found = IO_ERROR.match(text) or ZIO.match(text)
    return Found("io_error", Severity.WARNING, first(found)) if found else None


def of_filesystems(text: str) -> Found | None:
    """Read what file systems say; one that was mounted again for writing (`re-mounted ... r/w`) is well."""
    if found := READ_ONLY.match(text) or SUSPENDED.match(text):
        return Found("fs_readonly", Severity.CRITICAL, first(found))
    if found := FS_ERROR.match(text) or JOURNAL.match(text):
        return Found("fs_error", Severity.WARNING, first(found))
    if found := NFS.match(text):
        return Found("nfs_timeout", Severity.WARNING, found[1].rstrip(","), facts=known(state=found[2]))
    return None


def first(found: re.Match[str]) -> str:
    """Return the device, in whichever of the alternatives it stands."""
    return next((group for group in found.groups() if group), "")
