"""A lane and the round that hands it jobs: whatever becomes of the lane, the round knows."""

from gpuwatch.model.clock import SystemClock
from gpuwatch.sources.nvml.lane import Lane
from gpuwatch.sources.nvml.rounds import Round
from tests.fakes.until import PATIENCE, until


def test_a_closed_lane_says_that_it_takes_no_job() -> None:
    lane, done = Lane("lane", SystemClock()), list[int]()
    assert lane.submit(lambda: done.append(1)) is True
    lane.close()
    assert lane.submit(lambda: done.append(2)) is False
    until(lambda: done)
    assert done == [1]


def test_a_round_does_not_wait_for_a_lane_that_was_closed() -> None:
    lane, round_ = Lane("lane", SystemClock()), Round(list[str]().append)
    lane.close()
    round_.hand(lane, "GPU-1", lambda: None)
    assert round_.wait(0.0) == []


def test_a_bug_in_a_part_of_a_round_ends_that_part_and_is_told() -> None:
    lane, told = Lane("lane", SystemClock()), list[str]()
    round_ = Round(told.append)

    def odd() -> None:
        raise SystemExit("odd")

    round_.hand(lane, "GPU-1", odd)
    assert round_.wait(PATIENCE) == []
    assert told == ["raised: SystemExit: odd"]
    lane.close()


def test_what_a_round_had_not_begun_when_it_was_over_is_not_begun() -> None:
    lane, done = Lane("lane", SystemClock()), list[int]()
    round_ = Round(list[str]().append)
    assert round_.wait(0.0) == []
    round_.hand(lane, "GPU-1", lambda: done.append(1))
    assert lane.submit(lambda: done.append(2))
    until(lambda: done)
    assert done == [2]
    lane.close()
