"""NVLink and fabric: each link a target of its own, all of them in one call, on every generation and driver."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.interconnect import (
    C2C_ERRORS,
    FABRIC_HEALTHY,
    FABRIC_STATE,
    LINK_ERRORS,
    LINK_RECEIVE,
    LINK_TRANSMIT,
    NVLINK,
    NVLINK_ERRORS,
    NVLINK_RECEIVE,
    NVLINK_SPEED,
    NVLINK_TRANSMIT,
    NVLINK_UP,
    NVLINKS,
    NVLINKS_SPEED,
)
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.nvml import verdicts
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of

FIELDS = "nvmlDeviceGetFieldValues"
KIB = 1024
OF_GPU = {NVLINK_TRANSMIT, NVLINK_RECEIVE, *NVLINK_ERRORS.values(), *C2C_ERRORS.values()}
TOGETHER = {*NVLINKS.values(), NVLINKS_SPEED}
PASSING = (4, 5, 6, 7, 8, 10, 17, 20, 21, 23, 27, 29, 999, 4711)
REFUSING = (2, 3, 13, 25, 26)


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two H100 whose links have carried something."""
    fake = FakeNvml(tmp_path, gpus=2, model="H100", driver="595.71.05")
    carry(fake)
    return fake


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that has read everything once."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        yield worker


def carry(fake: FakeNvml, card: int = 0) -> None:
    """Have each link of a card count something of its own."""
    for number in range(18):
        link = fake.link(card, number)
        link.transmit, link.receive = 1000 * KIB * number, 3000 * KIB * number
        link.replay, link.recovery, link.crc, link.symbol, link.recovery_failed = 1, 2, 3, number, 5


def links(found: Round, uuid: str) -> dict[str, Reading]:
    """Return the links of a card by number."""
    return {one.target.labels["link"]: one for one in found.of(NVLINK).values() if one.target.labels["uuid"] == uuid}


def part(reading: Reading, metrics: set[Metric]) -> dict[Metric, float]:
    """Return some values of a reading."""
    return {metric: value for metric, value in reading.values.items() if metric in metrics}


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05", "595.71.05"])
def test_each_link_is_a_target_with_its_state_and_speed(tmp_path: Path, driver: str) -> None:
    models = {"A100": (12, 25e9), "H100": (18, 26.562e9), "A40": (0, 0.0)}
    fake = FakeNvml(tmp_path, gpus=3, model=list(models), driver=driver)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.SLOW)
        found = worker.ask(Tier.SLOW)
    for card, (count, speed) in enumerate(models.values()):
        mine = links(found, fake.uuid(card))
        assert {str(number) for number in range(count)} == set(mine)
        for number, one in mine.items():
            told = int(number) < 12 or not driver.startswith("470")  # the old fields end there
            assert one.values == {NVLINK_UP: 1.0} | ({NVLINK_SPEED: speed} if told else {})
            assert (one.absent, one.target.key) == ({}, f"{fake.uuid(card)}/{number}")


@pytest.mark.parametrize(("model", "calls"), [("H100", 2), ("A40", 1)])
def test_all_links_of_a_card_are_one_call_and_a_card_without_any_is_asked_once(tmp_path: Path, model: str, calls: int) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model=model, driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        worker.ask(Tier.SLOW)
        before = fake.calls(FIELDS, gpu=0)
        for _ in range(3):
            worker.ask(Tier.SLOW)
        assert 3 * calls == fake.calls(FIELDS, gpu=0) - before  # one of them reads all other fields
        assert fake.calls("nvmlDeviceGetNvLinkState", gpu=0) == (1 if model == "A40" else 0)


