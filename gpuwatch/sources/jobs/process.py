"""One process as /proc shows it: numbers of its stat file, its name, its user. Never its arguments or its environment."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue.process import PROCESS_BLOCKED, PROCESS_CPU, PROCESS_IO_WAIT, PROCESS_RESIDENT
from gpuwatch.model.escape import printable
from gpuwatch.model.metric import Metric
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.home import Home, groups, home
from gpuwatch.sources.jobs.limits import cores

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LONGEST = 1024  # bytes of a stat file
ENDED = (b"Z", b"X")  # states of who has ended
UID = re.compile(r"^Uid:\s*(\d+)\s", re.MULTILINE)
ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
STATE, PARENT, USER_TICKS, SYSTEM_TICKS, BEGAN, RESIDENT, IO_TICKS = (
    0,
    1,
    11,
    12,
    19,
    21,
    39,
)  # proc(5), from the field after the name


class Stat(NamedTuple):
    """What a stat file says of who a process is, and what it has used."""

    comm: str
    parent: int
    ticks: int  # when it began, since the boot
    cpu: float  # seconds


class Process(msgspec.Struct, frozen=True):
    """Who a process is."""

    pid: int
    ticks: int
    key: str  # which process this is, whatever the clock of the host does
    start: int  # seconds since 1970
    comm: str
    uid: int | None
    parent: int
    home: Home
    groups: Mapping[str, str]
    cpus: frozenset[int]  # that it may use


def small(path: str, longest: int, folder: int | None = None) -> bytes:
    """Return a small file of /proc by a single read; raises OSError. `folder` is where its path begins, open."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        return os.read(descriptor, longest)
    finally:
        os.close(descriptor)


def stat(proc: str, pid: int) -> Stat | None:
    """Return who a process is and what it has used, None when it has ended."""
    try:
        return parsed(small(f"{proc}/{pid}/stat", LONGEST))
    except OSError:
        return None


def parsed(raw: bytes) -> Stat | None:
    """Return what a stat file says, None where it is that of a process that has ended."""
    try:
        head, _, tail = raw.rpartition(b")")
        found = tail.split(None, BEGAN + 1)
        if found[STATE] in ENDED:
            return None
        return Stat(
            head.partition(b"(")[2].decode("utf-8", "backslashreplace"),
            int(found[PARENT]),
            int(found[BEGAN]),
            (int(found[USER_TICKS]) + int(found[SYSTEM_TICKS])) / TICK,
        )
    except (ValueError, IndexError):
        return None


def amounts(raw: bytes, began: bytes, *, accounted: bool) -> dict[Metric, float] | None:
    """Return the numbers in a stat file, None when it is not that of the process that began so, or of one that has ended.

    `accounted`: the kernel counts the time that tasks wait for disks.
    """
    try:
        found = raw[raw.rindex(b")") + 1 :].split(None, (IO_TICKS if accounted else RESIDENT) + 1)
        state = found[STATE]
        if found[BEGAN] != began or state in ENDED:  # its number may be another one's by now
            return None
        numbers = {
            PROCESS_CPU: (int(found[USER_TICKS]) + int(found[SYSTEM_TICKS])) / TICK,
            PROCESS_RESIDENT: float(int(found[RESIDENT]) * PAGE),
            PROCESS_BLOCKED: float(state == b"D"),
        }
        if accounted and len(found) > IO_TICKS:
            numbers[PROCESS_IO_WAIT] = int(found[IO_TICKS]) / TICK
    except (ValueError, IndexError):
        return None
    return numbers


def again(before: Process, found: Stat) -> Process:
    """Return who a process is by now: its name and its parent may have changed."""
    if before.parent == found.parent and before.comm == found.comm:
        return before
    return replace(before, comm=shown(found.comm), parent=found.parent)


def meet(proc: str, pid: int, found: Stat, start: int, boot: str) -> Process:
    """Return who a process is; what it hides, or takes along when it ends meanwhile, is left out.

    `boot` is the id of this boot: in ticks since the boot a start stays what it was when the clock is set, but only within it.
    """
    folder = f"{proc}/{pid}"
    status = fact(f"{folder}/status")
    paths, where = placed(fact(f"{folder}/cgroup"))
    uid, allowed = UID.search(status), ALLOWED.search(status)
    return Process(
        pid=pid,
        ticks=found.ticks,
        key=f"{pid}:{found.ticks}:{boot[:8]}",
        start=start,
        comm=shown(found.comm),
        uid=int(uid[1]) if uid else None,
        parent=found.parent,
        home=where,
        groups=paths,
        cpus=cores(allowed[1]) if allowed else frozenset(),
    )


shown = lru_cache(1024)(printable)  # many processes are called alike


@lru_cache(256)  # the processes of a job have the same text
def placed(text: str) -> tuple[Mapping[str, str], Home]:
    """Return the control groups that a cgroup file names, and where they belong to."""
    paths = groups(text)
    return paths, home(paths)


def fact(path: str) -> str:
    """Return a file of several lines, "" where it cannot be read."""
    try:
        return small(path, sysfs.LINE).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
