"""The board: what counts, what is late, and whose word it is."""

import pytest

from gpuwatch.catalogue.gpu import ENERGY, FAN_RPM, GPU, MEMORY_USED, POWER, TEMPERATURE, UTILIZATION
from gpuwatch.catalogue.own import QUEUE_DROPPED
from gpuwatch.catalogue.process import PROCESS, PROCESS_CPU
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.board import Board, Cadence

FAST = Cadence(period=1, deadline=5)
SLOW = Cadence(period=60, deadline=10)
CADENCES = {(source, tier): FAST if tier is Tier.FAST else SLOW for source in ("nvml", "dcgm", "pci", "other") for tier in Tier}
CARD = Target(subject=GPU, key="GPU-1", labels={"gpu": "1", "uuid": "GPU-1"})


def look(
    values: dict[Metric, float],
    absent: dict[Metric, Absence] | None = None,
    *,
    source: str = "nvml",
    tier: Tier = Tier.FAST,
    target: Target = CARD,
    at: float = 100.0,
    fault: Fault | None = None,
) -> Reading:
    """Return a reading."""
    return Reading(source=source, tier=tier, target=target, at=at, took=0.0, values=values, absent=absent or {}, fault=fault)


def board(*readings: Reading, mono: float = 0.0) -> Board:
    """Return a board with these readings, in their order."""
    new = Board(CADENCES)
    for reading in readings:
        new.post(reading, mono)
    return new


@pytest.mark.parametrize(("cadence", "life"), [(FAST, 6), (SLOW, 180), (Cadence(1, 0.5), 3), (Cadence(10, 30), 40)])
def test_a_value_counts_for_three_periods_or_the_deadline_and_a_period(cadence: Cadence, life: float) -> None:
    assert life == cadence.life


def test_a_value_is_there_until_its_life_is_over_and_late_from_then_on() -> None:
    full = board(look({POWER: 300.0}))
    assert full.view(0, 5.999).entries[CARD].values == {POWER: 300.0}
    entry = full.view(0, 6.0).entries[CARD]
    assert (entry.values, entry.absent, entry.readings) == ({}, {POWER: Absence.LATE}, ())


def test_a_late_value_comes_back_with_the_next_reading() -> None:
    full = board(look({POWER: 300.0}))
    full.view(0, 60)
    full.post(look({POWER: 200.0}), 60)
    entry = full.view(0, 61).entries[CARD]
    assert (entry.values, entry.absent) == ({POWER: 200.0}, {})


def test_only_the_tier_that_is_late_is_late() -> None:
    full = board(look({POWER: 300.0}), look({ENERGY: 5.0}, tier=Tier.SLOW))
    entry = full.view(0, 30).entries[CARD]
    assert (entry.values, entry.absent) == ({ENERGY: 5.0}, {POWER: Absence.LATE})


def test_what_a_device_will_never_have_stays_so_when_the_reading_is_late() -> None:
    full = board(look({}, {FAN_RPM: Absence.UNSUPPORTED, POWER: Absence.FAILED}))
    assert full.view(0, 30).entries[CARD].absent == {FAN_RPM: Absence.UNSUPPORTED, POWER: Absence.LATE}


@pytest.mark.parametrize("turned", [False, True], ids=["as trusted", "the other way round"])
def test_the_more_trusted_source_wins_whatever_came_first(turned: bool) -> None:
    sources = ["derived", "other", "pci", "dcgm", "nvml"]
    readings = [look({POWER: float(rank)}, source=source) for rank, source in enumerate(sources)]
    entry = board(*(reversed(readings) if turned else readings)).view(0, 1).entries[CARD]
    assert entry.values == {POWER: 4.0}
    assert [reading.source for reading in entry.readings] == ["nvml", "dcgm", "pci", "other", "derived"]


def test_a_value_of_a_less_trusted_source_wins_over_an_absence() -> None:
    entry = board(look({}, {POWER: Absence.UNSUPPORTED}), look({POWER: 9.0}, source="dcgm")).view(0, 1).entries[CARD]
    assert (entry.values, entry.absent) == ({POWER: 9.0}, {})


def test_of_two_absences_that_of_the_more_trusted_source_counts() -> None:
    entry = board(look({}, {POWER: Absence.DENIED}, source="dcgm"), look({}, {POWER: Absence.LOST})).view(0, 1).entries[CARD]
    assert entry.absent == {POWER: Absence.LOST}


