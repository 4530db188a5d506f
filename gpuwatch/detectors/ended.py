"""Processes that ended while their GPU's memory was full: a CUDA out-of-memory is in no log. A suspicion, not a fault.

Only where the driver's list was read again and lacks the process: a list that does not come says nothing. The driver may list
a process for some time after it has left /proc; it has ended then, and is not taken for another one that ends later. On a GPU
that is divided (MIG) the memory of the process's own instance counts, not that of the card. Which of two looks was the later one
their wall times say; once the wall clock has stepped they do not, and what was seen before is forgotten.
"""

from collections.abc import Iterator

import msgspec

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_USED
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED
from gpuwatch.catalogue.process import (
    GPU_PROCESSES,
    GPU_PROCESSES_DROPPED,
    HOLDER,
    HOLDER_MEMORY,
    OOM_SUSPECTED,
    PROCESS_GPU,
)
from gpuwatch.detectors.detector import Clockwork, derived, measured
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
GPUS = 256  # GPUs that are remembered
GONE = "gone"  # not in /proc any more, though the driver lists it
LISTED = GPU_PROCESSES["compute"]


class Last(msgspec.Struct):
    """One process on one GPU, as it was listed last."""

    gpu: str
    pid: str
    at: float
    memory: float | None
    words: dict[str, str] = {}
    instance: str = ""

    @property
    def place(self) -> str:
        """Whose memory it has: that of the GPU or of a GPU instance."""
        return place(self.gpu, self.instance)


class Memory(msgspec.Struct):
    """The last time at which the memory of a GPU or a GPU instance was full, and how full."""

    at: float = float("-inf")
    ratio: float = 0.0


class State(msgspec.Struct):
    """Who was there, how full it was, and how many have ended so."""

    holders: dict[str, Last] = {}
    full: dict[str, Memory] = {}
    counts: dict[str, int] = {}
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


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
        state.clock.tick(view.now, view.mono)
        if state.clock.stepped:
            state.holders.clear()
            state.full.clear()
        present = dict(holders(view))
        suspects: dict[str, Last] = {}
        for last in self.gone(state, view, present):
            if last.place not in suspects or (last.memory or 0) > (suspects[last.place].memory or 0):
                suspects[last.place] = last
        for entry in view.of(GPU):
            key = entry.target.key
            if LISTED not in entry.values:
                continue
            count = state.counts.pop(key, 0)
            for last in (one for one in suspects.values() if one.gpu == key):
                count += 1
                events.append(event(last, entry.target, state.full[last.place]))
                evidence[entry.target, OOM_SUSPECTED] = Evidence(words=last.words | {"pid": last.pid})
            state.counts[key] = count  # at the end: the first are those not seen for longest
            readings.append(derived(entry.target, {OOM_SUSPECTED: float(count)}, {}, wall))
        while len(state.counts) > GPUS:
            del state.counts[next(iter(state.counts))]
        return state, Findings(tuple(readings), evidence, tuple(events), (self.name,) if events else ())

    def gone(self, state: State, view: View, present: dict[str, Last]) -> Iterator[Last]:
        """Take in who is there, and yield who has ended while the memory was full."""
        lists = {
            entry.target.key: entry.at(LISTED) or float("-inf")
            for entry in view.of(GPU)
            # one that is not listed any more may be there all the same where the list is cut
            if measured(entry) and not entry.values.get(GPU_PROCESSES_DROPPED)
        }
        sizes = self.filled(state, view)
        for key, last in list(state.holders.items()):
            if key in present:
                continue
            listed = lists.get(last.gpu, float("-inf"))
            if listed > last.at or view.now - last.at > GAP:
                del state.holders[key]
            if last.at < listed <= last.at + GAP and self.is_suspect(
                last, state.full.get(last.place), sizes.get(last.place, 0.0)
            ):
                yield last
        for key, last in present.items():
            last.words = last.words or (state.holders[key].words if key in state.holders else {})
            state.holders[key] = last
        while len(state.holders) > LIMIT:
            del state.holders[next(iter(state.holders))]

    @staticmethod
    def filled(state: State, view: View) -> dict[str, float]:
        """Take in whose memory is full now, forget what is too long ago, and return the sizes."""
        amounts = [
            (entry.target.key, entry.at(MEMORY_USED), entry.values.get(MEMORY_USED), entry.values.get(MEMORY_SIZE))
            for entry in view.of(GPU)
        ]
        for entry in view.of(MIG):
            key = place(entry.target.labels["uuid"], entry.target.labels["gpu_instance"])
            amounts.append((key, entry.at(MIG_MEMORY_USED), entry.values.get(MIG_MEMORY_USED), entry.values.get(MIG_MEMORY_SIZE)))
        for key, at, used, size in amounts:
            if used is not None and size and at is not None and at <= view.now and used / size >= FULL:
                state.full[key] = Memory(at, used / size)
        for key, memory in list(state.full.items()):
            if memory.at < view.now - 2 * GAP - BEFORE:  # no list that is still judged goes back so far
                del state.full[key]
        return {key: size or 0.0 for key, _, _, size in amounts}

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
        if not entry.readings or entry.target.info.get("unseen") == GONE:
            continue
        if entry.readings[0].at > view.now:  # from before the wall clock was set back
            continue
        uuid, pid = entry.target.labels["uuid"], entry.target.labels["pid"]
        named = names.get((uuid, pid))
        words: dict[str, str] = {}
        if named is not None:
            facts = {"name": named.labels["command"], "job": named.labels["job"]}
            facts |= {word: named.info.get(word, "") for word in ("container", "user")}
            words = {word: text for word, text in facts.items() if text}
        yield (
            entry.target.key,
            Last(uuid, pid, entry.readings[0].at, entry.values.get(HOLDER_MEMORY), words, entry.target.labels["gi"]),
        )


def place(gpu: str, instance: str) -> str:
    """Return the name of a memory."""
    return f"{gpu}/{instance}" if instance else gpu


def event(last: Last, gpu: Target, full: Memory) -> Event:
    """Return what is told of it."""
    words = last.words
    whose = ", ".join(text for text in (words.get("user", ""), words.get("container") or words.get("job", "")) if text)
    name = words.get("name") or "a process"
    where = f"{gpu}, instance {last.instance}," if last.instance else str(gpu)
    return Event(
        source="derived",
        kind="oom_suspected",
        severity=Severity.INFO,
        at=last.at,
        words=f"{name} (pid {last.pid}{', ' + whose if whose else ''}) ended while {where} was {full.ratio:.0%} full",
        subject="gpu",
        key=gpu.key,
        facts={"pid": last.pid, **words},
    )
