"""GPUs that are lost, hang, crash the library, come and go: each costs its own data, and no other's."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Absence, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of, missing
from tests.fakes.until import PATIENCE

CARDS = 4


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Four cards."""
    return FakeNvml(tmp_path, gpus=CARDS)


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that has read everything once."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        yield worker


def fine(fake: FakeNvml, found: Round, *but: int) -> bool:
    """Return whether every card but these gave values without a fault."""
    return all(
        found.gpu(fake.uuid(card)).values and found.gpu(fake.uuid(card)).fault is None for card in range(CARDS) if card not in but
    )


@pytest.mark.parametrize(("code", "kind"), [(15, "lost"), (16, "reset_required")])
def test_a_lost_gpu_is_never_touched_by_its_dead_handle_and_the_others_go_on(
    fake: FakeNvml, worker: NvmlWorker, code: int, kind: str
) -> None:
    """XuehaiPan/nvitop#139: calls go on with the handle of a lost GPU, and the library crashes."""
    fake.abort_on_dead_handle(1)
    fake.lose(1, code)
    first = worker.ask()
    mine = [one for one in first.readings if one.target.key == fake.uuid(1)]
    assert {Tier.FAST, Tier.NORMAL, Tier.SLOW} == {one.tier for one in mine}  # no old value outlives the GPU
    assert {(kind, code)} == {fault_of(one) for one in mine}
    assert [one.values for one in mine] == [{}, {}, {}]
    for _ in range(5):
        for tier in Tier:
            found = worker.ask(tier)
            assert fine(fake, found, 1)
            assert (kind, code) == fault_of(found.gpu(fake.uuid(1)))
            assert gpu.TEMPERATURE["core"] not in found.gpu(fake.uuid(1)).values
    assert fake.dead_uses(1) == 1
    assert worker.process.poll() is None
    assert gpu.TEMPERATURE["core"] in missing(worker.ask().gpu(fake.uuid(1)), Absence.LOST)


def test_a_lost_gpu_that_comes_back_is_whole_again(fake: FakeNvml, worker: NvmlWorker) -> None:
    whole = worker.ask()
    fake.lose(1)
    worker.ask()
    fake.find(1)
    worker.until(Tier.NORMAL, lambda found: fine(fake, found))
    found = worker.ask()
    assert set(whole.gpu(fake.uuid(1)).values) == set(found.gpu(fake.uuid(1)).values)
    assert found.gpu(fake.uuid(1)).target.labels["gpu"] == "1"
    assert (worker.log().count("is lost"), worker.log().count("answers again")) == (1, 1)


def test_a_lost_gpu_is_tried_less_and_less_often(fake: FakeNvml, worker: NvmlWorker) -> None:
    before = fake.calls("nvmlDeviceGetHandleByIndex", gpu=1)
    fake.lose(1)
    began = time.monotonic()
    for tries, earliest in ((1, 0.0), (2, 0.5), (3, 1.5)):
        worker.until(Tier.NORMAL, lambda _, tries=tries: fake.calls("nvmlDeviceGetHandleByIndex", gpu=1) - before >= tries)  # type: ignore[misc] # bound at once
        assert time.monotonic() - began >= earliest


def test_a_gpu_that_is_lost_first_by_15_and_then_by_999_stays_lost(fake: FakeNvml, worker: NvmlWorker) -> None:
    """NVIDIA/nvidia-docker#1553: the same card answers one or the other."""
    fake.lose(1, 15)
    worker.ask()
    fake.lose(1, 999)
    end = time.monotonic() + 0.5
    found = worker.until(Tier.NORMAL, lambda _: time.monotonic() > end)
    assert fault_of(found.gpu(fake.uuid(1))) == ("lost", 15)


def test_a_lone_999_on_other_cards_while_one_falls_off_the_bus_blames_none_of_them(fake: FakeNvml, worker: NvmlWorker) -> None:
    """Scenario S1: 15 for one GPU, then 999 for some calls on the others for one sample."""
    fake.lose(1)
    for card in (0, 2, 3):
        fake.fail("nvmlDeviceGetUtilizationRates", 999, gpu=card)
        fake.fail("nvmlDeviceGetClockInfo", 999, gpu=card, times=2)
    found = worker.ask()
    for card in (0, 2, 3):
        reading = found.gpu(fake.uuid(card))
        assert reading.fault is None
        assert {gpu.UTILIZATION, gpu.MEMORY_ACTIVITY, gpu.CLOCK["graphics"], gpu.CLOCK["sm"]} == missing(reading, Absence.FAILED)
    assert fine(fake, worker.ask(), 1)


