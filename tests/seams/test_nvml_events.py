"""NVML's events: told once, by the right name, whatever call fails or hangs, and never at the cost of anything else."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU, RECOVERY_ACTION
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, fault_of
from tests.fakes.until import until

CARDS = 4
WAIT_CALLS = ("nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait")


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Four cards under a driver that knows every event."""
    return FakeNvml(tmp_path, gpus=CARDS, driver="595.71.05")


@pytest.fixture
def worker(fake: FakeNvml) -> Iterator[NvmlWorker]:
    """A worker that waits for the events of every card."""
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, *range(CARDS))
        yield worker


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeNvml, NvmlWorker]]:
    """Four cards and their worker, for all tests that leave them as they were."""
    fake = FakeNvml(tmp_path_factory.mktemp("host"), gpus=CARDS, driver="595.71.05")
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.SLOW)
        worker.ask()
        waits(fake, *range(CARDS))
        yield fake, worker


@pytest.fixture
def shared(host: tuple[FakeNvml, NvmlWorker]) -> tuple[FakeNvml, NvmlWorker]:
    """The shared host, with nothing told yet."""
    fake, worker = host
    until(lambda: worker.ask(Tier.SLOW).of(GPU))
    worker.events.clear()
    worker.after.clear()
    return fake, worker


def waits(fake: FakeNvml, *cards: int, more: int = 0) -> None:
    """Wait until each of these cards is registered and waited for; `more`: waits that were there before and do not count."""
    until(lambda: all(fake.calls("nvmlEventSetWait", gpu=card) > more for card in cards))


def comes(worker: NvmlWorker, kind: str, count: int = 1) -> list[Event]:
    """Wait for so many events of a kind."""
    until(lambda: len(worker.told(kind)) >= count)
    return worker.told(kind)


def is_whole(fake: FakeNvml, worker: NvmlWorker) -> bool:
    """Return whether a round has values of every card."""
    found = worker.ask().of(GPU)
    return all(found[fake.uuid(card)].values and found[fake.uuid(card)].fault is None for card in range(CARDS))


def test_an_xid_is_told_between_the_rounds_with_its_card_code_and_severity(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    fake.xid(2, 79)
    (event,) = comes(worker, "xid")
    assert (event.source, event.subject, event.key, event.code) == ("nvml", "gpu", fake.uuid(2), 79)
    assert (event.severity, event.count) == (Severity.CRITICAL, 1)
    assert event.words.startswith("Xid 79: ")


def test_an_xid_of_a_mig_instance_names_the_instance_and_the_card(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    fake.event(1, 0x8, 31, instance=5)
    (event,) = comes(worker, "xid")
    assert (event.key, event.code, dict(event.facts)) == (fake.uuid(1), 31, {"gpu_instance": "5"})


def test_what_happened_before_we_waited_is_not_told(fake: FakeNvml) -> None:
    fake.xid(0, 48)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, 0)
        fake.xid(0, 63)
        assert [event.code for event in comes(worker, "xid")] == [63]


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05", "595.71.05"])
def test_one_registration_asks_for_what_card_and_driver_have(tmp_path: Path, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=2, model=["RTX 3090", "A40"], driver=driver)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, 0, 1)
        for card in (0, 1):
            fake.event(card, 0x4)  # P-states and clocks change all day
            fake.event(card, 0x10)
            fake.xid(card, 13)
        told = comes(worker, "xid", 2)
        assert {(fake.uuid(0), 13), (fake.uuid(1), 13)} == {(event.key, event.code) for event in told}
        assert worker.told("clock") == []
        assert [fake.calls("nvmlDeviceRegisterEvents", gpu=card) for card in (0, 1)] == [1, 1]


def test_a_driver_that_refuses_a_bit_it_claims_to_have_still_tells_xids(fake: FakeNvml) -> None:
    fake.fail("nvmlDeviceRegisterEvents", 3, gpu=0)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, 0)
        assert not fake.failing("nvmlDeviceRegisterEvents", gpu=0)
        fake.event(0, 0x2)
        fake.xid(0, 48)
        assert [event.code for event in comes(worker, "xid")] == [48]
        assert worker.told("ecc") == []


@pytest.mark.parametrize("profile", ["440"])
def test_a_driver_without_the_wait_costs_nothing_but_the_events(tmp_path: Path, profile: str) -> None:
    fake = FakeNvml(tmp_path, gpus=CARDS, driver=f"{profile}.33.01")
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        until(lambda: worker.log().count("tells no events") == CARDS)
        assert is_whole(fake, worker)
        assert fake.event_sets == 0


