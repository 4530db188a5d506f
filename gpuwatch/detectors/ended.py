"""Processes that ended while their GPU's memory was full: a CUDA out-of-memory is in no log. A suspicion, not a fault.

Only where the driver's list was read again and lacks the process: a list that does not come says nothing.
"""

from collections.abc import Iterator

import msgspec

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_USED
from gpuwatch.catalogue.process import (
    GPU_PROCESSES,
    GPU_PROCESSES_DROPPED,
    HOLDER,
    HOLDER_MEMORY,
    OOM_SUSPECTED,
    PROCESS_GPU,
)
from gpuwatch.detectors.detector import derived, measured
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

FULL = 0.97  # of the memory
PART = 0.05  # of it that a process must have had: a small one does not fail for want of much
BEFORE = 15.0  # seconds before the last list with the process in which the memory may have been full
GAP = 60.0  # seconds between two lists beyond which nobody knows what happened between them
LIMIT = 4096  # processes that are remembered
LISTED = GPU_PROCESSES["compute"]


class Last(msgspec.Struct):
    """One process on one GPU, as it was listed last."""

    gpu: str
    pid: str
    at: float
    memory: float | None
    words: dict[str, str] = {}


class Memory(msgspec.Struct):
    """The last time at which a GPU's memory was full, and how full."""

    at: float = float("-inf")
    ratio: float = 0.0


class State(msgspec.Struct):
    """Who was there, how full it was, and how many have ended so."""

    holders: dict[str, Last] = {}
    full: dict[str, Memory] = {}
    counts: dict[str, int] = {}


class Ended:
    """The detector."""

    name = "ended"
    version = 1

    def initial(self) -> State:
        """Return that nobody was there."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Look who is gone."""
        readings: list[Reading] = []
        evidence: dict[tuple[Target, Metric], Evidence] = {}
        events: list[Event] = []
        present = dict(holders(view))
        suspects: dict[str, Last] = {}
        for last in self.gone(state, view, present):
            if last.gpu not in suspects or (last.memory or 0) > (suspects[last.gpu].memory or 0):
                suspects[last.gpu] = last
        for entry in view.of(GPU):
            key = entry.target.key
            if LISTED in entry.values:
                if key in suspects:
                    state.counts[key] = state.counts.get(key, 0) + 1
                    events.append(event(suspects[key], entry.target, state.full[key]))
                    evidence[entry.target, OOM_SUSPECTED] = Evidence(words=suspects[key].words | {"pid": suspects[key].pid})
                readings.append(derived(entry.target, {OOM_SUSPECTED: float(state.counts.get(key, 0))}, {}, wall))
        return state, Findings(tuple(readings), evidence, tuple(events))

    def gone(self, state: State, view: View, present: dict[str, Last]) -> Iterator[Last]:
        """Take in who is there, and yield who has ended while the memory was full."""
        lists: dict[str, float] = {}
        sizes: dict[str, float] = {}
        for entry in view.of(GPU):
            key, used, size = entry.target.key, entry.values.get(MEMORY_USED), entry.values.get(MEMORY_SIZE)
            at = entry.at(MEMORY_USED)
            if used is not None and size and at is not None and used / size >= FULL:
                state.full[key] = Memory(at, used / size)
            if not measured(entry) or entry.values.get(GPU_PROCESSES_DROPPED):
                continue  # one that is not listed any more may be there all the same
            sizes[key] = size or 0.0
            lists[key] = entry.at(LISTED) or float("-inf")
        for key, last in list(state.holders.items()):
            if key in present:
                continue
            listed = lists.get(last.gpu, float("-inf"))
            if listed > last.at or view.now - last.at > GAP:
                del state.holders[key]
            if last.at < listed <= last.at + GAP and self.is_suspect(last, state.full.get(last.gpu), sizes[last.gpu]):
                yield last
        for key, last in present.items():
            last.words = last.words or (state.holders[key].words if key in state.holders else {})
            state.holders[key] = last
        while len(state.holders) > LIMIT:
            del state.holders[next(iter(state.holders))]

    @staticmethod
    def is_suspect(last: Last, full: Memory | None, size: float) -> bool:
        """Say whether the memory was full when this process ended."""
        return full is not None and full.at >= last.at - BEFORE and (last.memory is None or last.memory >= PART * size)


def holders(view: View) -> Iterator[tuple[str, Last]]:
    """Yield who is on the GPUs now, with what is known of him."""
    names = {
        (entry.target.labels["uuid"], entry.target.labels["pid"]): entry.target
        for entry in view.of(PROCESS_GPU)
        if entry.readings
    }
    for entry in view.of(HOLDER):
        if not entry.readings:
            continue
        uuid, pid = entry.target.labels["uuid"], entry.target.labels["pid"]
        named = names.get((uuid, pid))
        words: dict[str, str] = {}
        if named is not None:
            facts = {"name": named.labels["command"], "job": named.labels["job"]}
            facts |= {word: named.info.get(word, "") for word in ("container", "user")}
            words = {word: text for word, text in facts.items() if text}
        yield entry.target.key, Last(uuid, pid, entry.readings[0].at, entry.values.get(HOLDER_MEMORY), words)


def event(last: Last, gpu: Target, full: Memory) -> Event:
    """Return what is told of it."""
    words = last.words
    whose = ", ".join(text for text in (words.get("user", ""), words.get("container") or words.get("job", "")) if text)
    name = words.get("name") or "a process"
    return Event(
        source="derived",
        kind="oom_suspected",
        severity=Severity.INFO,
        at=last.at,
        words=f"{name} (pid {last.pid}{', ' + whose if whose else ''}) ended while {gpu} was {full.ratio:.0%} full",
        subject="gpu",
        key=gpu.key,
        facts={"pid": last.pid, **words},
    )
