"""Processes that end while their GPU's memory is full."""

from types import MappingProxyType

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, MEMORY_USED
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED
from gpuwatch.catalogue.process import GPU_PROCESSES, GPU_PROCESSES_DROPPED, OOM_SUSPECTED, PROCESS_GPU
from gpuwatch.detectors.ended import BEFORE, GAP, GPUS, Ended
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes.crowd_view import GIB, holder, uuid

SIZE = 24 * GIB
CARD = Target(subject=GPU, key=uuid(3), labels={"gpu": "3", "uuid": uuid(3)})
WORDS = {"name": "python", "job": "aoi", "container": "aoi-infer-2", "user": "ann"}


class Host:
    """One GPU whose memory is read every second and whose processes every ten."""

    def __init__(self) -> None:
        self.detector = Ended()
        self.state = self.detector.initial()
        self.now, self.mono = 1_700_000_000.0, 500.0
        self.used = 0.5
        self.people: dict[int, float | None] = {4711: 12.0 * GIB}
        self.instances: dict[str, float] = {}  # how full each is
        self.instance = ""  # of the people
        self.listed = self.list()
        self.dropped = 0.0
        self.lists = True
        self.events: list[Event] = []
        self.counted: tuple[str, ...] = ()
        self.count: float | None = None

    def list(self) -> tuple[float, list[Reading]]:
        """Have the driver's list read."""
        return self.now, [
            holder(pid, 3, memory=memory, at=self.now, instance=self.instance) for pid, memory in self.people.items()
        ]

    def go_on(self, seconds: int) -> "Host":
        """Let time pass."""
        for _ in range(seconds):
            self.now += 1
            self.mono += 1
            if self.lists and int(self.now) % 10 == 0:
                self.listed = self.list()
            self.beat()
        return self

    def beat(self) -> None:
        """Judge once."""
        at, holders = self.listed
        fast = self.reading(CARD, Tier.FAST, self.now, {MEMORY_USED: self.used * SIZE})
        listed = {GPU_PROCESSES["compute"]: float(len(holders)), GPU_PROCESSES_DROPPED: self.dropped}
        slow = self.reading(CARD, Tier.NORMAL, at, {MEMORY_SIZE: float(SIZE), **listed})
        entries = {CARD: Entry(CARD, {**fast.values, **slow.values}, {}, (fast, slow))}
        for instance, ratio in self.instances.items():
            part = Target(subject=MIG, key=f"{uuid(3)}/{instance}", labels={**CARD.labels, "gpu_instance": instance})
            amounts = self.reading(part, Tier.NORMAL, at, {MIG_MEMORY_USED: ratio * SIZE / 7, MIG_MEMORY_SIZE: SIZE / 7})
            entries[part] = Entry(part, amounts.values, {}, (amounts,))
        for one in holders:
            entries[one.target] = Entry(one.target, one.values, one.absent, (one,))
            labels = {"pid": one.target.labels["pid"], "uuid": uuid(3), "command": "python", "job": "aoi"}
            target = Target(
                subject=PROCESS_GPU, key=one.target.key, labels=labels, info={"container": "aoi-infer-2", "user": "ann"}
            )
            entries[target] = Entry(target, {}, {}, (self.reading(target, Tier.NORMAL, at, {}),))
        self.state, findings = self.detector.step(self.state, View(self.now, MappingProxyType(entries), mono=self.mono), self.now)
        self.events += findings.events
        self.counted = findings.counted
        self.count = next((one.values[OOM_SUSPECTED] for one in findings.readings if one.target == CARD), None)
        self.evidence = findings.evidence

    @staticmethod
    def reading(target: Target, tier: Tier, at: float, values: dict[Metric, float]) -> Reading:
        """Return a reading of NVML's."""
        return Reading(source="nvml", tier=tier, target=target, at=at, took=0.0, values=values)


def test_a_process_that_ends_on_a_full_gpu_is_told_once_with_who_it_was() -> None:
    host = Host().go_on(30)
    assert host.count == 0.0
    host.used = 0.985
    host.go_on(4)
    host.used, host.people = 0.01, {}
    host.go_on(60)
    (event,) = host.events
    assert ("oom_suspected", "gpu", uuid(3), Severity.INFO) == (event.kind, event.subject, event.key, event.severity)
    assert event.facts == {"pid": "4711", **WORDS}
    assert event.words == "python (pid 4711, ann, aoi-infer-2) ended while gpu 3 was 98% full"
    assert host.count == 1.0
    assert "oom_suspected" in KINDS


def test_the_evidence_of_the_count_names_the_process() -> None:
    host = Host().go_on(20)
    host.used = 0.985
    host.go_on(4)
    host.people = {}
    while not host.events:
        assert host.counted == ()
        host.go_on(1)
    assert host.counted == ("ended",)  # so that the count is written before it is on the page
    assert host.evidence[CARD, OOM_SUSPECTED].words == {"pid": "4711", **WORDS}


