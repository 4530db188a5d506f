"""A host told as a story: GPUs answer once a second through the real board, detectors and rules, on a clock of ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch import detectors
from gpuwatch.catalogue import gpu, host
from gpuwatch.catalogue.process import PROCESS_GPU, PROCESS_GPU_MEMORY
from gpuwatch.config import Config, Gpu, convert
from gpuwatch.detectors.reboot import Before
from gpuwatch.model.alert import Transition
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.incidents import Incidents
from gpuwatch.rules.rule import Rule
from gpuwatch.sampling.board import Board

START = 1_700_000_000.0
LOST = Fault("lost", "the GPU is lost", 15)
RESET = Fault("reset_required", "the GPU must be reset", 16)
UNKNOWN = Fault("unknown_error", "no call answers", 999)
UNLISTED = Fault("lost", "the GPU is gone from NVML's list")
HUNG = Fault("hung", "a call does not return")


class Heard(NamedTuple):
    """One transition as the story compares it."""

    at: float
    rule: str
    gpu: str
    after: str
    severity: str


@dataclass
class Card:
    """One GPU of the host, and what the driver and the bus say of it."""

    uuid: str
    index: int
    pci: str
    serial: str
    temperature: float | None = 40.0
    slowdown: float | None = None
    fault: Fault | None = None
    partly: bool = False  # beside the fault, other calls still answer
    silent: bool = False
    on_bus: bool = True
    all_ones: bool = False
    bound_to: str = "nvidia"
    nameless: bool = False  # NVML cannot say its UUID: the address is its key
    more: dict[Metric, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A process on a GPU, by the number of its card; `facts` are more of what the jobs source says of it."""

    gpu: int
    job: str
    user: str = ""
    scheduler: str = "docker"
    facts: dict[str, str] = field(default_factory=dict)


def card(index: int) -> Card:
    """Return a GPU as it comes."""
    return Card(
        uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000", index=index, pci=f"0000:{0x40 + index:02x}:00.0", serial=f"S{index}"
    )


