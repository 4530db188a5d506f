"""GPM: the real load between two looks, of a card and of its MIG instances; samples are never used after they were freed."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.mig import MIG, MIG_SM_ACTIVE, MIG_SM_OCCUPANCY, MIG_TENSOR_ACTIVE
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.gpm import CARD
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import FUNCTIONS, SYSTEM
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of
from tests.fakes.until import until

WORK = {
    1: 91.0,
    2: 62.5,
    3: 31.25,
    4: 7.0,
    5: 45.0,
    10: 55.0,
    11: 1.0,
    12: 2.0,
    13: 3.0,
    20: 100.0,
    21: 200.0,
    60: 3000.0,
    61: 4000.0,
}
MIB = 1024.0 * 1024.0
LOAD = {
    gpu.GRAPHICS_ACTIVE: 0.91,
    gpu.SM_ACTIVE: 0.625,
    gpu.SM_OCCUPANCY: 0.3125,
    gpu.PIPE_ACTIVE["int"]: 0.07,
    gpu.PIPE_ACTIVE["tensor"]: 0.45,
    gpu.PIPE_ACTIVE["fp64"]: 0.01,
    gpu.PIPE_ACTIVE["fp32"]: 0.02,
    gpu.PIPE_ACTIVE["fp16"]: 0.03,
    gpu.DRAM_ACTIVE: 0.55,
    gpu.NVLINK_THROUGHPUT["receive"]: 3000 * MIB,
    gpu.NVLINK_THROUGHPUT["transmit"]: 4000 * MIB,
}
MEANS = {gpu.PCIE_TRANSMIT_MEAN: 100 * MIB, gpu.PCIE_RECEIVE_MEAN: 200 * MIB}
THROUGHPUT = {gpu.PCIE_THROUGHPUT["transmit"]: 100 * MIB, gpu.PCIE_THROUGHPUT["receive"]: 200 * MIB}
CALLS = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
PASSING = (2, 4, 6, 7, 10, 17, 20, 21, 25, 27, 999)
PERMANENT = (3, 13, 26)
GIB = 1 << 30


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two H100."""
    return FakeNvml(tmp_path, gpus=2, model="H100", driver="595.71.05")


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that has taken samples of each."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        for card in (0, 1):
            worker.until(Tier.NORMAL, loaded(fake, card))
        yield worker
        assert fake.state.dead_samples == 0


def part(reading: Reading, metrics: set[Metric]) -> dict[Metric, float]:
    """Return some values of a reading."""
    return {metric: value for metric, value in reading.values.items() if metric in metrics}


def load(reading: Reading) -> dict[Metric, float]:
    """Return the load of a card."""
    return part(reading, set(LOAD))


def loaded(fake: FakeNvml, card: int = 0) -> Callable[[Round], bool]:
    """Return whether a round has the load of a card: two samples must lie apart."""
    uuid = fake.uuid(card)
    return lambda found: uuid in found.of(gpu.GPU) and bool(load(found.gpu(uuid)))


def after(worker: NvmlWorker, fake: FakeNvml, amounts: dict[int, float] | None = None) -> Round:
    """Return the round that tells what was counted since the last sample of the first card."""
    fake.work(0, amounts or WORK)
    return worker.until(Tier.NORMAL, loaded(fake))


