"""What to do about a worker that stays: a pure function of its state, an event and the time.

A worker that does not answer in time is killed and replaced with a growing pause; one that will not die is abandoned to the
kernel. After three abandoned ones nothing is started until one of them ends: a hung driver must not fill the process table.
"""

import logging
import math
from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from gpuwatch.model.reading import Tier
from gpuwatch.sampling.events import (
    NOT_YET,
    Action,
    Answered,
    Asked,
    Broke,
    Ended,
    Erred,
    Event,
    Found,
    Heard,
    Kill,
    Patience,
    Pause,
    Question,
    Reason,
    Report,
    Say,
    Standing,
    Start,
    Tick,
    Wanted,
    words_of,
)

TOO_LONG = 60.0  # seconds of rounds that are longer than their period before that is said


class Phase(Enum):
    """Where the worker is."""

    WAITING = "waiting"  # until `since` it is not started
    UP = "up"
    DYING = "dying"  # SIGKILL was sent
    LEFT = "left"  # nothing is started: too many processes are stuck in the kernel


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong with the worker since when; said once, and once more when it is over."""

    since: float
    words: str
    said: bool = False


class Open(msgspec.Struct, frozen=True):
    """An Ask without an answer."""

    number: int
    asked: float


Wrong = Mapping[Tier | None, Mapping[str, str]]  # by tier (None: before any round) and source: what went wrong with it


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one persistent worker."""

    name: str
    phase: Phase = Phase.WAITING
    since: float = -math.inf  # when this phase began; for WAITING: when it ends
    worker: int = 0  # counts the processes
    number: int = 0  # counts the asks
    tiers: frozenset[Tier] = frozenset()  # asked for so far: a new worker is asked for all of them at once
    open: Mapping[Tier, Open] = {}
    answered: bool = False  # this worker has answered something
    failures: int = 0  # in a row
    reason: Reason | None = None  # why the next worker replaces one
    replaced: Reason | None = None  # why this one did
    restarts: Mapping[Reason, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Reason, 0))
    abandoned: frozenset[int] = frozenset()
    trouble: Trouble | None = None
    hung: bool = False
    took: float | None = None  # the last round
    erring: Wrong = {}  # sources that failed in the round under way of each tier
    wrong: Wrong = {}  # ... in its last round
    overrun: tuple[float, float] | None = None  # rounds still open when the next was due: the first and the last such time
    slow: bool = False  # that was said
    paused: bool = False  # nothing is started until it goes on


Step = tuple[State, list[Action]]


def decide(state: State, event: Event, now: float, patience: Patience) -> Step:
    """Return the next state and what is to be done."""
    if isinstance(event, Asked):
        return asked(state, event.tier, now)
    if isinstance(event, Tick):
        return passed(state, now, patience)
    if isinstance(event, Ended):
        return ended(state, event, now, patience)
    if isinstance(event, Found):
        return replace(state, abandoned=state.abandoned | {event.worker}), []
    if isinstance(event, Pause):
        return paused(state, now) if event.begins else went_on(state, now)
    if event.worker != state.worker or state.phase is not Phase.UP:
        return state, []  # from a worker that is given up already
    match event:
        case Answered():
            return answered(state, event, now, patience)
        case Erred():
            return erred(state, event), []
        case Wanted(_, reason):
            return put_down(state, now, Reason.DRIVER_CHANGE, f"asked to be replaced ({reason})")
        case Broke(_, words):
            return put_down(state, now, Reason.CRASH, words or "ended unasked")
        case Heard():
            return state, []


def asked(state: State, tier: Tier, now: float) -> Step:
    """Ask the worker, unless it still works on this tier: rounds do not pile up."""
    state = replace(state, tiers=state.tiers | {tier})
    if state.phase is not Phase.UP:
        return state, []
    said: list[Action] = []
    if tier not in state.open:
        if state.overrun and now - state.overrun[1] > TOO_LONG:
            if state.slow:
                said.append(Say(logging.INFO, "%s keeps up with its period again", (state.name,)))
            state = replace(state, overrun=None, slow=False)
        state, question = put(state, tier, now)
        return state, [*said, question]
    first = state.overrun[0] if state.overrun else now
    state = replace(state, overrun=(first, now))
    if state.answered and not state.slow and now - first >= TOO_LONG:
        state = replace(state, slow=True)
        words = "%s needs longer for a round (%.1f s) than its period; it is asked as often as it can answer"
        said.append(Say(logging.WARNING, words, (state.name, state.took or 0.0)))
    return state, said


