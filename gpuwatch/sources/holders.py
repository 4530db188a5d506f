"""Who has NVIDIA's device nodes open, as far as whoever asks may look: root sees all, others their own processes."""

import os
import time
from pathlib import Path

import msgspec

from gpuwatch.sources.processes import comm, numbers

SECONDS = 2.0  # for the whole look
PROCESSES = 65_536
FILES = 4096  # of one process
NODES = "/dev/nvidia"
SAID = 20  # holders that are named


class Holders(msgspec.Struct, frozen=True):
    """The processes that have a node open, by pid with their names; `hidden` is how many could not be looked into."""

    found: dict[int, str]
    hidden: int
    is_whole: bool  # the look came to its end in time

    def __str__(self) -> str:
        names = [f"{name or '?'} (pid {pid})" for pid, name in list(self.found.items())[:SAID]]
        if len(self.found) > SAID:
            names.append(f"and {len(self.found) - SAID} more")
        return ", ".join(names)


def holders(proc: Path = Path("/proc"), nodes: str = NODES, seconds: float = SECONDS) -> Holders:
    """Look through the open files of every process for paths that begin with `nodes`."""
    end = time.monotonic() + seconds
    found: dict[int, str] = {}
    hidden = 0
    known = numbers(proc)
    for count, number in enumerate(known):
        if count >= PROCESSES or time.monotonic() > end:
            return Holders(found, hidden, is_whole=False)
        try:
            if has_open(f"{proc}/{number}/fd", nodes):
                found[int(number)] = comm(f"{proc}/{number}")
        except PermissionError:
            hidden += 1
        except OSError:
            continue  # it has ended
    return Holders(found, hidden, is_whole=True)


def has_open(folder: str, nodes: str) -> bool:
    """Say whether one of the first open files of a process is such a node; raises OSError."""
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= FILES:
                return False
            try:
                if os.readlink(entry.path).startswith(nodes):  # noqa: PTH115 - a Path for each of many thousands
                    return True
            except FileNotFoundError:
                continue  # it was closed meanwhile
    return False
