"""Sources that answer with a fault: said once when it begins and once when it ends, and their collector does not say "ok"."""

import logging

import pytest

from gpuwatch.catalogue.disk import DISK
from gpuwatch.catalogue.gpu import DCGM, DCGM_UP, GPU
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.faults import FORGET, Faults
from tests.fakes.clock import FakeClock

GONE = Fault("unreachable", "nothing listens there")
MISSING = Fault("no_smartctl", "smartctl is not installed")


def dcgm(fault: Fault | None, up: float | None = None) -> Reading:
    """Return what DCGM says of itself."""
    values = {DCGM_UP: float(fault is None) if up is None else up}
    return Reading(source="dcgm", tier=Tier.NORMAL, target=Target(subject=DCGM, key=""), at=1, took=0, values=values, fault=fault)


def disk(name: str, fault: Fault | None) -> Reading:
    """Return what SMART says of a disk."""
    target = Target(subject=DISK, key=name, labels={"device": name})
    return Reading(source="smart", tier=Tier.SLOW, target=target, at=1, took=0, values={}, fault=fault)


@pytest.fixture
def faults(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> Faults:
    """No trouble yet."""
    caplog.set_level(logging.INFO)
    return Faults(clock.mono)


def test_a_fault_is_said_when_it_begins_when_it_changes_and_when_it_ends(
    faults: Faults, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in (None, GONE, GONE, Fault("not_dcgm", "a login page"), Fault("not_dcgm", "another one"), None, None):
        faults.take(dcgm(fault))
        clock.forward(30)
    assert caplog.messages == [
        "dcgm: dcgm: unreachable: nothing listens there",
        "dcgm: dcgm: not_dcgm: a login page",
        "dcgm: dcgm is well again after 120 s",
    ]


def test_a_source_whose_one_thing_is_down_gives_nothing_until_it_is_up(faults: Faults) -> None:
    assert (faults.take(dcgm(GONE)), faults.of("dcgm"), faults.of("smart")) == (False, "unreachable: nothing listens there", "")
    assert (faults.take(dcgm(Fault("missing", "no GPU 3"), up=1.0)), faults.of("dcgm")) == (True, "")
    assert (faults.take(dcgm(None)), faults.of("dcgm")) == (True, "")


def test_what_all_disks_have_is_one_line_and_what_one_has_is_told_of_it(faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("sda", "sdb"):
        faults.take(disk(name, MISSING))
    for name in ("sda", "sdb"):
        faults.take(disk(name, None))
    faults.take(disk("sdb", Fault("gone", "no such device")))
    assert [line.replace("smart: disk ", "") for line in caplog.messages] == [
        "sda: no_smartctl: smartctl is not installed",
        "sdb is well again after 0 s",
        "sdb: gone: no such device",
    ]
    assert faults.of("smart") == ""


def test_a_disk_that_nobody_tells_of_any_more_hides_no_other(
    faults: Faults, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    faults.take(disk("sda", MISSING))
    clock.forward(FORGET + 1)
    faults.take(disk("sdb", MISSING))
    faults.take(disk("sdc", MISSING))
    assert len(caplog.messages) == 2


def test_what_others_say_is_not_said_again(faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    target = Target(subject=GPU, key="GPU-1")
    lost = Fault("lost", "it is gone")
    assert faults.take(Reading(source="nvml", tier=Tier.FAST, target=target, at=1, took=0, values={}, fault=lost))
    assert faults.take(disk("sda", Fault("hung", "it does not return")))
    assert caplog.messages == []
