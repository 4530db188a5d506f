"""What gpuwatch costs and since when it runs, as readings like any other."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpuwatch.catalogue import own
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target

OWN = Target(subject=own.OWN, key="")
NANOSECONDS = 1e9
PAGE = os.sysconf("SC_PAGE_SIZE")


def readings(version: str, started: float, processes: Mapping[str, Sequence[int]], wall: float) -> Iterator[Reading]:
    """Yield the readings; `processes` names our groups (daemon, nvml) with their process ids. One that has ended is left out."""
    build = Target(subject=own.BUILD, key="", info={"version": version, "python": platform.python_version()})
    yield Reading(source="own", tier=Tier.NORMAL, target=build, at=wall, took=0.0, values={})
    values: dict[Metric, float] = {own.START_TIME: started}
    for name, pids in processes.items():
        found = [cost for pid in pids if (cost := costs(pid)) is not None]
        if found:
            values[own.PROCESS_CPU[name]] = sum(cpu for cpu, _ in found)
            values[own.PROCESS_RESIDENT[name]] = sum(resident for _, resident in found)
    yield Reading(source="own", tier=Tier.NORMAL, target=OWN, at=wall, took=0.0, values=values)


def costs(pid: int, proc: Path = Path("/proc")) -> tuple[float, float] | None:
    """Return CPU seconds and resident bytes of a process, None once it is gone.

    CPU is summed over schedstat of its threads: tick counts are off by several times for the short bursts of a monitor.
    """
    try:
        resident = int((proc / str(pid) / "statm").read_text().split()[1]) * PAGE
        spent = sum(int(path.read_text().split()[0]) for path in (proc / str(pid) / "task").glob("*/schedstat"))
    except (OSError, ValueError, IndexError):
        return None
    return spent / NANOSECONDS, float(resident)
