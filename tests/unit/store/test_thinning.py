"""Rows become points: as they are while they fit, else folded, and nothing is invented."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.metric import Keep
from gpuwatch.model.past import Point
from gpuwatch.store.thinning import RAW, STEPS, Thinned, gapped

# distances in seconds between rows of a series, with a row each second in an hour that is lived twice, and long gaps
ROWS = st.lists(
    st.tuples(st.sampled_from([0.001, 1, 9.9, 10, 10, 10, 10, 60, 3_600, 90_000]), st.floats(-1e6, 1e6)), min_size=1, max_size=200
)


def filled(rows: list[tuple[float, float]], most: int, total: int = 10**6, start: int = 1_700_000_000_000) -> Thinned[str]:
    """Return one series of rows that are given by their distances."""
    thinned, at = Thinned[str](most, total), start
    for distance, value in rows:
        at += int(distance * 1000)
        thinned.add("a", at, value)
    return thinned


def known(points: list[Point]) -> list[Point]:
    """Return the points that have a value."""
    return [point for point in points if point[1] is not None]


def test_rows_that_fit_are_points_as_they_are() -> None:
    thinned = filled([(10, 1.0), (10, 0.0), (10, -2.5)], 10)
    points: list[Point] = [(1_700_000_010.0, 1.0), (1_700_000_020.0, 0.0), (1_700_000_030.0, -2.5)]
    assert (thinned.points("a", Keep.MEAN), thinned.step) == (points, RAW)


@pytest.mark.parametrize(("keep", "values"), [(Keep.MEAN, [2.0, 4.5]), (Keep.MAX, [3.0, 5.0]), (Keep.LAST, [2.0, 5.0])])
def test_a_longer_step_has_what_the_metric_keeps_and_the_lowest_and_highest(keep: Keep, values: list[float]) -> None:
    thinned = filled([(0, 3.0), (10, 1.0), (10, 2.0), (10, 4.0), (10, 5.0)], 4, start=1_700_000_020_000)
    assert thinned.step == 30_000
    first, second = values
    assert thinned.points("a", keep) == [(1_700_000_040.0, first, 1.0, 3.0), (1_700_000_060.0, second, 4.0, 5.0)]


def test_the_last_point_is_never_later_than_the_last_row() -> None:
    thinned = filled([(10, 1.0)] * 9, 5, start=1_700_000_000_000)
    assert thinned.points("a", Keep.MEAN)[-1][0] == 1_700_000_090.0


def test_each_step_is_a_multiple_of_the_one_before() -> None:
    assert [later % step for step, later in pairwise((RAW, *STEPS))] == [0] * len(STEPS)


@given(rows=ROWS, most=st.integers(2, 60), start=st.integers(-(10**12), 2 * 10**12))
def test_no_series_has_more_points_than_it_may_and_every_value_is_in_one(
    rows: list[tuple[float, float]], most: int, start: int
) -> None:
    thinned = filled(rows, most, start=start)
    for keep in Keep:
        points = known(thinned.points("a", keep))
        assert 1 <= len(points) <= most
        assert [point[0] for point in points] == sorted({point[0] for point in points})
    values = [value for _, value in rows]
    if thinned.step == RAW:
        assert [point[1] for point in points] == values
        return
    folded: dict[int, list[float]] = {}
    at = start
    for distance, value in rows:
        at += int(distance * 1000)
        folded.setdefault(-(-at // thinned.step) * thinned.step, []).append(value)
    wanted = [(min(end, at) / 1000, found[-1], min(found), max(found)) for end, found in folded.items()]
    assert known(thinned.points("a", Keep.LAST)) == wanted
    means = [point[1] for point in known(thinned.points("a", Keep.MEAN))]
    assert means == pytest.approx([sum(found) / len(found) for found in folded.values()], abs=1e-6)


def test_all_series_together_have_a_bound_and_one_step() -> None:
    thinned = Thinned[int](1_000, 100)
    for name in range(8):
        for number in range(60):
            thinned.add(name, number * 10_000, float(name))
    counts = [len(thinned.points(name, Keep.MEAN)) for name in range(8)]
    assert (thinned.step, counts, thinned.names) == (60_000, [11] * 8, list(range(8)))


def test_a_gap_is_a_none_and_the_minutes_between_two_slow_values_are_none() -> None:
    slow: list[Point] = [(60.0 * number, 1.0) for number in range(5)]
    assert gapped(slow, 10.0) == slow
    later: list[Point] = [(point[0] + 10_000, 1.0) for point in slow]
    assert gapped([*slow, *later], 10.0) == [*slow, (300.0, None), *later]
    assert gapped([], 10.0) == []
    assert gapped([(0.0, 0.0)], 10.0) == [(0.0, 0.0)]
    assert gapped([(0.0, 1.0), (30.0, 1.0), (40.0, 1.0), (50.0, 1.0)], 10.0)[1] == (30.0, 1.0)  # two rows that fell out are none


@given(st.lists(st.floats(0.001, 1e5), max_size=60), st.sampled_from([10.0, 300.0]))
def test_gaps_add_no_value_and_take_none(distances: list[float], step: float) -> None:
    points: list[Point] = [(0.0, 1.0)]
    for distance in distances:
        points.append((points[-1][0] + distance, 1.0))
    found = gapped(points, step)
    assert known(found) == points
    assert [point[0] for point in found] == sorted(point[0] for point in found)
    assert not any(first[1] is None and second[1] is None for first, second in pairwise(found))