def test_a_source_that_is_late_gives_way_to_a_less_trusted_one() -> None:
    full = board(look({POWER: 300.0}))
    full.post(look({POWER: 290.0}, source="dcgm"), 9)
    entry = full.view(0, 10).entries[CARD]
    assert (entry.values, entry.absent) == ({POWER: 290.0}, {})


def test_of_two_tiers_of_one_source_the_newer_reading_wins() -> None:
    full = board(look({MEMORY_USED: 1.0}))
    full.post(look({MEMORY_USED: 2.0}, tier=Tier.SLOW), 1)
    assert full.view(0, 2).entries[CARD].values == {MEMORY_USED: 2.0}
    full.post(look({MEMORY_USED: 3.0}), 2)
    assert full.view(0, 2).entries[CARD].values == {MEMORY_USED: 3.0}


def test_a_reading_replaces_the_last_one_whole_even_when_the_wall_clock_went_back() -> None:
    entry = board(look({POWER: 1.0, UTILIZATION: 0.5}, at=5000), look({POWER: 2.0}, at=1400)).view(0, 1).entries[CARD]
    assert (entry.values, entry.absent, entry.at(POWER)) == ({POWER: 2.0}, {}, 1400)


def test_the_wall_clock_makes_nothing_late() -> None:
    full = board(look({POWER: 1.0}))
    assert full.view(5 * 365 * 86400, 1).entries[CARD].values == {POWER: 1.0}


def test_labels_are_those_of_the_newest_trusted_reading_and_text_is_gathered() -> None:
    moved = Target(subject=GPU, key="GPU-1", labels={"gpu": "0", "uuid": "GPU-1"}, info={"name": "RTX"})
    full = board(look({ENERGY: 1.0}, tier=Tier.SLOW, target=Target(subject=GPU, key="GPU-1", info={"serial": "7", "name": "?"})))
    full.post(look({POWER: 1.0}, target=moved), 1)
    full.post(look({UTILIZATION: 1.0}, source="derived"), 2)
    (entry,) = full.view(0, 2).entries.values()
    target = entry.target
    assert (target.labels, target.info) == ({"gpu": "0", "uuid": "GPU-1"}, {"name": "RTX", "serial": "7"})


def test_a_missing_gpu_keeps_the_labels_it_had_last() -> None:
    (entry,) = board(look({POWER: 1.0})).view(0, 1000).entries.values()
    assert entry.target.labels == {"gpu": "1", "uuid": "GPU-1"}


def test_a_fault_counts_as_long_as_its_reading() -> None:
    full = board(look({}, fault=Fault("lost", "gone")))
    assert Fault("lost", "gone") == full.view(0, 1).entries[CARD].fault
    assert full.view(0, 10).entries[CARD].fault is None


def test_a_target_is_forgotten_an_hour_after_its_last_reading_went_late() -> None:
    full = board(look({POWER: 1.0}), look({ENERGY: 1.0}, tier=Tier.SLOW))
    assert list(full.view(0, 180 + 3600).entries) == [CARD]
    assert list(full.view(0, 180 + 3600.1).entries) == []


def test_targets_stand_in_the_order_in_which_they_came() -> None:
    cards = [Target(subject=GPU, key=key) for key in "cab"]
    full = board(*(look({POWER: 1.0}, target=card) for card in cards))
    full.post(look({POWER: 2.0}, target=cards[1]), 1)
    assert [target.key for target in full.view(0, 1).entries] == ["c", "a", "b"]


def test_a_view_does_not_change_and_cannot_be_changed() -> None:
    full = board(look({POWER: 1.0}))
    view = full.view(0, 1)
    full.post(look({POWER: 2.0}), 1)
    assert view.entries[CARD].values == {POWER: 1.0}
    with pytest.raises(TypeError):
        view.entries[CARD].values[POWER] = 3.0  # type: ignore[index]  # that is the point
    with pytest.raises(TypeError):
        view.entries[CARD] = view.entries[CARD]  # type: ignore[index]  # that is the point


def test_an_entry_that_did_not_change_is_not_made_anew() -> None:
    full = board(look({POWER: 1.0}))
    assert full.view(0, 1).entries[CARD] is full.view(1, 2).entries[CARD]


def test_a_full_board_keeps_what_it_has_and_counts_what_it_refuses() -> None:
    full = Board(CADENCES, limit=2)
    for number in range(5):
        full.post(look({POWER: float(number)}, target=Target(subject=GPU, key=str(number % 4))), 0)
    assert {target.key: entry.values[POWER] for target, entry in full.view(0, 1).entries.items()} == {"0": 4.0, "1": 1.0}
    (own,) = full.readings(0)
    assert own.values == {QUEUE_DROPPED: 2.0}
    full.view(0, 10_000)
    full.post(look({POWER: 1.0}, target=Target(subject=GPU, key="new")), 10_000)
    assert [target.key for target in full.view(0, 10_000).entries] == ["new"]


