"""What processes cost, as the kernel counts it: CPU from schedstat and the process clocks, memory from smaps."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2  # linux/posix-timers.h: the clock of a whole process, ended threads included, in nanoseconds


def threads(pid: int) -> dict[str, float]:
    """Return the CPU seconds of each living thread, from schedstat."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found[path.name] = int((path / "schedstat").read_text().split()[0]) / 1e9
    return found


def waited(pid: int) -> float:
    """Return the seconds that the living threads of a process were ready and found no free core: what others took from it."""
    found = 0
    for path in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += int((path / "schedstat").read_text().split()[1])
    return found / 1e9


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads, also those that have ended."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def reaped(pid: int) -> float:
    """Return the CPU seconds of the children that a process has waited for; the kernel sums them exactly and tells 10 ms."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / TICK


def tasks(pid: int) -> list[Path]:
    """Return the threads of a process; none once it has ended."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def children(pid: int) -> dict[int, str]:
    """Return pid and name of the child processes that live."""
    found = {}
    for task in tasks(pid):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    found[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
    return found


def spent_below(pid: int) -> float:
    """Return the CPU seconds of a process and of all that live below it; a child that ends meanwhile is among the reaped."""
    found = cpu(pid)
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            found += cpu(child)
    return found + reaped(pid)


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    found: list[int] = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def pss(pids: Iterable[int]) -> float:
    """Return the proportional set size of these processes together, in MB; one that has ended counts nothing."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1000


def alone(pids: Iterable[int]) -> float:
    """Return what the PSS would be, in MB, if nobody else on this machine ran the same Python or the same libraries.

    Clean pages of a file count once: of each mapped piece, those of the process that holds most of it.
    """
    own, files = 0, dict[tuple[str, str], int]()
    for pid in pids:
        for place, sizes in mappings(pid):
            clean = sizes.get("Shared_Clean", 0) + sizes.get("Private_Clean", 0)
            dirty = sizes.get("Shared_Dirty", 0) + sizes.get("Private_Dirty", 0)
            if place[0] == "0":  # no file behind it
                own += clean + dirty
            else:
                own += dirty
                files[place] = max(files.get(place, 0), clean)
    return (own + sum(files.values())) / 1000


def mappings(pid: int) -> Iterator[tuple[tuple[str, str], dict[str, int]]]:
    """Yield inode and offset of each mapping of a process, and its sizes in kB; nothing once it has ended."""
    place, sizes = ("", ""), dict[str, int]()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            words = line.split()
            if not words[0].endswith(":"):
                if place[0]:
                    yield place, sizes
                place, sizes = (words[4], words[2]), {}
            elif words[-1] == "kB":
                sizes[words[0].rstrip(":")] = int(words[1])
        yield place, sizes


def written(pid: int) -> int:
    """Return the bytes that a process has sent to the disk."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


@dataclass
class Watch:
    """Looks for short-lived children of a process: what each cost, and the highest PSS of all while one lived."""

    pid: int
    names: tuple[str, ...]
    every: float = 0.02
    cost: dict[str, list[float]] = field(default_factory=dict)
    highest: float = 0.0

    def __post_init__(self) -> None:
        self._seen: dict[int, tuple[str, float]] = {}  # short-lived children: name, and CPU when it was last looked at
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        before = reaped(self.pid)
        while not self._stop.wait(self.every):
            try:
                spent, now = reaped(self.pid), children(self.pid)  # in this order: whose cost is counted is gone
            except OSError:
                return
            self._see({pid: name for pid, name in now.items() if name in self.names})
            ended = {pid: one for pid, one in self._seen.items() if pid not in now}
            if spent > before:
                known = sum(used for _, used in ended.values())
                for name, used in ended.values():  # several may have ended since the last look
                    self.cost.setdefault(name, []).append((spent - before) * used / known)
                before = spent
                self._seen = {pid: one for pid, one in self._seen.items() if pid in now}

    def _see(self, short: dict[int, str]) -> None:
        for pid, name in short.items():
            with contextlib.suppress(OSError):
                self._seen[pid] = name, cpu(pid)
        if short:
            self.highest = max(self.highest, pss([self.pid, *descendants(self.pid)]))
