"""Containers whose device rules lack the GPUs that they use: told once when it begins and once when it ends."""

from types import MappingProxyType

import msgspec
import pytest

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import GPU_PROCESSES, JOB, JOB_CPU, JOB_GPU_ACCESS_MISSING
from gpuwatch.detectors.access import GONE_FOR, LIMIT, Access, State
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

PERIOD = 10  # seconds between two looks of the jobs source
CARD = Target(subject=GPU, key="GPU-1", labels={"gpu": "1", "uuid": "GPU-1"})
AOI = "container aoi of root"
LOST = f"{AOI} has lost its GPUs, or will when systemd reloads: its device rules lack them"
AGAIN = f"{AOI} has its GPUs in its rules again"


class Host:
    """Containers on a GPU, judged once a second; `lacks` is what is known of each by name (None: it cannot be told)."""

    def __init__(self, **lacks: float | None) -> None:
        self.detector, self.state = Access(), State()
        self.wall = 1_700_000_000.0
        self.lacks = dict(lacks)
        self.is_listed = True
        self.events: list[Event] = []

    def go_on(self, seconds: float) -> "Host":
        """Let time pass."""
        for _ in range(int(seconds)):
            self.wall += 1
            self.beat()
        return self

    def beat(self) -> None:
        """Judge once."""
        found = [self.entry(CARD, {GPU_PROCESSES["compute"]: 1.0} if self.is_listed else {})]
        for name, lacks in self.lacks.items():
            info = {"container": name, "user": "root", "key": f"docker/{name}", "unit": "x"}
            target = Target(subject=JOB, key=f"docker/{name}", labels={"scheduler": "docker", "job": name}, info=info)
            found.append(self.entry(target, {JOB_CPU: 1.0} if lacks is None else {JOB_GPU_ACCESS_MISSING: lacks}))
        view = View(self.wall, MappingProxyType({one.target: one for one in found}), mono=self.wall)
        self.state, findings = self.detector.step(self.state, view, self.wall)
        self.events += findings.events

    def entry(self, target: Target, values: dict[object, float]) -> Entry:
        """Return what is known of a target: what the last look found."""
        reading = Reading(
            source="jobs",
            tier=Tier.NORMAL,
            target=target,
            at=self.wall - self.wall % PERIOD,
            took=0.0,
            values=values,  # type: ignore[arg-type] # any metric
        )
        return Entry(target, reading.values, {}, (reading,))

    def restart(self) -> "Host":
        """Have the daemon stopped and started a minute later."""
        self.state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=State)
        self.wall += 60
        return self

    def words(self) -> list[str]:
        """Return what was told."""
        return [one.words for one in self.events]


def test_it_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    host = Host(aoi=0.0).go_on(60)
    host.lacks["aoi"] = 1.0
    host.go_on(600)
    assert host.words() == [LOST]
    host.lacks["aoi"] = 0.0
    host.go_on(600)
    assert host.words() == [LOST, AGAIN]
    host.lacks["aoi"] = 1.0
    assert host.go_on(60).words() == [LOST, AGAIN, LOST]


def test_the_events_are_of_the_container_and_grave_as_they_are() -> None:
    host = Host(aoi=1.0).go_on(60)
    host.lacks["aoi"] = 0.0
    begin, end = host.go_on(60).events
    assert (begin.kind, begin.severity, end.kind, end.severity) == ("access_lost", Severity.WARNING, "access_back", Severity.INFO)
    for one in (begin, end):
        assert (one.subject, one.key) == (KINDS[one.kind].subject, "docker/aoi") == (JOB.name, "docker/aoi")
        assert one.facts == {"scheduler": "docker", "job": "aoi", "container": "aoi", "user": "root"}


def test_one_look_is_nothing_and_has_no_end() -> None:
    host = Host(aoi=0.0).go_on(20)
    host.lacks["aoi"] = 1.0
    host.go_on(PERIOD - 1).lacks["aoi"] = 0.0
    assert host.go_on(120).words() == []


def test_what_cannot_be_told_for_a_while_is_neither_begin_nor_end() -> None:
    host = Host(aoi=1.0, other=None).go_on(60)
    host.lacks["aoi"] = None
    host.go_on(3 * GONE_FOR).lacks["aoi"] = 1.0
    assert host.go_on(60).words() == [LOST]


def test_a_container_that_leaves_the_gpus_is_over() -> None:
    host = Host(aoi=1.0).go_on(60)
    host.lacks.clear()
    host.go_on(GONE_FOR - 5)
    assert host.words() == [LOST]
    host.go_on(10)
    assert host.words() == [LOST, f"{AOI} does not use GPUs any more: it had lost them, or would have when systemd reloads"]
    assert host.state.open == {}


def test_lists_that_do_not_come_end_nothing() -> None:
    host = Host(aoi=1.0).go_on(60)
    host.lacks.clear()
    host.is_listed = False
    host.go_on(10 * GONE_FOR).lacks["aoi"] = 1.0
    host.is_listed = True
    assert host.go_on(60).words() == [LOST]


@pytest.mark.parametrize("away", ["", "aoi"])
def test_a_restart_tells_it_no_second_time_and_its_end_all_the_same(away: str) -> None:
    host = Host(aoi=1.0).go_on(60)
    for _ in range(3):
        lacks = dict(host.lacks)
        if away:  # the jobs are read a moment after the start
            del host.lacks[away]
        host.restart().go_on(15).lacks.update(lacks)
        host.go_on(30)
    assert host.words() == [LOST]
    host.restart().lacks["aoi"] = 0.0
    assert host.go_on(30).words() == [LOST, AGAIN]


def test_a_host_full_of_such_containers_costs_no_more_than_so_many() -> None:
    host = Host(**{f"c{number}": 1.0 for number in range(LIMIT + 50)}).go_on(40)
    assert (len(host.events), len(host.state.open)) == (LIMIT, LIMIT)
    host.lacks = {"c0": 1.0}
    host.go_on(GONE_FOR + 5)
    assert (len(host.events), list(host.state.open)) == (2 * LIMIT - 1, ["docker/c0"])