def put(state: State, tier: Tier, now: float) -> tuple[State, Question]:
    """Put one question to the worker."""
    number = state.number + 1
    return replace(state, number=number, open={**state.open, tier: Open(number, now)}), Question(state.worker, number, tier)


def erred(state: State, event: Erred) -> State:
    """Take note of a source that failed in a round, or that could not be built: that goes with the next round that ends."""
    tier = next((tier for tier, one in state.open.items() if one.number == event.number), None)
    if tier is None and event.number:
        return state  # that round is over
    return replace(state, erring={**state.erring, tier: {**state.erring.get(tier, {}), event.source: event.words}})


def answered(state: State, event: Answered, now: float, patience: Patience) -> Step:
    """Close the round, and with it the trouble that there was."""
    tier = next((tier for tier, one in state.open.items() if one.number == event.number), None)
    if tier is None:
        return state, []
    took = now - state.open[tier].asked
    still_open = {key: one for key, one in state.open.items() if key is not tier}
    wrong = {**state.wrong, tier: {**state.erring.get(None, {}), **state.erring.get(tier, {})}}
    erring = {key: failed for key, failed in state.erring.items() if key not in (None, tier)}
    state = replace(state, open=still_open, answered=True, hung=False, took=took, wrong=wrong, erring=erring)
    said: list[Action] = []
    is_steady = now - state.since >= patience.steady
    if state.trouble and (state.failures <= 1 or is_steady):  # one that fails again and again is not well at its first answer
        if state.trouble.said:
            said.append(Say(logging.INFO, "%s answers again after %.0f s", (state.name, now - state.trouble.since)))
        state = replace(state, trouble=None)
    if is_steady:
        state = replace(state, failures=0, replaced=None)
    return state, said


def put_down(state: State, now: float, reason: Reason, words: str) -> Step:
    """Kill the worker; what follows is decided when it is gone, or known not to go.

    A changed driver is no failure: what went wrong with the one before it is over, and its back-off with it. One that is
    asked for again by the very worker that it brought is counted as any other.
    """
    is_new_driver = reason is Reason.DRIVER_CHANGE and state.replaced is not Reason.DRIVER_CHANGE
    return replace(
        state,
        phase=Phase.DYING,
        since=now,
        open={},
        erring={},
        wrong={},
        overrun=None,
        reason=reason,
        failures=1 if is_new_driver else state.failures + 1,
        hung=state.hung or reason is Reason.HANG,
        trouble=state.trouble or Trouble(now, words),
    ), [Kill(state.worker)]


def paused(state: State, now: float) -> Step:
    """Let go of the hardware: SIGKILL ends the worker fastest, and the kernel closes what it had open. It is no failure."""
    is_up = state.phase is Phase.UP
    state = replace(
        state,
        paused=True,
        phase=Phase.DYING if is_up else state.phase,
        since=now if is_up else state.since,
        open={},
        reason=None,
        failures=0,
        trouble=None,
        hung=False,
        erring={},
        wrong={},
        overrun=None,
        slow=False,
    )
    return state, [Kill(state.worker)] if is_up else []


def went_on(state: State, now: float) -> Step:
    """Have a worker started at once, or as soon as the last one is gone."""
    return replace(state, paused=False, since=now if state.phase is Phase.WAITING else state.since, took=None), []


def ended(state: State, event: Ended, now: float, patience: Patience) -> Step:
    """Take note of a process that is gone."""
    if event.worker in state.abandoned:
        state = replace(state, abandoned=state.abandoned - {event.worker})
        if state.phase is Phase.LEFT:
            state = replace(state, phase=Phase.WAITING, since=now)
        return state, [Say(logging.INFO, "%s: a process that could not be killed has ended", (state.name,))]
    if event.worker != state.worker or state.phase not in {Phase.UP, Phase.DYING}:
        return state, []
    if state.phase is Phase.UP:
        state, _ = put_down(state, now, Reason.CRASH, "ended unasked")
    return follow(state, now, words_of(event.status), patience)


