"""Views become rows of 10 s: what is kept, what is counted, and what clock steps do."""

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Keep
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.store.history import Accumulator, Round, Rounds
from tests.fakes.clock import FakeClock
from tests.fakes.store_nouns import gpu_target, reading, round_of, view, view_of

CORE = gpu.TEMPERATURE["core"]
FIRST, SECOND = gpu_target(0), gpu_target(1)


class Beats:
    """Observes a view a second and collects the rounds."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.accumulator = clock, Accumulator()
        self.rounds: list[Round] = []

    def see(self, *readings: Reading) -> None:
        """Observe these at this moment, then let a second pass."""
        done = self.accumulator.add(view_of(readings, self.clock.wall()), self.clock.mono())
        if done is not None:
            self.rounds.append(done)
        self.clock.forward(1)

    def rows(self) -> list[dict[str, float]]:
        """End the period; return the values of the first target by round."""
        last = self.accumulator.finish()
        if last is not None:
            self.rounds.append(last)
        return [dict(values) for done in self.rounds for target, values in done.rows if target == FIRST]


@pytest.fixture
def beats(clock: FakeClock) -> Beats:
    """Beats from a full ten seconds on."""
    return Beats(clock)


def test_the_metrics_used_here_keep_what_this_file_takes_them_to() -> None:
    kept = [metric.keep for metric in (gpu.POWER, CORE, gpu.ENERGY)]
    assert kept == [Keep.MEAN, Keep.MAX, Keep.LAST]


def test_a_row_holds_the_mean_the_highest_or_the_last_value(beats: Beats) -> None:
    for power, heat, energy in ((100, 60, 1000), (200, 75, 1200), (600, 70, 1800)):
        beats.see(reading(FIRST, {gpu.POWER: power, CORE: heat, gpu.ENERGY: energy}, beats.clock.wall()))
    assert beats.rows() == [{"power_watts": 300.0, "temperature_celsius_core": 75.0, "energy_joules_total": 1800.0}]


def test_highest_works_below_zero(beats: Beats) -> None:
    for heat in (-20.0, -5.0, -10.0):
        beats.see(reading(FIRST, {CORE: heat}, beats.clock.wall()))
    assert beats.rows() == [{"temperature_celsius_core": -5.0}]


def test_periods_end_where_the_wall_clock_passes_ten_seconds(beats: Beats) -> None:
    beats.clock.forward(3.5)
    for _ in range(30):
        beats.see(reading(FIRST, {gpu.POWER: 1.0}, beats.clock.wall()))
    beats.rows()
    assert [done.at - 1_700_000_000 for done in beats.rounds] == [9.5, 19.5, 29.5, 32.5]


def test_a_reading_is_counted_once_however_long_it_stands_on_the_board(beats: Beats) -> None:
    slow = reading(FIRST, {gpu.MEMORY_FREE: 8.0}, beats.clock.wall(), tier=Tier.NORMAL)
    for power in (1.0, 2.0, 3.0):
        beats.see(reading(FIRST, {gpu.POWER: power}, beats.clock.wall()), slow)
    newer = reading(FIRST, {gpu.MEMORY_FREE: 2.0}, beats.clock.wall(), tier=Tier.NORMAL)
    beats.see(reading(FIRST, {gpu.POWER: 4.0}, beats.clock.wall()), newer)
    assert beats.rows() == [{"power_watts": 2.5, "memory_free_bytes": 5.0}]


def test_a_value_read_every_minute_stands_in_one_row_of_six(beats: Beats) -> None:
    slow = reading(FIRST, {gpu.MEMORY_SIZE: 48.0}, beats.clock.wall(), tier=Tier.SLOW)
    for _ in range(60):
        beats.see(reading(FIRST, {gpu.POWER: 1.0}, beats.clock.wall()), slow)
    assert [row.get("memory_size_bytes") for row in beats.rows()] == [48.0, None, None, None, None, None]


def test_a_target_without_a_new_value_has_no_row(beats: Beats) -> None:
    old = reading(SECOND, {gpu.POWER: 5.0}, beats.clock.wall())
    for _ in range(20):
        beats.see(reading(FIRST, {gpu.POWER: 1.0}, beats.clock.wall()), old)
    beats.rows()
    assert [[target.key for target, _ in done.rows] for done in beats.rounds] == [[FIRST.key, SECOND.key], [FIRST.key]]


def test_what_is_absent_is_not_in_the_row(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: 1.0}, beats.clock.wall()))
    assert "utilization_ratio" not in beats.rows()[0]


def test_zero_is_a_value(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: 0.0, gpu.ENERGY: 0.0}, beats.clock.wall()))
    assert beats.rows() == [{"power_watts": 0.0, "energy_joules_total": 0.0}]


def test_a_number_that_is_none_is_left_out(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: float("nan"), gpu.ENERGY: float("inf"), CORE: 50.0}, beats.clock.wall()))
    assert beats.rows() == [{"temperature_celsius_core": 50.0}]


def test_internal_metrics_are_not_kept(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.PCIE_TRANSMIT_RAW: 7.0, gpu.POWER: 1.0}, beats.clock.wall()))
    assert beats.rows() == [{"power_watts": 1.0}]


def test_the_more_trusted_source_counts_alone(beats: Beats) -> None:
    for trusted, other in ((100.0, 900.0), (200.0, 950.0)):
        wall = beats.clock.wall()
        beats.see(reading(FIRST, {gpu.POWER: trusted}, wall), reading(FIRST, {gpu.POWER: other, CORE: 40.0}, wall, source="dcgm"))
    assert beats.rows() == [{"power_watts": 150.0, "temperature_celsius_core": 40.0}]


def test_another_source_counts_once_the_trusted_one_is_late(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: 100.0}, beats.clock.wall()))
    beats.see(reading(FIRST, {gpu.POWER: 300.0}, beats.clock.wall(), source="dcgm"))
    assert beats.rows() == [{"power_watts": 200.0}]


@pytest.mark.parametrize("step", [3600.0, -3600.0, 5 * 365 * 86400.0, -5 * 365 * 86400.0, 4.0, -4.0])
def test_a_clock_step_loses_no_reading_and_makes_no_flood_of_rows(beats: Beats, step: float) -> None:
    for beat in range(60):
        if beat == 25:
            beats.clock.step(step)
        beats.see(reading(FIRST, {gpu.ENERGY: float(beat), gpu.POWER: 1.0}, beats.clock.wall()))
    rows = beats.rows()
    assert 5 <= len(rows) <= 8
    assert rows[-1]["energy_joules_total"] == 59.0


def test_a_reading_that_repeats_an_hour_is_counted(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: 1.0}, 5000.0))
    beats.see(reading(FIRST, {gpu.POWER: 3.0}, 1400.0))
    assert beats.rows() == [{"power_watts": 2.0}]


def test_nothing_seen_is_no_round(clock: FakeClock) -> None:
    accumulator = Accumulator()
    accumulator.add(view([], clock.wall()), clock.mono())
    assert accumulator.finish() is None


def test_a_target_that_leaves_in_the_middle_of_a_period_is_in_its_row(beats: Beats) -> None:
    beats.see(reading(FIRST, {gpu.POWER: 7.0}, beats.clock.wall()))
    beats.see(reading(SECOND, {gpu.POWER: 1.0}, beats.clock.wall()))
    assert beats.rows() == [{"power_watts": 7.0}]


def test_a_full_queue_drops_the_oldest_round_and_counts_it() -> None:
    rounds = Rounds()
    for number in range(Rounds.LIMIT + 3):
        rounds.put(round_of(number))
    assert rounds.dropped == 3
    assert rounds.take() == round_of(3)


def test_a_round_that_comes_back_to_a_full_queue_is_the_oldest_and_goes() -> None:
    rounds = Rounds()
    for number in range(Rounds.LIMIT):
        rounds.put(round_of(number))
    taken = rounds.take()
    assert taken is not None
    rounds.put(round_of(Rounds.LIMIT))
    rounds.put_back(taken)
    assert (rounds.dropped, rounds.take()) == (1, round_of(1))