def test_gpus_that_cannot_be_opened_at_start_have_their_names_from_the_drivers_list(fake: FakeNvml) -> None:
    faults = {1: ("lost", 15), 2: ("no_permission", 4), 3: ("unknown_error", 8)}
    for card, (_, code) in faults.items():
        fake.lose(card, code)
    with closing(NvmlWorker(fake, labels={"0000:33:00.0": "slot 3"})) as worker:
        found = worker.ask()
        assert fine(fake, found, 1, 2, 3)
        assert faults == {card: fault_of(found.gpu(fake.uuid(card))) for card in faults}
        assert {"gpu": "2", "uuid": fake.uuid(2)} == found.gpu(fake.uuid(2)).target.labels
        assert found.gpu(fake.uuid(2)).target.info == {"pci_bus_id": "0000:33:00.0", "label": "slot 3"}
        assert worker.survey().visible == CARDS
        for card in faults:
            fake.find(card)
        worker.until(Tier.NORMAL, lambda found: fine(fake, found))
        assert worker.ask().gpu(fake.uuid(2)).target.info["name"] == "NVIDIA A40"


def test_a_gpu_of_unknown_uuid_is_known_by_its_place_until_it_opens(fake: FakeNvml) -> None:
    information = Path(fake.proc) / "driver/nvidia/gpus/0000:33:00.0/information"
    information.write_text("GPU UUID: \t GPU-????????-????-????-????-????????????\n")
    fake.lose(2)
    with closing(NvmlWorker(fake)) as worker:
        assert fault_of(worker.ask().gpu("0000:33:00.0")) == ("lost", 15)
        fake.find(2)
        worker.until(Tier.NORMAL, lambda found: fake.uuid(2) in found.of(gpu.GPU))
        assert {fake.uuid(card) for card in range(CARDS)} == set(worker.ask().of(gpu.GPU))


def test_a_gpu_that_nobody_can_name_is_counted_and_logged_but_not_invented(fake: FakeNvml) -> None:
    for name in ("0000:25:00.0", "0000:33:00.0"):
        (Path(fake.proc) / "driver/nvidia/gpus" / name / "information").unlink()
        (Path(fake.proc) / "driver/nvidia/gpus" / name).rmdir()
    fake.lose(2)
    with closing(NvmlWorker(fake)) as worker:
        found = worker.survey()
        assert {fake.uuid(card) for card in (0, 1, 3)} == set(found.of(gpu.GPU))
        assert found.visible == CARDS
        assert worker.log().count("nothing says which card it is") == 1


