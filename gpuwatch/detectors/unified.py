"""Memory of GPUs that share the host's (GB10, Jetson): NVML tells none for them (metrics.md, `memory_unified`).

Its size is then the host's, and what is used of it the sum over the processes that the driver lists. Without a list, or where it
leaves the memory of a process out, the use is not known.
"""

import msgspec

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_UNIFIED, MEMORY_USED
from gpuwatch.catalogue.host import HOST
from gpuwatch.catalogue.host import MEMORY_SIZE as HOST_MEMORY_SIZE
from gpuwatch.catalogue.process import GPU_PROCESSES, GPU_PROCESSES_DROPPED, HOLDER, HOLDER_MEMORY
from gpuwatch.detectors.detector import derived, measured
from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.view import Entry, View


class State(msgspec.Struct):
    """Nothing has to be remembered."""


class Unified:
    """The detector."""

    name = "unified"
    version = 1

    def initial(self) -> State:
        """Return nothing."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Say size and use of every such memory."""
        found = []
        for entry in view.of(GPU):
            if entry.values.get(MEMORY_UNIFIED) == 1 and measured(entry):
                values = {MEMORY_SIZE: size(view), MEMORY_USED: used(entry, view)}
                known: dict[Metric, float] = {metric: value for metric, value in values.items() if value is not None}
                found.append(derived(entry.target, known, {}, wall))
        return state, Findings(tuple(found))


def size(view: View) -> float | None:
    """Return the size of the host's memory."""
    return next((host.values.get(HOST_MEMORY_SIZE) for host in view.of(HOST)), None)


def used(entry: Entry, view: View) -> float | None:
    """Return the bytes that the processes on a GPU have together, None where they are not all known."""
    if not any(metric in entry.values for metric in GPU_PROCESSES.values()) or entry.values.get(GPU_PROCESSES_DROPPED, 0.0) > 0:
        return None
    amounts = {
        holder.target.labels["pid"]: holder.values.get(HOLDER_MEMORY)
        for holder in view.of(HOLDER)
        if holder.target.labels["uuid"] == entry.target.labels["uuid"]
    }
    total = 0.0
    for amount in amounts.values():
        if amount is None:
            return None
        total += amount
    return total
