"""Recorded machines: `gpuwatch read nvml` on a library that has what a capture of nvidia-smi shows gives the capture's numbers,
and nothing where it prints N/A. Of the verdicts of the index those are asserted that a rule gives by now (TOLD, and the healthy
ones, of which nothing is told); the others wait for their rule (WAITING), and for them the numbers are asserted that it will be
made of. Rows that are left out are named with why: all that is in tests/fakes/smi_index.py.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import catalogue, cli
from gpuwatch.catalogue import gpu, interconnect, mig
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from tests.fakes.nvml import FakeNvml
from tests.fakes.smi_capture import Capture, Seen, captures
from tests.fakes.smi_index import LEFT_OUT, MACHINES, SHORT, TOLD, WAITING
from tests.fakes.smi_machine import HEALTH, machine, major
from tests.fakes.smi_short import from_csv, from_table, link_up
from tests.fakes.smi_table import REASONS, ROWS, STATES, reasons
from tests.fakes.verdicts import alerts

Read = Callable[[FakeNvml], tuple[int, list[Reading]]]


@pytest.fixture
def folder(recorded: Path) -> Path:
    """The captures."""
    return recorded / "gpu/nvidia-smi"


@pytest.fixture
def index(folder: Path) -> dict[str, str]:
    """The right verdict of each file."""
    with (folder / "index.csv").open(newline="", encoding="utf-8") as rows:
        return {row["file"]: row["right verdict for a monitor"] for row in csv.DictReader(rows)}


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Read:
    """`gpuwatch read nvml` on a machine: its exit code and what it printed."""

    def run(fake: FakeNvml) -> tuple[int, list[Reading]]:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        paths = {"proc": fake.proc, "sys": fake.sys, "dev": fake.dev, "root": fake.root}
        config = tmp_path / "gpuwatch.toml"
        config.write_text("[paths]\n" + "".join(f'{name} = "{path}"\n' for name, path in paths.items()))
        capsys.readouterr()
        code = cli.main(["read", "nvml", "--config", str(config)])
        readings = [reading(one) for one in json.loads(capsys.readouterr().out)]
        seen = Counter((one.tier, one.target) for one in readings)
        assert {one: times for one, times in seen.items() if times > 1} == {}  # one look reads each of them once
        return code, readings

    return run


def reading(printed: dict[str, Any]) -> Reading:
    """Return a reading as it was before it was printed."""
    subject = catalogue.SUBJECTS[printed["subject"]]
    fault = printed["fault"]
    return Reading(
        source=printed["source"],
        tier=Tier(printed["tier"]),
        target=Target(subject=subject, key=printed["key"], labels=printed["labels"], info=printed["info"]),
        at=printed["at"],
        took=printed["took"],
        values={catalogue.find(subject, name): value for name, value in printed["values"].items()},
        absent={catalogue.find(subject, name): Absence(why) for why, names in printed["absent"].items() for name in names},
        fault=None if fault is None else Fault(fault["kind"], fault["words"], fault["code"]),
    )


def of_gpus(readings: list[Reading]) -> dict[str, dict[Metric, float]]:
    """Return all values of each GPU, by index."""
    found: dict[str, dict[Metric, float]] = {}
    for one in readings:
        if one.target.subject is GPU:
            found.setdefault(one.target.labels["gpu"], {}).update(one.values)
    return found


def faults(readings: list[Reading]) -> dict[str, str]:
    """Return the fault of each GPU that has one."""
    return {one.target.labels["gpu"]: one.fault.kind for one in readings if one.fault and one.target.subject is GPU}


def differences(card: Seen, values: dict[Metric, float], driver: int) -> tuple[int, dict[str, tuple[float | None, float | None]]]:
    """Return how many numbers of a card are as printed, and those that are not (printed, read)."""
    right, wrong = 0, {}
    read = {metric.id: value for metric, value in values.items()}
    for row in ROWS:
        printed = row.printed(card)
        expected = None if printed is None or row.since > driver else printed * row.unit
        value = read.get(row.metric)
        if (expected is None) != (value is None) or (expected is not None and value != pytest.approx(expected)):
            wrong[row.metric] = (expected, value)
        right += expected is not None
    said = reasons(card)
    for name, metric in gpu.CLOCK_EVENT.items():
        if values.get(metric) != (float(said[name]) if name in said else None):
            wrong[metric.id] = (said.get(name), values.get(metric))
    return right + len(said), wrong


def every(folder: Path) -> Iterator[tuple[str, Path, Capture]]:
    """Yield the captures of all machines."""
    for name in MACHINES:
        for number, capture in enumerate(captures(folder / name)):
            yield f"{name} {number}".removesuffix(" 0"), folder / name, capture


def test_every_row_of_the_index_is_read_or_left_out_for_a_reason(index: dict[str, str]) -> None:
    read = {*MACHINES, *SHORT}
    assert set(index) == read | set(LEFT_OUT)
    assert not read & set(LEFT_OUT)
    assert (len(index), len(read)) == (53, 43)


def test_what_the_index_calls_unwell_is_told_by_a_rule_or_waits_for_one_for_a_reason(index: dict[str, str]) -> None:
    unwell = {name for name in (*MACHINES, *SHORT) if not index[name].startswith("healthy")}
    assert unwell == set(TOLD) | set(WAITING)
    assert not set(TOLD) & set(WAITING)


@pytest.mark.parametrize("part", range(6))
def test_every_machine_gives_the_numbers_of_its_capture_and_the_alerts_of_the_table(
    part: int, folder: Path, read: Read, tmp_path: Path
) -> None:
    numbers = cards = 0
    mine = list(every(folder))[part::6]
    for place, (name, path, capture) in enumerate(mine):
        (tmp_path / str(place)).mkdir()
        code, readings = read(machine(tmp_path / str(place), capture, path))
        found, bad = of_gpus(readings), faults(readings)
        expected = TOLD.get(path.name, set())
        lost = {each for rule, _, each in expected if rule == "gpu_dropped"}
        assert (bad, code) == (dict.fromkeys(lost, "lost"), int(bool(lost))), name
        for number, card in enumerate(capture.cards):
            if str(number) not in lost:
                right, wrong = differences(card, found[str(number)], major(capture, path))
                assert wrong == {}, (name, number)
                numbers, cards = numbers + right, cards + 1
        said = alerts(readings)
        assert {one for one in said if one[1] != "warning"} == expected, name
        assert expected or said == set(), name
    print(f"nvidia-smi: {len(mine)} captures read, {cards} GPUs, {numbers} numbers as printed")
    assert len(mine) in (6, 7)
    assert numbers > 150


def seen(folder: Path, name: str) -> tuple[Path, Capture]:
    """Return the first capture of a file."""
    return folder / name, captures(folder / name)[0]


def test_states_and_modes_are_those_of_the_capture(folder: Path, read: Read, tmp_path: Path) -> None:
    path, capture = seen(folder, "gb200-4gpu-fabric-drv580-v13.xml")
    _, readings = read(machine(tmp_path, capture, path))
    found = of_gpus(readings)
    assert len(found) == 4
    for values in found.values():
        assert interconnect.FABRIC_STATE.at("completed") | {interconnect.FABRIC_HEALTHY: 1.0} == {
            metric: value for metric, value in values.items() if metric.id.startswith("fabric_")
        }
        assert gpu.RECOVERY_ACTION.at("none").items() <= values.items()
        assert gpu.COMPUTE_MODE.at("default").items() <= values.items()
    told = {one.target.key: one.target.info for one in readings if one.target.subject is GPU and one.tier is Tier.FAST}
    infos = list(told.values())
    assert [info["architecture"] for info in infos] == ["Blackwell"] * 4
    # two GPUs of a module have one serial
    assert [len({info[name] for info in infos}) for name in ("serial", "pci_bus_id")] == [2, 4]


def test_a_divided_a100_gives_the_memory_of_its_instances_and_no_utilization(folder: Path, read: Read, tmp_path: Path) -> None:
    path, capture = seen(folder, "a100-sxm4-40gb-mig2-drv510-v11.xml")
    _, readings = read(machine(tmp_path, capture, path))
    parts = {one.target.labels["gpu_instance"]: one for one in readings if one.target.subject is mig.MIG}
    mib = 1 << 20
    memory = {mig.MIG_MEMORY_USED: 19.0 * mib, mig.MIG_MEMORY_SIZE: 19968.0 * mib}
    assert {number: dict(one.values) for number, one in parts.items()} == {"1": memory, "2": memory}
    (values,) = of_gpus(readings).values()
    assert not {gpu.UTILIZATION, gpu.MEMORY_ACTIVITY, *gpu.ENGINE_UTILIZATION.values()} & set(values)
    assert (values[gpu.POWER], values[gpu.TEMPERATURE["memory"]]) == (66.92, 44.0)


def test_numbers_that_a_person_has_read_from_the_captures(folder: Path, read: Read, tmp_path: Path) -> None:
    """The table of paths cannot agree with itself on a wrong one."""
    known: dict[str, dict[Metric, float | None]] = {
        "h100-8gpu-replays-drv580-v13.xml": {gpu.PCIE_REPLAYS: 150.0, gpu.MEMORY_SIZE: 85520809984.0, gpu.UTILIZATION: 0.0},
        "rtx-3060-laptop-drv515-v11.xml": {gpu.POWER_LIMIT["enforced"]: None, gpu.PCIE_GENERATION: 1.0, gpu.PCIE_WIDTH: 8.0},
        "rtx-3080-drv595-v13-busy.xml": {gpu.POWER: 142.33, gpu.POWER_AVERAGE: 139.62, gpu.PERFORMANCE_STATE: 2.0},
        "quadro-p400-drv418.xml": {gpu.POWER: None, gpu.TEMPERATURE["core"]: 33.0},
        "t4-x8-slot-drv595-v13.xml": {gpu.RETIRED_PAGES["double_bit"]: 0.0, gpu.ROW_REMAP_PENDING: None, gpu.PCIE_WIDTH: 8.0},
        "rtx-pro-6000-blackwell-fragment-drv580.xml": {
            gpu.POWER: 66.84,
            gpu.POWER_AVERAGE: None,
            gpu.TEMPERATURE_MARGIN: 56.0,
            gpu.TEMPERATURE_TLIMIT_OFFSET["shutdown"]: -5.0,
        },
        "xml-gtx8800-v6-driver340.xml": {gpu.MEMORY_SIZE: 511.0 * (1 << 20), gpu.MEMORY_USED: None, gpu.PERFORMANCE_STATE: None},
    }
    for place, (name, expected) in enumerate(known.items()):
        (tmp_path / str(place)).mkdir()
        path, capture = seen(folder, name)
        code, readings = read(machine(tmp_path / str(place), capture, path))
        values = of_gpus(readings)["0"]
        assert (code, expected) == (0, {metric: values.get(metric) for metric in expected}), name


def test_what_the_text_captures_warn_of_is_among_the_numbers(folder: Path, read: Read, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("pages", "thermal", "brake")]
    for each in folders:
        each.mkdir()
    path, capture = seen(folder, "v100-8gpu-page-retirement-bad.txt")
    found = of_gpus(read(machine(folders[0], capture, path))[1])
    pages = {index: sum(values[metric] for metric in gpu.RETIRED_PAGES.values()) for index, values in found.items()}
    pending = {index for index, values in found.items() if values[gpu.PAGE_RETIREMENT_PENDING]}
    # the index names the first two; the seventh and the eighth card have as many, and two more wait for a reset
    assert ({index for index, count in pages.items() if count >= 63}, pending) == ({"0", "1", "5", "7"}, {"1", "3", "5", "7"})
    path, capture = seen(folder, "q-performance-hw-thermal.txt")
    (values,) = of_gpus(read(machine(folders[1], capture, path))[1]).values()
    assert (values[gpu.CLOCK_EVENT["hw_thermal"]], values[gpu.TEMPERATURE["core"]], values[gpu.CLOCK["sm"]]) == (1.0, 93.0, 885e6)
    path, capture = seen(folder, "q-performance-power-brake.txt")
    (values,) = of_gpus(read(machine(folders[2], capture, path))[1]).values()
    active = [name for name, metric in gpu.CLOCK_EVENT.items() if values.get(metric)]
    assert (active, values[gpu.CLOCK["sm"]]) == (["hw_slowdown", "hw_power_brake"], 345e6)


def test_a_gpu_that_requires_a_reset_is_told_so_and_its_booked_memory_is_no_number(
    folder: Path, read: Read, tmp_path: Path
) -> None:
    texts = {name: (folder / name).read_text() for name in SHORT if name.endswith((".csv", "memory.txt"))}
    whole, table = "csv-gpu-requires-reset-h100.csv", "table-rtxpro6000-all-err-held-memory.txt"
    captured = {whole: from_csv(texts[whole]), table: from_table(texts[table], "[GPU requires reset]")}
    for place, (name, capture) in enumerate(captured.items()):
        (tmp_path / str(place)).mkdir()
        code, readings = read(machine(tmp_path / str(place), capture, folder))
        assert (code, faults(readings)) == (1, {"0": "reset_required"})
        assert not {gpu.TEMPERATURE["core"], gpu.UTILIZATION, gpu.MEMORY_USED} & set(of_gpus(readings)["0"])
        assert alerts(readings) == TOLD[name]


def test_one_number_that_cannot_be_read_is_no_fault(folder: Path, read: Read, tmp_path: Path) -> None:
    names = ["name", "utilization.gpu", "utilization.memory", "temperature.gpu", "power.draw", "power.limit", "fan.speed"]
    names += ["pstate", "clocks.current.graphics", "clocks.current.memory", "power.max_limit", "power.default_limit"]
    for each in ("fan", "limit", "ada"):
        (tmp_path / each).mkdir()
    capture = from_csv((folder / "csv-1080ti-fan-unknown-error.csv").read_text(), names)
    code, readings = read(machine(tmp_path / "fan", capture, folder))
    fans = {one.target.labels["gpu"]: one.values.get(gpu.FAN_SPEED) for one in readings if one.target.subject is gpu.FAN}
    assert (code, fans) == (0, {"0": None, "1": 0.61, "2": 0.84, "3": 0.66})
    assert [of_gpus(readings)[str(card)][gpu.TEMPERATURE["core"]] for card in range(4)] == [83.0, 69.0, 72.0, 71.0]
    capture = from_csv((folder / "csv-2080ti-default-limit-unknown-error.csv").read_text())
    code, readings = read(machine(tmp_path / "limit", capture, folder))
    (values,) = of_gpus(readings).values()
    assert (code, values.get(gpu.POWER_LIMIT["default"]), values[gpu.POWER]) == (0, None, 226.15)
    assert alerts(readings) == set()
    fake = machine(tmp_path / "ada", from_table((folder / "table-rtx4000ada-fan-err-reset.txt").read_text()), folder)
    fake.set(0, recovery_action=0)
    fake.set(1, recovery_action=1)  # as -q shows
    code, readings = read(fake)
    wanted = [name for name, metric in gpu.RECOVERY_ACTION.items() if of_gpus(readings)["1"].get(metric)]
    fans = {one.target.labels["gpu"]: one.values.get(gpu.FAN_SPEED) for one in readings if one.target.subject is gpu.FAN}
    assert (code, wanted, fans) == (0, ["gpu_reset"], {"0": 0.3, "1": None})


def test_what_nvidia_smi_prints_when_it_cannot_start_is_a_state_of_the_driver(folder: Path, read: Read, tmp_path: Path) -> None:
    states: dict[str, tuple[str, Callable[[FakeNvml], None], str]] = {
        "err-driver-library-mismatch.txt": ("version mismatch", lambda fake: fake.init(18), "version_mismatch"),
        "err-no-driver-communication.txt": ("couldn't communicate", lambda fake: fake.unload(), "not_loaded"),
        "err-no-devices.txt": ("No devices", lambda fake: fake.show([]), "ok"),
        "err-lost-reboot-to-recover.txt": ("GPU is lost", lambda fake: fake.lose(0), "ok"),
    }
    for place, (name, (words, happen, state)) in enumerate(states.items()):
        assert words in (folder / name).read_text()
        (tmp_path / str(place)).mkdir()
        fake = FakeNvml(tmp_path / str(place), gpus=1)
        _, before = read(fake)
        happen(fake)
        code, readings = read(fake)
        (driver,) = (one for one in readings if one.target.subject is gpu.DRIVER)
        assert gpu.DRIVER_STATE.at(state).items() <= driver.values.items(), name
        assert code == int(name != "err-no-devices.txt"), name
        assert faults(readings) == ({"0": "lost"} if "lost" in name else {}), name
        if name == "err-no-devices.txt":
            assert alerts(readings) == set()  # a host that never had a GPU
        assert alerts(readings, before=before) == TOLD.get(name, set()), name


def test_an_unlicensed_guest_has_no_sensors_and_no_rule_tells_of_it_yet(folder: Path, read: Read, tmp_path: Path) -> None:
    path, capture = seen(folder, "q-vgpu-guest-unlicensed.txt")
    code, readings = read(machine(tmp_path, capture, path))
    (values,) = of_gpus(readings).values()
    assert not {gpu.TEMPERATURE["core"], gpu.POWER, *gpu.CLOCK_EVENT.values()} & set(values)
    assert (code, faults(readings), alerts(readings)) == (0, {}, set())


def test_links_that_are_inactive_are_down(folder: Path, read: Read, tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=7, model="A100", driver="535.154.05")
    expected = link_up((folder / "v100-nvlink-status-inactive-links.txt").read_text(), fake)
    _, readings = read(fake)
    up: list[list[bool]] = [[] for _ in expected]
    for one in readings:
        if one.target.subject is interconnect.NVLINK:
            up[int(one.target.labels["gpu"])].append(bool(one.values[interconnect.NVLINK_UP]))
            speed = one.values.get(interconnect.NVLINK_SPEED)
            assert speed == (25.781e9 if one.values[interconnect.NVLINK_UP] else None)
    assert (expected, [sum(links) for links in up]) == (up, [6, 6, 6, 4, 5, 4, 5])


def test_the_converter_reads_every_place_that_it_names(folder: Path) -> None:
    """A path that no capture has is a wrong one."""
    cards = [card for _, _, capture in every(folder) for card in capture.cards]
    unread = [row.metric or row.value for row in (*ROWS, *STATES.values()) if all(row.printed(card) is None for card in cards)]
    assert unread == []
    assert {name for card in cards for name in reasons(card)} == set(REASONS)
    assert all(any(path in card.facts for card in cards) for path in HEALTH)
