"""What /-/ready and `gpuwatch status` say, from what is known."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpuwatch.catalogue import derived, disk, gpu, host
from gpuwatch.daemon.answers import Facts, reasons, status, troubles
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

DRIVER = Target(subject=gpu.DRIVER, key="", info={"driver_version": "535.154.05"})
GPUS = Target(subject=gpu.GPUS, key="")
CARD = Target(subject=gpu.GPU, key="GPU-1", labels={"gpu": "3", "uuid": "GPU-1"}, info={"name": "NVIDIA A40", "label": "slot 3"})
DISK = Target(subject=disk.DISK, key="wwn-1", labels={"device": "sda"})
MACHINE = Target(subject=host.HOST, key="", info={"os": "Debian"})
OK = gpu.DRIVER_STATE.at("ok")


def entry(target: Target, values: Mapping[Metric, float], fault: Fault | None = None) -> Entry:
    """Return what is known of one target."""
    reading = Reading(source="x", tier=Tier.SLOW, target=target, at=100.0, took=0.0, values=values, fault=fault)
    return Entry(target, values, {}, (reading,))


def facts(*entries: Entry) -> Facts:
    """Return the facts of a daemon that is well, with these entries."""
    return Facts(
        view=View(100.0, {one.target: one for one in entries}),
        version="1",
        name="vision-07",
        started=40.0,
        beat_age=0.5,
        beat_limit=10.0,
        wants_gpus=True,
        collectors={"gpuwatch-nvml": "", "host": "", "gpuwatch-smart": ""},
        seldom=("gpuwatch-smart",),
        incidents=(),
        silenced={},
        silences=(),
        nobody=False,
        telling=(),
        store="",
        judging=(),
        receivers=("oncall",),
        notes=(),
    )


SEEN = entry(GPUS, {gpu.VISIBLE["pci"]: 4.0})
AWAITED = entry(DRIVER, gpu.DRIVER_STATE.at("no_nodes"), Fault("no_nodes", "nodes are waited for", 4, waits=True))
MISSED = entry(DRIVER, gpu.DRIVER_STATE.at("no_nodes"), Fault("no_nodes", "nodes are missing: make them", 4))
DOWN = entry(DRIVER, gpu.DRIVER_STATE.at("not_loaded"), Fault("not_loaded", "the nvidia module is not loaded"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(entry(DRIVER, OK), SEEN), []),
        (facts(), []),  # a host without GPUs is ready without
        (facts(entry(DRIVER, gpu.DRIVER_STATE.at("no_library"))), []),
        (replace(facts(), beat_age=None), ["no sample has been taken yet"]),
        (replace(facts(), beat_age=12.0), ["the last sample is 12 s old"]),
        (replace(facts(), collectors={"gpuwatch-nvml": "hangs", "host": ""}), ["gpuwatch-nvml: hangs"]),
        (replace(facts(), collectors={"host": "", "gpuwatch-smart": "has not answered yet"}), []),  # the rest is fresh
        (facts(SEEN), ["nvml: no answer yet"]),
        (facts(entry(GPUS, {derived.EXPECTED: 8.0})), ["nvml: no answer yet"]),
        (facts(SEEN, DOWN), ["driver not_loaded: the nvidia module is not loaded"]),
        (replace(facts(SEEN, DOWN), wants_gpus=False), []),
        (facts(AWAITED), ["driver no_nodes: nodes are waited for"]),
        (replace(facts(AWAITED), wants_gpus=False), []),
        (facts(MISSED), ["driver no_nodes: nodes are missing: make them"]),
        (facts(entry(DRIVER, gpu.DRIVER_STATE.at("version_mismatch"))), ["driver version_mismatch: gives no reading"]),
    ],
)
def test_it_is_ready_unless_it_has_nothing_fresh_to_tell(found: Facts, expected: list[str]) -> None:
    assert reasons(found) == expected
    assert (status(found)["ready"], status(found)["reasons"]) == (not expected, expected)


def test_single_things_in_trouble_are_named_each() -> None:
    lost = entry(CARD, {derived.UP: 0.0}, Fault("lost", "NVML says that it is lost", 15))
    assert troubles(facts(lost, DOWN, entry(DISK, {}, Fault("denied", "needs root"))).view) == [
        "driver not_loaded: the nvidia module is not loaded",
        "GPU 3 GPU-1: lost: NVML says that it is lost",
        "disk sda: denied: needs root",
    ]
    late = entry(CARD, {derived.UP: 0.0, **derived.DOWN_REASON.at("late")})
    assert troubles(facts(late).view) == ["GPU 3 GPU-1: late"]
    assert troubles(facts(entry(CARD, {derived.UP: 1.0})).view) == []


def test_a_driver_that_is_waited_for_is_no_trouble_until_the_grace_is_over() -> None:
    shown = [status(facts(SEEN, one)) for one in (AWAITED, MISSED)]
    assert [(page["driver"]["state"], page["driver"]["waits"], page["ready"]) for page in shown] == [
        ("no_nodes", True, False),
        ("no_nodes", False, False),
    ]
    assert [page["troubles"] for page in shown] == [[], ["driver no_nodes: nodes are missing: make them"]]


def test_a_release_is_no_reason_against_being_ready_and_is_said_once_and_not_for_each_gpu() -> None:
    words = "released until 14:32 by root"
    driver = entry(DRIVER, gpu.DRIVER_STATE.at("released"), Fault("released", words))
    card = entry(CARD, {derived.UP: 0.0, **derived.DOWN_REASON.at("released")})
    page = status(facts(SEEN, driver, card))
    assert (page["ready"], page["reasons"], page["troubles"]) == (True, [], [f"driver released: {words}"])


def test_the_status_tells_each_gpu_and_disk_with_what_is_known_and_nothing_else() -> None:
    card = entry(CARD, {derived.UP: 1.0, **derived.STATE.at("ok"), gpu.POWER: 250.0})
    drive = entry(DISK, {**disk.VERDICT.at("warn"), disk.WEAR_USED: 0.9}, Fault("wear", "90 % worn"))
    page = status(facts(entry(DRIVER, OK), card, drive, entry(MACHINE, {})))
    [shown] = page["gpus"]
    assert (shown["gpu"], shown["label"], shown["up"], shown["state"], shown["down_reason"]) == ("3", "slot 3", True, "ok", "")
    assert shown["values"] == {"power_watts": 250.0}
    [shown] = page["disks"]
    assert (shown["device"], shown["verdict"], shown["words"]) == ("sda", "warn", "90 % worn")
    assert shown["values"] == {"wear_used_ratio": 0.9}
    assert page["host"] == {"name": "vision-07", "os": "Debian"}
    assert page["driver"] == {"state": "ok", "words": "", "waits": False, "driver_version": "535.154.05"}