def test_the_load_is_what_was_counted_between_two_looks(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        fake.work(0, {2: 9999.0})  # before the first look
        first = worker.ask(Tier.NORMAL).gpu(fake.uuid(0))
        assert {first.absent[metric] for metric in (*LOAD, *THROUGHPUT)} == {Absence.EMPTY}
        found = after(worker, fake)
        assert part(found.gpu(fake.uuid(0)), {*LOAD, *THROUGHPUT, *MEANS}) == pytest.approx(LOAD | THROUGHPUT | MEANS)
        other = worker.until(Tier.NORMAL, loaded(fake, 1)).gpu(fake.uuid(1))
        assert load(other) == dict.fromkeys(LOAD, 0.0)
        worker.until(Tier.NORMAL, loaded(fake))
        assert load(after(worker, fake, {2: 10.0}).gpu(fake.uuid(0)))[gpu.SM_ACTIVE] == pytest.approx(0.1)
    assert (fake.state.dead_samples, fake.calls("nvmlGpmQueryDeviceSupport", gpu=0)) == (0, 1)


def test_a_look_takes_one_sample_and_waits_for_nothing(fake: FakeNvml, worker: NvmlWorker) -> None:
    after(worker, fake)
    names = [name for name in FUNCTIONS if name.startswith("nvmlGpm")]
    before = {name: fake.calls(name, gpu=0) for name in names}
    allocated = fake.calls("nvmlGpmSampleAlloc")
    worker.until(Tier.NORMAL, loaded(fake))
    calls = {name: count for name in names if (count := fake.calls(name, gpu=0) - before[name])}
    assert calls == {"nvmlGpmSampleGet": 1, "nvmlGpmMetricsGet": 1}
    assert allocated == fake.calls("nvmlGpmSampleAlloc")


@pytest.mark.parametrize(("model", "driver", "asked"), [("A100", "595.71.05", 1), ("H100", "470.256.02", 0)])
def test_a_card_or_driver_without_gpm_is_asked_once(tmp_path: Path, model: str, driver: str, asked: int) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model=model, driver=driver)
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(3):
            found = worker.ask(Tier.NORMAL).gpu(fake.uuid(0))
            assert {found.absent[metric] for metric in LOAD} == {Absence.UNSUPPORTED}
            assert not set(MEANS) & (set(found.values) | set(found.absent))
        assert {name: count for name, count in fake.tally().items() if "Gpm" in name} == (
            {"nvmlGpmQueryDeviceSupport": 1} if asked else {}
        )
        fake.uninitialise()
        worker.until(Tier.NORMAL, lambda _: fake.inits == 2 and fake.calls("nvmlGpmQueryDeviceSupport", gpu=0) >= 2 * asked)
        worker.until(Tier.NORMAL, lambda round_: bool(round_.gpu(fake.uuid(0)).values))
        assert fake.calls("nvmlGpmQueryDeviceSupport", gpu=0) == 2 * asked


def test_each_number_has_a_code_of_its_own(fake: FakeNvml, worker: NvmlWorker) -> None:
    codes = {2: 3, 3: 2, 5: 999, 10: 6, 11: 4}
    for number, code in codes.items():
        fake.state.cards[0].gpm_codes[number] = code
    found = after(worker, fake).gpu(fake.uuid(0))
    whys = [Absence.UNSUPPORTED, Absence.UNSUPPORTED, Absence.FAILED, Absence.EMPTY, Absence.DENIED]
    assert whys == [found.absent[CARD[number][0]] for number in codes]
    assert set(LOAD) - {CARD[number][0] for number in codes} == set(load(found))
    fake.state.cards[0].gpm_codes[2] = 0
    assert load(after(worker, fake).gpu(fake.uuid(0)))[gpu.SM_ACTIVE] == 0.625


def test_a_share_that_cannot_be_is_a_failed_sample(fake: FakeNvml, worker: NvmlWorker) -> None:
    found = after(worker, fake, WORK | {2: 140.0, 3: -1.0, 10: 100.3}).gpu(fake.uuid(0))
    assert (found.absent[gpu.SM_ACTIVE], found.absent[gpu.SM_OCCUPANCY]) == (Absence.FAILED, Absence.FAILED)
    assert found.values[gpu.DRAM_ACTIVE] == pytest.approx(1.003)  # what a ratio of two floating-point numbers may come to


def test_a_call_that_fails_costs_the_load_once(fake: FakeNvml, worker: NvmlWorker) -> None:
    functions = ("nvmlGpmSampleGet", "nvmlGpmMetricsGet")  # one a card
    for code in PASSING:
        for card in (0, 1):
            fake.work(card, WORK)
            whole = worker.until(Tier.NORMAL, loaded(fake, card)).gpu(fake.uuid(card))
            assert load(whole) == pytest.approx(LOAD), code
        for card, function in enumerate(functions):
            fake.fail(function, code, gpu=card)
            found = worker.until(Tier.NORMAL, failed(fake, function, card)).gpu(fake.uuid(card))
            assert {found.absent[metric] for metric in LOAD} == {verdicts.absence(code)}, (function, code)
            assert {*LOAD, *MEANS, *THROUGHPUT} == set(whole.values) - set(found.values)
            assert fault_of(found) == ("", None)
    for card in (0, 1):
        fake.work(card, WORK)
        assert load(worker.until(Tier.NORMAL, loaded(fake, card)).gpu(fake.uuid(card))) == pytest.approx(LOAD)


