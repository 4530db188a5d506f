"""Every call that can fail fails with every code: that call's numbers are absent for the right reason, and nothing else is."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.nvml import readers, verdicts
from gpuwatch.sources.nvml.fields import Field
from gpuwatch.sources.nvml.processes import LISTS
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import FUNCTIONS
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of, missing

PASSING = (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 17, 18, 19, 20, 21, 22, 23, 24, 27, 28, 29, 30, 999, 4711)  # never remembered
PERMANENT = (3, 13, 26)
AILING = (8, 11, 14)
ELSEWHERE = ("nvmlDeviceGetFan", *LISTS.values())  # targets of their own, with tests of their own


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two cards that have everything."""
    fake = FakeNvml(tmp_path, gpus=2, model="H100", driver="595.71.05")
    for card in (0, 1):
        fake.set(card, gpm=0)  # it needs two looks that lie apart: tests/seams/test_nvml_gpm.py
        fake.set(card, ecc_current=1, limit_shutdown=98, limit_slowdown=95, limit_memory=95, limit_gpu=88, limit_acoustic=80)
    return fake


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that has read everything once."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        yield worker


def called(fake: FakeNvml, worker: NvmlWorker, tier: Tier) -> tuple[list[str], Round]:
    """Return the functions that a round of this tier calls for a card, and the round."""
    before = {function: fake.calls(function, gpu=0) for function in FUNCTIONS}
    whole = worker.ask(tier)
    return [function for function in FUNCTIONS if fake.calls(function, gpu=0) > before[function]], whole


def given_by(function: str, tier: Tier) -> list[set[Metric]]:
    """Return the metrics that each call of this function gives, by the readers' own table."""
    chains = readers.CHAINS[tier] + (readers.PCIE_COUNTERS if tier is Tier.NORMAL else ())
    found = []
    for chain in chains:
        way = chain.ways[0]
        name = "nvmlDeviceGetFieldValues" if isinstance(way, Field) else way.function
        if way == readers.FAST[1].ways[0]:
            name = "nvmlDeviceGetMemoryInfo_v2"
        if name == function:
            found.append(set(chain.metrics))
    return [set().union(*found)] if function == "nvmlDeviceGetFieldValues" else found


def reopen(fake: FakeNvml, worker: NvmlWorker) -> None:
    """Have everything forgotten that was learned, as a new initialisation does."""
    fake.uninitialise()
    worker.ask()
    worker.until(Tier.FAST, lambda round_: len(round_.readings) == 2 and all(one.values for one in round_.readings))


def refute(fake: FakeNvml, worker: NvmlWorker) -> None:
    """Have a call say that the versions do not fit, once: nvmlInit is asked, says that they do, and is not asked again."""
    fake.fail("nvmlDeviceGetUtilizationRates", 18, gpu=0)
    worker.ask()
    worker.until(Tier.FAST, lambda round_: fake.inits == 2 and all(one.values for one in round_.of(gpu.GPU).values()))
    for tier in Tier:
        worker.ask(tier)


@pytest.mark.parametrize("tier", list(Tier))
def test_a_call_that_fails_once_costs_its_own_numbers_once(fake: FakeNvml, worker: NvmlWorker, tier: Tier) -> None:
    functions, whole = called(fake, worker, tier)
    functions = [name for name in functions if not name.startswith(ELSEWHERE)]
    assert len(functions) > 4
    refute(fake, worker)
    mine, other = whole.gpu(fake.uuid(0)), whole.gpu(fake.uuid(1))
    for function in functions:
        groups = given_by(function, tier)
        assert groups, function
        for code in PASSING:
            fake.fail(function, code, gpu=0)
            found = worker.ask(tier)
            assert not fake.failing(function, gpu=0), f"{function} was not called"
            reading = found.gpu(fake.uuid(0))
            lost = set(mine.values) - set(reading.values)
            assert any(lost <= group for group in groups), (function, code, lost)
            assert {verdicts.absence(code)} == {reading.absent[metric] for metric in lost} or not lost, (function, code)
            assert lost or function == "nvmlDeviceGetFieldValues", (function, code)
            assert other.values == found.gpu(fake.uuid(1)).values, (function, code)
            assert (("unknown_error", code) if code in AILING else ("", None)) == fault_of(reading), (function, code)
        again = worker.ask(tier).gpu(fake.uuid(0))
        assert mine.values == again.values, function


