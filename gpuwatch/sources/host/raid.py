"""Linux software RAID: /proc/mdstat, and where there is more, sysfs. Neither asks a disk."""

import os
import re
from functools import partial
from pathlib import Path

import msgspec

from gpuwatch.catalogue.disk import MD, MD_DEGRADED
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look

ARRAY = re.compile(r"(md[\w.-]*) : (active|inactive)\b(.*)")  # "md0 : active (auto-read-only) raid1 sdb1[1] sda1[0](F)"
DISKS = re.compile(r"\[(\d{1,6})/(\d{1,6})\]")  # "1046528 blocks super 1.2 [2/1] [_U]": wanted / working
REDUNDANT = re.compile(r"\braid(1|4|5|6|10)\b")
LIMIT = 64


class Array(msgspec.Struct, frozen=True):
    """One array as mdstat shows it."""

    name: str
    active: bool
    redundant: bool  # raid0 and linear have no disk to spare: nothing of them is ever "degraded"
    missing: int | None  # None where mdstat does not say


def arrays(text: str) -> list[Array]:
    """Return the arrays in the text of /proc/mdstat."""
    found: list[Array] = []
    for line in text.splitlines():
        head = ARRAY.match(line)
        if head:
            found.append(Array(head[1], head[2] == "active", bool(REDUNDANT.search(head[3])), None))
        elif found and line[:1].isspace() and found[-1].missing is None and (disks := DISKS.search(line)):
            last = found[-1]
            found[-1] = Array(last.name, last.active, last.redundant, max(0, int(disks[1]) - int(disks[2])))
    return found[:LIMIT]


def read(proc: str, sys: Path, clock: Clock) -> list[Reading]:
    """Return how many disks each redundant array lacks; nothing on a host without md."""
    try:
        text = sysfs.read(f"{proc}/mdstat").decode("utf-8", "backslashreplace")
    except OSError:
        return []
    return [look(array, sys, clock) for array in arrays(text) if array.redundant or not array.active]


def look(array: Array, sys: Path, clock: Clock) -> Reading:
    """Return one array. An inactive one gives no access to its data, which is no number of missing disks."""
    name = printable(array.name)
    one = Look("host", Tier.SLOW, Target(subject=MD, key=name, labels={"device": name}), clock)
    one.take(MD_DEGRADED, partial(missing, array, sys))
    return one.reading(None if array.active else Fault("inactive", "it is not active, and gives no access to its data"))


def missing(array: Array, sys: Path) -> int:
    """Return the disks that an array lacks: the kernel's own count, else that of mdstat; raises ValueError for neither."""
    if not array.active:
        raise ValueError("an inactive array has no state")
    try:
        return sysfs.number(sys / "block" / os.path.basename(array.name) / "md/degraded")  # noqa: PTH119 - a name, no path
    except (FileNotFoundError, ValueError):
        if array.missing is None:
            raise
        return array.missing
