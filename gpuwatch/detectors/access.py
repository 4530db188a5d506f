"""Containers whose device rules lack the GPUs that they use (failure-modes.md 5.14), as seen from the host.

Each is told once when that begins and once when it ends; the number itself is the jobs source's. One look proves nothing: a
runtime may be writing the rules just now, and the name of a container may come later than its processes.
"""

from collections.abc import Mapping

import msgspec

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import GPU_PROCESSES, JOB, JOB_GPU_ACCESS_MISSING
from gpuwatch.detectors.detector import Clockwork
from gpuwatch.detectors.parts import called
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Findings
from gpuwatch.model.view import Entry, View

LOOKS = 2  # in a row that find the GPUs lacking
GONE_FOR = 60.0  # seconds without a process of it on any GPU after which it is over
LIMIT = 256  # containers that are remembered; more that are lacking at once are not told
FACTS = ("user", "name", "namespace", "container")
LISTED = GPU_PROCESSES["compute"]


class Lack(msgspec.Struct):
    """A container that lacks its GPUs: what it is called, when it was looked at last, and when it was there last."""

    name: str
    at: float  # wall clock of the look
    seen: float  # own clock
    looks: int = 1  # from LOOKS on people have heard of it
    facts: dict[str, str] = {}


class State(msgspec.Struct):
    """Those that lack their GPUs now, by the key of the job."""

    open: dict[str, Lack] = {}
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


class Access:
    """The detector."""

    name = "access"
    version = 1

    def initial(self) -> State:
        """Return that no container lacks anything."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Look at every container, and tell what has changed."""
        state.clock.tick(wall, view.mono)
        events: list[Event] = []
        for entry in view.of(JOB):
            if entry.readings:
                events += look(state, entry)
        if not any(LISTED in entry.values for entry in view.of(GPU)):  # nobody knows who is on the GPUs
            for lack in state.open.values():
                lack.seen = state.clock.now
        for key, lack in list(state.open.items()):
            if state.clock.now - lack.seen > GONE_FOR:
                del state.open[key]
                events += over(
                    key, lack, wall, "does not use GPUs any more: it had lost them, or would have when systemd reloads"
                )
        return state, Findings(events=tuple(events))


def look(state: State, entry: Entry) -> list[Event]:
    """Take in what is known of one job that is on GPUs now."""
    key, lacks = entry.target.key, entry.values.get(JOB_GPU_ACCESS_MISSING)
    lack = state.open.get(key)
    if lack is not None:
        lack.seen = state.clock.now
    if lacks is None:
        return []
    at = entry.at(JOB_GPU_ACCESS_MISSING) or 0.0
    if not lacks:
        if lack is None:
            return []
        del state.open[key]
        return over(key, lack, at, "has its GPUs in its rules again")
    if lack is None:
        if len(state.open) < LIMIT:
            state.open[key] = Lack(named(entry), at, state.clock.now, facts=facts(entry))
        return []
    if lack.looks >= LOOKS or lack.at == at:
        return []
    lack.name, lack.facts, lack.at, lack.looks = named(entry), facts(entry), at, lack.looks + 1
    return [event("access_lost", Severity.WARNING, key, lack, lost(lack.name))] if lack.looks == LOOKS else []


def over(key: str, lack: Lack, at: float, how: str) -> list[Event]:
    """Return the news that a container does not lack its GPUs any more, where people have heard that it does."""
    lack.at = at
    return [event("access_back", Severity.INFO, key, lack, f"{lack.name} {how}")] if lack.looks >= LOOKS else []


def event(kind: str, severity: Severity, key: str, lack: Lack, words: str) -> Event:
    """Return one event of a container."""
    return Event(
        source="derived", kind=kind, severity=severity, at=lack.at, words=words, subject=JOB.name, key=key, facts=lack.facts
    )


def lost(name: str) -> str:
    """Say what is wrong with a container that is called so."""
    return f"{name} has lost its GPUs, or will when systemd reloads: its device rules lack them"


def named(entry: Entry) -> str:
    """Return what a text calls the container."""
    return called(entry.target.labels, entry.target.info)


def facts(entry: Entry) -> dict[str, str]:
    """Return what is kept of it beside the words."""
    info: Mapping[str, str] = entry.target.info
    return {**entry.target.labels, **{name: info[name] for name in FACTS if info.get(name)}}
