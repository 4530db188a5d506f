"""What has happened, as JSON: `/api/v1/events?since=&until=&limit=&gpu=`, times of the answer in seconds since 1970."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.xids import xid
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.model.card import meant
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.moment import EVER, moment
from gpuwatch.model.past import UnreadableError
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.model.view import Entry, View

PATH = "/api/v1/events"
NAMES = ("since", "until", "limit", "gpu")
MOST, USUAL = 10_000, 1_000


class Answers(Protocol):
    """Who knows what has happened; from any thread."""

    @property
    def clock(self) -> Clock:
        """The clocks."""
        ...

    def view(self) -> View:
        """Return what is known now."""
        ...

    def events(self, since: float, until: float, limit: int, keys: Collection[str] | None) -> Sequence[Event]:
        """Return the newest events of that time, the oldest of them first; raises UnreadableError."""
        ...


class Told(msgspec.Struct, frozen=True):
    """One event. `name` says what it is; `gpu` is the index that its GPU has now, "" where there is none."""

    at: float
    source: str
    kind: str
    name: str
    severity: str
    subject: str
    key: str
    gpu: str
    code: int | None
    count: int
    words: str
    facts: Mapping[str, str]


class EventsDocument(msgspec.Struct, frozen=True):
    """The events, the oldest first."""

    version: str
    events: list[Told]


def route(answers: Answers) -> Route:
    """Return the route; it reads the disk."""
    return Route(PATH, lambda request: events(answers, request), apart=True)


def events(answers: Answers, request: Request) -> Response:
    """Answer with the events that are asked for; what cannot be understood is said in words."""
    known = answers.view().of(GPU)
    indexes = {entry.target.key: entry.target.labels.get("gpu", "") for entry in known}
    try:
        since, until, limit, keys = wanted(request.query, known, answers.clock.wall())
    except ValueError as error:
        return Response.text(400, str(error))
    try:
        found = answers.events(since, until, limit, keys)
    except UnreadableError as error:
        return Response.text(503, printable(str(error), WORDS_LIMIT))
    return Response.json(EventsDocument(__version__, [told(event, indexes) for event in found]))


def wanted(query: Mapping[str, str], known: Sequence[Entry], now: float) -> tuple[float, float, int, list[str] | None]:
    """Read a question; raises ValueError in words."""
    for name in query:
        if name not in NAMES:
            raise ValueError(f"{name[:40]!r} is not known here; known are {', '.join(NAMES)}")
    since, until = span(query, now, f"{-EVER:.0f}", f"{EVER:.0f}")
    text = query.get("limit", str(USUAL))
    if not (text.isdecimal() and text.isascii() and len(text) < 9 and 1 <= int(text) <= MOST):
        raise ValueError(f"limit: expected a number from 1 to {MOST}, got {text[:40]!r}")
    return since, until, int(text), cards(query.get("gpu"), known)


def span(query: Mapping[str, str], now: float, since: str, until: str) -> tuple[float, float]:
    """Read from when on and until when, else what is said here; raises ValueError in words."""
    first, last = (when(name, query.get(name, usual), now) for name, usual in (("since", since), ("until", until)))
    if last <= first:
        raise ValueError("until: expected a time after since")
    return first, last


def when(name: str, text: str, now: float) -> float:
    """Read a time; raises ValueError in words."""
    try:
        return moment(text, now)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def cards(text: str | None, known: Sequence[Entry]) -> list[str] | None:
    """Return the keys of the GPUs that are called so: a lost one keeps its index, and another may have come to it.

    One that is gone for good has no index, but a past. Raises ValueError for what is no GPU's.
    """
    if text is None:
        return None
    found = meant(text, [entry.target for entry in known])
    if found:
        return found
    address = address_of(text)
    if address is not None:
        return [spelled(address)]
    if text.startswith("GPU-"):
        return [text]
    indexes = ", ".join(entry.target.labels.get("gpu", entry.target.key) for entry in known) or "none"
    raise ValueError(f"gpu: no GPU is called {text[:40]!r}; known are {indexes}")


def told(event: Event, indexes: Mapping[str, str]) -> Told:
    """Return an event as a document."""
    name = xid(event.code).name if event.kind == "xid" and event.code is not None else KINDS[event.kind].help.rstrip(".")
    return Told(
        at=event.at,
        source=event.source,
        kind=event.kind,
        name=name,
        severity=event.severity.value,
        subject=event.subject,
        key=event.key,
        gpu=indexes.get(event.key, "") if event.subject == GPU.name else "",
        code=event.code,
        count=event.count,
        words=event.words,
        facts=event.facts,
    )
