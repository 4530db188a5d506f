"""Whether NVIDIA's fabric manager and persistence daemon run, without asking systemd: no D-Bus library, no child process.

A service of systemd that runs has a control group of its name with processes in it; one that was started otherwise has left its
number in a file under /run. Where there is neither, and no unit file of that name, the daemon is not installed: absent.
"""

import errno
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpuwatch.catalogue.host import FABRIC_MANAGER_UP, PERSISTENCED_UP, SERVICES
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.processes import comm
from gpuwatch.sources.source import Answer, Source

SOURCE = "services"
GROUPS = ("fs/cgroup", "fs/cgroup/unified", "fs/cgroup/systemd")  # version 2; hybrid; 1
UNITS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
NAME_LIMIT = 15  # bytes of a process' name that the kernel keeps


class Service(NamedTuple):
    """One daemon: its unit, the file with its number, and what its process is called."""

    unit: str
    pid_file: str
    name: str


DAEMONS: Mapping[Metric, Service] = {
    FABRIC_MANAGER_UP: Service(
        "nvidia-fabricmanager.service", "run/nvidia-fabricmanager/nv-fabricmanager.pid", "nv-fabricmanager"
    ),
    PERSISTENCED_UP: Service(
        "nvidia-persistenced.service", "run/nvidia-persistenced/nvidia-persistenced.pid", "nvidia-persistenced"
    ),
}


class Services:
    """NVIDIA's daemons on this host."""

    def __init__(self, config: Config, clock: Clock) -> None:
        paths = config.paths
        self._proc, self._sys, self._root = Path(paths.proc), Path(paths.sys), Path(paths.root)
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Look after each, once a slow round."""
        if tier is Tier.SLOW:
            look = Look(SOURCE, Tier.SLOW, Target(subject=SERVICES, key=""), self._clock)
            for metric, service in DAEMONS.items():
                if service.unit in skip:
                    look.lack([metric], Absence.LATE)
                else:
                    answer.working(service.unit)
                    look.take(metric, partial(self._runs, service))
            answer.reading(look.reading())
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _runs(self, service: Service) -> float:
        """Return whether it runs; raises OSError where it is not installed."""
        if self._has_group(service) or self._has_process(service):
            return 1.0
        if not any(sysfs.exists(self._root / folder / service.unit) for folder in UNITS):
            raise OSError(errno.ENOENT, "not installed")
        return 0.0

    def _has_group(self, service: Service) -> bool:
        """Say whether systemd has processes of it; one that has failed may leave an empty group for a moment."""
        files = (self._sys / group / "system.slice" / service.unit / "cgroup.procs" for group in GROUPS)
        return any(sysfs.fact(file) for file in files)

    def _has_process(self, service: Service) -> bool:
        """Say whether its number is that of a process of its name: the number of one that has died is another's by now."""
        number = sysfs.fact(self._root / service.pid_file)
        return number.isdecimal() and comm(f"{self._proc}/{number}") == service.name[:NAME_LIMIT]


def source(config: Config, clock: Clock) -> Source:
    """Return NVIDIA's daemons as a source."""
    return Services(config, clock)