def test_a_source_without_a_cadence_lives_by_its_tier() -> None:
    full = board(look({TEMPERATURE["core"]: 60.0}, source="derived", tier=Tier.NORMAL))
    assert full.view(0, 29).entries[CARD].values
    assert not full.view(0, 30).entries[CARD].values


def test_the_board_says_which_reading_is_the_first_of_its_kind() -> None:
    new = Board(CADENCES)
    assert new.post(look({POWER: 1.0}), 0.0)
    assert not new.post(look({POWER: 2.0}), 1.0)
    assert new.post(look({POWER: 2.0}, tier=Tier.SLOW), 1.0)
    assert new.post(look({POWER: 2.0}, source="dcgm"), 1.0)


def test_a_target_that_comes_and_goes_is_forgotten_when_it_says_so_or_turns_late() -> None:
    first, second = (Target(subject=PROCESS, key=key) for key in ("1:5", "2:6"))
    new = board(look({PROCESS_CPU: 1.0}, target=first), look({PROCESS_CPU: 1.0}, target=second), look({POWER: 1.0}))
    assert not new.post(look({}, target=first), 1.0)
    assert {second, CARD} == set(new.view(0, 1.0).entries)
    assert not new.post(look({}, target=first), 1.0)
    assert {CARD} == set(new.view(0, FAST.life + 0.1).entries)  # a GPU is remembered
    full = Board(CADENCES, limit=1)
    for key in ("1:5", "2:6", "3:7"):
        target = Target(subject=PROCESS, key=key)
        full.post(look({PROCESS_CPU: 1.0}, target=target), 0.0)
        assert [target] == list(full.view(0, 0.0).entries)
        full.post(look({}, target=target), 0.0)


def test_what_is_withdrawn_is_released_and_nothing_more_is_taken_from_its_source_until_it_is_admitted() -> None:
    process = Target(subject=PROCESS, key="1")
    full = board(
        look({POWER: 300.0}, {FAN_RPM: Absence.UNSUPPORTED, ENERGY: Absence.EMPTY}),
        look({UTILIZATION: 0.5}, source="other"),
        look({PROCESS_CPU: 1.0}, target=process),
    )
    full.withdraw({"nvml"}, 1)
    assert not full.post(look({POWER: 1.0}), 1)
    view = full.view(0, 1)
    released = {POWER: Absence.RELEASED, FAN_RPM: Absence.UNSUPPORTED, ENERGY: Absence.RELEASED}
    assert (view.entries[CARD].values, view.entries[CARD].absent) == ({UTILIZATION: 0.5}, released)
    assert [reading.source for reading in view.entries[CARD].readings] == ["other"]
    assert process not in view.entries
    full.admit()
    assert full.view(0, 1).entries[CARD].absent[POWER] is Absence.LATE
    full.post(look({POWER: 200.0}), 1)
    assert full.view(0, 1).entries[CARD].values == {POWER: 200.0, UTILIZATION: 0.5}


def test_the_key_of_a_target_stays_the_same_object_until_it_is_forgotten() -> None:
    full = board(look({POWER: 1.0}))
    (first,) = full.view(0, 1).entries
    full.post(look({POWER: 2.0}, target=Target(subject=GPU, key="GPU-1", labels={"gpu": "7"})), 1)
    (key,) = full.view(0, 2).entries
    assert key is first
    assert full.view(0, 10_000).entries == {}


def test_targets_are_told_as_people_count_whatever_came_first() -> None:
    cards = {number: Target(subject=GPU, key=f"GPU-{9 - number}", labels={"gpu": str(number)}) for number in (10, 2, 1, 3)}
    full = board(*(look({POWER: 1.0}, target=card) for card in cards.values()))
    assert [entry.target.labels["gpu"] for entry in full.view(0, 1).of(GPU)] == ["1", "2", "3", "10"]
    full.post(look({POWER: 1.0}, target=Target(subject=GPU, key=cards[1].key, labels={"gpu": "11"})), 1)  # a reset renumbers
    assert [entry.target.labels["gpu"] for entry in full.view(0, 2).of(GPU)] == ["2", "3", "10", "11"]
    first = list(full.view(0, 2).entries)
    full.post(look({POWER: 2.0}, target=cards[10]), 2)
    assert [id(target) for target in first] == [id(target) for target in full.view(0, 3).entries]
