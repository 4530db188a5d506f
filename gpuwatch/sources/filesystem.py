"""Space, errors and life of the mounted file systems; in the probe worker, since asking a dead one does not return.

Which of them count is said in `mounts.py`; what shows an error is smart.md section 8: ext4 and btrfs count their errors,
XFS does not and after a shutdown answers everything with EIO.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from gpuwatch.catalogue.disk import (
    FILESYSTEM_AVAILABLE,
    FILESYSTEM_ERRORS,
    FILESYSTEM_FAILED,
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_SIZE,
    FILESYSTEM_STUCK,
)
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources import mounts, sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.mounts import Mount
from gpuwatch.sources.source import Answer, Source

SOURCE = "filesystem"
ASKED = (FILESYSTEM_SIZE, FILESYSTEM_AVAILABLE, FILESYSTEM_FAILED)  # what only the file system itself can tell
OURS = frozenset((errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR))  # not its fault


class Filesystems:
    """The file systems of this host."""

    def __init__(self, config: Config, clock: Clock) -> None:
        paths = config.paths
        self._proc, self._sys, self._dev = Path(paths.proc), Path(paths.sys), Path(paths.dev)
        self._root = os.fsencode(paths.root.rstrip("/"))
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read every file system, once a slow round."""
        if tier is Tier.SLOW:
            table, own = mounts.table(self._proc), mounts.own(self._proc, "self")
            for mount in mounts.counted(table.mounts):
                if mount.item in skip:
                    answer.reading(self._hung(mount))
                    continue
                answer.working(mount.item)
                reading = self._look(mount, own, trusted=table.host)
                if reading is not None:
                    answer.reading(reading)
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _hung(self, mount: Mount) -> Reading:
        """Return what is to be said of a file system that did not return when it was last asked."""
        look = Look(SOURCE, Tier.SLOW, mount.target(), self._clock)
        look.values[FILESYSTEM_STUCK] = 1.0
        look.lack([*ASKED, FILESYSTEM_READ_ONLY, FILESYSTEM_ERRORS], Absence.LATE)
        return look.reading(Fault("hung", "asking it does not return"))

    def _look(self, mount: Mount, own: tuple[Mount, ...], *, trusted: bool) -> Reading | None:
        """Return one file system as it is now; None for one that was unmounted meanwhile or has no size by nature."""
        look = Look(SOURCE, Tier.SLOW, mount.target(), self._clock)
        flags = mount.superblock | (mount.options if trusted else frozenset())
        look.values[FILESYSTEM_READ_ONLY] = float("ro" in flags or "emergency_ro" in flags)
        path, fault = self._root + mount.path, None
        here = mounts.covering(own, path)
        if here is not None and here.device != mount.device:
            # ProtectHome=, a container without the mount: statvfs would answer for another file system
            look.lack(ASKED, Absence.DENIED)
        else:
            try:
                look.values |= space(mount, path)
            except FileNotFoundError:
                return None
            except OSError as error:
                look.lack(ASKED, sysfs.why(error))
                fault = blame(look, error)
        look.values[FILESYSTEM_STUCK] = 0.0
        counter = COUNTERS.get(mount.fstype)
        if counter is None:
            look.lack([FILESYSTEM_ERRORS], Absence.UNSUPPORTED)
        else:
            look.take(FILESYSTEM_ERRORS, lambda: counter(self._sys, self._block(mount)))
        return look.reading(fault)

    def _block(self, mount: Mount) -> str:
        """Return the kernel's name of the block device below (`dm-0`, not `/dev/mapper/root`)."""
        link = self._sys / "dev/block" / mount.device
        if sysfs.is_link(link):
            return Path(os.path.realpath(link)).name
        return Path(os.path.realpath(self._dev / mount.origin.removeprefix("/dev/"))).name  # btrfs: its numbers are no device's


def space(mount: Mount, path: bytes) -> dict[Metric, float]:
    """Return the space of a file system that also lets itself be listed; may not return at all.

    Raises FileNotFoundError for one that is gone or has no blocks (an unknown pseudo file system), OSError for one that fails.
    """
    found = os.statvfs(path)
    if not found.f_blocks:
        raise FileNotFoundError(errno.ENOENT, "holds nothing", path)
    if mount.fstype == "xfs":
        with os.scandir(path) as inside:  # EIO after a shutdown, while mountinfo still says rw
            next(inside, None)
    return {
        FILESYSTEM_SIZE: float(found.f_blocks * found.f_frsize),
        FILESYSTEM_AVAILABLE: float(found.f_bavail * found.f_frsize),
        FILESYSTEM_FAILED: 0.0,
    }


def blame(look: Look, error: OSError) -> Fault | None:
    """Say that the file system fails, unless the error is that of who asked."""
    if error.errno in OURS:
        return None
    del look.absent[FILESYSTEM_FAILED]
    look.values[FILESYSTEM_FAILED] = 1.0
    return Fault("failed", f"it answers with an error: {error.strerror}", error.errno)


def ext4_errors(sys: Path, block: str) -> int:
    """Return the errors in an ext4 superblock: kept over reboots until fsck clears them."""
    return sysfs.number(sys / "fs/ext4" / block / "errors_count")


def btrfs_errors(sys: Path, block: str) -> int:
    """Return the errors of all devices of the btrfs that `block` belongs to (kernel 5.14 and later)."""
    pools = sys / "fs/btrfs"
    home = next((pools / one for one in sysfs.names(pools) if sysfs.is_link(pools / one / "devices" / block)), None)
    if home is None:
        raise FileNotFoundError(errno.ENOENT, "no btrfs has this device", block)
    files = [home / "devinfo" / device / "error_stats" for device in sysfs.names(home / "devinfo")]
    return sum(int(count) for file in files for count in sysfs.read(file).split()[1::2])


COUNTERS: dict[str, Callable[[Path, str], int]] = {"ext4": ext4_errors, "btrfs": btrfs_errors}


def source(config: Config, clock: Clock) -> Source:
    """Return the file systems as a source."""
    return Filesystems(config, clock)
