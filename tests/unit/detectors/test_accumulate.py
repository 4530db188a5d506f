"""Counters that the hardware does not keep: unwrapped PCIe bytes, busy time, energy; and the margin to slowdown."""

from collections.abc import Sequence

import msgspec
import pytest

from gpuwatch.catalogue.derived import BUSY_SECONDS, TEMPERATURE_HEADROOM
from gpuwatch.catalogue.gpu import (
    ENERGY,
    GPU,
    PCIE_RECEIVE,
    PCIE_TRANSMIT,
    PCIE_TRANSMIT_MEAN,
    PCIE_TRANSMIT_RAW,
    POWER,
    TEMPERATURE,
    TEMPERATURE_LIMIT,
    TEMPERATURE_MARGIN,
    TEMPERATURE_TLIMIT_OFFSET,
    UTILIZATION,
)
from gpuwatch.detectors.accumulate import Accumulate, State, growth
from gpuwatch.detectors.headroom import Headroom, headroom
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

CARD = Target(subject=GPU, key="GPU-1", labels={"gpu": "0", "uuid": "GPU-1"})
PERIODS = {Tier.FAST: 1.0, Tier.NORMAL: 10.0, Tier.SLOW: 60.0}
Values = dict[Metric, float]


def entry(at: float, values: Values, absent: dict[Metric, Absence] | None = None, source: str = "nvml") -> Entry:
    """Return a GPU as one reading shows it."""
    reading = Reading(source=source, tier=Tier.FAST, target=CARD, at=at, took=0, values=values, absent=absent or {})
    return Entry(CARD, values, absent or {}, (reading,))


def view(at: float, card: Entry) -> View:
    """Return what is known at a time that is the same on both clocks."""
    return View(at, {CARD: card}, mono=at)


def totals(
    samples: Sequence[tuple[float, Values]], absent: dict[Metric, Absence] | None = None, state: State | None = None
) -> Values:
    """Return what the counters say after these samples, (time of the reading, values)."""
    detector, state = Accumulate(PERIODS), state or State()
    found: Values = {}
    for at, values in samples:
        state, findings = detector.step(state, view(at, entry(at, values, absent)), at)
        found = dict(findings.readings[0].values) if findings.readings else {}
    return found


@pytest.mark.parametrize(
    ("before", "value", "gap", "expected"),
    [
        (100.0, 350.0, False, 250.0),
        (2.0**32 - 100, 50.0, False, 150.0),  # one wrap
        (2.0**33, 500.0, False, 500.0),  # a counter that has shown more than 32 bits does not wrap: it began anew
        (2.0**33, 2.0**33 + 7, True, 7.0),  # and says the truth over a gap
        (100.0, 350.0, True, 0.0),  # any number of wraps may hide in a gap
        (2.0**32 - 100, 50.0, True, 0.0),
        (5.0, 5.0, False, 0.0),
    ],
)
def test_growth_of_a_byte_counter(before: float, value: float, gap: bool, expected: float) -> None:
    assert growth(before, value, gap=gap) == expected


def test_a_mean_rate_of_the_link_becomes_bytes_and_the_step_to_a_counter_is_none() -> None:
    mean, raw = PCIE_TRANSMIT_MEAN, PCIE_TRANSMIT_RAW
    means: list[tuple[float, Values]] = [(0.0, {mean: 500.0}), (1.0, {mean: 700.0}), (3.0, {mean: 50.0})]
    assert totals(means) == {PCIE_TRANSMIT: 700.0 + 2 * 50.0}
    counted = [*means, (4.0, {raw: 2.0**33}), (5.0, {raw: 2.0**33 + 9})]
    assert totals(counted) == {PCIE_TRANSMIT: 809.0}
    assert totals([*counted, (6.0, {mean: 3.0}), (7.0, {mean: 4.0})]) == {PCIE_TRANSMIT: 809.0 + 3.0 + 4.0}


