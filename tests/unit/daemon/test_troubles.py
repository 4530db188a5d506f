"""What is wrong with single things: in words, each once, and nothing of what is as somebody wants it."""

from collections.abc import Mapping

import pytest

from gpuwatch.catalogue import derived, disk, gpu, host
from gpuwatch.daemon.troubles import of_things
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

PLACE = "0000:65:00.0"
DRIVER = Target(subject=gpu.DRIVER, key="")
CARD = Target(subject=gpu.GPU, key="GPU-1", labels={"gpu": "3", "uuid": "GPU-1"}, info={"pci_bus_id": PLACE})
UNOPENED = Target(subject=gpu.GPU, key=PLACE, labels={"gpu": PLACE, "uuid": PLACE})
BUS = Target(subject=host.PCI, key=PLACE, labels={"pci_bus_id": PLACE})
UP = {derived.UP: 1.0, **derived.STATE.at("ok")}
CABLE = Fault("unknown_error", "a power cable is missing", 8)
GONE = Fault("lost", "it fell off the bus")


def entry(target: Target, values: Mapping[Metric, float], fault: Fault | None = None, source: str = "x") -> Entry:
    """Return what is known of one target."""
    reading = Reading(source=source, tier=Tier.SLOW, target=target, at=100.0, took=0.0, values=values, fault=fault)
    return Entry(target, values, {}, (reading,))


def told(*entries: Entry) -> list[str]:
    """Return what is wrong on a host of which this is known."""
    return of_things(View(100.0, {one.target: one for one in entries}))


def down(why: str) -> dict[Metric, float]:
    """Return what the inventory says of a GPU that gives no readings."""
    return {derived.UP: 0.0, **derived.DOWN_REASON.at(why)}


def drive(name: str, verdict: str = "", fault: Fault | None = None, **info: str) -> Entry:
    """Return a disk as SMART shows it."""
    target = Target(subject=disk.DISK, key=f"wwn-{name}", labels={"device": name}, info=info)
    return entry(target, disk.VERDICT.at(verdict) if verdict else {}, fault, source="smart")


def mount(path: str, fault: Fault | None = None) -> Entry:
    """Return a file system."""
    return entry(Target(subject=disk.FILESYSTEM, key=path, labels={"mountpoint": path, "fstype": "xfs"}), {}, fault)


def array(name: str, missing: float | None, fault: Fault | None = None) -> Entry:
    """Return a RAID array."""
    target = Target(subject=disk.MD, key=name, labels={"device": name})
    return entry(target, {} if missing is None else {disk.MD_DEGRADED: missing}, fault)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(CARD, UP)], []),
        ([entry(CARD, UP | derived.STATE.at("degraded"), CABLE)], ["GPU 3 GPU-1: a power cable is missing"]),
        ([entry(CARD, down("lost"), Fault("lost", "it is lost", 15))], ["GPU 3 GPU-1: it is lost"]),
        ([entry(CARD, down("late"))], ["GPU 3 GPU-1: it has not answered for a while, or not yet"]),
        ([entry(CARD, {derived.UP: 0.0})], ["GPU 3 GPU-1: it gives no readings"]),
        ([entry(UNOPENED, {}, CABLE)], [f"GPU {PLACE}: a power cable is missing"]),
        ([entry(CARD, down("unknown_error")), entry(UNOPENED, {}, CABLE)], ["GPU 3 GPU-1: a power cable is missing"]),
        ([entry(CARD, {}, Fault("retired", "all expected GPUs are there"))], []),
        ([entry(CARD, down("released"))], []),  # given to a virtual machine
    ],
)
def test_a_gpu_has_one_line_that_says_what_is_wrong_with_it(entries: list[Entry], expected: list[str]) -> None:
    assert told(*entries) == expected


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (None, [f"PCI device {PLACE}: it fell off the bus"]),
        (entry(CARD, UP), [f"PCI device {PLACE}: it fell off the bus"]),
        (entry(CARD, UP, CABLE), ["GPU 3 GPU-1: a power cable is missing", f"PCI device {PLACE}: it fell off the bus"]),
        (entry(CARD, down("lost")), ["GPU 3 GPU-1: it fell off the bus"]),
        (entry(CARD, down("lost"), Fault("lost", "NVML says so", 15)), ["GPU 3 GPU-1: NVML says so"]),
        (entry(CARD, down("released")), []),
    ],
)
def test_what_the_bus_says_is_told_once(card: Entry | None, expected: list[str]) -> None:
    assert told(*([card] if card else []), entry(BUS, {}, GONE)) == expected


