"""The numbers of disks, file systems and RAID arrays."""

from gpuwatch.model.metric import Keep, Kind, Subject, counter, gauge, members, states

DISK = Subject("disk", ("device",), info=("model", "serial", "firmware", "protocol"), help="What a disk is.")
FILESYSTEM = Subject("filesystem", ("mountpoint", "fstype"))
MD = Subject("md", ("device",))

DISK_DIRECTIONS = ("read", "write")
DISK_IO = members(
    DISK, "io_bytes", kind=Kind.COUNTER, direction=DISK_DIRECTIONS, help="Bytes read from and written to this disk."
)
DISK_IO_TIME = counter(DISK, "io_time", "seconds", help="Time in which the disk had at least one request.")

VERDICT = states(
    DISK,
    "verdict",
    "state",
    ("ok", "warn", "fail", "unknown", "standby", "unsupported"),
    help="What SMART says of this disk as a whole, judged by gpuwatch.",
)
SMART_LAST_SUCCESS = gauge(
    DISK, "last_success_timestamp", "seconds", keep=Keep.LAST, help="When SMART data of this disk was last read whole."
)
SMART_HEALTHY = gauge(DISK, "smart_healthy", keep=Keep.LAST, help="The drive's own overall verdict; absent where it gives none.")
TEMPERATURE = gauge(DISK, "temperature", "celsius", keep=Keep.MAX, short="TEMP", help="Temperature of the drive.")
POWER_ON = counter(DISK, "power_on", "seconds", help="Time for which the drive has been on.")
WEAR_USED = gauge(
    DISK, "wear_used", "ratio", keep=Keep.LAST, short="WEAR", help="Used share of the rated endurance; may exceed 1."
)
SPARE_AVAILABLE = gauge(DISK, "spare_available", "ratio", keep=Keep.LAST, short="SPARE", help="Spare blocks left.")
SPARE_THRESHOLD = gauge(
    DISK, "spare_threshold", "ratio", keep=Keep.LAST, help="Spare below which the drive calls itself failing."
)
CRITICAL_WARNING = members(
    DISK,
    "critical_warning",
    keep=Keep.LAST,
    type=("spare", "temperature", "reliability", "read_only", "backup", "persistent_memory"),
    help="Bits of NVMe's critical warning.",
)
MEDIA_ERRORS = counter(DISK, "media_errors", help="Unrecovered data errors; growth matters, not the value.")
UNSAFE_SHUTDOWNS = counter(DISK, "unsafe_shutdowns", help="Times power went away without notice.")
ERROR_LOG_ENTRIES = counter(
    DISK, "error_log_entries", help="Entries in the error log; mostly refused commands, never alert on it."
)
LIFETIME_BYTES = members(
    DISK, "lifetime_bytes", kind=Kind.COUNTER, direction=DISK_DIRECTIONS, help="Bytes read and written over the drive's life."
)
SECTORS = members(
    DISK,
    "sectors",
    keep=Keep.LAST,
    state=("reallocated", "pending", "uncorrectable"),
    help="Bad sectors of an ATA drive by state.",
)

FILESYSTEM_SIZE = gauge(FILESYSTEM, "size", "bytes", keep=Keep.LAST, help="Size of the file system.")
FILESYSTEM_AVAILABLE = gauge(FILESYSTEM, "available", "bytes", keep=Keep.LAST, help="Space left for ordinary users.")
FILESYSTEM_ERRORS = counter(FILESYSTEM, "errors", help="Errors that the file system itself has counted (ext4, btrfs).")
FILESYSTEM_READ_ONLY = gauge(FILESYSTEM, "read_only", keep=Keep.LAST, help="1 while it is mounted read-only.")
FILESYSTEM_STUCK = gauge(
    FILESYSTEM, "stuck", keep=Keep.LAST, help="1 while asking it does not return (dead NFS or FUSE, dead disk)."
)
FILESYSTEM_FAILED = gauge(
    FILESYSTEM,
    "failed",
    keep=Keep.LAST,
    help="1 while it answers with an error (a stale NFS mount, an XFS after its shutdown, a dead disk).",
)

MD_DEGRADED = gauge(MD, "degraded", keep=Keep.LAST, help="Missing disks of a RAID array.")