BITS = {
    0x2: ("ecc", Severity.CRITICAL),
    0x200: ("ecc", Severity.WARNING),
    0x400: ("ecc", Severity.WARNING),
    0x800: ("ecc", Severity.CRITICAL),
    0x1000: ("ecc", Severity.WARNING),
    0x2000: ("ecc", Severity.CRITICAL),
    0x4000: ("unavailable", Severity.CRITICAL),
}


def test_each_event_is_told_by_its_kind_and_the_slow_numbers_are_read_at_once(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    for bit in BITS:
        fake.event(3, bit)
    until(lambda: worker.idle() is not None and len(worker.events) == len(BITS))
    assert list(BITS.values()) == [(event.kind, event.severity) for event in worker.events]
    assert {fake.uuid(3)} == {event.key for event in worker.events}
    until(lambda: worker.idle() is not None and any(one.tier is Tier.SLOW for one in worker.after))
    assert {fake.uuid(3)} == {one.target.labels["uuid"] for one in worker.after}


def test_a_recovery_action_is_read_when_it_is_announced_and_told_when_it_changed(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    fake.set(1, recovery_action=2)
    fake.event(1, 0x8000)
    (event,) = comes(worker, "recovery_action")
    assert (event.key, event.severity, dict(event.facts)) == (fake.uuid(1), Severity.CRITICAL, {"recovery": "2"})
    until(lambda: worker.idle() is not None and any(one.target.key == fake.uuid(1) for one in worker.after))

    def read() -> list[Reading]:
        worker.idle()
        return [one for one in worker.after if one.target.key == fake.uuid(1) and RECOVERY_ACTION["none"] in one.values]

    until(read)  # the reading and the event come one after the other
    reading = read()[-1]
    assert (reading.values[RECOVERY_ACTION["node_reboot"]], reading.values[RECOVERY_ACTION["none"]]) == (1.0, 0.0)
    fake.event(1, 0x8000)  # announced, and the same: nothing is told
    fake.set(2, recovery_action=99)
    fake.event(2, 0x8000)
    last = comes(worker, "recovery_action", 2)[-1]
    assert (last.key, last.severity, dict(last.facts)) == (fake.uuid(2), Severity.WARNING, {})
    fake.set(1, recovery_action=0)
    fake.set(2, recovery_action=0)


def test_a_recovery_action_that_no_event_announces_is_told_by_the_next_slow_round(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, driver="565.57.01")
    with closing(NvmlWorker(fake)) as worker:
        worker.ask(Tier.SLOW)
        fake.set(0, recovery_action=4)
        found = worker.ask(Tier.SLOW).gpu(fake.uuid(0))
        assert found.values[RECOVERY_ACTION["drain_and_reset"]] == 1.0
        assert [dict(event.facts) for event in worker.told("recovery_action")] == [{"recovery": "4"}]


@pytest.mark.parametrize("function", WAIT_CALLS)
def test_a_call_that_fails_costs_the_events_of_one_card_until_the_next_try(fake: FakeNvml, function: str) -> None:
    codes = dict(enumerate((2, 4, 8, 999)))
    for card, code in codes.items():
        fake.fail(function, code, gpu=card)
    with closing(NvmlWorker(fake)) as worker:
        assert is_whole(fake, worker)
        waits(fake, *codes, more=int(function == "nvmlEventSetWait"))
        for card in codes:
            fake.xid(card, 43)
        assert {fake.uuid(card) for card in codes} == {event.key for event in comes(worker, "xid", CARDS)}
        assert not fake.failing(function)
        assert is_whole(fake, worker)
        assert (fake.event_sets, fake.state.freed_uses) == (CARDS, 0)  # what failed has freed its set


def test_a_card_without_events_is_not_asked_again(fake: FakeNvml) -> None:
    for card, code in enumerate((3, 13, 26)):
        fake.answer("nvmlDeviceGetSupportedEventTypes", code, gpu=card)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, 3)
        fake.xid(3, 43)
        comes(worker, "xid")
        for _ in range(3):
            assert is_whole(fake, worker)
        assert [fake.calls("nvmlDeviceGetSupportedEventTypes", gpu=card) for card in range(3)] == [1, 1, 1]
        assert (fake.event_sets, fake.state.freed_uses) == (1, 0)


@pytest.mark.parametrize("function", WAIT_CALLS)
def test_a_call_that_hangs_costs_the_events_of_one_card_while_it_does(fake: FakeNvml, function: str) -> None:
    fake.hang(1, function)
    with closing(NvmlWorker(fake)) as worker:
        worker.ask()
        waits(fake, 0, 2, 3)
        for card in (0, 2, 3):
            fake.xid(card, 43)
        assert {fake.uuid(card) for card in (0, 2, 3)} == {event.key for event in comes(worker, "xid", 3)}
        for tier in Tier:
            assert worker.ask(tier).busy == []
        assert is_whole(fake, worker)
        fake.release(1, function)
        waits(fake, 1)  # where the wait hangs, the one that does
        fake.xid(1, 43)
        assert comes(worker, "xid", 4)[-1].key == fake.uuid(1)


def test_a_wait_that_hangs_is_said_once_and_its_end_too(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    fake.hang(1, "nvmlEventSetWait")
    worker.until(Tier.FAST, lambda _: "does not return" in worker.log())
    assert is_whole(fake, worker)
    fake.release(1, "nvmlEventSetWait")
    worker.until(Tier.FAST, lambda _: "has returned" in worker.log())
    assert (worker.log().count("does not return"), worker.log().count("has returned")) == (1, 1)


@pytest.mark.parametrize(("code", "kind"), [(15, "lost"), (16, "reset_required")])
def test_a_lost_card_ends_its_own_wait_and_is_waited_for_again_when_it_is_back(
    fake: FakeNvml, worker: NvmlWorker, code: int, kind: str
) -> None:
    fake.lose(1, code)
    until(lambda: fake.event_sets == CARDS - 1)
    assert fake.dead_uses(1) == 0  # the wait does not touch the card's handle
    found = worker.ask()
    assert (kind, code) == fault_of(found.gpu(fake.uuid(1)))
    fake.xid(0, 43)
    comes(worker, "xid")
    waited = fake.calls("nvmlEventSetWait", gpu=1)
    fake.find(1)
    worker.until(Tier.NORMAL, lambda found: found.gpu(fake.uuid(1)).fault is None)
    worker.until(Tier.FAST, lambda _: fake.calls("nvmlEventSetWait", gpu=1) > waited)
    fake.xid(1, 43)
    assert comes(worker, "xid", 2)[-1].key == fake.uuid(1)


def test_events_go_on_after_nvml_was_initialised_again(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.unload()
    fake.answer_all(9)
    worker.until(Tier.NORMAL, lambda found: found.of(GPU)[fake.uuid(0)].values == {})
    fake.answer_all(0)
    fake.load("595.71.05")
    worker.until(Tier.NORMAL, lambda found: all(one.values for one in found.of(GPU).values()) and found.state == "ok")
    worker.until(Tier.FAST, lambda _: fake.event_sets == CARDS)
    waits(fake, *range(CARDS))
    fake.xid(3, 43)
    assert [fake.uuid(3)] == [event.key for event in comes(worker, "xid")]
    assert (fake.shutdowns, fake.state.sets_at_shutdown) == (1, 0)  # every set was freed before nvmlShutdown


def test_nvml_is_not_shut_down_under_a_wait_that_hangs(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.hang(1, "nvmlEventSetWait")
    worker.ask()  # which takes longer than the moment between two waits
    fake.unload()
    fake.answer_all(9)
    worker.until(Tier.NORMAL, lambda _: bool(worker.restarts))
    assert (worker.restarts, fake.shutdowns, fake.state.sets_at_shutdown) == (["driver_change"], 0, 0)
    assert "cannot be shut down" in worker.log()


def test_an_event_has_its_card_by_name_after_the_list_was_made_anew(fake: FakeNvml, worker: NvmlWorker) -> None:
    fake.show([3, 2, 1])
    worker.until(Tier.NORMAL, lambda found: found.visible == 3)
    fake.xid(3, 43)
    assert [fake.uuid(3)] == [event.key for event in comes(worker, "xid")]


def test_a_storm_of_xids_is_a_handful_of_events_with_a_count_and_makes_nothing_late(
    shared: tuple[FakeNvml, NvmlWorker],
) -> None:
    fake, worker = shared
    fake.xid(0, 31, times=10_000)
    fake.xid(1, 79)
    until(lambda: sum(event.count for event in worker.told("xid") if event.code == 31) == 10_000)
    told = worker.told("xid")
    assert sum(event.code == 79 for event in told) == 1
    assert next(event for event in told if event.code == 31).count == 1  # the first is told at once
    assert len(told) < 40
    assert is_whole(fake, worker)


def test_a_storm_of_ecc_errors_has_the_slow_numbers_read_now_and_then(shared: tuple[FakeNvml, NvmlWorker]) -> None:
    fake, worker = shared
    before = fake.calls("nvmlDeviceGetFieldValues", gpu=2)
    fake.event(2, 0x2, times=3000)
    until(lambda: sum(event.count for event in worker.told("ecc")) == 3000)
    assert 1 <= fake.calls("nvmlDeviceGetFieldValues", gpu=2) - before < 20
