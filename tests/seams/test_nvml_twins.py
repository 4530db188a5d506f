"""Two cards that give the same UUID: each keeps one name and its own numbers, whichever answers first."""

from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.reading import Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker, Round
from tests.fakes.until import until

CARDS = 4
LATE = 0.3  # seconds by which one card is opened after the others


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Four cards, of which the third has the UUID of the second; each is as warm as no other."""
    fake = FakeNvml(tmp_path, gpus=CARDS)
    fake.text(2, uuid=fake.uuid(1).encode())
    for card in range(CARDS):
        fake.set(card, temperature=40 + card)
    return fake


def seen(found: Round) -> dict[str, tuple[str, float]]:
    """Return key and temperature of the GPUs that give one, by address."""
    core = gpu.TEMPERATURE["core"]
    mine = found.of(gpu.GPU).values()
    return {one.target.info["pci_bus_id"]: (one.target.key, one.values[core]) for one in mine if core in one.values}


@pytest.mark.parametrize("late", [1, 2])
def test_the_lower_address_has_the_uuid_whichever_is_opened_first(fake: FakeNvml, late: int) -> None:
    """So that history and alerts of neither change cards with the next worker."""
    places = [fake.read_text(card, "bus_id_legacy").lower() for card in range(CARDS)]
    for slow in (late, 3 - late):  # the second worker opens them in the other order
        fake.delay(0, "nvmlDeviceGetHandleByIndex")
        fake.delay(LATE, "nvmlDeviceGetHandleByIndex", gpu=slow)
        with closing(NvmlWorker(fake)) as worker:
            found = seen(worker.until(Tier.FAST, lambda found: len(seen(found)) == CARDS))
        assert found == {places[card]: (places[2] if card == 2 else fake.uuid(card), 40.0 + card) for card in range(CARDS)}


@pytest.mark.parametrize("late", [1, 2])
def test_a_count_that_changes_leaves_each_of_them_its_name_and_its_numbers(fake: FakeNvml, late: int) -> None:
    places = [fake.read_text(card, "bus_id_legacy").lower() for card in range(CARDS)]
    fake.delay(LATE, "nvmlDeviceGetHandleByIndex", gpu=2)
    with closing(NvmlWorker(fake)) as worker:
        before = seen(worker.until(Tier.FAST, lambda found: len(seen(found)) == CARDS))
        assert before == {places[card]: (places[2] if card == 2 else fake.uuid(card), 40.0 + card) for card in range(CARDS)}
        fake.delay(0, "nvmlDeviceGetHandleByIndex")
        fake.delay(LATE, "nvmlDeviceGetHandleByIndex", gpu=late)
        for shown in (CARDS - 1, CARDS):
            opened = fake.calls("nvmlDeviceGetUUID", gpu=late)
            fake.show(range(shown))
            worker.until(Tier.NORMAL, lambda found, shown=shown: found.visible == shown)  # type: ignore[misc] # bound at once
            until(lambda opened=opened: fake.calls("nvmlDeviceGetUUID", gpu=late) > opened)  # type: ignore[misc]
            found = seen(worker.until(Tier.FAST, lambda found, shown=shown: len(seen(found)) == shown))  # type: ignore[misc]
            assert found == {place: before[place] for place in places[:shown]}
        opened = fake.calls("nvmlDeviceGetUUID", gpu=late)
        fake.uninitialise()
        worker.until(Tier.FAST, lambda found: fake.calls("nvmlDeviceGetUUID", gpu=late) > opened and len(seen(found)) == CARDS)
        assert seen(worker.ask()) == before
        gone = [line for line in worker.log().splitlines() if "gone from NVML's list" in line]
        assert ["GPU 3 " in line for line in gone] == [True], worker.log()