def test_bytes_are_unwrapped_and_go_on_at_every_reading() -> None:
    raw = PCIE_TRANSMIT_RAW
    samples = [(0.0, {raw: 2.0**32 - 1000}), (1.0, {raw: 2.0**32 - 400}), (2.0, {raw: 100.0}), (3.0, {raw: 100.0})]
    assert totals(samples) == {PCIE_TRANSMIT: 1100.0}


def test_one_reading_is_not_counted_twice() -> None:
    values = {PCIE_TRANSMIT_RAW: 10.0, UTILIZATION: 1.0}
    later = {PCIE_TRANSMIT_RAW: 30.0, UTILIZATION: 1.0}
    assert totals([(0, values), (1, later), (1, later), (1, later)]) == {PCIE_TRANSMIT: 20.0, BUSY_SECONDS: 1.0}


def test_busy_time_is_utilisation_over_the_time_between_readings() -> None:
    assert totals([(0, {UTILIZATION: 1.0}), (1, {UTILIZATION: 0.5}), (3, {UTILIZATION: 0.25})]) == {BUSY_SECONDS: 1.0}


def test_a_gap_is_not_counted() -> None:
    assert totals([(0, {UTILIZATION: 1.0}), (3, {UTILIZATION: 1.0}), (7, {UTILIZATION: 1.0})]) == {BUSY_SECONDS: 3.0}


