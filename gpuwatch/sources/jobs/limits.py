"""What a job's control group has used, and which cores it may use: files of cgroup v1, v2 and both at once. They cannot block."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.home import UNIFIED, own_group

MICROSECONDS, NANOSECONDS = 1e-6, 1e-9
DEEPEST = 32  # control groups above one that are looked at
KEPT = 4096  # places that are remembered: those of a few hundred jobs


class Hierarchies:
    """Where the control groups are mounted: `v2` alone, or a folder a controller, with v2 beside it in `unified`.

    What groups may use is read once a round, which `begin` begins: many jobs have the same ones around them.
    """

    def __init__(self, sys: str) -> None:
        self._root = Path(sys) / "fs/cgroup"
        self.is_unified = sysfs.exists(self._root / "cgroup.controllers")
        self._known: dict[tuple[str, str, str], tuple[Path, ...]] = {}  # by path, controller and marker
        self._cpus: dict[Path, frozenset[int]] = {}  # of this round
        self._quotas: dict[Path, float | None] = {}

    def begin(self) -> None:
        """Begin a round."""
        self._cpus, self._quotas = {}, {}

    def place(self, paths: Mapping[str, str], controller: str, marker: str) -> Path | None:
        """Return the folder of a job's own group for this controller, None where it has none."""
        around = self.around(paths, controller, marker)
        return around[0] if around else None

    def around(self, paths: Mapping[str, str], controller: str, marker: str) -> tuple[Path, ...]:
        """Return the folder of a job's own group and of those around it up to the root's children, none where it has none."""
        path = paths.get(UNIFIED if self.is_unified else controller)
        if not path:
            return ()
        question = path, controller, marker
        if question not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[question] = tuple(self._find(*question))
        return self._known[question]

    def _find(self, path: str, controller: str, marker: str) -> Iterator[Path]:
        own = own_group(path, marker)
        # "/.." leads out of our own control group namespace: what lies there is not mounted for us.
        if not own or own == "/" or ".." in own.split("/"):
            return
        top = self.mount(controller)
        place = top / own.lstrip("/")
        for _ in range(DEEPEST):
            if place == top:
                return
            yield place
            place = place.parent

    def mount(self, controller: str) -> Path:
        """Return the top folder of a controller."""
        if self.is_unified:
            return self._root
        for name in (controller, "cpu,cpuacct", "cpuacct,cpu"):
            if controller in name.split(",") and sysfs.exists(self._root / name):
                return self._root / name
        return self._root / controller

    def used_in(self, paths: Mapping[str, str], marker: str) -> list[Path]:
        """Return the groups in which the CPU time of a job is counted."""
        return self._beside(self.place(paths, "cpu" if self.is_unified else "cpuacct", marker), marker)

    def limited_in(self, paths: Mapping[str, str], marker: str) -> list[Path]:
        """Return the groups in which it is counted for how long quotas stopped a job."""
        return self._beside(self.place(paths, "cpu", marker), marker)

    def _beside(self, place: Path | None, marker: str) -> list[Path]:
        """Return a job's own group, and those beside it that are its too: SLICE:cri-containerd:ID, one a container of a pod."""
        if place is None or ":" not in place.name:
            return [] if place is None else [place]
        names = (name for name in sysfs.entries(place.parent) if marker in name and ":" in name)
        return sorted({place, *(place.parent / name for name in names)})

    def used(self, group: Path) -> float:
        """Return the CPU time of a group; raises OSError or ValueError where it is not told."""
        if self.is_unified:
            return stat(f"{group}/cpu.stat")["usage_usec"] * MICROSECONDS
        return sysfs.number(f"{group}/cpuacct.usage") * NANOSECONDS

    def throttled(self, group: Path) -> float:
        """Return for how long its quota stopped a group; raises OSError or ValueError where it is not told."""
        found = stat(f"{group}/cpu.stat")
        return found["throttled_usec"] * MICROSECONDS if self.is_unified else found["throttled_time"] * NANOSECONDS

    def quota(self, paths: Mapping[str, str], marker: str) -> float | None:
        """Return the cores that the quotas of the group and those around it allow, None where there is no quota."""
        groups = self.around(paths, "cpu", marker)
        return min((cores for group in groups if (cores := self._own_quota(group)) is not None), default=None)

    def cpus(self, paths: Mapping[str, str], marker: str) -> frozenset[int] | None:
        """Return the cores of the group's cpuset, None where it has none of its own."""
        for group in self.around(paths, "cpuset", marker):
            if group not in self._cpus:
                self._cpus[group] = self._own_cpus(group)
            if self._cpus[group]:
                return self._cpus[group]
        return None

    def _own_cpus(self, group: Path) -> frozenset[int]:
        """Return the cores of one group, none where it does not tell them."""
        names = ("cpuset.cpus.effective",) if self.is_unified else ("cpuset.effective_cpus", "cpuset.cpus")
        return next((found for name in names if (found := cores(sysfs.fact(f"{group}/{name}")))), frozenset())

    def _own_quota(self, group: Path) -> float | None:
        """Return the quota of one group in cores, None where it has none."""
        if group not in self._quotas:
            self._quotas[group] = self._read_quota(group)
        return self._quotas[group]

    def _read_quota(self, group: Path) -> float | None:
        try:
            if self.is_unified:
                quota, period = sysfs.text(f"{group}/cpu.max").split()
            else:
                quota, period = (sysfs.text(f"{group}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            return None if quota in ("max", "-1") else int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            return None


def stat(path: str) -> dict[str, int]:
    """Return a file of `name number` lines; raises OSError, and ValueError for garbage. So does a name that is not in it."""
    return Named({name: int(number) for name, number in (line.split() for line in sysfs.read(path).decode().splitlines())})


class Named(dict[str, int]):
    """Numbers by name."""

    def __missing__(self, name: str) -> int:
        raise ValueError(f"no {name}")


@lru_cache(256)  # of processes and groups, most have the same
def cores(text: str) -> frozenset[int]:
    """Return the cores of a list such as "0-3,8"; none for what is no such list."""
    found: set[int] = set()
    try:
        for part in text.split(",") if text else ():
            first, dash, last = part.partition("-")
            found.update(range(int(first), min(int(last if dash else first), int(first) + 4096) + 1))
    except ValueError:
        return frozenset()
    return frozenset(found)
