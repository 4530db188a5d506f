"""Sensors."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalogue.host import HWMON, HWMON_FAN, HWMON_TEMPERATURE
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import hwmon
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

ROOT_PORT = "devices/pci0000:00/0000:00:01.1"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    answers = Answers()
    hwmon.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def test_sensors_are_named_by_their_labels_and_else_by_their_files(tree: HostTree) -> None:
    tree.hwmon(
        0,
        "coretemp",
        "devices/platform/coretemp.0",
        temp1_input="45000",
        temp1_label="Package id 0",
        temp2_input="43500",
        fan1_input="1200",
    )
    answers = ask(tree)
    chip = "coretemp-coretemp.0"
    assert answers.keys(HWMON) == [f"{chip} Package id 0", f"{chip} temp2", f"{chip} fan1"]
    assert dict(answers.of(HWMON, f"{chip} Package id 0").values) == {HWMON_TEMPERATURE: 45.0}
    assert dict(answers.of(HWMON, f"{chip} fan1").values) == {HWMON_FAN: 1200.0}
    assert dict(answers.of(HWMON, f"{chip} temp2").target.labels) == {"chip": chip, "sensor": "temp2"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_nvme_chips_keep_their_names_when_their_numbers_change(tree: HostTree, order: tuple[int, int]) -> None:
    for number, bus in zip(order, ("01", "02"), strict=True):
        tree.hwmon(
            number, "nvme", f"{ROOT_PORT}/0000:{bus}:00.0/nvme/nvme{number}", temp1_input=f"{bus}000", temp1_label="Composite"
        )
    answers = ask(tree)
    assert answers.of(HWMON, "nvme-0000:01:00.0 Composite").values[HWMON_TEMPERATURE] == 1.0
    assert answers.of(HWMON, "nvme-0000:02:00.0 Composite").values[HWMON_TEMPERATURE] == 2.0


def test_chips_without_a_device_are_told_apart_by_number(tree: HostTree) -> None:
    for number in range(3):
        tree.hwmon(number, "acpitz", temp1_input="20000")
    assert ask(tree).keys(HWMON) == ["acpitz temp1", "acpitz-2 temp1", "acpitz-3 temp1"]


def test_a_temperature_and_a_fan_of_one_label_are_two_sensors(tree: HostTree) -> None:
    tree.hwmon(0, "dell_smm", temp1_input="40000", temp1_label="CPU", fan1_input="0", fan1_label="CPU")
    answers = ask(tree)
    assert answers.of(HWMON, "dell_smm CPU").values == {HWMON_TEMPERATURE: 40.0}
    assert answers.of(HWMON, "dell_smm CPU fan1").values == {HWMON_FAN: 0.0}


@pytest.mark.parametrize("raw", ["-128000", "255000", "200000", "-100000", "127.5", "", "warm"])
def test_what_no_sensor_can_measure_is_a_failure(tree: HostTree, raw: str) -> None:
    tree.hwmon(0, "nct6775", temp1_input=raw, temp2_input="-5000")
    answers = ask(tree)
    assert dict(answers.of(HWMON, "nct6775 temp1").absent) == {HWMON_TEMPERATURE: Absence.FAILED}
    assert answers.of(HWMON, "nct6775 temp2").values == {HWMON_TEMPERATURE: -5.0}


def test_a_sensor_that_its_chip_calls_faulty_is_a_failure(tree: HostTree) -> None:
    tree.hwmon(0, "w83795", temp1_input="30000", temp1_fault="1", fan1_input="900", fan1_fault="0")
    answers = ask(tree)
    assert dict(answers.of(HWMON, "w83795 temp1").absent) == {HWMON_TEMPERATURE: Absence.FAILED}
    assert answers.of(HWMON, "w83795 fan1").values == {HWMON_FAN: 900.0}


def drivetemp(tree: HostTree, rotational: str) -> None:
    block = tree.sata("sda", queue__rotational=rotational)
    folder = tree.hwmon(0, "drivetemp", temp1_input="31000")
    (folder / "device").symlink_to(block / "device")


def test_a_rotating_disk_is_not_asked_for_its_temperature(tree: HostTree) -> None:
    drivetemp(tree, "1")
    assert ask(tree).readings == []


def test_a_sata_ssd_is_named_by_its_wwn(tree: HostTree) -> None:
    drivetemp(tree, "0")
    assert ask(tree).keys(HWMON) == ["drivetemp-naa.5000c50000000061 temp1"]


def test_a_device_in_runtime_suspend_is_left_asleep(tree: HostTree) -> None:
    folder = tree.hwmon(0, "nouveau", f"{ROOT_PORT}/0000:65:00.0", temp1_input="30000")
    tree.write(folder / "device/power/runtime_status", "suspended\n")
    assert ask(tree).readings == []


def test_chip_and_sensor_are_named_before_they_are_touched_and_hung_ones_left_alone(tree: HostTree) -> None:
    tree.hwmon(0, "a", temp1_input="1000", temp2_input="2000")
    tree.hwmon(1, "b", temp1_input="3000")
    assert ask(tree).items == ["a", "a temp1", "a temp2", "b", "b temp1"]
    assert ask(tree, skip=frozenset({"a temp1"})).keys(HWMON) == ["a temp2", "b temp1"]
    assert ask(tree, skip=frozenset({"a"})).keys(HWMON) == ["b temp1"]


def test_at_most_256_sensors_are_read(tree: HostTree) -> None:
    for number in range(3):
        tree.hwmon(number, f"chip{number}", **{f"temp{sensor}_input": "1000" for sensor in range(100)})
    assert len(ask(tree).readings) == 256


def test_a_host_without_sensors_gives_nothing(tree: HostTree) -> None:
    assert ask(tree).readings == []


def test_it_is_read_in_slow_rounds_only(tree: HostTree) -> None:
    tree.hwmon(0, "a", temp1_input="1000")
    assert [*ask(tree, tier=Tier.FAST).readings, *ask(tree, tier=Tier.NORMAL).readings] == []


@settings(max_examples=50, deadline=None)
@given(name=st.binary(max_size=30), label=st.binary(max_size=30), raw=st.binary(max_size=30))
def test_any_bytes_give_printable_names(tmp_path_factory: pytest.TempPathFactory, name: bytes, label: bytes, raw: bytes) -> None:
    tree = HostTree(tmp_path_factory.mktemp("garbage"))
    folder = tree.hwmon(0, "x", temp2_input="1000")
    tree.write(folder / "name", name)
    tree.write(folder / "temp1_label", label)
    tree.write(folder / "temp1_input", raw)
    for reading in ask(tree).readings:
        assert reading.target.key.isprintable()
        assert all(-100 < value < 200 for value in reading.values.values())
