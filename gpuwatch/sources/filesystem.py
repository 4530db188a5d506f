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
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_SIZE,
    FILESYSTEM_STUCK,
)
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources import mounts, sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.mounts import Mount
from gpuwatch.sources.source import Answer, Source

SOURCE = "filesystem"
SPACE = (FILESYSTEM_SIZE, FILESYSTEM_AVAILABLE)


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
        look.lack([*SPACE, FILESYSTEM_READ_ONLY, FILESYSTEM_ERRORS], Absence.LATE)
        return look.reading(Fault("hung", f"asking {mount.item} does not return"))

    def _look(self, mount: Mount, own: tuple[Mount, ...], *, trusted: bool) -> Reading | None:
        """Return one file system as it is now; None for one that was unmounted meanwhile or has no size by nature."""
        look = Look(SOURCE, Tier.SLOW, mount.target(), self._clock)
        flags = mount.superblock | (mount.options if trusted else frozenset())
        look.values[FILESYSTEM_READ_ONLY] = float("ro" in flags or "emergency_ro" in flags)
        fault: Fault | None = None
        path = self._root + mount.path
        here = mounts.covering(own, path)
        if here is not None and here.device != mount.device:
            # ProtectHome=, a container without the mount: statvfs would answer for another file system
            look.lack(SPACE, Absence.DENIED)
        else:
            try:
                space = ask(mount, path)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return None
                look.lack(SPACE, sysfs.why(error))
                if sysfs.why(error) is not Absence.DENIED:
                    fault = Fault("failed", f"{mount.item}: {error.strerror}", error.errno)
            else:
                if not space.f_blocks:
                    return None
                look.values[FILESYSTEM_SIZE] = float(space.f_blocks * space.f_frsize)
                look.values[FILESYSTEM_AVAILABLE] = float(space.f_bavail * space.f_frsize)
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


def ask(mount: Mount, path: bytes) -> os.statvfs_result:
    """Return the space of a file system that also lets itself be listed; raises OSError, and may not return at all."""
    space = os.statvfs(path)
    if mount.fstype == "xfs":
        with os.scandir(path) as inside:  # EIO after a shutdown, while mountinfo still says rw
            next(inside, None)
    return space


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
