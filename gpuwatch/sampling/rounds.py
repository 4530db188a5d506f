"""What to do about short-lived workers: a pure function of the state, an event and the time.

A round is read by a fresh process. An item that hangs costs that process: it is killed, and a fresh one reads the rest of the
round without that item. The item is left alone for as long as a process is stuck in it, and tried again after that.
"""

import logging
import math
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.model.reading import Tier
from gpuwatch.sampling.events import (
    NOT_YET,
    Action,
    Answered,
    Asked,
    Broke,
    Dismiss,
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

TRIES = 10  # processes in one round
Item = tuple[str, str]  # source and item; ("pci", "") is the source as a whole, ("", "") the process before any source


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round under way."""

    tier: Tier
    began: float
    worker: int
    sources: tuple[str, ...]  # those whose turn is still to come, or now
    armed: float  # last sign of life
    heard: bool = False
    at: Item  # what the worker is touching
    since: float  # since when it is at this source
    took: Mapping[str, float] = {}  # seconds at each source
    blamed: frozenset[Item] = frozenset()  # not touched again in this round
    tries: int = 1
    erring: Mapping[str, str] = {}
    reason: Reason | None = None  # why the process that was killed, and whose end is awaited, was killed


class Stuck(msgspec.Struct, frozen=True):
    """An item that hung or crashed its process, until it is passed again or no longer there."""

    since: float
    hangs: bool


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the rounds and their processes."""

    name: str
    sources: tuple[str, ...]
    worker: int = 0
    number: int = 0
    round: Round | None = None
    leaving: Mapping[int, float] = {}  # processes that were let go: since when
    dying: Mapping[int, float] = {}  # SIGKILL was sent: when
    abandoned: frozenset[int] = frozenset()
    holding: Mapping[int, Item] = {}  # what a killed process was touching: left alone meanwhile
    stuck: Mapping[Item, Stuck] = {}
    restarts: Mapping[Reason, int] = msgspec.field(default_factory=lambda: {Reason.HANG: 0, Reason.CRASH: 0})
    standings: Mapping[str, Standing] = {}
    wrong: Mapping[str, str] = {}  # sources that failed in the last round
    left: bool = False  # nothing is started: too many processes are stuck in the kernel
    paused: bool = False  # nothing is started until it goes on


Step = tuple[State, list[Action]]


def decide(state: State, event: Event, now: float, patience: Patience) -> Step:
    """Return the next state and what is to be done."""
    if isinstance(event, Asked):
        return asked(state, event.tier, now, patience)
    if isinstance(event, Tick):
        return passed(state, now, patience)
    if isinstance(event, Ended):
        return ended(state, event, now, patience)
    if isinstance(event, Found):
        return replace(state, abandoned=state.abandoned | {event.worker}), []
    if isinstance(event, Pause):
        return paused(state, now) if event.begins else (replace(state, paused=False), [])
    round_ = state.round
    if round_ is None or event.worker != round_.worker or round_.reason:
        return state, []  # from a process that is given up already
    match event:
        case Heard():
            return replace(state, round=heard(round_, event, now)), []
        case Erred(_, source, words, _):
            return replace(state, round=replace(round_, erring={**round_.erring, source: words})), []
        case Answered():
            return finished(state, round_, now)
        case Wanted():
            return state, []  # the next round is a new process anyway
        case Broke():
            return blamed(state, round_, now, Reason.CRASH)


def asked(state: State, tier: Tier, now: float, patience: Patience) -> Step:
    """Begin a round, unless the last one is still under way or nothing can be started."""
    if state.round or state.paused:
        return state, []
    if len(state.abandoned) >= patience.abandoned:
        if state.left:
            return state, []
        words = "%s: %d processes are stuck in the kernel; nothing is read until one of them ends"
        return replace(state, left=True), [Say(logging.ERROR, words, (state.name, len(state.abandoned)))]
    said: list[Action] = [Say(logging.INFO, "%s: processes are started again", (state.name,))] if state.left else []
    held = {source for source, item in state.holding.values() if not item}
    sources = tuple(source for source in state.sources if source not in held)
    if not sources:
        return state, said
    round_ = Round(tier=tier, began=now, worker=0, sources=sources, armed=now, at=("", ""), since=now)
    state, actions = begun(replace(state, left=False), round_, now)
    return state, [*said, *actions]


def paused(state: State, now: float) -> Step:
    """Give the round up and end every process: it is no failure of any source."""
    ending = set(state.leaving)
    if state.round and not state.round.reason:
        ending.add(state.round.worker)
    dying = {**state.dying, **dict.fromkeys(ending, now)}
    return replace(state, paused=True, round=None, leaving={}, dying=dying), [Kill(worker) for worker in sorted(ending)]


def begun(state: State, round_: Round, now: float) -> Step:
    """Start a process for what is left of the round."""
    worker, number = state.worker + 1, state.number + 1
    at = (round_.sources[0] if len(round_.sources) == 1 else "", "")
    round_ = replace(round_, worker=worker, armed=now, since=now, heard=False, at=at, reason=None)
    held = dict.fromkeys((*state.holding.values(), *round_.blamed))
    skip = tuple(f"{source}:{item}" for source, item in held if item)
    return replace(state, worker=worker, number=number, round=round_), [
        Start(worker, round_.sources),
        Question(worker, number, round_.tier, skip),
    ]


def heard(round_: Round, event: Heard, now: float) -> Round:
    """Take a sign of life; where the worker is changes with what it says it is about to touch."""
    if not event.begins:
        is_over = (event.source, event.item) == round_.at
        return replace(round_, armed=now, heard=True, at=(event.source, "") if is_over else round_.at)
    if event.source != round_.at[0]:
        round_ = replace(round_, took=timed(round_, now), since=now)
    return replace(round_, armed=now, heard=True, at=(event.source, event.item))


def timed(round_: Round, now: float) -> dict[str, float]:
    """Return the seconds at each source, with those at the present one."""
    source = round_.at[0]
    return {**round_.took, source: round_.took.get(source, 0.0) + now - round_.since} if source else dict(round_.took)


def finished(state: State, round_: Round, now: float) -> Step:
    """The worker has read all that it was asked for: it may go."""
    leaving = {**state.leaving, round_.worker: now}
    state, said = closed(replace(state, leaving=leaving), replace(round_, took=timed(round_, now)), now, unread=())
    return state, [Dismiss(round_.worker), *said]


def blamed(state: State, round_: Round, now: float, reason: Reason) -> Step:
    """Kill a process that hangs, or what is left of one that crashed, and blame what it was touching."""
    source, item = round_.at
    rest: tuple[str, ...] = ()
    if source in round_.sources:
        rest = round_.sources[round_.sources.index(source) + (not item) :]
    round_ = replace(round_, sources=rest, blamed=round_.blamed | {round_.at}, took=timed(round_, now), reason=reason)
    return replace(
        state,
        round=round_,
        dying={**state.dying, round_.worker: now},
        holding={**state.holding, round_.worker: round_.at},
        restarts={**state.restarts, reason: state.restarts[reason] + 1},
    ), [Kill(round_.worker)]


def follow(state: State, round_: Round, now: float, how: str, patience: Patience) -> Step:
    """Say what happened to the killed process, and go on with what it had not reached."""
    said: list[Action] = []
    if round_.at not in state.stuck:
        hangs = round_.reason is Reason.HANG
        state = replace(state, stuck={**state.stuck, round_.at: Stuck(round_.armed, hangs)})
        words = "%s: %s %s (%s); it is left out and the rest is read without it"
        what = "does not return" if hangs else "ended the process"
        said.append(Say(logging.WARNING, words, (state.name, name_of(round_.at), what, how)))
    is_over = round_.tries >= TRIES or now - round_.began >= patience.round * patience.deadline
    if round_.sources and not is_over and len(state.abandoned) < patience.abandoned:
        state, actions = begun(state, replace(round_, tries=round_.tries + 1), now)
    else:
        unread = round_.sources if round_.at[0] else state.sources
        state, actions = closed(state, round_, now, unread)
    return state, [*said, *actions]


def closed(state: State, round_: Round, now: float, unread: tuple[str, ...]) -> Step:
    """End the round: how each source did, and which items are well again."""
    whole = {source for source, item in (*round_.blamed, *state.holding.values()) if not item}
    failed = {*whole, *unread, *round_.erring}
    standings = {source: Standing(source not in failed, round_.took.get(source)) for source in state.sources}
    left_out = {*round_.blamed, *state.holding.values()}
    said: list[Action] = []
    stuck: dict[Item, Stuck] = {}
    for at, one in state.stuck.items():
        if at in left_out or at[0] in unread:
            stuck[at] = one
        else:
            words = "%s: %s is well again, or gone, after %.0f s"
            said.append(Say(logging.INFO, words, (state.name, name_of(at), now - one.since)))
    return replace(state, round=None, standings=standings, stuck=stuck, wrong=round_.erring), said


def ended(state: State, event: Ended, now: float, patience: Patience) -> Step:
    """Take note of a process that is gone; what it held may be touched again."""
    said: list[Action] = []
    if event.worker in state.abandoned:
        said.append(Say(logging.INFO, "%s: a process that could not be killed has ended", (state.name,)))
    round_ = state.round
    if round_ and event.worker == round_.worker and not round_.reason:
        state, _ = blamed(state, round_, now, Reason.CRASH)
        round_ = state.round
    state = replace(
        state,
        leaving=without(state.leaving, event.worker),
        dying=without(state.dying, event.worker),
        holding=without(state.holding, event.worker),
        abandoned=state.abandoned - {event.worker},
    )
    if round_ and event.worker == round_.worker:
        state, more = follow(state, round_, now, words_of(event.status), patience)
        said += more
    return state, said


V = TypeVar("V")


def without(mapping: Mapping[int, V], key: int) -> dict[int, V]:
    """Return the mapping without one key."""
    return {one: value for one, value in mapping.items() if one != key}


def passed(state: State, now: float, patience: Patience) -> Step:
    """Do what is due, one thing a Tick: the crew ticks again until nothing is due."""
    for worker, since in state.leaving.items():
        if now >= since + patience.grace:
            return replace(state, leaving=without(state.leaving, worker), dying={**state.dying, worker: now}), [Kill(worker)]
    for worker, since in state.dying.items():
        if now >= since + patience.grace:
            return given_up(state, worker, now, patience)
    if state.round and now >= limit(state.round, patience):
        return blamed(state, state.round, now, Reason.HANG)
    return state, []


def given_up(state: State, worker: int, now: float, patience: Patience) -> Step:
    """Abandon a process that SIGKILL does not end; what it touches stays left alone until it is gone."""
    state = replace(state, dying=without(state.dying, worker), abandoned=state.abandoned | {worker})
    words = "%s: a process cannot be killed (it is stuck in the kernel) and is abandoned, the %d. of at most %d"
    line = Say(logging.ERROR, words, (state.name, len(state.abandoned), patience.abandoned))
    round_ = state.round
    if round_ is None or round_.worker != worker:
        return state, [line]
    state, more = follow(state, round_, now, "SIGKILL did not end it", patience)
    return state, [line, *more]


def limit(round_: Round, patience: Patience) -> float:
    """Return when the round's process counts as hung: no sign of life, or no end to them."""
    if round_.reason:
        return math.inf  # it is being killed
    silent = patience.deadline if round_.heard else max(patience.deadline, patience.start)
    return min(round_.armed + silent, round_.began + patience.round * patience.deadline)


def due(state: State, patience: Patience) -> float:
    """Return when something is due without an event."""
    waits = [since + patience.grace for since in (*state.leaving.values(), *state.dying.values())]
    return min([*waits, limit(state.round, patience)] if state.round else waits, default=math.inf)


def name_of(at: Item) -> str:
    """Say what was touched."""
    return " ".join(at).strip() or "the process itself"


def report(state: State, now: float) -> Report:
    """Return what is told of the rounds."""
    standings: dict[str, Standing] = {}
    for source in state.sources:
        standing = state.standings.get(source, Standing())
        hangs = any(at[0] in {source, ""} and one.hangs for at, one in state.stuck.items())
        took = standing.took
        if state.round and state.round.at[0] == source:
            took = max(took or 0.0, timed(state.round, now)[source])
        standings[source] = Standing(standing.success, took, hangs)
    return Report(standings, state.restarts, problem(state))


def problem(state: State) -> str:
    """Say why whole sources give nothing; single items that hang are told by their sources."""
    if state.paused:
        return ""
    if state.left:
        return f"{len(state.abandoned)} processes are stuck in the kernel; nothing is read until one of them ends"
    words = [f"{source} {what}" for source, what in state.wrong.items()]
    words += [
        f"{name_of(at)} {'does not return' if one.hangs else 'ends its process'}" for at, one in state.stuck.items() if not at[1]
    ]
    is_asked = state.round is not None or state.worker > 0  # some are asked first a while after the start: that is no trouble
    return "; ".join(words) or (NOT_YET if is_asked and not state.standings else "")


class Rounds:
    """The Plan of short-lived workers."""

    def __init__(self, name: str, sources: tuple[str, ...], patience: Patience) -> None:
        self._state = State(name=name, sources=sources)
        self._patience = patience

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in an event and return what is to be done."""
        self._state, actions = decide(self._state, event, now, self._patience)
        return actions

    def due(self) -> float:
        """Return when a Tick is due at the latest."""
        return due(self._state, self._patience)

    def report(self, now: float) -> Report:
        """Return what the probe tells of itself."""
        return report(self._state, now)

    def stuck(self) -> dict[Item, float]:
        """Return the items that do not return, and since when (monotonic)."""
        return {at: one.since for at, one in self._state.stuck.items() if one.hangs}