@pytest.mark.parametrize("state", ["not_loaded", "version_mismatch", "no_nodes"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_driver_that_is_down_is_told_once_and_not_of_each_gpu_and_only_where_there_are_gpus(state: str, *, waits: bool) -> None:
    driver = entry(DRIVER, gpu.DRIVER_STATE.at(state), Fault(state, "it is down", waits=waits))
    others = [Target(subject=gpu.GPU, key=f"GPU-{number}", labels={"gpu": str(number)}) for number in range(4)]
    cards = [entry(one, down("driver"), Fault("unknown_error", "the driver does not answer")) for one in others]
    expected = entry(Target(subject=gpu.GPUS, key=""), {derived.EXPECTED: 4.0})
    assert told(driver, *cards, expected) == [f"driver {state}: it is down"][waits:]
    assert told(driver) == ([] if state == "not_loaded" else [f"driver {state}: it is down"][waits:])


def test_of_a_released_host_only_what_is_no_gpu_can_be_wrong() -> None:
    driver = entry(DRIVER, gpu.DRIVER_STATE.at("released"), Fault("released", "until 14:32 by root"))
    dcgm = entry(Target(subject=gpu.DCGM, key=""), {gpu.DCGM_UP: 1.0}, Fault("empty", "no row"))
    here = [entry(CARD, down("released")), entry(BUS, {}, GONE), dcgm]
    assert told(driver, *here) == []
    assert told(driver, *here, array("md0", 1.0)) == ["RAID array md0: it lacks 1 disk"]


@pytest.mark.parametrize(
    ("disks", "expected"),
    [
        ([drive("sda", "ok"), drive("sdb"), drive("sdc", "unsupported"), drive("sdd", "standby")], []),
        ([drive("sda", "fail", reason="100 unreadable sectors")], ["disk sda: it is failing: 100 unreadable sectors"]),
        ([drive("sda", "warn", reason="3 pending sectors")], ["disk sda: 3 pending sectors"]),
        ([drive("sda", "fail"), drive("sdb", "warn")], ["disk sda: it is failing", "disk sdb: it needs a look"]),
        (
            [drive(f"sd{letter}", "unknown", Fault("no_smartctl", "smartctl is missing")) for letter in "abcdef"],
            ["disks sda, sdb, sdc, sdd and 2 more: smartctl is missing"],
        ),
        (
            [drive("sda", "unknown", Fault("denied", "needs root")), drive("sdb", "unknown", Fault("denied", "needs root"))],
            ["disks sda, sdb: needs root"],
        ),
    ],
)
def test_disks_with_one_trouble_have_one_line_and_a_disk_without_smart_has_none(disks: list[Entry], expected: list[str]) -> None:
    assert told(*disks) == expected


def test_file_systems_arrays_and_dcgm_are_told() -> None:
    dcgm = Target(subject=gpu.DCGM, key="")
    assert told(
        entry(dcgm, {gpu.DCGM_UP: 1.0}, Fault("missing", "it gives nothing of GPU 2")),
        mount("/"),
        mount("/data", Fault("failed", "it answers with an error: Input/output error", 5)),
        mount("/nas", Fault("hung", "asking it does not return")),
        array("md0", 0.0),
        array("md1", 2.0),
        array("md2", None, Fault("inactive", "it is not active")),
    ) == [
        "DCGM: it gives nothing of GPU 2",
        "file system /data: it answers with an error: Input/output error",
        "file system /nas: asking it does not return",
        "RAID array md1: it lacks 2 disks",
        "RAID array md2: it is not active",
    ]
    assert told(entry(dcgm, {gpu.DCGM_UP: 0.0}, Fault("unreachable", "nobody listens"))) == []  # its collector says so


def test_a_gpu_of_which_nothing_is_current_has_no_trouble_of_its_own() -> None:
    silent = Entry(CARD, {}, {derived.UP: Absence.LATE}, ())
    assert told(silent) == []