def failed(fake: FakeNvml, function: str, card: int) -> Callable[[Round], bool]:
    """Return whether a failure that was armed has come up."""
    return lambda _: not fake.failing(function, gpu=card)


def test_a_question_or_an_allocation_that_fails_is_asked_again(tmp_path: Path) -> None:
    cases = [("nvmlGpmQueryDeviceSupport", code) for code in PASSING]
    fake = FakeNvml(tmp_path, gpus=len(cases) + 1, model="H100", driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        worker.until(Tier.FAST, lambda round_: len(round_.of(gpu.GPU)) == len(cases) + 1)  # all are open
        for card, (function, code) in enumerate(cases):
            fake.fail(function, code, gpu=card)
        fake.fail("nvmlGpmSampleAlloc", 20, gpu=SYSTEM, call=4)
        first = worker.ask(Tier.NORMAL)
        for card, (_, code) in enumerate(cases):
            assert first.gpu(fake.uuid(card)).absent[gpu.SM_ACTIVE] is verdicts.absence(code), code
        for card in range(len(cases) + 1):
            worker.until(Tier.NORMAL, loaded(fake, card))
        assert not fake.failing("nvmlGpmSampleAlloc", gpu=SYSTEM)
        assert fake.gpm_samples == 2 * (len(cases) + 1)


@pytest.mark.parametrize("code", PERMANENT)
def test_a_call_that_this_driver_will_never_answer_is_not_made_again(tmp_path: Path, code: int) -> None:
    fake = FakeNvml(tmp_path, gpus=len(CALLS), model="H100", driver="595.71.05")
    for card, function in enumerate(CALLS):
        fake.answer(function, code, gpu=card)
    with closing(NvmlWorker(fake)) as worker:
        worker.until(Tier.NORMAL, lambda _: fake.calls("nvmlGpmMetricsGet", gpu=2) > 0)
        before = [fake.calls(function, gpu=card) for card, function in enumerate(CALLS)]
        found = worker.ask(Tier.NORMAL)
        assert before == [fake.calls(function, gpu=card) for card, function in enumerate(CALLS)] == [1, 1, 1]
        for card in range(len(CALLS)):
            absent = found.gpu(fake.uuid(card)).absent
            assert {absent[metric] for metric in LOAD} == {Absence.UNSUPPORTED}
        assert fake.gpm_samples == 0


def test_a_gpu_found_lost_by_gpm_is_lost_and_its_samples_are_freed(fake: FakeNvml, worker: NvmlWorker) -> None:
    after(worker, fake)
    assert fake.gpm_samples == 4
    fake.fail("nvmlGpmSampleGet", 15, gpu=0)
    found = worker.until(Tier.NORMAL, lambda _: not fake.failing("nvmlGpmSampleGet", gpu=0))
    assert fault_of(found.gpu(fake.uuid(0))) == ("lost", 15)
    assert load(found.gpu(fake.uuid(0))) == {}
    until(lambda: fake.gpm_samples == 2 or fake.calls("nvmlGpmSampleAlloc") > 4)  # it may be found again at once
    assert fault_of(found.gpu(fake.uuid(1))) == ("", None)


@pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlDeviceGetUtilizationRates"])
def test_samples_are_freed_before_nvml_is_shut_down(fake: FakeNvml, worker: NvmlWorker, function: str) -> None:
    """The driver may have gone, whichever call says so first: all handles and what hangs on them are given up."""
    after(worker, fake)
    assert fake.gpm_samples == 4
    fake.fail(function, 18, gpu=0)
    tier = Tier.FAST if function == "nvmlDeviceGetUtilizationRates" else Tier.NORMAL
    worker.until(tier, lambda _: not fake.failing(function, gpu=0))
    worker.until(Tier.NORMAL, lambda round_: fake.shutdowns == 1 and loaded(fake)(round_))
    assert (fake.gpm_samples, fake.state.samples_at_shutdown) == (4, 0)


def test_samples_of_an_initialisation_that_is_over_are_not_used(fake: FakeNvml, worker: NvmlWorker) -> None:
    after(worker, fake)
    fake.uninitialise()
    worker.ask()
    worker.until(Tier.NORMAL, loaded(fake))
    assert load(after(worker, fake).gpu(fake.uuid(0))) == pytest.approx(LOAD)
    assert fake.state.dead_samples == 0


def test_samples_in_a_call_that_hangs_are_freed_when_it_comes_back(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake, deadline=1.0)) as worker:
        worker.warm()
        after(worker, fake)
        fake.hang(0, "nvmlGpmSampleGet")
        worker.until(Tier.NORMAL, lambda round_: round_.busy == [fake.uuid(0)])
        found = worker.until(Tier.NORMAL, lambda round_: fake.uuid(0) in round_.of(gpu.GPU))
        assert fault_of(found.gpu(fake.uuid(0)))[0] == "hung"
        assert load(found.gpu(fake.uuid(1))) or found.gpu(fake.uuid(1)).values
        fake.uninitialise()  # the daemon gives up the handles; those samples are in use
        worker.until(Tier.FAST, lambda round_: bool(round_.gpu(fake.uuid(1)).values))
        fake.release(0, "nvmlGpmSampleGet")
        worker.until(Tier.NORMAL, loaded(fake))
        assert load(after(worker, fake).gpu(fake.uuid(0))) == pytest.approx(LOAD)
        assert fake.state.dead_samples == 3  # the call that hung ends with its sample, then both are freed, and that is all


