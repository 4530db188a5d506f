"""When a job is due: pure functions of wall times."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sampling.schedule import Every, following, moved

NOW = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
YEARS = timedelta(days=5 * 365)
steps = st.timedeltas(min_value=-YEARS, max_value=YEARS)


def test_a_new_job_is_due_after_its_delay() -> None:
    assert following(None, NOW, MINUTE, SECOND) == NOW + SECOND


def test_a_job_keeps_its_pace_when_its_run_was_a_little_late() -> None:
    assert following(NOW, NOW + timedelta(milliseconds=80), MINUTE, SECOND) == NOW + MINUTE


@pytest.mark.parametrize("late", [timedelta(seconds=61), timedelta(hours=1), YEARS])
def test_missed_runs_are_not_made_up_for(late: timedelta) -> None:
    assert NOW + late + MINUTE == following(NOW, NOW + late, MINUTE, SECOND)


def test_a_clock_set_back_does_not_move_the_next_run_away() -> None:
    now = NOW - timedelta(hours=1)
    assert now + MINUTE == following(NOW, now, MINUTE, SECOND)


@given(since=steps, every=st.timedeltas(min_value=timedelta(milliseconds=100), max_value=timedelta(days=1)))
def test_the_next_run_is_after_now_and_within_one_period(since: timedelta, every: timedelta) -> None:
    due = following(NOW, NOW + since, every, SECOND)
    assert timedelta() < due - (NOW + since) <= every
    assert due == Every(every.total_seconds()).get_next_fire_time(NOW, NOW + since)


@given(step=steps, rest=st.timedeltas(min_value=timedelta(), max_value=MINUTE))
def test_a_step_leaves_as_many_real_seconds_as_there_were(step: timedelta, rest: timedelta) -> None:
    assert rest == moved(NOW + rest, NOW + step, MINUTE, step) - (NOW + step)


@given(step=steps, rest=st.timedeltas(min_value=MINUTE + SECOND, max_value=YEARS))
def test_a_job_that_was_planned_far_away_comes_back_within_a_period(step: timedelta, rest: timedelta) -> None:
    assert NOW + step + MINUTE == moved(NOW + rest, NOW + step, MINUTE, step)
