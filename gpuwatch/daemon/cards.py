"""What `gpuwatch status` tells of each GPU: how it is, its MIG instances, and whose work is on it. Pure, over the view."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpuwatch.catalogue import derived, gpu
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED, MIG_MODE
from gpuwatch.catalogue.process import JOB, JOB_GPU_ACCESS_MISSING, PROCESS_GPU, PROCESS_GPU_MEMORY, REST, REST_MEMORY
from gpuwatch.detectors.access import facts, lost, named
from gpuwatch.model.metric import StateSet
from gpuwatch.model.view import Entry, View

SHOWN = (gpu.UTILIZATION, gpu.TEMPERATURE["core"], gpu.POWER, gpu.MEMORY_USED, gpu.MEMORY_SIZE, derived.LAST_SEEN)

RELEASED: Mapping[str, Any] = MappingProxyType(
    {"up": False, "state": "", "down_reason": "released", "words": "", "values": {}, "mig": None, "users": []}
)


def state(entry: Entry, states: StateSet) -> str:
    """Return the state that holds, "" where none is known."""
    return next((name for name, metric in states.items() if entry.values.get(metric) == 1), "")


def cards(view: View) -> list[Entry]:
    """Return the GPUs of this host: those of the inventory, which knows what is there and what is missing.

    What DCGM tells of may be another host's, and an Xid may name an address at which no GPU is.
    """
    return [entry for entry in view.of(gpu.GPU) if derived.UP in entry.values or derived.UP in entry.absent]


def of_cards(view: View, *, released: bool = False) -> list[dict[str, Any]]:
    """Return every GPU: who it is, how it is, the numbers of the first look, and who is on it.

    Where they are `released` nothing is known of any, whatever has been said of it before and has not gone late yet.
    """
    found = [of_card(entry, view) for entry in cards(view)]
    return [{**one, **RELEASED} for one in found] if released else found


def lacking(view: View) -> list[dict[str, str]]:
    """Return the containers whose device rules lack the GPUs that they use, with what that means."""
    found = [entry for entry in view.of(JOB) if entry.values.get(JOB_GPU_ACCESS_MISSING)]
    return [{**facts(entry), "words": lost(named(entry))} for entry in found]


def of_card(entry: Entry, view: View) -> dict[str, Any]:
    """Return one GPU."""
    uuid = entry.target.labels.get("uuid", "")
    return {
        **entry.target.labels,
        **entry.target.info,
        "up": entry.values.get(derived.UP) == 1,
        "state": state(entry, derived.STATE),
        "down_reason": state(entry, derived.DOWN_REASON),
        "words": entry.fault.words if entry.fault else "",
        "values": numbers(entry),
        "mig": [of_instance(one) for one in of_gpu(view.of(MIG), uuid)] if entry.values.get(MIG_MODE["current"]) == 1 else None,
        "users": list(users([one for one in of_gpu([*view.of(PROCESS_GPU), *view.of(REST)], uuid) if one.readings])),
    }


def numbers(entry: Entry) -> dict[str, float]:
    """Return the numbers of the first look. Of a GPU that has just come back the size of its memory is the sum of the parts."""
    found = {metric.id: entry.values[metric] for metric in SHOWN if metric in entry.values}
    used, free = entry.values.get(gpu.MEMORY_USED), entry.values.get(gpu.MEMORY_FREE)
    if gpu.MEMORY_SIZE not in entry.values and used is not None and free is not None:
        found[gpu.MEMORY_SIZE.id] = used + free + entry.values.get(gpu.MEMORY_RESERVED, 0.0)
    return found


def of_gpu(entries: Sequence[Entry], uuid: str) -> Iterator[Entry]:
    """Yield what is of one GPU."""
    return (one for one in entries if one.target.labels.get("uuid") == uuid)


def of_instance(entry: Entry) -> dict[str, Any]:
    """Return one MIG instance."""
    return {
        "gpu_instance": entry.target.labels.get("gpu_instance", ""),
        "profile": entry.target.info.get("profile", ""),
        "values": {metric.id: entry.values[metric] for metric in (MIG_MEMORY_USED, MIG_MEMORY_SIZE) if metric in entry.values},
    }


def users(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Yield who is on a GPU, by owner, job and MIG instance; the one with the most memory first.

    The memory is null where the driver does not say that of one of the processes. `command` is that of the largest. Of those
    beyond the cap ([processes] limit) only the memory is told.
    """
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        labels, info = entry.target.labels, entry.target.info
        found.setdefault((info.get("user", ""), labels.get("job", ""), info.get("gi", "")), []).append(entry)

    def memory(entry: Entry) -> float | None:
        return entry.values.get(REST_MEMORY if entry.target.subject is REST else PROCESS_GPU_MEMORY)

    def size(entry: Entry) -> float:
        return memory(entry) or 0.0

    for (user, job, instance), group in sorted(found.items(), key=lambda item: -sum(map(size, item[1]))):
        largest = max(group, key=lambda entry: (entry.target.subject is not REST, size(entry)))
        yield {
            "user": user,
            "job": job,
            "gpu_instance": instance,
            "command": largest.target.labels.get("command", ""),
            "pids": [one.target.labels["pid"] for one in group if "pid" in one.target.labels],
            "memory_bytes": None if None in map(memory, group) else sum(map(size, group)),
        }
