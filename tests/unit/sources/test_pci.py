"""GPUs as the PCI bus sees them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalogue.gpu import GPUS, VISIBLE
from gpuwatch.catalogue.host import (
    AER_ERRORS,
    PCI,
    PCI_GENERATION,
    PCI_GENERATION_MAX,
    PCI_RESPONDING,
    PCI_WIDTH,
    PCI_WIDTH_MAX,
)
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import pci
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

ADDRESS = "0000:65:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    answers = Answers()
    pci.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def test_a_gpu_gives_its_link_its_errors_and_its_driver(tree: HostTree) -> None:
    tree.gpu(ADDRESS)
    reading = ask(tree).of(PCI, ADDRESS)
    expected = {
        PCI_RESPONDING: 1.0,
        PCI_GENERATION: 1.0,
        PCI_GENERATION_MAX: 4.0,
        PCI_WIDTH: 8.0,
        PCI_WIDTH_MAX: 16.0,
        AER_ERRORS["correctable"]: 5.0,
        AER_ERRORS["nonfatal"]: 0.0,
        AER_ERRORS["fatal"]: 1.0,
    }
    assert expected == reading.values
    assert dict(reading.target.labels) == {"pci_bus_id": ADDRESS}
    assert dict(reading.target.info) == {"vendor_id": "0x10de", "device_id": "0x2204", "driver": "nvidia", "ports": ""}


def test_a_gpu_names_the_ports_above_it(tree: HostTree) -> None:
    place = tree.sys / "devices/pci0000:40/0000:40:01.1/0000:41:00.0" / ADDRESS
    place.parent.mkdir(parents=True)
    folder = tree.gpu(ADDRESS)
    folder.rename(place)
    folder.symlink_to(place)
    assert ask(tree).of(PCI, ADDRESS).target.info["ports"] == "0000:40:01.1 0000:41:00.0"


def test_only_gpus_of_nvidia_are_counted(tree: HostTree) -> None:
    tree.gpu("0000:65:00.0", {"class": "0x030200"})
    tree.gpu("0000:66:00.0")
    tree.gpu("0000:65:00.1", {"class": "0x040300"})  # its sound
    tree.gpu("0000:03:00.0", {"vendor": "0x1a03"})  # the board's own VGA
    tree.link(tree.gpu("0000:65:00.4") / "physfn", tree.sys / "bus/pci/devices/0000:65:00.0")  # a virtual function
    answers = ask(tree)
    assert answers.of(GPUS).values == {VISIBLE["pci"]: 2.0}
    assert answers.keys(PCI) == ["0000:65:00.0", "0000:66:00.0"]


def test_a_host_without_gpus_sees_none(tree: HostTree) -> None:
    (tree.sys / "bus/pci/devices").mkdir(parents=True)
    assert ask(tree).of(GPUS).values == {VISIBLE["pci"]: 0.0}


def test_without_a_bus_the_number_of_gpus_is_absent(tree: HostTree) -> None:
    reading = ask(tree).of(GPUS)
    assert (dict(reading.values), dict(reading.absent)) == ({}, {VISIBLE["pci"]: Absence.UNSUPPORTED})


def test_in_wsl_the_number_of_gpus_is_absent(tree: HostTree) -> None:
    (tree.sys / "bus/pci/devices").mkdir(parents=True)
    tree.write(tree.dev / "dxg", "")
    assert dict(ask(tree).of(GPUS).absent) == {VISIBLE["pci"]: Absence.UNSUPPORTED}


@pytest.mark.parametrize("driver", ["nouveau", "vfio-pci", ""])
def test_the_bound_driver_is_named(tree: HostTree, driver: str) -> None:
    tree.gpu(ADDRESS, driver=driver)
    assert ask(tree).of(PCI, ADDRESS).target.info["driver"] == driver


def test_a_gpu_off_the_bus_does_not_respond_and_keeps_its_error_counts(tree: HostTree) -> None:
    tree.gpu(ADDRESS, {"current_link_speed": "Unknown", "current_link_width": "63"}, config=b"\xff" * 64)
    tree.gpu("0000:66:00.0")
    answers = ask(tree)
    dead = answers.of(PCI, ADDRESS)
    assert (dead.values[PCI_RESPONDING], dead.values[AER_ERRORS["fatal"]]) == (0.0, 1.0)
    assert dict(dead.absent) == dict.fromkeys((PCI_GENERATION, PCI_GENERATION_MAX, PCI_WIDTH, PCI_WIDTH_MAX), Absence.LOST)
    assert dead.fault is not None
    assert dead.fault.kind == "lost"
    assert answers.of(PCI, "0000:66:00.0").values[PCI_RESPONDING] == 1.0
    assert answers.of(GPUS).values == {VISIBLE["pci"]: 2.0}


def test_a_sleeping_gpu_is_left_asleep(tree: HostTree) -> None:
    folder = tree.gpu(ADDRESS, {"power/runtime_status": "suspended"})
    (folder / "config").unlink()  # would be FAILED or UNSUPPORTED, had it been opened
    reading = ask(tree).of(PCI, ADDRESS)
    assert {why for metric, why in reading.absent.items()} == {Absence.EMPTY}
    assert PCI_RESPONDING in reading.absent


def test_a_kernel_without_aer_lacks_only_that(tree: HostTree) -> None:
    folder = tree.gpu(ADDRESS)
    for file in folder.glob("aer_*"):
        file.unlink()
    assert dict(ask(tree).of(PCI, ADDRESS).absent) == dict.fromkeys(AER_ERRORS.values(), Absence.UNSUPPORTED)


@pytest.mark.parametrize(
    ("speed", "generation"),
    [
        ("2.5 GT/s PCIe", 1),
        ("5.0 GT/s PCIe", 2),
        ("5 GT/s", 2),
        ("8.0 GT/s PCIe", 3),
        ("8 GT/s", 3),
        ("16.0 GT/s PCIe", 4),
        ("32.0 GT/s PCIe", 5),
        ("64.0 GT/s PCIe", 6),
        ("Unknown", None),
        ("Unknown speed", None),
    ],
)
def test_speeds_are_generations(speed: str, generation: int | None) -> None:
    assert generation == pci.generation(speed)


@pytest.mark.parametrize(
    ("file", "text", "metric", "why"),
    [
        ("current_link_width", "63", PCI_WIDTH, Absence.FAILED),
        ("current_link_width", "0", PCI_WIDTH, Absence.EMPTY),
        ("current_link_width", "x8", PCI_WIDTH, Absence.FAILED),
        ("current_link_speed", "fast", PCI_GENERATION, Absence.FAILED),
        ("current_link_speed", "", PCI_GENERATION, Absence.FAILED),
        ("aer_dev_fatal", "TOTAL_ERR_FATAL many", AER_ERRORS["fatal"], Absence.FAILED),
        ("aer_dev_fatal", "", AER_ERRORS["fatal"], Absence.FAILED),
    ],
)
def test_one_bad_file_costs_one_value(tree: HostTree, file: str, text: str, metric: object, why: Absence) -> None:
    tree.gpu(ADDRESS, {file: text})
    assert dict(ask(tree).of(PCI, ADDRESS).absent) == {metric: why}


def test_each_gpu_is_named_before_it_is_touched_and_a_hung_one_is_left_alone(tree: HostTree) -> None:
    for address in ("0000:65:00.0", "0000:66:00.0"):
        tree.gpu(address)
    assert ask(tree).items == ["0000:65:00.0", "0000:66:00.0"]
    answers = ask(tree, skip=frozenset({"0000:65:00.0"}))
    assert answers.items == ["0000:66:00.0"]
    hung = answers.of(PCI, "0000:65:00.0")
    assert (dict(hung.values), set(hung.absent.values())) == ({}, {Absence.LATE})
    assert hung.fault is not None
    assert hung.fault.kind == "hung"


@pytest.mark.parametrize("tier", [Tier.FAST, Tier.NORMAL])
def test_it_is_read_in_slow_rounds_only(tree: HostTree, tier: Tier) -> None:
    tree.gpu(ADDRESS)
    assert ask(tree, tier=tier).readings == []


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_is_a_generation_a_width_or_a_value_error(text: str) -> None:
    for meaning in (pci.generation, pci.width):
        try:
            found = meaning(text)
        except ValueError:
            continue
        assert found is None or 1 <= found <= 32
