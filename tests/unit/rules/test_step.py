"""Every edge of the state machine of one rule on one target (alerting.md E1 to E4)."""

import pytest

from gpuwatch.model.alert import AlertState
from gpuwatch.rules.step import Run, State, Timing, step

N, P, F, R, S = AlertState.INACTIVE, AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING, AlertState.STALE
HOLD = Timing(hold=30, clear_for=60)
AT_ONCE = Timing()
LATCH = Timing(latched=True)
SHARE = Timing(share=0.8, window=100, clear_for=100)


@pytest.mark.parametrize(
    ("timing", "before", "verdict", "now", "after"),
    [
        (HOLD, State(), False, 100, N),
        (HOLD, State(), None, 100, N),
        (HOLD, State(), True, 100, P),
        (AT_ONCE, State(), True, 100, F),
        (HOLD, State(P, since=90), True, 100, P),
        (HOLD, State(P, since=70), True, 100, F),
        (HOLD, State(P, since=70), False, 100, N),
        (HOLD, State(P, since=70), None, 100, N),  # a gap ends a hold
        (HOLD, State(F, since=0), True, 100, F),
        (HOLD, State(F, since=0), False, 100, R),
        (AT_ONCE, State(F, since=0), False, 100, N),
        (HOLD, State(F, since=0), None, 100, F),
        (HOLD, State(F, since=0, missed=1), None, 100, F),
        (HOLD, State(F, since=0, missed=2), None, 100, S),  # the third missed sample
        (HOLD, State(R, since=90), False, 100, R),
        (HOLD, State(R, since=40), False, 100, N),
        (HOLD, State(R, since=40), True, 100, F),
        (HOLD, State(R, since=40), None, 100, R),  # no data does not resolve, although its time is over
        (HOLD, State(R, since=40, missed=2), None, 100, S),
        (HOLD, State(S, since=0, missed=9), None, 100, S),
        (HOLD, State(S, since=0, missed=9), True, 100, F),
        (HOLD, State(S, since=0, missed=9), False, 100, R),  # and not inactive: the clear time begins now
        (AT_ONCE, State(S, since=0, missed=9), False, 100, N),
        (LATCH, State(F, since=0, missed=2), None, 100, F),  # no data says nothing about a latched fact
        (LATCH, State(F, since=0), False, 100, N),
        (SHARE, State(), False, 100, N),
        (SHARE, State(), True, 100, P),
        (SHARE, State(P, since=20, at=99, runs=(Run(20, 99, True),)), True, 100, F),
        (SHARE, State(P, since=20, at=99, runs=(Run(20, 99, True),)), None, 100, P),  # a gap is time of which nothing is known
        (SHARE, State(P, since=30, at=99, runs=(Run(30, 99, True),)), True, 100, P),  # too little of the window was seen
        (SHARE, State(P, since=0, at=99, runs=(Run(0, 79, True), Run(79, 99, False))), False, 100, P),
        (SHARE, State(P, since=0, at=99, runs=(Run(0, 79, True), Run(79, 99, False))), True, 100, F),
        (SHARE, State(P, since=0, at=99, runs=(Run(0, 99, True),)), False, 100, P),  # nothing fires at a moment that is fine
        (SHARE, State(P, since=0, at=99, runs=(Run(0, 1, True), Run(1, 99, False))), False, 101, N),
        (SHARE, State(R, since=0), False, 100, N),
    ],
)
def test_every_edge(timing: Timing, before: State, verdict: bool | None, now: float, after: AlertState) -> None:
    state, change = step(timing, before, verdict, now)
    assert state.phase is after
    assert change == (None if after is before.phase else (before.phase, after))


def test_a_late_beat_speaks_for_an_eighth_of_the_window_at_most() -> None:
    state, _ = step(SHARE, State(at=0.0), True, 90)
    assert state.runs == (Run(77.5, 90, True),)


def test_missed_samples_are_counted_in_a_row() -> None:
    state = State(F)
    for verdict in (None, None, True, None, None):
        state, _ = step(HOLD, state, verdict, 10)
    assert (state.phase, state.missed) == (F, 2)


def test_what_is_known_of_a_window_stays_bounded() -> None:
    state = State()
    for second in range(10_000):
        state, _ = step(Timing(share=1.0, window=100), state, second % 2 == 0, second)
    assert len(state.runs) <= 101
