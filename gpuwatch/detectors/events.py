"""What driver and kernel report: finds the GPU of each event, counts it once, and tells what is not over.

NVML and the kernel log tell of the same things (`witnesses`), about GPUs that they name differently (`places`). What they add up
to is in `counters`, what belongs together in `stories`.
"""

from collections.abc import Iterable

import msgspec

from gpuwatch.catalogue.derived import STATE
from gpuwatch.catalogue.events import (
    BUS_DROPS,
    ERRORS_OPEN,
    KERNEL,
    KERNEL_LOG_LOST,
    LOG_READ,
    PORT,
    PORT_ERRORS_OPEN,
    XID,
)
from gpuwatch.catalogue.gpu import BAR1_SIZE, GPU, RECOVERY_ACTION
from gpuwatch.catalogue.host import HOST
from gpuwatch.detectors import causes, counters, places, released, stories
from gpuwatch.detectors.counters import Counters
from gpuwatch.detectors.detector import Clockwork, derived
from gpuwatch.detectors.places import Places
from gpuwatch.detectors.presence import answer, driver_state, works
from gpuwatch.detectors.stories import Chronicle, Scene, Story
from gpuwatch.detectors.witnesses import Witnesses
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event, Likeness, like, together
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

WAITING = 1024  # events that wait for their GPU: after a start the log is read before NVML has answered
LINGER = 600.0  # seconds for which a port is told to be well again
PORTS = 64  # ports that are told
COMES_BACK = 5.0  # seconds after the last sign of a fall from which an answer counts: an older one may still lie around
KEPT = 256  # events of one beat that are kept one by one; more are kept by kind and thing
GONE = frozenset({"lost", "reset_required"})
LEVELS = tuple((Severity(name).rank, metric) for name, metric in ERRORS_OPEN.items())
PORT_LEVELS = tuple((Severity(name).rank, metric) for name, metric in PORT_ERRORS_OPEN.items())
LIVE = frozenset({GPU.name, PORT.name})
DROPPED = (STATE["lost"], STATE["missing"], STATE["reset_required"])


class Unplaced(msgspec.Struct, array_like=True):
    """An event whose GPU is not known yet."""

    event: Event
    heard: float  # the detector's own clock


class State(msgspec.Struct):
    """All that was told so far, in counts and open stories."""

    places: Places = msgspec.field(default_factory=Places)
    witnesses: Witnesses = msgspec.field(default_factory=Witnesses)
    counters: Counters = msgspec.field(default_factory=Counters)
    chronicle: Chronicle = msgspec.field(default_factory=Chronicle)
    unplaced: list[Unplaced] = []
    ports: dict[str, float] = {}  # those of which a story was told, and when last
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


class Events:
    """The detector."""

    name = "events"
    version = 2

    def __init__(self, reread: float) -> None:
        self.reread = reread

    def initial(self) -> State:
        """Return the state of a first start: nothing has happened."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Look at one beat."""
        state.clock.tick(wall, view.mono)
        clock = state.clock.now
        driver = driver_state(view)
        scene = look(view, driver)
        state.counters.forget(state.places.learn(view, clock, boot=scene.boot, answers=driver == "ok"))
        rename(state)
        kept: list[Event] = []
        releases = released.spans(view)
        for told_of in placed(state, state.witnesses.fresh(view.events), view):
            event = released.marked(told_of, releases)
            count = state.witnesses.count(event, clock, self.reread)
            kept += state.witnesses.keep(event, count, clock)
            state.counters.add(event, count)
            if released.is_explained(event):
                continue
            if event.subject == GPU.name and causes.rank(event) == causes.LOST:
                state.counters.fall(event.key, event.at)
            if causes.place(event)[0] in LIVE:  # of other things nothing is told live that the counters do not tell
                stories.add(state.chronicle, event, count, clock=clock, wall=wall)
        for entry in view.of(KERNEL):
            if LOG_READ in entry.values:  # after the events: the view is taken before they are
                state.witnesses.has_read(entry.target.info.get("boot_id", ""), int(entry.values[LOG_READ]))
        kept += state.witnesses.due(clock, self.reread)
        stories.settle(state.chronicle, scene, clock, state.places.cards)
        for entry in view.of(GPU):
            if entry.values.get(STATE["lost"]) == 1 and entry.target.key in state.places.cards:
                state.counters.fall(entry.target.key, wall)
        for key, at in scene.working.items():
            state.counters.works(key, at, COMES_BACK)
        due, grown = state.counters.due(state.places, clock, shows=scene.shows)
        readings, evidence = told(state, scene, wall)
        if XID.name in due:
            readings += state.counters.codes(state.places, wall)
        if due:
            readings += state.counters.others(wall)
        counted = (self.name,) if grown else ()
        return state, Findings(tuple(readings), evidence, events=bounded(kept), counted=counted)


def placed(state: State, events: Iterable[Event], view: View) -> list[Event]:
    """Return the events that can be told now: those that have a place, as they were heard of, then those waited for in vain.

    The latter were heard of before the former, and are told without the GPU that nobody knows.
    """
    found: list[Event] = []
    waiting: list[Unplaced] = []
    clock = state.clock.now
    for one in [*state.unplaced, *(Unplaced(event, clock) for event in events)]:
        event = state.places.place(one.event)
        if event is not None:
            found.append(event)
        else:
            waiting.append(one)
    if waiting:
        patience = places.SOON if state.places.has_all(view, clock) else places.WAIT
        over = [one for one in waiting if clock - one.heard >= patience]
        waiting = [one for one in waiting if clock - one.heard < patience]
        found += [places.settled(one.event) for one in (*over, *waiting[:-WAITING])]
    state.unplaced = waiting[-WAITING:]
    return found