@pytest.mark.parametrize("back", [100.0, 7200.0])
def test_an_ordinary_end_after_the_wall_clock_was_set_back_is_nothing(back: float) -> None:
    host = Host()
    host.used = 0.99
    host.go_on(30)
    host.used = 0.5
    host.go_on(60)
    host.now -= back
    host.go_on(40)
    host.people = {}
    host.go_on(int(back) + 100)
    assert (host.events, host.count) == ([], 0.0)


def test_a_process_that_ends_as_the_wall_clock_is_set_back_does_not_end_again_hours_later() -> None:
    host = Host()
    host.used = 0.99
    host.go_on(30)
    host.people = {}
    host.now -= 300
    host.go_on(700)
    assert (host.events, host.count) == ([], 0.0)


@pytest.mark.parametrize("used", [0.5, 0.9, 0.96])
def test_an_ordinary_end_is_nothing(used: float) -> None:
    host = Host()
    host.used = used
    host.go_on(30)
    host.people = {}
    host.go_on(60)
    assert (host.events, host.count) == ([], 0.0)


def test_memory_that_was_full_an_hour_before_the_end_is_nothing() -> None:
    host = Host()
    host.used = 0.99
    host.go_on(30)
    host.used = 0.6
    host.go_on(60)
    host.people = {}
    host.go_on(60)
    assert host.events == []


def test_a_small_process_that_ends_beside_a_large_one_is_nothing() -> None:
    host = Host()
    host.people = {4711: 23.0 * GIB, 4712: 0.3 * GIB}
    host.used = 0.985
    host.go_on(30)
    host.people = {4711: 23.0 * GIB}
    host.go_on(60)
    assert host.events == []


def test_of_several_that_end_at_once_the_largest_is_told() -> None:
    host = Host()
    host.people = {4711: 10.0 * GIB, 4712: 13.0 * GIB}
    host.used = 0.985
    host.go_on(30)
    host.people, host.used = {}, 0.0
    host.go_on(60)
    assert [event.facts["pid"] for event in host.events] == ["4712"]


def test_a_memory_that_is_not_told_does_not_hide_the_end() -> None:
    host = Host()
    host.people = {4711: None}
    host.used = 0.985
    host.go_on(30)
    host.people = {}
    host.go_on(60)
    assert len(host.events) == 1


def test_a_list_that_does_not_come_says_nothing() -> None:
    host = Host()
    host.used = 0.985
    host.go_on(30)
    host.lists = False
    host.listed = (host.listed[0], [])  # late, and the list is not newer
    host.go_on(300)
    host.lists, host.people = True, {}
    host.go_on(30)
    assert (host.events, host.state.holders) == ([], {})


def test_a_list_that_is_cut_says_nothing_of_who_is_not_in_it() -> None:
    host = Host()
    host.used, host.dropped = 0.985, 3.0
    host.go_on(30)
    host.people = {}
    host.go_on(60)
    assert host.events == []


@pytest.mark.parametrize("first", ["skipped", "named"])
def test_a_process_that_the_driver_lists_after_its_end_has_ended_once(first: str) -> None:
    """The driver lists a dead process for two or more rounds; the first of them may leave it out, the others have no start."""
    host = Host()
    host.used = 0.985
    host.go_on(30)
    ghost = holder(4711, 3, ticks=None, memory=12 * GIB, unseen="gone")
    for shown in ((first == "named"), True, True):
        listed = replace(ghost, at=host.now)
        host.lists, host.listed = False, (host.now, [listed] if shown else [])
        host.go_on(10)
    host.lists, host.people = True, {}
    host.go_on(30)
    assert ([event.facts["pid"] for event in host.events], host.count) == (["4711"], 1.0)


def test_a_process_of_another_namespace_that_ends_is_told() -> None:
    host = Host()
    host.used, host.lists = 0.985, False
    for _ in range(3):
        host.listed = host.now, [holder(4711, 3, ticks=None, memory=12 * GIB, at=host.now)]
        host.go_on(10)
    host.listed = host.now, []
    host.go_on(10)
    assert len(host.events) == 1


@pytest.mark.parametrize(("card", "mine", "other", "count"), [(0.99, 0.3, 0.99, 0.0), (0.4, 0.99, 0.1, 1.0)])
def test_of_a_divided_gpu_the_memory_of_the_instance_counts(card: float, mine: float, other: float, count: float) -> None:
    host = Host()
    host.used, host.instance, host.people = card, "7", {4711: 1.2 * GIB}  # little of the card, much of the instance
    host.instances, host.listed = {"7": mine, "8": other}, host.list()
    host.go_on(30)
    host.people = {}
    host.go_on(30)
    assert host.count == count
    assert all("ended while gpu 3, instance 7, was 99% full" in event.words for event in host.events)


def test_what_was_full_and_what_was_counted_is_not_kept_for_ever() -> None:
    host = Host()
    host.used = 0.985
    host.go_on(30)
    host.state.counts |= {f"GPU-old-{number}": 1 for number in range(GPUS + 50)}
    host.used = 0.1
    host.go_on(int(2 * GAP + BEFORE) + 10)
    assert host.state.full == {}
    assert (len(host.state.counts), uuid(3) in host.state.counts) == (GPUS, True)
