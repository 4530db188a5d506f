"""Codes that speak of NVML as a whole (1, 9, 18), said by one call, one card or all: who is to blame, and what that may cost."""

import math
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Absence, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of
from tests.fakes.until import until

WIDE = (1, 9, 18)
CODES = (*WIDE, 12)  # 12 (no library) is an answer of nvmlInit; of another call it says as little
OPENING = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetUUID")
WHILE = 1.2  # seconds for which the attempts are counted
CARDS = 4


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Four cards."""
    return FakeNvml(tmp_path, gpus=CARDS)


def give(fake: FakeNvml, *cards: int) -> Callable[[Round], bool]:
    """Return whether a round has values of these cards."""
    return lambda found: all(found.gpu(fake.uuid(card)).values for card in cards)


def threads(worker: NvmlWorker) -> int:
    """Return how many threads the worker has."""
    return len(list(Path(f"/proc/{worker.process.pid}/task").iterdir()))


def for_a_while(worker: NvmlWorker) -> None:
    """Ask for normal rounds for WHILE."""
    begun = time.monotonic()
    worker.until(Tier.NORMAL, lambda found: bool(found.state) and time.monotonic() > begun + WHILE)


def at_most(seconds: float) -> float:
    """Return how many attempts may have been made in so long: after 0.25, 0.5, 1, 2, ... s; at an even pace there are more."""
    return 2 + math.log2(4 * seconds + 1)


@pytest.mark.parametrize("function", OPENING)
def test_an_index_that_cannot_be_opened_is_its_own_fault_while_others_can(tmp_path: Path, function: str) -> None:
    fake = FakeNvml(tmp_path, gpus=2 + len(CODES))
    bad = dict(enumerate(CODES, start=1))
    others = [0, len(CODES) + 1]
    for card, code in bad.items():
        fake.answer(function, code, gpu=card)
    with closing(NvmlWorker(fake)) as worker:
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *others)(found))
        begun = {card: fake.calls("nvmlDeviceGetUtilizationRates", gpu=card) for card in others}
        inits, lines = fake.inits, worker.log().count("\n")
        for _ in range(4):
            found = worker.ask()
            assert give(fake, *others)(found)
        assert min(fake.calls("nvmlDeviceGetUtilizationRates", gpu=card) - begun[card] for card in others) >= 4
        if function != "nvmlDeviceGetPciInfo":  # without which it has no name before it is opened; with code 12 it is open
            blamed = {fake.uuid(card): ("unknown_error", code) for card, code in bad.items()}
            worker.until(Tier.FAST, lambda found: {uuid: fault_of(found.gpu(uuid)) for uuid in blamed} == blamed)
        assert (fake.inits, worker.restarts) == (inits, [])
        assert inits == 2, worker.log()  # whether the versions fit (18), nvmlInit is asked once; for any other code never
        assert worker.log().count("\n") - lines <= len(bad), worker.log()
        for card in bad:
            fake.answer(function, 0, gpu=card)
        worker.until(Tier.NORMAL, give(fake, *range(2 + len(CODES))))


@pytest.mark.parametrize("code", WIDE)
def test_when_no_card_can_be_opened_the_driver_is_to_blame_and_is_tried_less_and_less_often(fake: FakeNvml, code: int) -> None:
    fake.answer("nvmlDeviceGetHandleByIndex", code)
    state = {1: "failed", 9: "not_loaded", 18: "version_mismatch"}[code]
    with closing(NvmlWorker(fake)) as worker:
        blamed = {("unknown_error", code)}
        worker.until(
            Tier.NORMAL, lambda found: found.state == state and blamed == {fault_of(one) for one in found.of(gpu.GPU).values()}
        )
        inits, most = fake.inits, 0
        begun = time.monotonic()

        def over(found: Round) -> bool:
            nonlocal most
            most = max(most, threads(worker))
            assert found.state == state
            return time.monotonic() > begun + WHILE

        worker.until(Tier.NORMAL, over)
        assert 1 <= fake.inits - inits <= at_most(time.monotonic() - begun) - 1  # the first wait was before
        assert most <= 8 + 2 * CARDS + CARDS
        said = worker.log().splitlines()
        assert len([line for line in said if "driver: " in line]) == 1, worker.log()
        assert re.findall(r"GPU \d", worker.log()) == [], worker.log()
        fake.answer("nvmlDeviceGetHandleByIndex", 0)
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *range(CARDS))(found))
        assert worker.restarts == []
        assert worker.log().count("the driver answers again") == 1, worker.log()


@pytest.mark.parametrize("code", [1, 18])
def test_one_count_that_says_so_is_no_verdict_on_the_driver(fake: FakeNvml, code: int) -> None:
    fake.fail("nvmlDeviceGetCount", code)
    with closing(NvmlWorker(fake)) as worker:
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *range(CARDS))(found))
        counted = fake.calls("nvmlDeviceGetCount")
        fake.fail("nvmlDeviceGetCount", code)
        worker.until(Tier.NORMAL, lambda _: fake.calls("nvmlDeviceGetCount") > counted + 1)
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *range(CARDS))(found))
        assert "WARNING" not in worker.log(), worker.log()
        assert "reboot" not in worker.log(), worker.log()


@pytest.mark.parametrize("code", WIDE)
def test_nvml_that_initialises_and_is_gone_at_once_is_tried_less_and_less_often_and_said_once(fake: FakeNvml, code: int) -> None:
    for witness in ("nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"):
        fake.answer(witness, code)
    state = {1: "failed", 9: "not_loaded", 18: "version_mismatch"}[code]
    with closing(NvmlWorker(fake)) as worker:
        begun = time.monotonic()
        assert worker.survey().state == state
        for_a_while(worker)
        assert 2 <= fake.inits <= at_most(time.monotonic() - begun)
        assert worker.survey().state == state
        assert len(worker.log().splitlines()) == 1, worker.log()
        for witness in ("nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"):
            fake.answer(witness, 0)
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *range(CARDS))(found))
        assert (worker.log().count("NVML is initialised"), worker.restarts) == (1, []), worker.log()


@pytest.mark.parametrize("function", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues"])
def test_a_call_that_says_so_for_good_costs_its_own_numbers(fake: FakeNvml, function: str) -> None:
    core = gpu.TEMPERATURE["core"]

    def lacks(found: Round) -> bool:
        mine = [found.gpu(fake.uuid(card)) for card in range(CARDS)]
        return all(core in one.values and Absence.FAILED in one.absent.values() for one in mine)

    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        for code in sorted(CODES):  # 18 comes last
            fake.answer(function, code)
            worker.until(Tier.FAST, lacks)
            inits, lines = fake.inits, worker.log().count("\n")
            for _ in range(6):
                assert lacks(worker.ask())
            assert worker.survey().state == "ok"
            assert (fake.inits, worker.restarts, worker.log().count("\n")) == (inits, [], lines), worker.log()
            assert inits <= (2 if code == 18 else 1)
            fake.answer(function, 0)
            worker.until(Tier.FAST, lambda found: not any(Absence.FAILED in one.absent.values() for one in found.readings))


@pytest.mark.parametrize("code", CODES)
def test_calls_beside_the_looks_that_say_so_all_at_once_cost_no_look(fake: FakeNvml, code: int) -> None:
    fake.set(0, utilization=90)
    beside = ("nvmlEventSetWait", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetCount")
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        begun = {function: fake.calls(function) for function in beside}
        for function in beside:
            fake.answer(function, code)

        def met(found: Round) -> bool:
            worker.ask()  # which says that the card is busy
            return found.state == "ok" and all(fake.calls(function) > begun[function] + 2 for function in beside)

        worker.until(Tier.NORMAL, met)
        worker.until(Tier.NORMAL, give(fake, *range(CARDS)))
        inits = fake.inits
        for _ in range(3):
            assert give(fake, *range(CARDS))(worker.ask())
            assert worker.survey().state == "ok"
        assert (fake.inits, worker.restarts) == (inits, [])
        assert inits <= (2 if code == 18 else 1)


def test_cards_that_say_so_to_every_call_are_not_well_and_the_only_ones(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        faults = {card: ("unknown_error", code) for card, code in enumerate(WIDE, start=1)}
        for card, (_, code) in faults.items():
            fake.answer_all(code, gpu=card)

        def blamed(found: Round) -> bool:
            return {card: fault_of(found.gpu(fake.uuid(card))) for card in faults} == faults and give(fake, 0)(found)

        worker.until(Tier.FAST, blamed)
        assert worker.survey().state == "ok"
        for card in faults:
            fake.answer_all(0, gpu=card)
        worker.until(Tier.NORMAL, give(fake, *range(CARDS)))


def test_a_driver_that_goes_while_the_cards_are_opened_makes_none_of_them_gone_from_the_list(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        begun = time.monotonic()
        until(lambda: time.monotonic() > begun + 0.5)  # since when it may be initialised again at once
        opened = fake.calls("nvmlDeviceGetHandleByIndex", gpu=1)
        fake.hang(1, "nvmlDeviceGetHandleByIndex")
        fake.uninitialise()
        worker.ask()
        until(lambda: fake.calls("nvmlDeviceGetHandleByIndex", gpu=1) > opened)
        fake.unload()
        fake.uninitialise()
        fake.release(1, "nvmlDeviceGetHandleByIndex")
        found = worker.until(Tier.NORMAL, lambda found: found.state == "not_loaded")
        for _ in range(3):
            found = worker.survey()
            assert {fault_of(one) for one in found.of(gpu.GPU).values()} == {("driver", None)}
        fake.load("535.154.05")
        worker.until(Tier.NORMAL, lambda found: found.state == "ok" and give(fake, *range(CARDS))(found))
        assert "gone from NVML's list" not in worker.log(), worker.log()
        assert "GPU " not in worker.log(), worker.log()


def test_an_opening_that_hangs_over_a_new_initialisation_is_its_own_fault(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake, deadline=0.5)) as worker:
        worker.warm()
        fake.hang(1, "nvmlDeviceGetHandleByIndex")
        for _ in range(2):
            fake.uninitialise()
            worker.until(Tier.FAST, lambda found: give(fake, 0, 2, 3)(found) and fault_of(found.gpu(fake.uuid(1)))[0] == "hung")
        fake.release(1, "nvmlDeviceGetHandleByIndex")
        worker.until(Tier.NORMAL, give(fake, *range(CARDS)))
        assert "gone from NVML's list" not in worker.log(), worker.log()


def test_a_gpu_whose_event_wait_hangs_has_no_second_one_however_often_it_is_opened(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        until(lambda: fake.calls("nvmlEventSetWait") >= CARDS)
        fake.hang(None, "nvmlEventSetWait")
        for _ in range(2):
            for card in range(CARDS):
                fake.lose(card)
            worker.until(Tier.FAST, lambda found: not any(one.values for one in found.of(gpu.GPU).values()))
            for card in range(CARDS):
                fake.find(card)
            fake.show(range(CARDS - 1))  # a list that changes has every index opened at once
            worker.until(Tier.NORMAL, lambda found: found.visible == CARDS - 1)
            fake.show(range(CARDS))
            worker.until(Tier.NORMAL, give(fake, *range(CARDS)))
            worker.ask()  # which begins waits
        assert fake.calls("nvmlEventSetCreate") == CARDS
        fake.release(None, "nvmlEventSetWait")
        worker.until(Tier.FAST, lambda _: fake.calls("nvmlEventSetCreate") == 2 * CARDS)
        until(lambda: fake.event_sets == CARDS)
