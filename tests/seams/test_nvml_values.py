"""Values under the real nvidia-ml-py: units, models, and drivers from 470 to 595 that lack symbols and fields."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu, memory, process
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.nvml import readers
from gpuwatch.sources.nvml.fields import Field
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, missing

BUSY = {
    "utilization": 97,
    "memory_activity": 41,
    "memory_total": 48305799168,
    "memory_reserved": 697303040,
    "memory_used": 40000000000,
    "memory_free": 7608496128,
    "temperature": 83,
    "temperature_memory": 91,
    "margin": 12,
    "power": 287654,
    "power_average": 280000,
    "clock_graphics": 1500,
    "clock_sm": 1515,
    "clock_memory": 7250,
    "clock_video": 1300,
    "reasons": 0x44,
    "encoder": 1,
    "decoder": 2,
    "jpeg": 3,
    "ofa": 4,
    "energy": 987654321,
    "performance_state": 0,
    "event_power": 1_500_000_000,
    "event_thermal": 2_500_000_000,
    "event_sync": 3_500_000_000,
    "event_board": 4_500_000_000,
    "event_low": 5_500_000_000,
    "event_reliability": 6_500_000_000,
    "event_sw_thermal": 7_500_000_000,
    "event_hw_thermal": 8_500_000_000,
    "event_hw_brake": 9_500_000_000,
    "pcie_replays": 150,
    "pcie_bad_dllp": 7,
    "pcie_recovery": 9,
    "ecc_corrected_volatile": 11,
    "ecc_uncorrected_volatile": 12,
    "ecc_corrected_aggregate": 13,
    "ecc_uncorrected_aggregate": 14,
    "ecc_pending": 0,
    "remapped_correctable": 2,
    "remapped_uncorrectable": 1,
    "remap_pending": 1,
    "remap_failure": 0,
    "compute_mode": 3,
    "fan_speed": 104,
    "fan_rpm": 2400,
    "fans": 2,
    "offset_shutdown": -8,
    "offset_slowdown": -2,
    "offset_memory": -1,
    "offset_gpu": 0,
    "limit_memory": 95,
    "limit_acoustic": 80,
    "banks_max": 185,
    "banks_high": 4,
    "banks_partial": 2,
    "banks_low": 1,
    "sram_l2": 21,
    "sram_sm": 22,
    "sram_pcie": 23,
    "sram_microcontroller": 24,
    "sram_other": 25,
    "sram_threshold": 1,
    "unrepairable": 1,
}
PLACES = {
    "corrected_volatile_dram": 31,
    "uncorrected_volatile_dram": 32,
    "corrected_aggregate_sram": 33,
    "uncorrected_aggregate_sram": 34,
}
FAST: Mapping[Metric, float] = {
    gpu.UTILIZATION: 0.97,
    gpu.MEMORY_ACTIVITY: 0.41,
    gpu.MEMORY_USED: 40000000000.0,
    gpu.MEMORY_FREE: 7608496128.0,
    gpu.MEMORY_RESERVED: 697303040.0,
    gpu.TEMPERATURE["core"]: 83.0,
    gpu.TEMPERATURE["memory"]: 91.0,
    gpu.TEMPERATURE_MARGIN: 12.0,
    gpu.POWER: 287.654,
    gpu.CLOCK["graphics"]: 1.5e9,
    gpu.CLOCK["sm"]: 1.515e9,
    gpu.CLOCK["memory"]: 7.25e9,
    gpu.CLOCK["video"]: 1.3e9,
    **{metric: float(name in ("sw_power_cap", "hw_thermal")) for name, metric in list(gpu.CLOCK_EVENT.items())[:9]},
}
SECONDS = gpu.CLOCK_EVENT_SECONDS
NORMAL: Mapping[Metric, float] = {
    gpu.ENGINE_UTILIZATION["encoder"]: 0.01,
    gpu.ENGINE_UTILIZATION["decoder"]: 0.02,
    gpu.ENGINE_UTILIZATION["jpeg"]: 0.03,
    gpu.ENGINE_UTILIZATION["ofa"]: 0.04,
    gpu.PERFORMANCE_STATE: 0.0,
    gpu.POWER_AVERAGE: 280.0,
    gpu.ENERGY: 987654.321,
    **dict.fromkeys((*process.GPU_PROCESSES.values(), process.GPU_PROCESSES_HIDDEN, process.GPU_PROCESSES_DROPPED), 0.0),
    SECONDS["sw_power_cap"]: 1.5,
    gpu.CLOCK_EVENT_THERMAL_SECONDS: 2.5,
    SECONDS["sync_boost"]: 3.5,
    SECONDS["board_limit"]: 4.5,
    SECONDS["low_utilization"]: 5.5,
    SECONDS["reliability"]: 6.5,
    SECONDS["sw_thermal"]: 7.5,
    SECONDS["hw_thermal"]: 8.5,
    SECONDS["hw_power_brake"]: 9.5,
}
SLOW: Mapping[Metric, float] = {
    gpu.BAR1_SIZE: float(64 << 30),
    gpu.BAR1_USED: float(5 << 20),
    **gpu.RECOVERY_ACTION.at("none"),
    gpu.POWER_LIMIT["enforced"]: 300.0,
    gpu.POWER_LIMIT["requested"]: 300.0,
    gpu.POWER_LIMIT["default"]: 300.0,
    gpu.POWER_LIMIT["min"]: 100.0,
    gpu.POWER_LIMIT["max"]: 300.0,
    gpu.PCIE_GENERATION: 1.0,
    gpu.PCIE_WIDTH: 16.0,
    gpu.PCIE_GENERATION_MAX: 4.0,
    gpu.PCIE_WIDTH_MAX: 16.0,
    gpu.PCIE_REPLAYS: 150.0,
    gpu.PCIE_REPLAY_ROLLOVERS: 0.0,
    **{metric: {"bad_dllp": 7.0, "recovery": 9.0}.get(name, 0.0) for name, metric in gpu.PCIE_ERRORS.items()},
    gpu.PERSISTENCE_MODE: 1.0,
    **gpu.COMPUTE_MODE.at("exclusive_process"),
    gpu.ECC_MODE["current"]: 1.0,
    gpu.ECC_MODE["pending"]: 0.0,
    gpu.ECC_ERRORS["corrected_volatile"]: 11.0,
    gpu.ECC_ERRORS["uncorrected_volatile"]: 12.0,
    gpu.ECC_ERRORS["corrected_aggregate"]: 13.0,
    gpu.ECC_ERRORS["uncorrected_aggregate"]: 14.0,
    gpu.REMAPPED_ROWS["correctable"]: 2.0,
    gpu.REMAPPED_ROWS["uncorrectable"]: 1.0,
    gpu.ROW_REMAP_PENDING: 1.0,
    gpu.ROW_REMAP_FAILURE: 0.0,
    **{
        metric: float(PLACES.get(name, 0))
        for name, metric in memory.ECC_LOCATION_ERRORS.items()
        if name.endswith(("_dram", "_sram"))
    },
    **dict(zip(memory.ECC_SRAM_SOURCES.values(), (21.0, 22.0, 23.0, 24.0, 25.0), strict=True)),
    memory.ECC_SRAM_THRESHOLD: 1.0,
    **dict(zip(memory.ROW_REMAP_BANKS.values(), (185.0, 4.0, 2.0, 1.0, 0.0), strict=True)),
    memory.MEMORY_UNREPAIRABLE: 1.0,
    gpu.MEMORY_SIZE: 48305799168.0,
    gpu.MEMORY_UNIFIED: 0.0,
    gpu.CLOCK_MAX["graphics"]: 1.74e9,
    gpu.CLOCK_MAX["sm"]: 1.74e9,
    gpu.CLOCK_MAX["memory"]: 7.251e9,
    gpu.CLOCK_MAX["video"]: 1.53e9,
    gpu.TEMPERATURE_LIMIT["slowdown"]: 95.0,
    gpu.TEMPERATURE_LIMIT["shutdown"]: 98.0,
    gpu.TEMPERATURE_LIMIT["gpu_max"]: 88.0,
    gpu.TEMPERATURE_LIMIT["mem_max"]: 95.0,
    gpu.TEMPERATURE_LIMIT["acoustic"]: 80.0,
    gpu.TEMPERATURE_TLIMIT_OFFSET["shutdown"]: -8.0,
    gpu.TEMPERATURE_TLIMIT_OFFSET["slowdown"]: -2.0,
    gpu.TEMPERATURE_TLIMIT_OFFSET["mem_max"]: -1.0,
    gpu.TEMPERATURE_TLIMIT_OFFSET["gpu_max"]: 0.0,
}
SINCE_535 = {  # fields and functions that a driver of 470 lacks, and that no older way gives
    gpu.POWER_AVERAGE,
    gpu.ENGINE_UTILIZATION["jpeg"],
    gpu.ENGINE_UTILIZATION["ofa"],
    *gpu.TEMPERATURE_TLIMIT_OFFSET.values(),
    *gpu.PCIE_ERRORS.values(),
    gpu.MEMORY_RESERVED,
}
SINCE_575 = {
    SECONDS["sw_thermal"],
    SECONDS["hw_thermal"],
    SECONDS["hw_power_brake"],
    gpu.TEMPERATURE_MARGIN,
    *gpu.RECOVERY_ACTION.values(),
    *memory.ECC_SRAM_SOURCES.values(),
    memory.ECC_SRAM_THRESHOLD,
    memory.MEMORY_UNREPAIRABLE,
}
FANS = {"535.154.05": {gpu.FAN_SPEED: 1.04}, "595.71.05": {gpu.FAN_SPEED: 1.04, gpu.FAN_RPM: 2400.0}}


def readings(fake: FakeNvml) -> tuple[dict[Tier, Reading], list[Reading]]:
    """Return what the first card gives in each tier, and its fans."""
    with closing(NvmlWorker(fake)) as worker:
        rounds = {tier: worker.ask(tier) for tier in Tier}
        return {tier: round_.gpu(fake.uuid(0)) for tier, round_ in rounds.items()}, rounds[Tier.NORMAL].fans()


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05", "595.71.05"])
def test_every_value_is_right_in_its_unit_on_each_driver(tmp_path: Path, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=1, driver=driver)
    fake.set(0, **BUSY)
    fake.memory_errors(0, **PLACES)
    found, fans = readings(fake)
    lacks = (SINCE_535 if driver.startswith("470") else set()) | (set() if driver.startswith("595") else SINCE_575)
    expected = {
        tier: {metric: value for metric, value in values.items() if metric not in lacks}
        for tier, values in ((Tier.FAST, FAST), (Tier.NORMAL, NORMAL), (Tier.SLOW, SLOW))
    }
    if driver.startswith("470"):  # memory of version 1 counts the reserved part as used
        expected[Tier.FAST][gpu.MEMORY_USED] = 40697303040.0
    assert expected == {tier: pytest.approx(reading.values) for tier, reading in found.items()}
    assert lacks <= set().union(*(missing(reading, Absence.UNSUPPORTED) for reading in found.values()))
    assert [reading.fault for reading in found.values()] == [None, None, None]
    assert [FANS.get(driver, FANS["535.154.05"])] * 2 == [fan.values for fan in fans]
    assert [{"gpu": "0", "uuid": fake.uuid(0), "fan": str(fan)} for fan in (0, 1)] == [dict(fan.target.labels) for fan in fans]


def test_who_a_gpu_is_stands_beside_its_values(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    node = Path(fake.sys) / "bus/pci/devices/0000:17:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    with closing(NvmlWorker(fake, labels={"0000:17:00.0": "slot 3"})) as worker:
        target = worker.warm().gpu(fake.uuid(0)).target
    assert {"gpu": "0", "uuid": fake.uuid(0)} == target.labels
    assert target.info == {
        "name": "NVIDIA A40",
        "architecture": "Ampere",
        "compute_capability": "8.6",
        "serial": "1320000000000",
        "part_number": "900-2G133-0000-000",
        "vbios_version": "94.02.5C.00.02",
        "inforom_version": "G133.0200.00.05",
        "pci_bus_id": "0000:17:00.0",
        "numa_node": "1",
        "minor": "0",
        "label": "slot 3",
    }


def test_cards_with_few_fields_give_what_they_have_and_no_fault(tmp_path: Path) -> None:
    models = ["RTX 3090", "RTX 4090", "A100", "H100", "L4"]
    fake = FakeNvml(tmp_path, gpus=len(models), model=models, driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        rounds = [worker.ask(tier) for tier in Tier]
    for card, model in enumerate(models):
        found = [round_.gpu(fake.uuid(card)) for round_ in rounds]
        values = {metric: value for reading in found for metric, value in reading.values.items()}
        assert [reading.fault for reading in found] == [None, None, None]
        assert set() == set().union(*(missing(reading, Absence.FAILED) for reading in found))
        assert fake.get(card, "memory_total") == values[gpu.MEMORY_SIZE]
        assert ("RTX" in model) == (gpu.ECC_ERRORS["corrected_aggregate"] not in values)
        assert (model in {"A100", "H100"}) == (gpu.TEMPERATURE["memory"] in values)
        assert (model in {"RTX 4090", "H100", "L4"}) == (gpu.TEMPERATURE_TLIMIT_OFFSET["slowdown"] in values)
        assert (model in {"RTX 3090", "A100"}) == (gpu.TEMPERATURE_LIMIT["slowdown"] in values)


def test_parts_without_memory_of_their_own_say_so_and_disturb_nobody(tmp_path: Path) -> None:
    """XuehaiPan/nvitop#168: NVML starts, all telemetry is NOT_SUPPORTED, and complete coverage is reported."""
    fake = FakeNvml(tmp_path, gpus=4, model=["GB10", "GB10", "Orin", "A40"], driver="595.71.05")
    fake.set(1, memory_total=0)
    with closing(NvmlWorker(fake)) as worker:
        fast, slow, _ = worker.ask(), worker.ask(Tier.SLOW), worker.ask()
        log = worker.log()
    assert (log.count("Orin (nvgpu): NVML offers no telemetry"), log.count("no telemetry")) == (1, 1)
    for key in (fake.uuid(0), fake.uuid(1), "index-2"):
        assert {gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED} <= missing(fast.gpu(key), Absence.UNSUPPORTED)
        assert gpu.MEMORY_SIZE in missing(slow.gpu(key), Absence.UNSUPPORTED)
        assert slow.gpu(key).values[gpu.MEMORY_UNIFIED] == 1.0
        assert (fast.gpu(key).fault, slow.gpu(key).fault) == (None, None)
        assert (fast.gpu(key).values == {}) == (key == "index-2")
    assert slow.gpu(fake.uuid(3)).values[gpu.MEMORY_UNIFIED] == 0.0