@pytest.mark.parametrize("step", [25.0, 3600.0, -3600.0, -2.0])
@pytest.mark.parametrize(("tier", "period"), [(Tier.FAST, 1.0), (Tier.NORMAL, 10.0)])
def test_a_wall_clock_that_steps_adds_nothing_and_loses_nothing(tier: Tier, period: float, step: float) -> None:
    detector, state = Accumulate(PERIODS), State()
    for beat in range(41):
        at = beat // period * period + (step if beat >= 20 else 0.0)
        values = {POWER: 100.0, UTILIZATION: 0.5, PCIE_TRANSMIT_RAW: 7.0 * (beat // period)}
        reading = Reading(
            source="nvml", tier=tier, target=CARD, at=at, took=0, values=values, absent={ENERGY: Absence.UNSUPPORTED}
        )
        card = Entry(CARD, values, reading.absent, (reading,))
        state, found = detector.step(state, View(beat + (step if beat >= 20 else 0.0), {CARD: card}, mono=500.0 + beat), 0.0)
    assert found.readings[0].values == {ENERGY: 4000.0, BUSY_SECONDS: 20.0, PCIE_TRANSMIT: 7.0 * 40 / period}


def test_energy_is_made_of_power_only_where_the_card_never_tells_it() -> None:
    samples = [(0.0, {POWER: 100.0}), (1.0, {POWER: 100.0}), (2.0, {POWER: 200.0})]
    assert totals(samples, {ENERGY: Absence.UNSUPPORTED}) == {ENERGY: 300.0}
    assert totals(samples, {ENERGY: Absence.FAILED}) == {}
    assert totals([(at, {**values, ENERGY: 5.0}) for at, values in samples]) == {}


def test_a_gpu_that_gives_nothing_has_no_counters_and_goes_on_after() -> None:
    detector, state = Accumulate(PERIODS), State()
    state, _ = detector.step(state, view(0, entry(0, {UTILIZATION: 1.0})), 0)
    state, _ = detector.step(state, view(1, entry(1, {UTILIZATION: 1.0})), 1)
    state, silent = detector.step(state, view(2, entry(2, {BUSY_SECONDS: 1.0}, source="derived")), 2)
    assert silent.readings == ()
    assert totals([(3, {UTILIZATION: 1.0})], state=state) == {BUSY_SECONDS: 3.0}


def test_sums_survive_a_restart_and_the_time_we_were_down_is_a_gap() -> None:
    detector, state = Accumulate(PERIODS), State()
    for at in (0.0, 1.0, 2.0):
        state, _ = detector.step(state, view(at, entry(at, {UTILIZATION: 1.0, PCIE_TRANSMIT_RAW: 10 * at})), at)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    found = totals(
        [(60, {UTILIZATION: 1.0, PCIE_TRANSMIT_RAW: 900.0}), (61, {UTILIZATION: 1.0, PCIE_TRANSMIT_RAW: 905.0})], state=again
    )
    assert found == {BUSY_SECONDS: 3.0, PCIE_TRANSMIT: 25.0}
    assert PCIE_RECEIVE not in found


def test_only_so_many_gpus_are_remembered() -> None:
    detector, state = Accumulate(PERIODS), State()
    for number in range(400):
        card = Target(subject=GPU, key=f"GPU-{number}")
        reading = Reading(source="nvml", tier=Tier.FAST, target=card, at=number, took=0, values={UTILIZATION: 1.0})
        state, _ = detector.step(state, View(number, {card: Entry(card, reading.values, {}, (reading,))}), number)
    assert (len(state.gpus), next(iter(state.gpus))) == (256, "GPU-144")


CORE, LIMIT, OFFSET = TEMPERATURE["core"], TEMPERATURE_LIMIT["slowdown"], TEMPERATURE_TLIMIT_OFFSET["slowdown"]
NEVER = Absence.UNSUPPORTED


@pytest.mark.parametrize(
    ("values", "absent", "expected"),
    [
        ({CORE: 88.0, LIMIT: 93.0}, {}, 5.0),
        ({CORE: 95.0, LIMIT: 93.0, TEMPERATURE_MARGIN: 40.0, OFFSET: -2.0}, {}, -2.0),
        ({LIMIT: 93.0}, {CORE: Absence.LATE}, Absence.LATE),
        ({CORE: 60.0, TEMPERATURE_MARGIN: 24.0, OFFSET: -2.0}, {LIMIT: NEVER}, 26.0),
        ({CORE: 82.0, TEMPERATURE_MARGIN: 1.0, OFFSET: -2.0}, {LIMIT: NEVER}, 3.0),
        ({CORE: 83.0, TEMPERATURE_MARGIN: 0.0, OFFSET: -2.0}, {LIMIT: NEVER}, 2.0),
        ({CORE: 84.0, TEMPERATURE_MARGIN: -1.0, OFFSET: -2.0}, {LIMIT: NEVER}, 1.0),
        ({CORE: 91.0, TEMPERATURE_MARGIN: -8.0, OFFSET: -2.0}, {LIMIT: NEVER}, -6.0),
        ({CORE: 84.0, TEMPERATURE_MARGIN: -1.0}, {LIMIT: NEVER, OFFSET: NEVER}, NEVER),  # nobody knows where it slows down
        ({CORE: 60.0, OFFSET: -2.0}, {LIMIT: NEVER, TEMPERATURE_MARGIN: NEVER}, NEVER),  # it is not implemented
        ({CORE: 60.0}, {LIMIT: NEVER, TEMPERATURE_MARGIN: NEVER, OFFSET: NEVER}, NEVER),
        ({CORE: 60.0}, {LIMIT: NEVER, TEMPERATURE_MARGIN: NEVER}, NEVER),
        ({CORE: 60.0}, {}, Absence.EMPTY),  # the slow round with the limits has not come yet
        ({CORE: 60.0}, {LIMIT: Absence.LATE}, Absence.EMPTY),
    ],
)
def test_headroom_is_said_or_why_it_cannot_be(values: Values, absent: dict[Metric, Absence], expected: float | Absence) -> None:
    assert headroom(entry(0, values, absent)) == expected


def test_headroom_is_a_reading_of_the_gpu() -> None:
    detector = Headroom()
    _, findings = detector.step(detector.initial(), View(0, {CARD: entry(0, {CORE: 88.0, LIMIT: 93.0})}), 0)
    (reading,) = findings.readings
    assert (reading.target, reading.source, reading.values) == (CARD, "derived", {TEMPERATURE_HEADROOM: 5.0})
