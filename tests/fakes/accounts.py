"""A host of two GPUs whose users and jobs the detector of accounts judges, beat by beat."""

from types import MappingProxyType

import msgspec

from gpuwatch.catalogue import process as catalogue
from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, POWER, UTILIZATION
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_SM_ACTIVE
from gpuwatch.catalogue.process import GPU_PROCESSES, JOB_GPU, PROCESS_GPU, USER_GPU
from gpuwatch.detectors.usage import State, Usage
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes.crowd_view import GIB, uuid

START = 1_700_000_000.0
USER = {
    "memory": catalogue.USER_GPU_MEMORY,
    "busy": catalogue.USER_GPU_BUSY,
    "held": catalogue.USER_GPU_HELD,
    "idle": catalogue.USER_GPU_IDLE,
    "energy": catalogue.USER_GPU_ENERGY,
}
JOB = {"held": catalogue.JOB_GPU_HELD, "memory": catalogue.JOB_GPU_MEMORY}


class Host:
    """GPUs and who is on them, judged once a second."""

    def __init__(self, users: int = 3, jobs: int = 3) -> None:
        self.detector = Usage(1.0, users, jobs)
        self.state = State()
        self.wall, self.mono = START, 500.0
        self.is_saved = True  # after every beat
        self.utilization: float | None = 0.5
        self.power: float | None = 300.0
        self.people: list[tuple[str, str, int, str, dict[str, float | None]]] = []
        self.kinds = "compute"
        self.listed = 0.0  # by the driver, beyond those whom anybody has looked at
        self.ids: dict[str, str] = {}  # of jobs, by name
        self.instances: dict[str, tuple[float | None, float | None]] = {}  # of the first GPU: memory in GiB, use
        self.said: list[Reading] = []

    def on(self, user: str, job: str, gpu: int = 0, instance: str = "", **values: float | None) -> "Host":
        """Have a process on a GPU: `memory` in GiB, `share`."""
        self.people.append((user, job, gpu, instance, values))
        return self

    def empty(self) -> "Host":
        """Have nobody on the GPUs."""
        self.people = []
        return self

    def go_on(self, seconds: int) -> "Host":
        """Let time pass."""
        for _ in range(seconds):
            self.beat(1.0)
        return self

    def beat(self, passed: float, *, fresh: bool = True) -> None:
        """Judge once, after so many seconds."""
        self.wall += passed
        self.mono += passed
        at = self.wall if fresh else self.wall - passed
        entries = dict(self.gpu(number, at) for number in range(2))
        for pid, (user, job, gpu, instance, values) in enumerate(self.people):
            labels = {"pid": str(pid), "job": job, "gpu": str(gpu), "uuid": uuid(gpu)}
            info = {"kinds": self.kinds, "scheduler": "docker", "key": f"docker/{self.ids.get(job, job)}"}
            info |= {"user": user, "uid": user.encode().hex(), "users": "ann,bob"} if user else {}
            info |= {"gi": instance} if instance else {}
            target = Target(subject=PROCESS_GPU, key=f"{uuid(gpu)}/{pid}", labels=labels, info=info)
            memory, share = values.get("memory", 1.0), values.get("share", 0.5)
            numbers: dict[Metric, float] = {}
            if memory is not None:
                numbers[catalogue.PROCESS_GPU_MEMORY] = memory * GIB
            if share is not None:
                numbers[catalogue.PROCESS_GPU_UTILIZATION] = share
            entries |= [entry(target, "jobs", Tier.NORMAL, at, numbers)]
        for name, (size, active) in self.instances.items():
            part = Target(subject=MIG, key=f"{uuid(0)}/{name}", labels={"gpu": "0", "uuid": uuid(0), "gpu_instance": name})
            found = {MIG_MEMORY_SIZE: None if size is None else size * GIB, MIG_SM_ACTIVE: active}
            entries |= [
                entry(part, "nvml", Tier.NORMAL, at, {metric: value for metric, value in found.items() if value is not None})
            ]
        view = View(self.wall, MappingProxyType(entries), mono=self.mono)
        self.state, findings = self.detector.step(self.state, view, self.wall)
        if self.is_saved:
            self.detector.written = self.copy()
            self.state, findings = self.detector.step(self.state, view, self.wall)  # the same reading is counted once
        self.said = list(findings.readings)

    def gpu(self, number: int, at: float) -> tuple[Target, Entry]:
        """Return what a GPU answers."""
        target = Target(subject=GPU, key=uuid(number), labels={"gpu": str(number), "uuid": uuid(number)})
        listed = self.listed or float(sum(gpu == number for _, _, gpu, *_ in self.people))
        values = {UTILIZATION: self.utilization, POWER: self.power, MEMORY_SIZE: 40.0 * GIB, GPU_PROCESSES["compute"]: listed}
        return entry(target, "nvml", Tier.FAST, at, {metric: value for metric, value in values.items() if value is not None})

    def copy(self) -> State:
        """Return the state as the store has it."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=State)

    def restart(self, kept: State | None = None) -> None:
        """Have the daemon restarted: what was stored is all that is known."""
        self.detector = Usage(1.0, self.detector.users, self.detector.jobs)
        self.state = kept or self.copy()
        self.detector.written = self.copy()

    def user(self, name: str, what: str, gpu: int = 0) -> float | None:
        """Return what is said of a user."""
        return self.value(USER_GPU, {"user": name, "gpu": str(gpu)}, USER[what])

    def job(self, name: str, what: str, gpu: int = 0) -> float | None:
        """Return what is said of a job."""
        return self.value(JOB_GPU, {"job": name, "gpu": str(gpu)}, JOB[what])

    def value(self, subject: Subject, labels: dict[str, str], metric: Metric) -> float | None:
        """Return one number, None where it is not said."""
        found = [one for one in self.said if one.target.subject is subject and labels.items() <= one.target.labels.items()]
        assert len(found) <= 1
        return found[0].values.get(metric) if found else None

    def names(self, subject: Subject, label: str) -> set[str]:
        """Return who is told of."""
        return {one.target.labels[label] for one in self.said if one.target.subject is subject}


def entry(target: Target, source: str, tier: Tier, at: float, values: dict[Metric, float]) -> tuple[Target, Entry]:
    """Return a target with one reading."""
    reading = Reading(source=source, tier=tier, target=target, at=at, took=0.0, values=values)
    return target, Entry(target, values, {}, (reading,))