class Story:
    """Tell what happens with `at(...)` and the setters, then ask what was heard."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        gpus: int = 1,
        every: float = 1.0,
        expected: int | None = None,
        before: Before | None = None,
        names: dict[str, str] | None = None,
    ) -> None:
        self.rules, self.every, self.before = tuple(rules), every, before
        self.cards = [card(index) for index in range(gpus)]
        table = {"inventory": {} if expected is None else {"gpus": expected}, "sources": {"nvml": {"every": f"{every:g}s"}}}
        config = convert(table, Config, {}, "story")
        self.config = Config(
            inventory=config.inventory,
            sources=config.sources,
            gpus={pci: Gpu(label=label) for pci, label in (names or {}).items()},
        )
        self.now = 0.0  # seconds of the story that have been told
        self.wall, self.mono = START, 5_000.0
        self.driver: str | None = "ok"
        self.listed: int | None = None  # None: as many as answer
        self.nvml = True  # the worker lives
        self.release: dict[Metric, float] = {}  # what `daemon/releasing.py` says of the present or the last one
        self.boot_id = "boot-1"
        self.work: list[Work] = []  # who is on the GPUs; of one that does not answer nobody is listed
        self.listed_work: set[Target] = set()
        self.ports: dict[int, str] = {}  # index of a GPU -> addresses of the ports above it
        self.transitions: list[tuple[float, Transition]] = []
        self.events: list[Event] = []
        self.kept: list[Event] = []  # what the store would have
        self.count = 0
        self.incidents = Incidents("vision-07", self.new_id)
        self.blobs: dict[str, tuple[int, bytes]] = {}
        self.kept_states: dict[str, tuple[int, bytes]] = {}  # those that were written since they grew, until a test clears them
        self.begin()

    def new_id(self) -> str:
        """Return the next id."""
        self.count += 1
        return f"id-{self.count}"

    def begin(self) -> None:
        """Start the daemon's rooms anew."""
        self.board = Board({})
        self.runner = detectors.Runner(detectors.build(self.config, self.before))
        self.engine = Engine(self.rules)

    def gpu(self, number: int, /, **facts: object) -> "Story":
        """Change what is true of one GPU from now on."""
        for name, value in facts.items():
            assert hasattr(self.cards[number], name), name
            setattr(self.cards[number], name, value)
        return self

    def at(self, seconds: float) -> "Story":
        """Let time pass up to here, with what was told before."""
        while self.now < seconds:
            self.beat()
        return self

    until = at

    def happens(self, *events: Event) -> "Story":
        """Have these told with the next beat."""
        self.events += events
        return self

    def released(self) -> "Story":
        """Let go of the GPUs."""
        self.nvml = False
        self.release = {gpu.RELEASED_SINCE: self.wall} | gpu.DRIVER_STATE.at("released")
        return self

    def resumed(self) -> "Story":
        """Take them up again."""
        self.nvml = True
        self.release = {gpu.RELEASED_SINCE: self.release[gpu.RELEASED_SINCE], gpu.RELEASED_UNTIL: self.wall}
        return self

    def step_wall(self, seconds: float) -> "Story":
        """Set the wall clock."""
        self.wall += seconds
        return self

    def restart(self, *, away: float, crashed: bool = False) -> "Story":
        """Stop the daemon and start it again later; after a crash only the incidents are up to date."""
        if not crashed:
            self.save()
        self.pass_time(away)
        self.begin()
        self.runner.restore(self.blobs.get)
        if "engine" in self.blobs:
            self.engine.restore(self.blobs["engine"][1], self.mono, self.wall)
        known = self.incidents.known.values()
        self.incidents = Incidents("vision-07", self.new_id)
        self.incidents.restore(list(known))
        self.hear(self.engine.adopt(self.incidents.open(), self.mono, self.wall))
        return self

    def save(self) -> None:
        """Hand all states to the store, as the daemon does once a minute."""
        self.blobs = {name: (version, blob) for name, version, blob in self.runner.dump(clean=True)}
        self.blobs["engine"] = (1, self.engine.dump(self.mono, self.wall))

    def pass_time(self, seconds: float) -> None:
        """Move both clocks."""
        self.now += seconds
        self.wall += seconds
        self.mono += seconds

    def beat(self) -> None:
        """Read, derive and judge once."""
        for reading in (*self.readings(), *self.workers()):
            self.board.post(reading, self.mono)
        view = replace(self.board.view(self.wall, self.mono), events=tuple(self.events))
        self.events.clear()
        found = self.runner.run(view, self.wall)
        self.kept += found.events
        for name, version, blob in self.runner.dump(found.counted):
            self.blobs[name] = self.kept_states[name] = version, blob
        for reading in found.readings:
            self.board.post(reading, self.mono)
        self.hear(self.engine.beat(self.board.view(self.wall, self.mono), self.mono, found.evidence))
        self.pass_time(self.every)

    def hear(self, transitions: Sequence[Transition]) -> None:
        """Keep what was told, and fold it into incidents."""
        self.transitions += [(self.now, transition) for transition in transitions]
        self.changed = self.incidents.apply(transitions)

    def readings(self) -> list[Reading]:
        """Return what the sources say now."""
        found = [self.reading("host", Target(subject=host.HOST, key="", info={"name": "vision-07", "boot_id": self.boot_id}), {})]
        on_bus = [card for card in self.cards if card.on_bus]
        found.append(self.reading("pci", Target(subject=gpu.GPUS, key=""), {gpu.VISIBLE["pci"]: float(len(on_bus))}))
        for each in on_bus:
            info = {"driver": each.bound_to, "ports": self.ports.get(each.index, "")}
            target = Target(subject=host.PCI, key=each.pci, labels={"pci_bus_id": each.pci}, info=info)
            found.append(self.reading("pci", target, {host.PCI_RESPONDING: 0.0 if each.all_ones else 1.0}))
        if self.release:
            found.append(self.reading("own", Target(subject=gpu.DRIVER, key=""), self.release))
        if not self.nvml or self.driver is None:
            return found
        found.append(self.reading("nvml", Target(subject=gpu.DRIVER, key=""), gpu.DRIVER_STATE.at(self.driver)))
        if self.driver != "ok":
            return found
        answering = [each for each in self.cards if not each.silent]
        listed = len(answering) if self.listed is None else self.listed
        found.append(self.reading("nvml", Target(subject=gpu.GPUS, key=""), {gpu.VISIBLE["nvml"]: float(listed)}))
        return found + [self.of_card(each) for each in answering]

    def of_card(self, each: Card) -> Reading:
        """Return the fast reading of one GPU."""
        key = each.pci if each.nameless else each.uuid
        info = {"pci_bus_id": each.pci} | ({} if each.nameless else {"name": "NVIDIA A40", "serial": each.serial})
        target = Target(subject=gpu.GPU, key=key, labels={"gpu": str(each.index), "uuid": key}, info=info)
        known = {gpu.TEMPERATURE["core"]: each.temperature, gpu.TEMPERATURE_LIMIT["slowdown"]: each.slowdown}
        values = {metric: value for metric, value in known.items() if value is not None}
        absent = {metric: Absence.UNSUPPORTED for metric, value in known.items() if value is None}
        if each.slowdown is None:
            absent |= dict.fromkeys((gpu.TEMPERATURE_MARGIN, gpu.TEMPERATURE_TLIMIT_OFFSET["slowdown"]), Absence.UNSUPPORTED)
        if each.fault is not None and not each.partly:
            values, absent = {}, dict.fromkeys(known, Absence.LOST)
        return self.reading("nvml", target, {**values, **(each.more if each.fault is None else {})}, absent, each.fault)

    def workers(self) -> list[Reading]:
        """Return what the jobs source says of the processes; those that are listed no more are over."""
        is_up = self.nvml and self.driver == "ok"
        up = {number for number, each in enumerate(self.cards) if is_up and each.fault is None and not each.silent}
        now = [self.of_work(each) for each in self.work if each.gpu in up]
        ended = self.listed_work - {one.target for one in now}
        self.listed_work = {one.target for one in now}
        return now + [self.reading("jobs", target, {}) for target in ended]

    def of_work(self, each: Work) -> Reading:
        """Return one process on one GPU."""
        on = self.cards[each.gpu]
        labels = {"pid": "4711", "job": each.job, "gpu": str(on.index), "uuid": on.uuid}
        info = {"scheduler": each.scheduler, "key": f"{each.scheduler}/{each.job}", "kinds": "compute", **each.facts}
        info |= {"user": each.user, "uid": each.user, "users": each.user} if each.user else {}
        target = Target(subject=PROCESS_GPU, key=f"{on.uuid}/{each.job}", labels=labels, info=info)
        return self.reading("jobs", target, {PROCESS_GPU_MEMORY: 1e9})

    def reading(
        self,
        source: str,
        target: Target,
        values: dict[Metric, float],
        absent: dict[Metric, Absence] | None = None,
        fault: Fault | None = None,
    ) -> Reading:
        """Return one reading of this moment."""
        tier = Tier.SLOW if source == "pci" else Tier.FAST
        return Reading(
            source=source, tier=tier, target=target, at=self.wall, took=0.001, values=values, absent=absent or {}, fault=fault
        )

    def heard(self, rule: str = "") -> list[Heard]:
        """Return what people may have heard of so far."""
        return [
            Heard(at, one.rule, one.target.labels.get("gpu", ""), one.after.value, one.severity.value)
            for at, one in self.transitions
            if rule in ("", one.rule)
        ]

    def expects_nothing_until(self, seconds: float) -> None:
        """Let time pass, in which nothing may be heard."""
        self.at(seconds)
        assert self.heard() == []

    def value(self, index: int, metric: Metric) -> float | None:
        """Return what the board now says of one GPU."""
        view = self.board.view(self.wall, self.mono)
        return view.value(Target(subject=gpu.GPU, key=self.cards[index].uuid), metric)