def instances(found: Round) -> dict[str, Reading]:
    """Return the readings of MIG instances by number."""
    return {one.target.labels["gpu_instance"]: one for one in found.of(MIG).values()}


def test_each_mig_instance_has_its_own_load_and_a_new_one_none_of_the_old(fake: FakeNvml) -> None:
    fake.divide(0)
    fake.create(0, 1, "3g.40gb", 40 * GIB)
    fake.create(0, 2, "3g.40gb", 40 * GIB)
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.work(0, {2: 80.0, 3: 40.0, 5: 20.0}, instance=1)
        found = instances(worker.until(Tier.NORMAL, lambda round_: MIG_SM_ACTIVE in instances(round_)["1"].values))
        mine = {MIG_SM_ACTIVE: 0.8, MIG_SM_OCCUPANCY: 0.4, MIG_TENSOR_ACTIVE: 0.2}
        assert part(found["1"], set(mine)) == pytest.approx(mine)
        assert part(found["2"], set(mine)) == dict.fromkeys(mine, 0.0)
        assert fake.gpm_samples == 8  # of two cards and two instances
        fake.destroy(0, 1)
        fake.create(0, 1, "3g.40gb", 40 * GIB)
        fresh = instances(worker.ask(Tier.NORMAL))["1"]
        assert (part(fresh, set(mine)), fresh.absent[MIG_SM_ACTIVE]) == ({}, Absence.EMPTY)
        fake.destroy(0, 2)
        worker.ask(Tier.NORMAL)
        assert fake.gpm_samples == 6
        fake.answer("nvmlGpmMigSampleGet", 999, gpu=0)
        failed = worker.until(Tier.NORMAL, lambda round_: instances(round_)["1"].absent[MIG_SM_ACTIVE] is Absence.FAILED)
        assert load(failed.gpu(fake.uuid(1))) or failed.gpu(fake.uuid(1)).absent[gpu.SM_ACTIVE] is Absence.EMPTY
        assert fault_of(failed.gpu(fake.uuid(0))) == ("", None)
    assert fake.state.dead_samples == 0


def test_the_mean_of_gpm_takes_the_place_of_pcie_samples_but_not_of_counters_that_can_be_trusted(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2, model="H100", driver="595.71.05")
    for card in (0, 1):
        fake.set(card, utilization=90)
    with closing(NvmlWorker(fake, normal=0.2)) as worker:
        worker.warm()
        mine = after(worker, fake).gpu(fake.uuid(0))
        assert part(mine, {*MEANS, *THROUGHPUT}) == MEANS | THROUGHPUT
        fake.set(0, pcie_transmit=1 << 33)
        worker.ask(Tier.NORMAL)
        found = after(worker, fake, {2: 1.0}).gpu(fake.uuid(0))
        assert not {*MEANS, *THROUGHPUT} & {*found.values, *found.absent}
        assert worker.ask().gpu(fake.uuid(0)).values[gpu.PCIE_TRANSMIT_RAW] == float(1 << 33)
        assert fake.calls("nvmlDeviceGetPcieThroughput") == 0
