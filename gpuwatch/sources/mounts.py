"""Which file systems this host has mounted: mountinfo -> Mount, without touching a mount.

Counted are the file systems that people fill or lose: on block devices, on the network, through FUSE, and tmpfs at places
such as /dev/shm, /tmp and /run. Not counted: pseudo file systems, read-only images (snap, ISO), overlays but for one at
"/", what lies below the folders of container run-times, tmpfs below /run, and further mounts of the same file system
(bind mounts, subvolumes: the shortest path counts). At most LIMIT of them, in the order in which they were mounted.
"""

import os
import re
from pathlib import Path

import msgspec

from gpuwatch.catalogue.disk import FILESYSTEM
from gpuwatch.model.escape import printable
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs

LIMIT = 128
PATH_MAX = 4096  # linux/limits.h; two long paths must not become one by being cut

PSEUDO = re.compile(
    r"autofs|bdev|binder|binfmt_misc|bpf|cgroup2?|configfs|cpuset|debugfs|devpts|devtmpfs|efivarfs|fusectl|hugetlbfs|mqueue|nfsd"
    r"|nsfs|proc|pstore|ramfs|resctrl|rpc_pipefs|securityfs|selinuxfs|smackfs|sysfs|tracefs|fuse\.(gvfsd-fuse|lxcfs|portal|snapfuse)"
)
IMAGES = re.compile(r"cramfs|erofs|iso9660|romfs|squashfs|udf")  # always full, by nature
CONTAINERS = re.compile(rb"/var/lib/(docker|containers|containerd|kubelet)/.")
PASSING = re.compile(rb"/(proc|sys|run)/.|/dev/(?!shm$)")  # where a tmpfs belongs to a program, not to people
ESCAPE = re.compile(rb"\\([0-3][0-7][0-7])")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One line of mountinfo."""

    path: bytes  # the real one, for system calls
    device: str  # "major:minor" of the superblock; major 0 is no block device
    fstype: str
    origin: str  # block device, server:/export, or any word
    options: frozenset[str]  # of this mount
    superblock: frozenset[str]  # of the file system

    @property
    def item(self) -> str:
        """The mount point as it may be shown: target key, label, and name of the item that is worked on."""
        return printable(os.fsdecode(self.path), PATH_MAX)

    def target(self) -> Target:
        """Return the file system as the target of its readings."""
        return Target(subject=FILESYSTEM, key=self.item, labels={"mountpoint": self.item, "fstype": printable(self.fstype)})


class Table(msgspec.Struct, frozen=True):
    """The mounts of one namespace. `host` says that it is that of process 1, whose mount flags are the administrator's."""

    mounts: tuple[Mount, ...]
    host: bool


def table(proc: Path) -> Table:
    """Return the mounts of process 1, else our own; empty where neither can be read.

    A unit with ProtectSystem= has a mount namespace of its own, in which everything is read-only; process 1 has the truth.
    """
    mounts = own(proc, "1")
    return Table(mounts, host=True) if mounts else Table(own(proc, "self"), host=False)


def own(proc: Path, process: str) -> tuple[Mount, ...]:
    """Return the mounts that a process sees, none where they cannot be read."""
    try:
        return parse(sysfs.read(proc / process / "mountinfo"))
    except OSError:
        return ()


def parse(raw: bytes) -> tuple[Mount, ...]:
    """Return the mounts of a mountinfo file (proc(5)) in its order; a line that is none is left out."""
    return tuple(mount for line in raw.split(b"\n") if (mount := parse_line(line)))


def parse_line(line: bytes) -> Mount | None:
    """Return one mount, None where the line is none: `id parent major:minor root path options [tags] - type origin super`."""
    head, separator, tail = line.partition(b" - ")
    left, right = head.split(b" "), tail.split(b" ")
    if not separator or len(left) < 6 or len(right) < 3 or not left[4].startswith(b"/"):
        return None
    return Mount(
        path=unescape(left[4]),
        device=os.fsdecode(left[2]),
        fstype=os.fsdecode(unescape(right[0])),
        origin=os.fsdecode(unescape(right[1])),
        options=frozenset(os.fsdecode(left[5]).split(",")),
        superblock=frozenset(os.fsdecode(right[2]).split(",")),
    )


def unescape(field: bytes) -> bytes:
    """Return a field with its octal escapes (blank, tab, newline, backslash, #) undone."""
    return ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), field)


def counted(mounts: tuple[Mount, ...]) -> list[Mount]:
    """Return the mounts that count, by the rule of this module."""
    top: dict[bytes, Mount] = {}  # a later mount on the same path hides the earlier one
    for mount in mounts:
        top[mount.path] = mount
    chosen: dict[str, Mount] = {}
    for mount in filter(counts, top.values()):
        before = chosen.get(mount.device)
        if before is None or len(mount.path) < len(before.path):
            chosen[mount.device] = mount
    return list({mount.item: mount for mount in chosen.values()}.values())[:LIMIT]


def counts(mount: Mount) -> bool:
    """Return whether this mount is a file system that people fill or lose."""
    if PSEUDO.fullmatch(mount.fstype) or IMAGES.fullmatch(mount.fstype) or CONTAINERS.match(mount.path):
        return False
    if mount.fstype == "overlay":
        return mount.path == b"/"
    return not (mount.fstype == "tmpfs" and PASSING.match(mount.path))


def covering(mounts: tuple[Mount, ...], path: bytes) -> Mount | None:
    """Return the mount of a namespace that a path leads to: the deepest one above it, the latest of equals."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.path or path.startswith(mount.path.rstrip(b"/") + b"/")
        if inside and (best is None or len(mount.path) >= len(best.path)):
            best = mount
    return best