def test_the_count_goes_down_and_up_again_and_indexes_follow(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.show([0, 2, 3])
    found = worker.until(Tier.NORMAL, lambda found: found.visible == 3 and fault_of(found.gpu(fake.uuid(1)))[0] == "lost")
    found = worker.ask()
    assert fine(fake, found, 1)
    gone = found.gpu(fake.uuid(1))
    assert fault_of(gone) == ("lost", None)
    assert gone.values == {}
    indexes = {card: found.gpu(fake.uuid(card)).target.labels["gpu"] for card in range(CARDS)}
    assert indexes == {0: "0", 1: "1", 2: "1", 3: "2"}  # the missing one keeps the index it had last
    fake.show([0, 1, 2, 3])
    worker.until(Tier.NORMAL, lambda found: found.visible == CARDS and fine(fake, found))
    found = worker.ask()
    assert {card: str(card) for card in range(CARDS)} == {
        card: found.gpu(fake.uuid(card)).target.labels["gpu"] for card in range(CARDS)
    }


def test_a_lost_gpu_of_a_container_that_sees_some_of_the_cards_is_named_from_its_neighbours(fake: FakeNvml) -> None:
    fake.show([0, 1, 2])  # the driver's list goes on having all four
    fake.lose(1)
    with closing(NvmlWorker(fake)) as worker:
        assert fault_of(worker.ask().gpu(fake.uuid(1))) == ("lost", 15)
        assert "nothing says which card" not in worker.log()


@pytest.mark.parametrize(("code", "fault"), [(15, ("lost", 15)), (999, ("unknown_error", 999))])
def test_a_gpu_that_tells_its_place_and_then_no_more_is_named_by_it(fake: FakeNvml, code: int, fault: tuple[str, int]) -> None:
    for name in (Path(fake.proc) / "driver/nvidia/gpus").iterdir():
        (name / "information").unlink()
        name.rmdir()
    fake.answer("nvmlDeviceGetUUID", code, gpu=2)
    with closing(NvmlWorker(fake)) as worker:
        assert fault_of(worker.ask().gpu("0000:33:00.0")) == fault


def test_a_count_that_no_host_can_have_is_a_failed_sample(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.state.count = 1 << 30
    found = worker.survey()
    assert (found.visible, fine(fake, found)) == (Absence.FAILED, True)
    fake.state.count = CARDS
    assert worker.survey().visible == CARDS


def test_one_empty_count_is_a_failed_sample_and_a_second_one_is_believed(fake: FakeNvml, worker: NvmlWorker) -> None:
    """netdata/netdata#23207: an empty answer now and then made all GPUs come and go."""
    fake.show([])
    found = worker.survey()
    assert (found.visible, fine(fake, found)) == (Absence.EMPTY, True)
    fake.show(range(CARDS))
    found = worker.survey()
    assert (found.visible, fine(fake, found)) == (CARDS, True)
    fake.show([])
    worker.survey()
    assert worker.survey().visible == 0
    assert {("lost", None)} == {fault_of(one) for one in worker.ask().of(gpu.GPU).values()}
    fake.show(range(CARDS))
    worker.until(Tier.NORMAL, lambda found: fine(fake, found))


def test_a_new_gpu_is_found_without_a_new_process(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.show([0, 1, 2, 3, 4])
    worker.until(Tier.NORMAL, lambda found: fake.uuid(4) in found.of(gpu.GPU))
    assert worker.ask().gpu(fake.uuid(4)).values


def test_a_hung_gpu_costs_nobody_else_a_beat_and_is_said_to_hang_after_the_deadline(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake, every=1.0, deadline=1.5)) as worker:
        worker.warm()
        calls = fake.calls("nvmlDeviceGetUtilizationRates", gpu=2)
        fake.hang(2)
        took: list[float] = []
        hung: Round | None = None
        began = time.monotonic()
        while time.monotonic() - began < (2.5 if hung else PATIENCE):
            found = worker.ask()
            took.append(found.took)
            assert [fake.uuid(2)] == found.busy
            assert {fake.uuid(card) for card in (0, 1, 3)} <= {key for key, one in found.of(gpu.GPU).items() if one.values}
            hung = found if fake.uuid(2) in found.of(gpu.GPU) else hung
        assert hung is not None
        reading = hung.gpu(fake.uuid(2))
        assert fault_of(reading)[0] == "hung"
        assert {Absence.LATE} == set(reading.absent.values())
        assert gpu.TEMPERATURE["core"] in reading.absent
        assert reading.values == {}
        assert sorted(took)[-3] < 1.0  # a period of patience or two, then the others' beat is their own
        assert fake.calls("nvmlDeviceGetUtilizationRates", gpu=2) <= calls + 1
        fake.release(2)
        found = worker.until(Tier.FAST, lambda found: fine(fake, found))
        assert found.busy == []
        assert (worker.log().count("has not returned"), worker.log().count("comes back")) == (1, 1), worker.log()


def test_gpus_that_hang_while_they_are_opened_hold_no_other_up(fake: FakeNvml) -> None:
    hangs = {1: "nvmlDeviceGetHandleByIndex", 2: "nvmlDeviceGetUUID", 3: "nvmlDeviceGetFieldValues"}
    for card, function in hangs.items():
        fake.hang(card, function)
    with closing(NvmlWorker(fake, every=0.2, deadline=0.8)) as worker:
        first = worker.until(Tier.FAST, lambda found: any(one.values for one in found.of(gpu.GPU).values()))
        assert [fake.uuid(0)] == [key for key, one in first.of(gpu.GPU).items() if one.values]
        found = worker.until(Tier.FAST, lambda found: len(found.of(gpu.GPU)) == CARDS)
        assert dict.fromkeys(hangs, "hung") == {card: fault_of(found.gpu(fake.uuid(card)))[0] for card in hangs}
        assert min(worker.ask().took for _ in range(5)) < 0.5
        for card, function in hangs.items():
            fake.release(card, function)
        worker.until(Tier.NORMAL, lambda found: fine(fake, found))


def test_a_skipped_gpu_is_left_alone(fake: FakeNvml, worker: NvmlWorker) -> None:
    before = fake.calls("nvmlDeviceGetUtilizationRates", gpu=1)
    found = worker.ask(skip=[fake.uuid(1)])
    assert {fake.uuid(card) for card in (0, 2, 3)} == set(found.of(gpu.GPU))
    assert before == fake.calls("nvmlDeviceGetUtilizationRates", gpu=1)


def test_a_library_that_crashes_takes_only_the_worker_along(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.crash("nvmlDeviceGetClockInfo", gpu=3)
    with pytest.raises(AssertionError, match="the worker has died"):
        worker.ask()
    assert worker.died() == -signal.SIGABRT
    fake.crash("nvmlDeviceGetClockInfo", gpu=3, on=False)
    with closing(NvmlWorker(fake)) as another:
        assert fine(fake, another.warm())