def follow(state: State, now: float, how: str, patience: Patience) -> Step:
    """Decide when the next worker starts, and say once what happened to the last one."""
    if state.paused or not state.failures:  # it was ended on request
        phase = Phase.LEFT if len(state.abandoned) >= patience.abandoned else Phase.WAITING
        return replace(state, phase=phase, since=now), []
    pause = min(patience.limit, patience.first * 2.0 ** min(state.failures - 1, 30))
    if state.reason is Reason.DRIVER_CHANGE and state.failures == 1:
        pause = 0.0
    state = replace(state, phase=Phase.WAITING, since=now + pause)
    if len(state.abandoned) >= patience.abandoned:
        state = replace(state, phase=Phase.LEFT, since=now)
    if state.trouble is None or state.trouble.said:
        return state, []
    level = logging.INFO if state.reason is Reason.DRIVER_CHANGE else logging.WARNING
    line = Say(level, "%s %s (%s); its values are missing until a new process answers", (state.name, state.trouble.words, how))
    return replace(state, trouble=replace(state.trouble, said=True)), [line]


def passed(state: State, now: float, patience: Patience) -> Step:
    """Do what is due."""
    if now < due(state, patience):
        return state, []
    match state.phase:
        case Phase.WAITING if len(state.abandoned) >= patience.abandoned:
            return replace(state, phase=Phase.LEFT, since=now), []
        case Phase.WAITING:
            return started(state, now)
        case Phase.UP:
            waited = now - min(one.asked for one in state.open.values())
            return put_down(state, now, Reason.HANG, f"has not answered for {waited:.0f} s")
        case Phase.DYING:
            state = replace(state, abandoned=state.abandoned | {state.worker})
            count = len(state.abandoned)
            words = "%s: a process cannot be killed (it is stuck in the kernel) and is abandoned, the %d. of at most %d"
            line = Say(logging.ERROR, words, (state.name, count, patience.abandoned))
            state, more = follow(state, now, "SIGKILL did not end it", patience)
            return state, [*more, line]
        case Phase.LEFT:
            return state, []


def started(state: State, now: float) -> Step:
    """Start a worker and ask it for everything that is asked for, so that slow numbers need not wait for their next turn."""
    restarts = dict(state.restarts)
    if state.reason:
        restarts[state.reason] += 1
    state = replace(state, replaced=state.reason, reason=None, restarts=restarts)
    state = replace(state, phase=Phase.UP, since=now, worker=state.worker + 1, answered=False)
    actions: list[Action] = [Start(state.worker)]
    for tier in Tier:
        if tier in state.tiers:
            state, question = put(state, tier, now)
            actions.append(question)
    return state, actions


def due(state: State, patience: Patience) -> float:
    """Return when something is due without an event."""
    match state.phase:
        case Phase.WAITING:
            return math.inf if state.paused else state.since
        case Phase.UP:
            limit = patience.deadline if state.answered else max(patience.deadline, patience.start)
            return min((one.asked for one in state.open.values()), default=math.inf) + limit
        case Phase.DYING:
            return state.since + patience.grace
        case Phase.LEFT:
            return math.inf


class Persistent:
    """The Plan of a worker that stays."""

    def __init__(self, name: str, sources: tuple[str, ...], patience: Patience) -> None:
        self._state = State(name=name)
        self._sources = sources
        self._patience = patience

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in an event and return what is to be done."""
        self._state, actions = decide(self._state, event, now, self._patience)
        return actions

    def due(self) -> float:
        """Return when a Tick is due at the latest."""
        return due(self._state, self._patience)

    def report(self, now: float) -> Report:
        """Return what the supervisor tells of itself."""
        return report(self._state, self._sources, now)


def report(state: State, sources: tuple[str, ...], now: float) -> Report:
    """Return what is told of a worker; a round that is longer under way than the last one took is what its duration shows."""
    is_well = state.phase is Phase.UP and state.answered
    wrong = {source: words for tier in Tier for source, words in state.wrong.get(tier, {}).items()}
    is_new = state.paused or (state.took is None and state.trouble is None)
    waited = max((now - one.asked for one in state.open.values()), default=0.0)
    took = None if state.took is None and not state.open else max(state.took or 0.0, waited)
    standings = {source: Standing(None if is_new else is_well and source not in wrong, took, state.hung) for source in sources}
    if state.paused:
        problem = ""
    elif state.phase is Phase.LEFT:
        problem = f"{len(state.abandoned)} processes are stuck in the kernel; nothing is started until one of them ends"
    elif is_well:
        problem = "; ".join(f"{source} {words}" for source, words in wrong.items())
    elif state.trouble:
        problem = state.trouble.words
    else:
        problem = NOT_YET
    return Report(standings, state.restarts, problem)
