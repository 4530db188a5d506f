"""One step of one rule for one target: (timing, state, verdict, now) -> (state, change). Pure; time is monotonic.

inactive -> pending -> firing -> recovering -> inactive, and stale beside them: a gap ends a hold but clears no alert
(style.md section 2). The caller judges the condition at its firing level while nothing fires, and at its clear level after.
"""

from typing import NamedTuple

import msgspec

from gpuwatch.model.alert import AlertState

MISSED = 3  # samples in a row without data, after which an alert is stale
SPEAKS_FOR = 8  # one sample speaks for at most this part of a window, however long ago the one before it was
ROUNDING = 1e-6  # seconds; sums of floats are not exact
ACTIVE = frozenset({AlertState.FIRING, AlertState.RECOVERING, AlertState.STALE})


class Timing(NamedTuple):
    """When a condition becomes an alert and when it ends: held for `hold`, or for a share of a window."""

    hold: float = 0.0
    share: float | None = None
    window: float = 0.0
    clear_for: float = 0.0
    latched: bool = False  # no data says nothing about a fact that cannot heal alone


class Run(NamedTuple):
    """A time in which every sample gave the same verdict."""

    start: float
    end: float
    held: bool


class State(msgspec.Struct, frozen=True, array_like=True):
    """Where one step of one rule is for one target. `since` is the start of the hold, or of the recovery."""

    phase: AlertState = AlertState.INACTIVE
    since: float = 0.0
    at: float | None = None  # the last sample
    missed: int = 0
    runs: tuple[Run, ...] = ()  # for a share of a window: what is known of it

    @property
    def active(self) -> bool:
        """Whether there is an alert, even if it is stale."""
        return self.phase in ACTIVE


class Change(NamedTuple):
    """From one phase to another."""

    before: AlertState
    after: AlertState


def step(timing: Timing, state: State, verdict: bool | None, now: float) -> tuple[State, Change | None]:
    """Return the next state, and the change of phase where there is one."""
    if state.phase in ACTIVE:
        after = go_on(timing, state, verdict, now)
    elif timing.share is None:
        after = hold(timing, state, verdict, now)
    else:
        after = gather(timing, timing.share, state, verdict, now)
    return after, Change(state.phase, after.phase) if after.phase is not state.phase else None


def hold(timing: Timing, state: State, verdict: bool | None, now: float) -> State:
    """Fire once the condition has held without a break; a gap is a break."""
    if not verdict:
        return State(at=now)
    since = state.since if state.phase is AlertState.PENDING else now
    phase = AlertState.FIRING if now - since >= timing.hold - ROUNDING else AlertState.PENDING
    return State(phase=phase, since=since, at=now)


def gather(timing: Timing, share: float, state: State, verdict: bool | None, now: float) -> State:
    """Fire once the condition holds and has held for its share of the window.

    A gap is time of which nothing is known; nothing fires before that share of the window has been seen at all.
    """
    edge = now - timing.window
    runs = tuple(run if run.start >= edge else run._replace(start=edge) for run in state.runs if run.end > edge)
    if verdict is None:
        phase = AlertState.PENDING if any(run.held for run in runs) else AlertState.INACTIVE
        return State(phase=phase, since=state.since, at=now, runs=runs)
    start = now if state.at is None else max(state.at, now - timing.window / SPEAKS_FOR)
    if runs and runs[-1].held is verdict and runs[-1].end == start:
        runs = (*runs[:-1], runs[-1]._replace(end=now))
    else:
        runs = (*runs, Run(start, now, verdict))
    held = [run for run in runs if run.held]
    if not held:
        return State(at=now, runs=runs)
    known, enough = sum(run.end - run.start for run in runs), share * timing.window - ROUNDING
    fires = verdict and known >= enough and sum(run.end - run.start for run in held) >= share * known - ROUNDING
    return State(phase=AlertState.FIRING if fires else AlertState.PENDING, since=held[0].start, at=now, runs=runs)


def go_on(timing: Timing, state: State, verdict: bool | None, now: float) -> State:
    """Keep an alert until its clear level has not been reached for `clear_for`, with data to show for it."""
    if verdict is None:
        missed = 0 if timing.latched else state.missed + 1
        phase = AlertState.STALE if missed >= MISSED else state.phase
        return State(phase=phase, since=state.since, at=now, missed=missed)
    if verdict:
        return State(phase=AlertState.FIRING, since=state.since, at=now)
    since = state.since if state.phase is AlertState.RECOVERING else now
    if now - since >= timing.clear_for - ROUNDING:
        return State(at=now, runs=(Run(since, now, False),) if timing.share is not None and since < now else ())
    return State(phase=AlertState.RECOVERING, since=since, at=now)
