"""A label or numbers for a GPU that is not there are said, and not before all GPUs are known."""

from pathlib import Path

import pytest

from gpuwatch.catalogue import derived, gpu, host
from gpuwatch.daemon.unmatched import unmatched
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules.load import load
from gpuwatch.shipped import folder

HERE, ELSEWHERE = "0000:65:00.0", "0000:99:00.0"
CARD = Target(subject=gpu.GPU, key="GPU-1", labels={"gpu": "0"}, info={"pci_bus_id": HERE, "name": "NVIDIA A40"})
NAMELESS = Target(subject=gpu.GPU, key="GPU-2", labels={"gpu": "1"})
ON_BUS = Target(subject=host.PCI, key="0000:b1:00.0", labels={"pci_bus_id": "0000:b1:00.0"})


def entry(target: Target, values: dict[Metric, float]) -> Entry:
    """Return what is known of one target."""
    return Entry(target, values, {}, (Reading(source="x", tier=Tier.SLOW, target=target, at=1.0, took=0.0, values=values),))


def view(*entries: Entry) -> View:
    """Return a view of these."""
    return View(1.0, {one.target: one for one in entries})


DRIVER = entry(Target(subject=gpu.DRIVER, key=""), gpu.DRIVER_STATE.at("ok"))
AWAY = entry(Target(subject=gpu.DRIVER, key=""), gpu.DRIVER_STATE.at("not_loaded"))
BUS = entry(Target(subject=gpu.GPUS, key=""), {gpu.VISIBLE["pci"]: 2.0})
WHOLE = [DRIVER, BUS, entry(CARD, {derived.UP: 1.0}), entry(ON_BUS, {})]


def only(**which: str) -> dict[str, object]:
    """Return other numbers for some GPUs."""
    return {"gpu_overheating": {"only": [{**which, "threshold": 70}]}}


def said(entries: list[Entry], addresses: tuple[str, ...] = (), rules: dict[str, object] | None = None) -> list[str]:
    """Return what is said."""
    return list(unmatched(view(*entries), addresses, load(Path(folder("alerts")), rules or {}, "x")))


def test_a_label_of_an_address_where_no_gpu_is_is_said() -> None:
    expected = [f"[gpus] has a label for {ELSEWHERE}, where no GPU is"]
    assert said(WHOLE, (HERE, ELSEWHERE, ON_BUS.key)) == expected


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ({"model": "*A40*"}, None),
        ({"model": "*9999*"}, 'model = "*9999*"'),
        ({"uuid": "GPU-1"}, None),
        ({"model": "*A40*", "uuid": "GPU-7"}, 'model = "*A40*" and uuid = "GPU-7"'),
    ],
)
def test_numbers_for_no_gpu_of_this_host_are_said(which: dict[str, str], words: str | None) -> None:
    expected = [f"[[rules.gpu_overheating.only]] with {words} is for no GPU of this host"] if words else []
    assert said(WHOLE, rules=only(**which)) == expected


@pytest.mark.parametrize("entries", [[], [DRIVER, BUS], [AWAY, *WHOLE[1:]], [BUS, WHOLE[2]]])
def test_nothing_is_said_before_the_gpus_are_known(entries: list[Entry]) -> None:
    assert said(entries, (ELSEWHERE,), only(model="*9999*")) == []


def test_a_gpu_without_a_name_may_be_the_one_that_is_meant_and_without_the_bus_no_address_is_missed() -> None:
    assert said([*WHOLE, entry(NAMELESS, {derived.UP: 0.0})], rules=only(model="*9999*")) == []
    assert said([DRIVER, WHOLE[2]], (ELSEWHERE,)) == []