def test_a_link_that_is_down_has_no_speed_and_one_that_sleeps_is_up(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.turn(0, 3, "inactive")
    fake.turn(0, 4, "asleep")
    found = links(worker.ask(Tier.SLOW), fake.uuid(0))
    assert (found["3"].values, found["3"].absent) == ({NVLINK_UP: 0.0}, {NVLINK_SPEED: Absence.EMPTY})
    assert found["4"].values == {NVLINK_UP: 1.0, NVLINK_SPEED: 26.562e9}
    fake.turn(0, 3, "active")
    assert links(worker.ask(Tier.SLOW), fake.uuid(0))["3"].values == {NVLINK_UP: 1.0, NVLINK_SPEED: 26.562e9}


def test_a_gpu_says_how_many_of_its_links_are_up_and_how_fast_they_are_together(fake: FakeNvml, worker: NvmlWorker) -> None:
    def told(card: int = 0) -> dict[Metric, float]:
        return part(worker.ask(Tier.SLOW).gpu(fake.uuid(card)), TOGETHER)

    assert told() == {NVLINKS["up"]: 18.0, NVLINKS["down"]: 0.0, NVLINKS_SPEED: pytest.approx(18 * 26.562e9)}
    fake.turn(0, 3, "inactive")
    fake.turn(0, 4, "asleep")
    assert told() == {NVLINKS["up"]: 17.0, NVLINKS["down"]: 1.0, NVLINKS_SPEED: pytest.approx(17 * 26.562e9)}
    assert told(1)[NVLINKS["down"]] == 0.0
    for link in range(18):
        fake.turn(0, link, "inactive")
    assert told() == {NVLINKS["up"]: 0.0, NVLINKS["down"]: 18.0, NVLINKS_SPEED: 0.0}


def test_a_gpu_without_nvlink_says_nothing_of_links_and_one_whose_driver_lacks_speeds_counts_them(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2, model=["A40", "H100"], driver="470.256.02")
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.SLOW)
        found = worker.ask(Tier.SLOW)
    without, old = (found.gpu(fake.uuid(card)) for card in (0, 1))
    assert TOGETHER.isdisjoint(without.values.keys() | without.absent.keys())
    assert part(old, TOGETHER) == {NVLINKS["up"]: 18.0, NVLINKS["down"]: 0.0}
    assert old.absent[NVLINKS_SPEED] is Absence.UNSUPPORTED


