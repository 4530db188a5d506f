"""One process as /proc shows it: numbers of its stat file, its name, its user. Never its arguments or its environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuwatch.catalogue.process import PROCESS_BLOCKED, PROCESS_CPU, PROCESS_IO_WAIT, PROCESS_RESIDENT
from gpuwatch.model.escape import printable
from gpuwatch.model.metric import Metric
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.home import Home, groups, home
from gpuwatch.sources.jobs.limits import cores

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LONGEST = 1024  # bytes of a stat file
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


@dataclass(frozen=True, slots=True)
class Stat:
    """What changes all the time."""

    comm: str
    state: str
    parent: int
    ticks: int  # when it began, since the boot
    cpu: float  # seconds
    resident: float  # bytes
    io_wait: float | None  # seconds; of its first thread


@dataclass(frozen=True, slots=True)
class Process:
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


def small(path: str, longest: int) -> bytes:
    """Return a small file of /proc by a single read; raises OSError. There are hundreds of them every 2 s."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, longest)
    finally:
        os.close(descriptor)


def stat(proc: str, pid: int) -> Stat | None:
    """Return the numbers of a process, None when it has ended."""
    try:
        head, _, tail = small(f"{proc}/{pid}/stat", LONGEST).rpartition(b")")
        found = tail.split(None, IO_TICKS + 1)
        state = found[STATE].decode()
        if state in "XZ":
            return None
        return Stat(
            comm=head.partition(b"(")[2].decode("utf-8", "backslashreplace"),
            state=state,
            parent=int(found[PARENT]),
            ticks=int(found[BEGAN]),
            cpu=(int(found[USER_TICKS]) + int(found[SYSTEM_TICKS])) / TICK,
            resident=float(int(found[RESIDENT]) * PAGE),
            io_wait=int(found[IO_TICKS]) / TICK if len(found) > IO_TICKS else None,
        )
    except (OSError, ValueError, IndexError):
        return None


def values(found: Stat, *, accounted: bool) -> dict[Metric, float]:
    """Return the numbers as metrics; `accounted`: the kernel counts the time that tasks wait for disks."""
    numbers = {PROCESS_CPU: found.cpu, PROCESS_RESIDENT: found.resident, PROCESS_BLOCKED: float(found.state == "D")}
    if accounted and found.io_wait is not None:
        numbers[PROCESS_IO_WAIT] = found.io_wait
    return numbers


def again(before: Process, found: Stat) -> Process:
    """Return who a process is by now: its name and its parent may have changed."""
    if before.parent == found.parent and before.comm == found.comm:
        return before
    return replace(before, comm=printable(found.comm), parent=found.parent)


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
        comm=printable(found.comm),
        uid=int(uid[1]) if uid else None,
        parent=found.parent,
        home=where,
        groups=paths,
        cpus=cores(allowed[1]) if allowed else frozenset(),
    )


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
