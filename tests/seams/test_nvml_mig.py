"""MIG: instances come and go under the monitor, have their own memory and nothing of the card's, and are never "GPU lost"."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import ENGINE_UTILIZATION, MEMORY_ACTIVITY, TEMPERATURE, UTILIZATION
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED, MIG_MODE
from gpuwatch.model.alert import Severity
from gpuwatch.model.reading import Absence, Reading, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of
from tests.fakes.until import until

GIB = 1 << 30
PARTS = ("mig_uuid", "mig_name", "mig_gpu_instance", "mig_compute_instance", "mig_memory")
SHARES = {UTILIZATION, MEMORY_ACTIVITY, *ENGINE_UTILIZATION.values()}


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two A100; the first is divided into two halves, 1 and 2."""
    fake = FakeNvml(tmp_path, gpus=2, model="A100", driver="595.71.05")
    fake.divide(0)
    fake.create(0, 1, "3g.40gb", 40 * GIB, used=3 * GIB)
    fake.create(0, 2, "3g.40gb", 40 * GIB)
    return fake


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that has read everything once, and waits for events."""
    with closing(NvmlWorker(fake)) as worker:
        for tier in (*Tier, Tier.NORMAL):
            worker.ask(tier)
        until(lambda: all(fake.calls("nvmlEventSetWait", gpu=card) for card in (0, 1)))
        yield worker


def instances(found: Round) -> dict[str, Reading]:
    """Return the readings of instances by their number."""
    return {one.target.labels["gpu_instance"]: one for one in found.of(MIG).values()}


def memory_absent(found: Round) -> dict[str, set[Absence]]:
    """Return why the memory of instances is absent."""
    return {
        number: {one.absent[metric] for metric in (MIG_MEMORY_USED, MIG_MEMORY_SIZE)} for number, one in instances(found).items()
    }


def living(found: Round) -> set[str]:
    """Return the instances that have values."""
    return {number for number, one in instances(found).items() if one.values}


def test_an_instance_is_a_target_with_its_own_memory_and_nothing_of_the_card(fake: FakeNvml, worker: NvmlWorker) -> None:
    found = worker.ask(Tier.NORMAL)
    first = instances(found)["1"]
    assert first.target.labels == {"gpu": "0", "uuid": fake.uuid(0), "gpu_instance": "1"}
    assert (first.target.info["profile"], first.target.info["compute_instance"]) == ("3g.40gb", "0")
    assert first.target.info["mig_uuid"].startswith("MIG-")
    assert first.values == {MIG_MEMORY_USED: 3 * GIB, MIG_MEMORY_SIZE: 40 * GIB}
    assert living(found) == {"1", "2"}
    assert {one.target.labels["uuid"] for one in found.of(MIG).values()} == {fake.uuid(0)}


def test_a_divided_card_has_its_modes_and_sensors_and_no_utilization_even_where_the_driver_says_0(
    fake: FakeNvml, worker: NvmlWorker
) -> None:
    slow = worker.ask(Tier.SLOW)
    modes = [[slow.gpu(fake.uuid(card)).values[MIG_MODE[which]] for which in ("current", "pending")] for card in (0, 1)]
    assert modes == [[1.0, 1.0], [0.0, 0.0]]
    fake.set(0, utilization=0, memory_activity=0, encoder=0, decoder=0, jpeg=0, ofa=0)
    fake.divide(1)  # the driver refuses the shares of this one
    worker.ask(Tier.SLOW)
    for tier in (Tier.FAST, Tier.NORMAL):
        found = worker.ask(tier)
        for card in (0, 1):
            reading = found.gpu(fake.uuid(card))
            assert not SHARES & set(reading.values)
            assert {reading.absent[metric] for metric in SHARES & set(reading.absent)} == {Absence.UNSUPPORTED}
            assert reading.fault is None
    assert worker.ask().gpu(fake.uuid(0)).values[TEMPERATURE["core"]] == 34.0


def test_a_new_worker_gives_a_divided_card_no_utilization_from_its_first_look_on(fake: FakeNvml) -> None:
    fake.set(0, utilization=0, memory_activity=0)
    with closing(NvmlWorker(fake)) as worker:
        assert not SHARES & set(worker.ask().gpu(fake.uuid(0)).values)


def test_a_changed_layout_is_read_and_told_at_once_where_the_driver_tells_of_it(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.destroy(0, 2)
    fake.create(0, 5, "1g.10gb", 10 * GIB)
    fake.create(0, 6, "1g.10gb", 10 * GIB)
    fake.event(0, 0x100)
    until(lambda: worker.told("mig_changed"))
    (event,) = worker.told("mig_changed")
    assert (event.key, event.severity) == (fake.uuid(0), Severity.INFO)
    assert event.words == "the MIG layout has changed, gone: 3g.40gb 2/0; new: 1g.10gb 5/0, 1g.10gb 6/0"
    until(lambda: worker.idle() is not None and len([one for one in worker.after if one.target.subject is MIG]) == 4)
    came = {one.target.labels["gpu_instance"]: one for one in worker.after if one.target.subject is MIG}
    assert {number for number, one in came.items() if one.values} == {"1", "5", "6"}
    assert (came["2"].values, came["2"].absent, came["2"].fault) == ({}, {}, None)  # which ends its series
    assert living(worker.ask(Tier.NORMAL)) == {"1", "5", "6"}
    assert fault_of(worker.ask().gpu(fake.uuid(0))) == ("", None)


def test_a_changed_layout_is_found_by_the_next_normal_round_where_it_does_not(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.destroy(0, 1)
    assert living(worker.ask(Tier.NORMAL)) == {"2"}
    assert "1" not in instances(worker.ask(Tier.NORMAL))  # what is gone is told once
    assert len(worker.told("mig_changed")) == 1


def test_an_instance_that_takes_the_place_of_another_is_told_and_is_another(fake: FakeNvml, worker: NvmlWorker) -> None:
    before = instances(worker.ask(Tier.NORMAL))["1"].target.info["mig_uuid"]
    fake.destroy(0, 1)
    made = fake.create(0, 1, "2g.20gb", 20 * GIB)  # the handle of the old one is now that of the new one
    found = instances(worker.ask(Tier.NORMAL))["1"]
    assert (found.target.info["mig_uuid"], found.target.info["profile"]) == (made, "2g.20gb")
    assert (made != before, found.values[MIG_MEMORY_SIZE]) == (True, 20 * GIB)
    assert [dict(event.facts) for event in worker.told("mig_changed")] == [{"gone": "1", "new": "1", "devices": "2"}]


def test_the_compute_instances_of_an_instance_share_one_line_and_one_memory(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.create(0, 3, "1c.2g.20gb", 20 * GIB, compute=0)
    fake.create(0, 3, "1c.2g.20gb", 20 * GIB, compute=1)
    worker.ask(Tier.NORMAL)
    before = fake.calls("mig_memory", gpu=0)
    found = instances(worker.ask(Tier.NORMAL))
    info = found["3"].target.info
    assert (info["compute_instance"], info["profile"], info["mig_uuid"].count("MIG-")) == ("0,1", "1c.2g.20gb", 2)
    assert (len(found), fake.calls("mig_memory", gpu=0) - before) == (3, 3)


def test_mig_that_is_switched_off_gives_the_card_its_utilization_back(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.divide(0, on=True, pending=False)
    assert worker.ask(Tier.SLOW).gpu(fake.uuid(0)).values[MIG_MODE["pending"]] == 0.0
    assert worker.told("mig_changed") == []
    fake.divide(0, on=False)
    fake.set(0, utilization=55)
    worker.ask(Tier.SLOW)
    assert worker.ask().gpu(fake.uuid(0)).values[UTILIZATION] == 0.55
    assert living(worker.ask(Tier.NORMAL)) == set()
    words = [event.words for event in worker.told("mig_changed")]
    assert words == ["MIG was switched off", "the MIG layout has changed, gone: 3g.40gb 1/0, 3g.40gb 2/0"]


def test_a_lost_card_takes_its_instances_with_it_and_a_reset_one_has_lost_its_layout(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.lose(0, 15)
    found = worker.until(Tier.FAST, lambda found: bool(found.of(MIG)))
    assert memory_absent(found) == {"1": {Absence.LOST}, "2": {Absence.LOST}}
    assert instances(worker.ask(Tier.NORMAL)).keys() == {"1", "2"}
    for number in (1, 2):
        fake.destroy(0, number)
    fake.find(0)
    worker.until(Tier.NORMAL, lambda found: found.gpu(fake.uuid(0)).fault is None and not found.of(MIG))
    assert [event.facts["gone"] for event in worker.told("mig_changed")] == ["2"]


@pytest.mark.parametrize("function", PARTS)
def test_a_call_to_an_instance_that_fails_costs_at_most_that_instance_for_a_round(fake: FakeNvml, function: str) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.NORMAL)
        whole = instances(worker.ask(Tier.NORMAL))
        used: set[int] = set()
        for code in (2, 3, 4, 6, 13, 15, 16, 17, 20, 27, 999):
            fake.destroy(0, 2)
            fake.create(0, 2, "3g.40gb", 40 * GIB)  # so that every call is made
            fake.fail(function, code, gpu=0, call=2 if function in ("mig_uuid", "mig_memory") else 1)
            found = worker.ask(Tier.NORMAL)
            assert not fake.failing(function, gpu=0), code
            used.add(code)
            assert instances(found)["1"].values == whole["1"].values
            assert fault_of(found.gpu(fake.uuid(0))) == ("", None)  # an instance is never "GPU lost"
            assert found.gpu(fake.uuid(1)).values
            again = worker.ask(Tier.NORMAL)
            assert {number: one.values for number, one in instances(again).items()} == {n: o.values for n, o in whole.items()}
        assert len(used) == 11


@pytest.mark.parametrize("code", [2, 6, 27])
def test_an_instance_that_vanishes_between_two_calls_is_looked_for_once_more(
    fake: FakeNvml, worker: NvmlWorker, code: int
) -> None:
    for function in ("mig_uuid", "mig_memory"):
        fake.fail(function, code, gpu=0)
        assert living(worker.ask(Tier.NORMAL)) == {"1", "2"}
        assert not fake.failing(function, gpu=0)
    assert worker.told("mig_changed") == []


def test_an_instance_that_does_not_answer_for_another_reason_is_not_said_to_be_gone(fake: FakeNvml, worker: NvmlWorker) -> None:
    for function in ("mig_uuid", "mig_memory", "nvmlDeviceGetMigDeviceHandleByIndex"):
        fake.answer(function, 999, gpu=0)
        assert memory_absent(worker.ask(Tier.NORMAL)) == {"1": {Absence.FAILED}, "2": {Absence.FAILED}}
        fake.answer(function, 0, gpu=0)
        assert living(worker.ask(Tier.NORMAL)) == {"1", "2"}
    fake.fail("nvmlDeviceGetMaxMigDeviceCount", 999, gpu=0)
    assert living(worker.ask(Tier.NORMAL)) == {"1", "2"}
    assert worker.told("mig_changed") == []


def test_a_call_to_an_instance_that_hangs_costs_its_card_and_not_the_other(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.hang(0, "mig_memory")
    found = worker.ask(Tier.NORMAL)
    assert found.busy == [fake.uuid(0)]
    assert found.gpu(fake.uuid(1)).values
    assert worker.ask().gpu(fake.uuid(1)).values
    fake.release(0, "mig_memory")
    worker.until(Tier.NORMAL, lambda found: living(found) == {"1", "2"} and bool(found.gpu(fake.uuid(0)).values))


@pytest.mark.parametrize(("model", "driver"), [("A100", "440.33.01"), ("A40", "535.154.05"), ("A100", "470.256.02")])
def test_a_card_without_mig_is_asked_for_its_mode_and_nothing_else(tmp_path: Path, model: str, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model=model, driver=driver)
    with closing(NvmlWorker(fake)) as worker:
        for tier in (*Tier, *Tier):
            found = worker.ask(tier)
            assert (fault_of(found.gpu(fake.uuid(0))), found.of(MIG)) == (("", None), {})
        assert fake.calls("nvmlDeviceGetMaxMigDeviceCount") == 0


def test_seven_instances_cost_twenty_two_calls_in_a_normal_round_and_none_in_a_fast_one(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, model="A100", driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        whole = {}
        for layout in ("whole", "divided"):
            for tier in (*Tier, *Tier):
                worker.ask(tier)
            before = fake.tally()
            worker.ask()
            fast = sum(fake.tally().values()) - sum(before.values())
            before = fake.tally()
            found = worker.ask(Tier.NORMAL)
            after = fake.tally()
            whole[layout] = fast, after, before
            if layout == "whole":
                fake.divide(0)
                for number in range(7):
                    fake.create(0, 7 + number, "1g.10gb", 10 * GIB)
        assert len(living(found)) == 7
        mig = {name: after[name] - before[name] for name in after if "mig" in name.lower() and after[name] != before[name]}
        assert mig == {
            "nvmlDeviceGetMaxMigDeviceCount": 1,
            "nvmlDeviceGetMigDeviceHandleByIndex": 7,
            "mig_uuid": 7,
            "mig_memory": 7,
        }
        assert whole["divided"][0] <= whole["whole"][0]  # a divided card is asked for less in a fast round