def test_what_is_not_known_of_one_link_is_not_counted_as_up_or_down(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.set(0, nvlinks=17)  # the last one is refused
    found = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
    assert (part(found, TOGETHER), {found.absent[metric] for metric in TOGETHER}) == ({}, {Absence.UNSUPPORTED})


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05", "595.71.05"])
def test_bytes_and_errors_of_all_links_come_with_the_first_look_on_every_driver(tmp_path: Path, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=2, model="H100", driver=driver)
    fake.set(0, nvlink_ecc=7)
    fake.set(1, nvlink_ecc=7, nvlink_sums=0)  # fields 161 to 163 are for one link at a time
    for card in (0, 1):
        carry(fake, card)
    with closing(NvmlWorker(fake)) as worker:
        rounds = [worker.ask(Tier.SLOW) for _ in range(2)]
    expected = {
        NVLINK_TRANSMIT: 153_000.0 * KIB,
        NVLINK_RECEIVE: 459_000.0 * KIB,
        NVLINK_ERRORS["replay"]: 18.0,
        NVLINK_ERRORS["recovery"]: 36.0,
        NVLINK_ERRORS["crc"]: 54.0,
        NVLINK_ERRORS["ecc"]: 7.0,
    }
    if driver.startswith("470"):
        del expected[NVLINK_ERRORS["ecc"]]
    for found in (round_.gpu(fake.uuid(card)) for round_ in rounds for card in (0, 1)):
        assert expected == part(found, OF_GPU)
        assert {found.absent[metric] for metric in OF_GPU - set(expected)} == {Absence.UNSUPPORTED}


def test_nvlink_5_has_counters_of_its_own(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="H100", driver="595.71.05")
    fake.set(0, nvlink_version=7, nvlink_ecc=None, c2c_crc=2, c2c_replay=9)
    carry(fake)
    with closing(NvmlWorker(fake)) as worker:
        found = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
    assert part(found, OF_GPU) == {
        NVLINK_TRANSMIT: 153_000.0 * KIB,
        NVLINK_RECEIVE: 459_000.0 * KIB,
        NVLINK_ERRORS["symbol"]: 153.0,
        NVLINK_ERRORS["recovery_failed"]: 90.0,
        C2C_ERRORS["crc"]: 2.0,
        C2C_ERRORS["replay"]: 9.0,
    }


def test_more_than_a_card_can_store_is_no_wrong_byte_counter(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.link(0, 0).transmit = 1 << 52
    assert worker.ask(Tier.SLOW).gpu(fake.uuid(0)).values[NVLINK_TRANSMIT] == float((1 << 52) + 153_000 * KIB)


@pytest.mark.parametrize(
    ("version", "kinds"), [(6, {"replay": 1.0, "recovery": 2.0, "crc": 3.0}), (7, {"symbol": 4.0, "recovery_failed": 5.0})]
)
def test_bytes_and_errors_link_by_link_are_an_option(tmp_path: Path, version: int, kinds: dict[str, float]) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="H100", driver="595.71.05")
    fake.set(0, nvlink_version=version)
    carry(fake)
    with closing(NvmlWorker(fake, per_link=True)) as worker:
        worker.warm()
        before = fake.calls(FIELDS, gpu=0)
        found = links(worker.ask(Tier.SLOW), fake.uuid(0))["4"]
        assert fake.calls(FIELDS, gpu=0) == before + 2
    bytes_ = {LINK_TRANSMIT: 4000.0 * KIB, LINK_RECEIVE: 12_000.0 * KIB}
    assert found.values == {
        NVLINK_UP: 1.0,
        NVLINK_SPEED: 26.562e9,
        **bytes_,
        **{LINK_ERRORS[kind]: count for kind, count in kinds.items()},
    }


def test_a_call_for_the_links_that_fails_costs_their_numbers_once(fake: FakeNvml, worker: NvmlWorker) -> None:
    whole = worker.ask(Tier.SLOW)
    for code in (*PASSING, *REFUSING):
        fake.fail(FIELDS, code, gpu=0, call=2)
        found = worker.ask(Tier.SLOW)
        assert not fake.failing(FIELDS, gpu=0)
        mine = links(found, fake.uuid(0))
        why = Absence.UNSUPPORTED if code in REFUSING else verdicts.absence(code)
        assert len(mine) == 18
        assert all(not one.values and {NVLINK_UP: why, NVLINK_SPEED: why} == one.absent for one in mine.values()), code
        gpu_before, gpu_now = whole.gpu(fake.uuid(0)), found.gpu(fake.uuid(0))
        assert dict(gpu_before.values) == {**gpu_now.values, **part(gpu_before, TOGETHER)}
        assert {metric: gpu_now.absent.get(metric) for metric in TOGETHER} == dict.fromkeys(TOGETHER, why), code
        assert values(whole, fake.uuid(1)) == values(found, fake.uuid(1))
        assert values(whole, fake.uuid(0)) == values(worker.ask(Tier.SLOW), fake.uuid(0)), code


def test_links_that_could_not_be_found_at_first_are_found_by_the_next_look(tmp_path: Path) -> None:
    cases = [(code, call) for code in (4, 6, 999) for call in (2, 3)]  # the search, and what is asked of those found
    fake = FakeNvml(tmp_path, gpus=len(cases), model="H100", driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        for card, (code, call) in enumerate(cases):
            fake.fail(FIELDS, code, gpu=card, call=call)
        first, second = worker.ask(Tier.SLOW), worker.ask(Tier.SLOW)
    for card, (_, call) in enumerate(cases):
        assert not fake.failing(FIELDS, gpu=card)
        assert len(links(first, fake.uuid(card))) == (0 if call == 2 else 18)
        found = links(second, fake.uuid(card))
        assert [one.values for one in found.values()] == [{NVLINK_UP: 1.0, NVLINK_SPEED: 26.562e9}] * 18


@pytest.mark.parametrize("code", [6, 999])
def test_links_of_an_old_driver_that_fail_are_looked_for_again(tmp_path: Path, code: int) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="A100", driver="470.256.02")
    state = "nvmlDeviceGetNvLinkState"
    fake.fail(state, code, gpu=0)
    with closing(NvmlWorker(fake)) as worker:
        assert links(worker.ask(Tier.SLOW), fake.uuid(0)) == {}
        whole = links(worker.ask(Tier.SLOW), fake.uuid(0))
        assert len(whole) == 12
        fake.fail(state, code, gpu=0, call=5)
        found = links(worker.ask(Tier.SLOW), fake.uuid(0))
        assert not fake.failing(state, gpu=0)
        assert found["4"].absent[NVLINK_UP] is verdicts.absence(code)
        assert [one.values[NVLINK_UP] for number, one in found.items() if number != "4"] == [1.0] * 11


def test_a_link_that_was_there_and_is_refused_is_missed(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.set(0, nvlinks=17)
    for _ in range(2):
        found = links(worker.ask(Tier.SLOW), fake.uuid(0))
        assert (found["17"].values, found["17"].absent[NVLINK_UP]) == ({}, Absence.UNSUPPORTED)
        assert found["16"].values
    fake.set(0, nvlinks=18)
    assert links(worker.ask(Tier.SLOW), fake.uuid(0))["17"].values[NVLINK_UP] == 1.0


def test_a_gpu_that_is_found_lost_by_its_links_is_lost_with_them(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.fail(FIELDS, 15, gpu=0, call=2)
    found = worker.ask(Tier.SLOW)
    assert fault_of(found.gpu(fake.uuid(0))) == ("lost", 15)
    lost = links(found, fake.uuid(0))
    assert [set(one.absent.values()) for one in lost.values()] == [{Absence.LOST}] * 18
    assert len(values(found, fake.uuid(1))) == 18


def test_a_call_for_the_links_that_hangs_costs_that_gpu_alone(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake, deadline=2.0)) as worker:
        whole = worker.warm()
        worker.ask(Tier.SLOW)
        fake.hang(0, FIELDS)
        assert worker.ask(Tier.SLOW).busy == [fake.uuid(0)]
        found = worker.until(Tier.SLOW, lambda round_: fake.uuid(0) in round_.of(GPU))
        assert fault_of(found.gpu(fake.uuid(0)))[0] == "hung"
        assert {one.absent[NVLINK_UP] for one in links(found, fake.uuid(0)).values()} == {Absence.LATE}
        assert len(values(found, fake.uuid(1))) == 18
        fake.release(0, FIELDS)
        again = worker.until(Tier.SLOW, lambda round_: bool(values(round_, fake.uuid(0)).get("0")))
        assert len(values(again, fake.uuid(0))) == 18
        assert whole.gpu(fake.uuid(1)).fault is None


def values(found: Round, uuid: str) -> dict[str, dict[Metric, float]]:
    """Return what the links of a card gave."""
    return {number: dict(one.values) for number, one in links(found, uuid).items()}


@pytest.mark.parametrize(("driver", "health"), [("535.154.05", None), ("550.90.07", 0.0), ("595.71.05", 1.0)])
def test_the_fabric_is_read_in_the_version_that_the_driver_has(tmp_path: Path, driver: str, health: float | None) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="H100", driver=driver)
    fake.set(0, fabric_mask=0x1, fabric_summary=1)  # version 3 is asked for its own verdict
    with closing(NvmlWorker(fake)) as worker:
        found = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
    assert FABRIC_STATE.at("completed") == part(found, set(FABRIC_STATE.values()))
    assert found.values.get(FABRIC_HEALTHY) == health
    assert health is not None or found.absent[FABRIC_HEALTHY] is Absence.UNSUPPORTED


def test_a_card_in_no_fabric_has_no_state_and_one_before_the_fabric_is_asked_once(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=2, model=["H100", "A40"], driver="595.71.05")
    fake.set(0, fabric_state=0)
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(3):
            found = worker.ask(Tier.SLOW)
    for card in (0, 1):
        absent = found.gpu(fake.uuid(card)).absent
        assert {absent[metric] for metric in (*FABRIC_STATE.values(), FABRIC_HEALTHY)} == {Absence.UNSUPPORTED}
    assert fake.calls("nvmlDeviceGetGpuFabricInfoV", gpu=1) == 2  # once in each version
