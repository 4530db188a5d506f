"""The clock that detectors take durations from: what moves it, and what is a gap in it."""

import pytest

from gpuwatch.detectors.detector import LEAP, Clockwork

WALL = 1_700_000_000.0


def after(*beats: tuple[float, float]) -> Clockwork:
    """Return a clock after these beats, (wall, monotonic)."""
    clock = Clockwork()
    for wall, mono in beats:
        clock.tick(wall, mono)
    return clock


@pytest.mark.parametrize("step", [25.0, 86_400.0, -3.0, -86_400.0])
def test_a_wall_clock_that_steps_moves_it_not_at_all(step: float) -> None:
    clock = after((WALL, 500.0), (WALL + 1, 501.0), (WALL + 2 + step, 502.0), (WALL + 3 + step, 503.0))
    assert (clock.now, clock.since(0.0, 3.0)) == (3.0, 3.0)


def test_a_beat_that_takes_too_long_is_a_gap_that_moves_it_a_little() -> None:
    clock = after((WALL, 500.0), (WALL + 1, 501.0))
    assert not clock.tick(WALL + 61, 561.0)
    assert (clock.now, clock.since(1.0, 1000.0), clock.since(clock.now, 1000.0)) == (1.0 + LEAP, None, None)
    assert clock.tick(WALL + 62, 562.0)
    assert clock.since(1.0 + LEAP, 1000.0) == 1.0


@pytest.mark.parametrize("mono", [3.0, 501.0, 502.0, 90_000.0])
@pytest.mark.parametrize(("away", "moved", "whole"), [(2.0, 2.0, True), (600.0, LEAP, False), (-50.0, 0.0, False)])
def test_of_a_restart_only_the_wall_clock_tells(mono: float, away: float, moved: float, whole: bool) -> None:
    clock = after((WALL, 500.0), (WALL + 1, 501.0))
    clock.mono = None
    assert (clock.tick(WALL + 1 + away, mono), clock.now) == (whole, 1.0 + moved)
    assert clock.tick(WALL + 5_000, mono + 1)
    assert clock.now == 2.0 + moved


@pytest.mark.parametrize(("step", "stepped"), [(25.0, True), (-25.0, True), (2.5, True), (1.5, False), (-1.5, False)])
@pytest.mark.parametrize("restarted", [False, True])
def test_it_says_that_the_wall_clock_was_set_also_while_nobody_looked(step: float, stepped: bool, restarted: bool) -> None:
    clock = after((WALL, 500.0), (WALL + 1, 501.0))
    assert not clock.stepped
    if restarted:
        clock.mono = None
    clock.tick(WALL + 60 + step, 560.0)
    assert clock.stepped is stepped
    clock.tick(WALL + 61 + step, 561.0)
    assert not clock.stepped