@pytest.mark.parametrize("tier", [Tier.FAST, Tier.NORMAL])
def test_a_call_that_this_driver_will_never_answer_is_not_made_again_until_the_next_initialisation(
    fake: FakeNvml, worker: NvmlWorker, tier: Tier
) -> None:
    functions, whole = called(fake, worker, tier)
    mine = whole.gpu(fake.uuid(0))
    for position, function in enumerate(name for name in functions if not name.startswith(ELSEWHERE)):
        code = PERMANENT[position % 3]
        calls = given_by(function, tier)
        fake.answer(function, code, gpu=0)
        first = worker.ask(tier).gpu(fake.uuid(0))
        before = fake.calls(function, gpu=0)
        second = worker.ask(tier).gpu(fake.uuid(0))
        assert before == fake.calls(function, gpu=0), function
        fake.answer(function, 0, gpu=0)
        assert set(first.values) == set(second.values)
        lost = set(mine.values) - set(second.values)
        assert lost <= set().union(*calls), function
        assert lost <= missing(second, Absence.UNSUPPORTED), function
        assert second.fault is None
        reopen(fake, worker)
    for each in Tier:
        worker.ask(each)
    assert set(mine.values) == set(worker.ask(tier).gpu(fake.uuid(0)).values)


def test_each_field_that_fails_costs_one_number(fake: FakeNvml, worker: NvmlWorker) -> None:
    for tier in Tier:
        whole = worker.ask(tier).gpu(fake.uuid(0))
        for chain in readers.CHAINS[tier]:
            field = chain.ways[0]
            if not isinstance(field, Field) or field.signed or field.metric not in whole.values:
                continue
            for code in (6, 20, 999):
                fake.field(0, field.number, code)
                found = worker.ask(tier).gpu(fake.uuid(0))
                assert set(chain.metrics) == set(whole.values) - set(found.values), field
                assert verdicts.absence(code) == found.absent[field.metric]
            fake.field(0, field.number, 0)
            assert whole.values == worker.ask(tier).gpu(fake.uuid(0)).values


