"""Who holds each GPU now, and how much of it. Pure.

Where a GPU is divided (MIG) its seconds are shared: a GPU instance is as much of the card as its memory is of the card's, so that
the tenants of one card never hold more than the card together. What an instance does is what its SMs do (GPM), as far as that is
told; the processes on it have no use of their own.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_SM_ACTIVE
from gpuwatch.catalogue.process import (
    GPU_PROCESSES,
    JOB_GPU,
    PROCESS_GPU,
    PROCESS_GPU_MEMORY,
    PROCESS_GPU_UTILIZATION,
    REST,
    REST_MEMORY,
    REST_UTILIZATION,
)
from gpuwatch.model.escape import printable
from gpuwatch.model.view import Entry, View

NAME = 64  # characters of a name that a text shows
KINDS = {"slurm": "Slurm job", "kubernetes": "pod", "systemd": "unit", "session": "job"}  # what is none of these is a container
IDLE = 0.02  # use up to which a GPU, or an instance of one, does nothing


class Instance(msgspec.Struct):
    """A GPU instance: its part of the card, None where that is not told, and what its SMs do."""

    size: float | None = None
    active: float | None = None


class Part(msgspec.Struct):
    """What one user or job has of a GPU now.

    `memory` and `share` (its use, of the card) are None where they are not known of each process; `idle` is how much of what
    it holds does nothing.
    """

    labels: dict[str, str]
    info: dict[str, str]
    memory: float | None = 0.0
    share: float | None = 0.0
    size: float = 1.0  # of the card
    idle: float | None = None
    instances: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Add one process, or those beyond the cap of which only the sum is told."""
        is_one = entry.target.subject is PROCESS_GPU
        memory = entry.values.get(PROCESS_GPU_MEMORY if is_one else REST_MEMORY)
        share = entry.values.get(PROCESS_GPU_UTILIZATION if is_one else REST_UTILIZATION)
        self.memory = None if self.memory is None or memory is None else self.memory + memory
        self.share = None if self.share is None or share is None else min(1.0, self.share + share)
        if entry.target.info.get("gi"):
            self.instances.add(entry.target.info["gi"])


class Present(msgspec.Struct):
    """Who holds one GPU for computing."""

    users: dict[str, Part] = {}
    jobs: dict[str, Part] = {}
    instances: dict[str, Instance] = {}
    held: set[str] = set()  # instances with a process; "" for one on the whole GPU

    def judge(self, used: float | None) -> bool | None:
        """Say whether all that is held does nothing (None: nobody knows), and work out what each part has.

        `used` is the use of the whole card.
        """
        for parts in (self.users, self.jobs):
            for part in parts.values():
                if part.instances:
                    self.divide(part, parts)
                    continue
                part.idle = None if used is None else float(used <= IDLE)
                if part.share is None and len(parts) == 1:
                    part.share = used
        if not self.held:
            return None if used is None else False
        active = [used if name == "" else self.of(name).active for name in self.held]
        if any(amount is not None and amount > IDLE for amount in active):
            return False
        return None if None in active else True

    def divide(self, part: Part, parts: Mapping[str, Part]) -> None:
        """Work out what a part has of a divided GPU."""
        mine = [(name, self.of(name)) for name in sorted(part.instances)]
        sizes = [1 / len(self.instances.keys() | self.held) if one.size is None else one.size for _, one in mine]
        part.size = min(1.0, sum(sizes))
        both = [(size, one.active) for size, (_, one) in zip(sizes, mine, strict=True)]
        told = [(size, active) for size, active in both if active is not None]
        part.idle = sum(size for size, active in told if active <= IDLE) if told else None
        is_alone = all(sum(name in other.instances for other in parts.values()) == 1 for name, _ in mine)
        part.share = sum(size * active for size, active in told) if is_alone and len(told) == len(both) else None

    def of(self, name: str) -> Instance:
        """Return an instance, an unknown one where it does not answer."""
        return self.instances.get(name) or Instance()


def who(view: View) -> dict[str, Present]:
    """Return who holds each GPU for computing. Who cannot be seen from here is nobody's, and graphics alone hold nothing.

    A GPU of which nobody has looked yet who is on it is left out.
    """
    found = {entry.target.key: Present() for entry in view.of(GPU) if is_empty(entry)}
    for entry in (*view.of(PROCESS_GPU), *view.of(REST)):
        info, labels = entry.target.info, entry.target.labels
        if not entry.readings:
            continue
        now = found.setdefault(labels["uuid"], Present())
        if info.get("kinds") == "graphics":
            continue
        now.held.add(info.get("gi", ""))
        if info.get("user"):
            part = now.users.get(info["uid"])
            if part is None:
                part = now.users[info["uid"]] = Part({"user": info["user"]}, {})
            part.add(entry)
        if labels["job"]:
            part = now.jobs.get(info["key"])
            if part is None:
                job = {"scheduler": info["scheduler"], "job": labels["job"]}
                whose = {**info, "user": info.get("users", "")}  # all of the job's, not only that of this process
                facts = {name: whose[name] for name in JOB_GPU.info if whose.get(name)}
                part = now.jobs[info["key"]] = Part(job, facts)
            part.add(entry)
    sizes = {entry.target.key: entry.values.get(MEMORY_SIZE) for entry in view.of(GPU)}
    for entry in view.of(MIG):
        uuid = entry.target.labels["uuid"]
        if not entry.readings or uuid not in found:
            continue
        whole, own = sizes.get(uuid), entry.values.get(MIG_MEMORY_SIZE)
        size = min(1.0, own / whole) if whole and own is not None else None
        found[uuid].instances[entry.target.labels["gpu_instance"]] = Instance(size, entry.values.get(MIG_SM_ACTIVE))
    return found


def is_empty(gpu: Entry) -> bool:
    """Say whether the driver's lists are there, and have nobody."""
    told = [gpu.values[metric] for metric in GPU_PROCESSES.values() if metric in gpu.values]
    return bool(told) and not any(told)


def called(labels: Mapping[str, str], info: Mapping[str, str]) -> str:
    """Return what a text calls a job, by the labels and facts of JOB or JOB_GPU: "pod ml/train-7 (container trainer) of ann"."""
    scheduler, name, container = labels["scheduler"], labels["job"], info.get("container", "")
    if scheduler == "kubernetes" and info.get("name"):  # its `job` is the UID of the pod
        name = "/".join(filter(None, (info.get("namespace", ""), info["name"])))
    within = f" (container {printable(container, NAME)})" if scheduler in KINDS and container else ""
    whose = f" of {printable(info['user'].replace(',', ', '), NAME)}" if info.get("user") else ""
    return f"{KINDS.get(scheduler, 'container')} {printable(name, NAME)}{within}{whose}"


def weights(parts: Mapping[str, Part]) -> dict[str, float]:
    """Return how the energy is shared: by use where that is known of all and anybody uses it, else by what they hold."""
    shares = [part.share for part in parts.values()]
    total = sum(known(shares)) if None not in shares else 0.0
    if total <= 0:
        held = sum(part.size for part in parts.values())
        return {key: part.size / held if held else 1 / len(parts) for key, part in parts.items()}
    return {key: (part.share or 0.0) / total for key, part in parts.items()}


def known(numbers: Iterable[float | None]) -> list[float]:
    """Return the numbers that are known."""
    return [number for number in numbers if number is not None]
