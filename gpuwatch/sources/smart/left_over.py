"""Calls of smartctl that an earlier round has left behind, stuck in the driver."""

import os
from pathlib import Path

from gpuwatch.sources.processes import SINCE, STATE, comm, fields, is_trusted, numbers


def left_over(proc: Path, program: str, seconds: float) -> frozenset[str]:
    """Return the devices at which a smartctl of an earlier round still hangs in the driver.

    Such a process has survived its worker and SIGKILL. Another call on that device would only hang beside it, so it gets none.
    A healthy run is in state D for milliseconds; this one must have lived longer than a run may. It must be our user's or
    root's: anybody can make a process of that name that is in state D (one that waits for its vfork), and blind us.
    """
    name = Path(program).name[:15]  # the kernel keeps 15 characters
    stuck = set()
    for number in numbers(proc):
        folder = proc / number
        if comm(str(folder)) != name:
            continue
        values = fields(f"{folder}/stat")
        if values is None or values[STATE] != "D" or not is_trusted(folder):
            continue
        try:
            uptime = float((proc / "uptime").read_text().split()[0])
            argv = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            age = uptime - float(values[SINCE]) / os.sysconf("SC_CLK_TCK")  # in ticks since boot
        except (OSError, ValueError, IndexError):  # it ended while we looked
            continue
        if age > seconds:
            stuck.add(argv[-1])
    return frozenset(stuck)