def test_a_field_that_the_driver_lacks_is_read_the_old_way_in_the_same_round(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.field(0, 186, 3)
    before = fake.calls("nvmlDeviceGetPowerUsage", gpu=0)
    found = [worker.ask().gpu(fake.uuid(0)).values[gpu.POWER] for _ in range(3)]
    assert found == [70.0, 70.0, 70.0]
    assert before + 3 == fake.calls("nvmlDeviceGetPowerUsage", gpu=0)


def test_power_that_fails_for_two_samples_is_no_fault_and_the_third_is_one(fake: FakeNvml, worker: NvmlWorker) -> None:
    """Azure/azhpc-diagnostics#77: one ERR! on one card raised an alarm."""
    for code in (999, 17):
        fake.field(0, 186, code)
        found = [worker.ask().gpu(fake.uuid(0)) for _ in range(4)]
        assert [("", None), ("", None), ("unknown_error", code), ("unknown_error", code)] == [fault_of(one) for one in found]
        assert [one.absent[gpu.POWER] for one in found] == [Absence.FAILED] * 4
        assert all(gpu.UTILIZATION in one.values for one in found)
        assert found[3].fault is not None
        assert "power_watts" in found[3].fault.words
        fake.field(0, 186, 0)
        assert fault_of(worker.ask().gpu(fake.uuid(0))) == ("", None)


def test_a_number_that_the_card_had_and_lost_is_absent_and_never_zero(fake: FakeNvml, worker: NvmlWorker) -> None:
    """NVIDIA/DCGM#202: fields blank from one moment on."""
    fake.set(0, utilization=None)
    found = worker.ask().gpu(fake.uuid(0))
    assert {gpu.UTILIZATION, gpu.MEMORY_ACTIVITY} <= missing(found, Absence.UNSUPPORTED)
    assert found.fault is None


def test_a_handle_that_nvml_no_longer_knows_is_looked_for_again_at_once(fake: FakeNvml, worker: NvmlWorker) -> None:
    handles = fake.calls("nvmlDeviceGetHandleByIndex", gpu=0)
    fake.answer_all(2, gpu=0)
    fake.answer("nvmlDeviceGetHandleByIndex", 0, gpu=0)
    fake.answer("nvmlDeviceGetUUID", 0, gpu=0)
    found = worker.ask()
    assert fault_of(found.gpu(fake.uuid(0))) == ("unknown_error", 2)
    assert found.gpu(fake.uuid(1)).values
    fake.answer_all(0, gpu=0)
    worker.until(Tier.FAST, lambda round_: bool(round_.gpu(fake.uuid(0)).values))
    assert fake.calls("nvmlDeviceGetHandleByIndex", gpu=0) > handles


@pytest.mark.parametrize("code", [14, 15, 999])
def test_who_a_gpu_is_survives_one_failure_of_each_fact(tmp_path: Path, code: int) -> None:
    """One card a fact: its first call fails while the card is opened; it is whole then, or at the next try."""
    facts = [
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetName",
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetBoardPartNumber",
        "nvmlDeviceGetVbiosVersion",
        "nvmlDeviceGetInforomImageVersion",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetSupportedClocksEventReasons",
        "nvmlDeviceGetNumFans",
    ]
    fake = FakeNvml(tmp_path, gpus=len(facts) + 1)
    for card, function in enumerate(facts):
        fake.fail(function, code, gpu=card)
    with closing(NvmlWorker(fake)) as worker:

        def whole(round_: Round) -> bool:
            gpus = round_.of(gpu.GPU)
            return len(gpus) == len(facts) + 1 and all(one.values and one.fault is None for one in gpus.values())

        first = worker.survey()
        assert first.visible == len(facts) + 1
        assert first.gpu(fake.uuid(len(facts))).values
        worker.until(Tier.NORMAL, whole)
        worker.ask()  # calls that only the fast tier makes
        worker.until(Tier.NORMAL, whole)
        found = worker.ask()
        assert whole(found)
    assert not any(fake.failing(function, gpu=card) for card, function in enumerate(facts))
    # a UUID that this part does not have, or cannot read from a damaged InfoROM: known by its place
    placed = {1} if code == 14 else set()
    assert {"0000:25:00.0" if card in placed else fake.uuid(card) for card in range(len(facts) + 1)} == set(found.of(gpu.GPU))


def test_errors_are_counted_by_code_and_what_is_normal_is_not(fake: FakeNvml, worker: NvmlWorker) -> None:
    before = worker.survey().errors
    for code, times in ((999, 3), (10, 2), (3, 1), (4711, 1)):
        fake.fail("nvmlDeviceGetUtilizationRates", code, gpu=0, times=times)
        for _ in range(times):
            worker.ask()
    after = worker.survey().errors
    more = {code: value - before.get(code, 0) for code, value in after.items()}
    assert {code: value for code, value in more.items() if value} == {"999": 3.0, "10": 2.0}


def readings_of(found: Round, fake: FakeNvml) -> list[Reading]:
    """Return the readings of the two cards."""
    return [found.gpu(fake.uuid(card)) for card in (0, 1)]


def test_fans_fail_by_themselves(fake: FakeNvml, worker: NvmlWorker) -> None:
    for card in (0, 1):
        fake.set(card, fans=2, fan_speed=30, fan_rpm=900)
    reopen(fake, worker)
    assert len(worker.survey().fans()) == 4
    for code in (6, 999):
        fake.fail("nvmlDeviceGetFanSpeed_v2", code, gpu=0, call=2)
        found = worker.survey()
        speeds = {fan.target.key: fan.values.get(gpu.FAN_SPEED, fan.absent.get(gpu.FAN_SPEED)) for fan in found.fans()}
        assert speeds == {
            f"{fake.uuid(0)}/0": 0.3,
            f"{fake.uuid(0)}/1": verdicts.absence(code),
            f"{fake.uuid(1)}/0": 0.3,
            f"{fake.uuid(1)}/1": 0.3,
        }
        assert all(reading.fault is None for reading in readings_of(found, fake))
