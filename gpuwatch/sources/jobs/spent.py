"""What each job has used of the CPU: the counters of its control groups as one that neither falls nor leaps.

A job has one group as a rule, and its counter is that group's. Where the containers of a pod lie side by side it has several: one
that comes later counts from then on, and what one had used stays when it goes.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from gpuwatch.sources.jobs.home import Home
from gpuwatch.sources.jobs.limits import Hierarchies

KEPT = 1024  # counters that are remembered: two a job

Groups = Collection[tuple[Home, Mapping[str, str]]]


class Sum(msgspec.Struct):
    """One counter of one job."""

    total: float = 0.0
    last: dict[Path, float] = {}
    only: Path | None = None  # its group, while it has always been this one
    is_begun: bool = False

    def add(self, found: Mapping[Path, float]) -> float:
        """Take in what each group says now, and return what they come to."""
        if not self.is_begun:
            self.only = next(iter(found)) if len(found) == 1 else None
        elif self.only is not None and found.keys() != {self.only}:
            self.only = None
        for place, value in found.items():
            before = self.last.get(place, value if self.is_begun else 0.0)
            self.total += value - before if value >= before else value  # made anew, as that of a unit which starts again
            self.last[place] = value
        self.is_begun = True
        if self.only is not None:  # then a fall is the kernel's own, and the same after a restart of ours
            self.total = found[self.only]
        return self.total


class Spent:
    """The counters of all jobs. Used by one thread."""

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._hierarchies = hierarchies
        self._sums: dict[tuple[str, str], Sum] = {}

    def cpu(self, key: str, groups: Groups) -> float:
        """Return the CPU time of a job; raises OSError or ValueError where it is not told."""
        places = [place for home, paths in groups for place in self._hierarchies.used_in(paths, home.marker)]
        return self._count((key, "cpu"), places, self._hierarchies.used)

    def throttled(self, key: str, groups: Groups) -> float:
        """Return for how long quotas stopped it; raises OSError or ValueError where it is not told."""
        places = [place for home, paths in groups for place in self._hierarchies.limited_in(paths, home.marker)]
        return self._count((key, "throttled"), places, self._hierarchies.throttled)

    def _count(self, key: tuple[str, str], here: Collection[Path], read: Callable[[Path], float]) -> float:
        """Return what these groups, and those that were a job's before, come to."""
        if not here:
            raise FileNotFoundError("no group of its own")
        counter = self._sums.pop(key, None) or Sum()
        self._sums[key] = counter
        while len(self._sums) > KEPT:
            del self._sums[next(iter(self._sums))]
        found: dict[Path, float] = {}
        problems: list[OSError | ValueError] = []
        for place in dict.fromkeys((*here, *counter.last)):
            try:
                found[place] = read(place)
            except FileNotFoundError as error:
                problems += [error] if place in here else []
                counter.last.pop(place, None)
            except (OSError, ValueError) as error:
                problems.append(error)
        if problems and not any(place in found for place in here):
            raise problems[0]
        return counter.add(found)