@pytest.mark.parametrize("code", [2, 25])
def test_a_part_that_tells_nothing_stays_open_where_its_driver_is_older_than_we_are(tmp_path: Path, code: int) -> None:
    """Fields and arguments that a driver does not know are no sign of a handle that it does not know."""
    fake = FakeNvml(tmp_path, gpus=1, model="Orin", driver="535.154.05")
    chains = (*readers.PCIE_COUNTERS, *(chain for tier in Tier for chain in readers.CHAINS[tier]))
    for field in (way for chain in chains for way in chain.ways if isinstance(way, Field)):
        fake.field(0, field.number, code)
    with closing(NvmlWorker(fake)) as worker:
        found = [worker.ask(tier).gpu("index-0") for tier in (*Tier, *Tier)]
        log = worker.log()
    assert [reading.fault for reading in found] == [None] * 6
    assert "handle" not in log


def test_a_card_of_its_own_memory_that_does_not_tell_it_is_not_called_unified(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    fake.set(0, memory_total=None)
    found, _ = readings(fake)
    assert gpu.MEMORY_UNIFIED in missing(found[Tier.SLOW], Absence.UNSUPPORTED)


def test_garbage_text_of_one_card_disturbs_neither_it_nor_the_others(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.text(
        1,
        name=b"NVIDIA \xff\xfe\x1b[31m\xe2\x80\xaeA40",
        serial=b"\xc3\x28",
        vbios=b"\x01",
        uuid=b"GPU-\xff\xff",
        bus_id=b"\xfe\xfe",
    )
    fake.text(2, uuid=fake.uuid(0).encode())  # and one that claims to be another
    with closing(NvmlWorker(fake)) as worker:
        found = worker.warm().of(gpu.GPU)
        slow = worker.ask(Tier.SLOW).of(gpu.GPU)
    assert {fake.uuid(0), "0000:25:00.0"} < set(found)
    assert len(found) == 3
    assert all(reading.values and reading.fault is None for reading in (*found.values(), *slow.values()))
    info = found["0000:25:00.0"].target.info
    assert info["name"] == "NVIDIA \\xff\\xfe\\x1b[31m\\u202eA40"
    assert (info["serial"], info["vbios_version"], info["pci_bus_id"]) == ("\\xc3(", "\\x01", "0000:25:00.0")


def test_values_that_cannot_be_are_bad_samples_and_cost_nothing_else(tmp_path: Path) -> None:
    """Syllo/nvtop#432: all ones taken for a number, and more used than there is."""
    fake = FakeNvml(tmp_path, gpus=1)
    with closing(NvmlWorker(fake)) as worker:
        whole = worker.warm().gpu(fake.uuid(0))
        fake.set(0, utilization=101, memory_used=1 << 50, power=0xFFFFFFFF, clock_sm=0xFFFFFFFF)
        bad = worker.ask().gpu(fake.uuid(0))
        assert {gpu.UTILIZATION, gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED} == missing(bad, Absence.FAILED)
        assert {gpu.POWER, gpu.CLOCK["sm"]} == missing(bad, Absence.UNSUPPORTED) - missing(whole, Absence.UNSUPPORTED)
        fake.set(0, utilization=1, memory_used=1, power=1000, clock_sm=1)
        assert set(whole.values) == set(worker.ask().gpu(fake.uuid(0)).values)


def test_a_clock_reason_that_is_newer_than_we_are_is_logged_once(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1)
    fake.set(0, reasons=0x8004)
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(3):
            found = worker.ask().gpu(fake.uuid(0))
        assert found.values[gpu.CLOCK_EVENT["sw_power_cap"]] == 1.0
        assert worker.log().count("0x8000") == 1


def test_numbers_that_no_card_can_give_are_failed_samples_and_cost_no_other_value(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, driver="595.01")
    fake.set(0, **BUSY)
    wrong = {
        "pcie_generation": 0x80000000,
        "pcie_width": 0x80000000,
        "ecc_current": 2_100_000_000,
        "persistence": 7,
        "clock_sm": 2_000_000_000,
        "fan_speed": 2_000_000_000,
        "memory_used": 9_200_000_000_000_000_000,
        "ecc_corrected_volatile": 0xFFFFFFFF,
        "energy": 0xFFFFFFFF,
        "event_power": 0xFFFFFFFF,
    }
    failed = {
        *(gpu.PCIE_GENERATION, gpu.PCIE_WIDTH, gpu.ECC_MODE["current"], gpu.PERSISTENCE_MODE, gpu.CLOCK["sm"]),
        *(gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED, gpu.ECC_ERRORS["corrected_volatile"]),
        *(gpu.ENERGY, SECONDS["sw_power_cap"], gpu.FAN_SPEED),
    }
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        worker.until(Tier.NORMAL, lambda found: gpu.PCIE_THROUGHPUT["receive"] in found.gpu(fake.uuid(0)).values)  # sampled
        before = everything(worker)
        fake.set(0, **wrong)
        after = everything(worker)
        assert {metric for metric, value in after.items() if value is Absence.FAILED} == failed
        assert {metric for metric in before if before[metric] != after.get(metric)} == failed


def everything(worker: NvmlWorker) -> dict[Metric, float | Absence]:
    """Return what one round of each tier says of the card and its fans."""
    found: dict[Metric, float | Absence] = {}
    for tier in Tier:
        asked = worker.ask(tier)
        for reading in (*asked.of(gpu.GPU).values(), *asked.fans()):
            found |= {**reading.values, **reading.absent}
    return found
