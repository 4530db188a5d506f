"""What the driver lists on the GPUs, by process: the largest, those beyond them, and who is on one GPU alone. Pure."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpuwatch.catalogue.process import HOLDER_MEMORY, HOLDER_UTILIZATION, REST, REST_MEMORY, REST_UTILIZATION
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry

Identity = tuple[int, int | None]  # pid, and start where it can be seen from here
MOVED = {HOLDER_MEMORY: REST_MEMORY, HOLDER_UTILIZATION: REST_UTILIZATION}


class Heap(msgspec.Struct):
    """What some processes of one owner and job have of one GPU or instance together; None where it is not known of each."""

    target: Target
    at: float = 0.0
    numbers: dict[Metric, float | None] = {}

    def add(self, entry: Entry) -> None:
        """Add one process."""
        self.at = max(self.at, entry.readings[0].at)
        for metric, moved in MOVED.items():
            before, value = self.numbers.get(moved, 0.0), entry.values.get(metric)
            self.numbers[moved] = None if before is None or value is None else before + value

    def reading(self, source: str) -> Reading:
        """Return it as a reading."""
        values = {metric: value for metric, value in self.numbers.items() if value is not None}
        if REST_UTILIZATION in values:
            values[REST_UTILIZATION] = min(1.0, values[REST_UTILIZATION])
        absent = {metric: Absence.UNSUPPORTED for metric in self.numbers if metric not in values}
        return Reading(source=source, tier=Tier.NORMAL, target=self.target, at=self.at, took=0.0, values=values, absent=absent)


def identity(entry: Entry) -> Identity:
    """Return pid and start of a holder."""
    labels = entry.target.labels
    return int(labels["pid"]), int(labels["ticks"]) if labels["ticks"] else None


def largest(holders: Iterable[Entry]) -> dict[Identity, float]:
    """Return the GPU memory of all processes, those with the most first."""
    memory: dict[Identity, float] = {}
    for entry in holders:
        who = identity(entry)
        memory[who] = memory.get(who, 0.0) + entry.values.get(HOLDER_MEMORY, 0.0)
    return dict(sorted(memory.items(), key=lambda item: (-item[1], item[0][0])))


def alone(holders: Iterable[Entry]) -> dict[int, dict[str, str]]:
    """Return the labels of the GPU of each process that is on one alone."""
    found: dict[int, dict[str, dict[str, str]]] = {}
    for entry in holders:
        pid, ticks = identity(entry)
        if ticks is not None:
            gpu = {name: entry.target.labels[name] for name in ("gpu", "uuid")}
            found.setdefault(pid, {})[gpu["uuid"]] = gpu
    return {pid: next(iter(gpus.values())) for pid, gpus in found.items() if len(gpus) == 1}


def heaps(
    holders: Iterable[Entry],
    whose: Callable[[int], tuple[str, str]],
    facts: Callable[[int], tuple[str, Mapping[str, str]]],
) -> list[Heap]:
    """Return what these processes have together, by owner, job and GPU or instance.

    `whose` returns the key of a process's job and its owner, as far as people may know; `facts` the label of the job and the text
    facts, the same for all of that job and owner.
    """
    found: dict[tuple[str, str, str, str, str], Heap] = {}
    for entry in holders:
        pid, labels, kinds = int(entry.target.labels["pid"]), entry.target.labels, entry.target.info.get("kinds", "")
        place = (labels["uuid"], labels["gi"], kinds, *whose(pid))
        heap = found.get(place)
        if heap is None:
            job, info = facts(pid)
            own = {name: text for name, text in (("kinds", kinds), ("gi", labels["gi"])) if text}
            named = {"job": job, "gpu": labels["gpu"], "uuid": labels["uuid"]}
            heap = found[place] = Heap(Target(subject=REST, key="|".join(place), labels=named, info={**info, **own}))
        heap.add(entry)
    return list(found.values())