def rename(state: State) -> None:
    """Give what is known by an address to the GPU that has turned out to be there."""
    keys = {name.partition("|")[0] for name in state.counters.xids if ":" in name} | state.counters.falls.keys()
    keys |= {story.key for story in state.chronicle.open if story.subject == GPU.name}
    for old, new in places.renamed(keys, state.places).items():
        state.counters.rename(old, new)
        for story in state.chronicle.open:
            if (story.subject, story.key) == (GPU.name, old):
                story.key = new


def look(view: View, driver: str | None) -> Scene:
    """Return what a beat says about the GPUs: which work, which are gone, of which the driver wants nothing."""
    working: dict[str, float] = {}
    wants_nothing: dict[str, float] = {}
    windows: dict[str, float] = {}
    gone: set[str] = set()
    is_unloaded = driver == "not_loaded"  # whoever loads it again resets every GPU with that
    for entry in view.of(GPU):
        key, reading = entry.target.key, answer(entry)
        if is_unloaded or (reading is not None and reading.fault is not None and reading.fault.kind in GONE):
            gone.add(key)
        elif reading is not None and works(reading):
            working[key] = reading.at
        if entry.values.get(RECOVERY_ACTION["none"]) == 1:
            wants_nothing[key] = entry.at(RECOVERY_ACTION["none"]) or 0.0
        if entry.values.get(BAR1_SIZE):
            windows[key] = entry.at(BAR1_SIZE) or 0.0
    boot = next((entry.target.info.get("boot_id", "") for entry in view.of(HOST)), "")
    shows = view.value(counters.KERNEL, KERNEL_LOG_LOST) is not None
    return Scene(boot, working, gone, wants_nothing, windows, shows)


def told(state: State, scene: Scene, wall: float) -> tuple[list[Reading], dict[tuple[Target, Metric], Evidence]]:
    """Return what is open of each GPU and port, and the evidence of it."""
    readings: list[Reading] = []
    evidence: dict[tuple[Target, Metric], Evidence] = {}
    open_now = [story for story in state.chronicle.open if story.subject == GPU.name]
    for key in dict.fromkeys((*state.places.cards, *(story.key for story in open_now))):
        target = state.places.target(key)
        gravest = worst(story for story in open_now if story.key == key)
        fall = state.counters.falls.get(key)
        values: dict[Metric, float] = {BUS_DROPS: 0.0 if fall is None else float(fall.count)}
        for rank, metric in LEVELS:
            values[metric] = float(gravest is not None and gravest.severity.rank >= rank)
            if gravest is not None and values[metric]:
                evidence[target, metric] = of_errors(gravest)
        readings.append(derived(target, values, {}, wall))
        if gravest is not None and gravest.severity is not Severity.INFO and key not in scene.working:
            evidence |= dict.fromkeys(((target, metric) for metric in DROPPED), of_drop(gravest))
    for key, gravest in of_ports(state).items():
        target = Target(subject=PORT, key=key, labels={"port": key})
        level = -1 if gravest is None else gravest.severity.rank
        readings.append(derived(target, {metric: float(level >= rank) for rank, metric in PORT_LEVELS}, {}, wall))
        if gravest is not None:
            words = of_errors(gravest, port=key, gpus=state.places.path(key))
            evidence |= {(target, metric): words for rank, metric in PORT_LEVELS if level >= rank}
    return readings, evidence


def worst(found: Iterable[Story]) -> Story | None:
    """Return the gravest of these stories, of equals the last."""
    return max(found, key=lambda story: (story.severity.rank, story.last), default=None)


def of_ports(state: State) -> dict[str, Story | None]:
    """Return the ports of which errors are told, with the gravest story of each; None where it is over by now."""
    open_now = [story for story in state.chronicle.open if story.subject == PORT.name]
    if open_now or state.ports:
        state.ports |= {story.key: state.clock.now for story in open_now}
        state.ports = {key: at for key, at in [*state.ports.items()][-PORTS:] if state.clock.now - at < LINGER}
    return {key: worst(story for story in open_now if story.key == key) for key in state.ports}


def of_errors(story: Story, **more: str) -> Evidence:
    """Return the evidence of a story, with more words."""
    times = "once" if story.count == 1 else f"{story.count} times"
    return Evidence(
        numbers={"errors": float(sum(one.count for one in story.tallies.values()))},
        words={
            "cause": story.title,
            "code": "" if story.code is None else str(story.code),
            "count": times,
            "also": f" (also {story.also})" if story.also else "",
            "action": story.action,
            "line": story.words,
            **more,
        },
    )


def of_drop(story: Story) -> Evidence:
    """Return what a story adds to the news that a GPU is gone (`inventory` tells it)."""
    wanted = causes.RECOVERIES.get(story.recovery)
    return Evidence(words={"reported": story.title + (f" (recovery: {wanted})" if wanted else "")})


def bounded(kept: list[Event]) -> tuple[Event, ...]:
    """Return the events of one beat for the store; of a flood one for each kind and thing."""
    if len(kept) <= KEPT:
        return tuple(kept)
    found: dict[Likeness, Event] = {}
    for event in kept:
        first = found.get(like(event))
        found[like(event)] = event if first is None else together(first, event.count, event.mark)
    return tuple(found.values())[:KEPT]
