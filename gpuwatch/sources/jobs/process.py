"""One process as /proc shows it: numbers of its stat file, its name, its user. Never its arguments or its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuwatch.catalogue.process import PROCESS_BLOCKED, PROCESS_CPU, PROCESS_IO_WAIT, PROCESS_RESIDENT
from gpuwatch.model.escape import printable
from gpuwatch.model.metric import Metric
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.home import Home, groups, home
from gpuwatch.sources.jobs.limits import cores

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LONGEST = 1024  # bytes of a stat file
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


def stat(proc: str, pid: int) -> Stat | None:
    """Return the numbers of a process, None when it has ended. Read without a file object: hundreds of them every 2 s."""
    try:
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head, _, tail = os.read(descriptor, LONGEST).rpartition(b")")
        finally:
            os.close(descriptor)
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
    lines = status(folder)
    paths = groups(fact(f"{folder}/cgroup"))
    uid = lines.get("Uid", "").split()
    return Process(
        pid=pid,
        ticks=found.ticks,
        key=f"{pid}:{found.ticks}:{boot[:8]}",
        start=start,
        comm=printable(found.comm),
        uid=int(uid[0]) if uid and uid[0].isdecimal() else None,
        parent=found.parent,
        home=home(paths),
        groups=paths,
        cpus=cores(lines.get("Cpus_allowed_list", "")),
    )


def status(folder: str) -> dict[str, str]:
    """Return the lines of a status file, none when the process has ended."""
    lines = (line.partition(":") for line in fact(f"{folder}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def fact(path: str) -> str:
    """Return a file of several lines, "" where it cannot be read."""
    try:
        return sysfs.read(path, sysfs.LINE).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
