"""What is asked for and who answers: the routes of the daemon."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.export import events, history, release, silences
from gpuwatch.export.asked import plain
from gpuwatch.export.families import legible
from gpuwatch.export.landing import landing
from gpuwatch.export.message import JSON, Request, Response, Route, wants_gzip, wants_openmetrics
from gpuwatch.export.page import OPENMETRICS, TEXT, Page
from gpuwatch.model.alert import Incident, Open
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.naming import Naming
from gpuwatch.model.view import Entry, View

VARY = ("Vary", "Accept, Accept-Encoding")


class Silences(silences.Silences, Protocol):
    """What is silenced."""

    def silencing(self, incident: Incident, wall: float) -> Sequence[str]:
        """Return the ids of the silences that keep this incident from being told."""
        ...


class Answers(events.Answers, history.Answers, Protocol):
    """What the daemon knows; every method may be called from any thread."""

    @property
    def page(self) -> Page:
        """The present beat, as Prometheus' page and as JSON."""
        ...

    @property
    def silences(self) -> Silences:
        """The silences of this host."""
        ...

    @property
    def releasing(self) -> release.Releasing:
        """Whether the GPUs are released."""
        ...

    @property
    def clock(self) -> Clock:
        """The clocks."""
        ...

    @property
    def naming(self) -> Naming:
        """What alerts of this host can be called by."""
        ...

    @property
    def host(self) -> str:
        """What this host is called."""
        ...

    @property
    def nobody(self) -> bool:
        """No receiver is configured: nobody will be told."""
        ...

    def ready(self) -> list[str]:
        """Say what is in the way of telling anything fresh, one reason an item; empty when nothing is."""
        ...

    def troubles(self) -> list[str]:
        """Say what is wrong with single things while the rest is told, one thing an item."""
        ...

    def alerts(self) -> Sequence[Open]:
        """Return the open incidents as they stand."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the state of the daemon as plain data."""
        ...


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a whole target."""

    kind: str
    words: str
    code: int | None


class Known(msgspec.Struct, frozen=True):
    """One target as JSON. Numbers by metric id; `at` is the time of the newest reading by source."""

    subject: str
    key: str
    labels: dict[str, str]
    info: dict[str, str]
    values: dict[str, float]
    absent: dict[str, str]
    fault: Fault | None
    at: dict[str, float]


class ViewDocument(msgspec.Struct, frozen=True):
    """The whole view as JSON."""

    version: str
    now: float
    targets: list[Known]


class AlertsDocument(msgspec.Struct, frozen=True):
    """The open incidents as JSON, each with the ids of the silences that keep it from being told (`silenced_by`).

    `now` is the number that its text tells as it is now, with metric and unit, null where there is none.
    """

    version: str
    alerts: list[dict[str, Any]]


def routes(answers: Answers) -> tuple[Route, ...]:
    """Return every route of the daemon."""
    return (
        Route("/metrics", lambda request: metrics(answers.page, request)),
        Route("/-/healthy", lambda _: Response.text(200, "healthy")),
        Route("/-/ready", lambda _: ready(answers.ready(), answers.troubles())),
        Route("/api/v1/view", plain(lambda: Response(200, answers.page.json(encoded), JSON))),
        Route("/api/v1/alerts", plain(lambda: Response.json(alerts(answers))), slow=True),
        Route("/api/v1/status", plain(lambda: Response.json(answers.status())), slow=True),
        events.route(answers),
        history.route(answers),
        *silences.routes(answers.silences, answers.clock, answers.naming, answers.host, answers.view),
        *release.routes(answers.releasing),
        Route("/", lambda _: landing(answers.host, nobody=answers.nobody)),
    )


def metrics(page: Page, request: Request) -> Response:
    """Answer a scrape in the format and coding that the client likes best."""
    openmetrics = wants_openmetrics(request.headers.get("accept", ""))
    gzip = wants_gzip(request.headers.get("accept-encoding", ""))
    coding = (("Content-Encoding", "gzip"),) if gzip else ()
    body = page.get(openmetrics=openmetrics, gzip=gzip)
    return Response(200, body, OPENMETRICS if openmetrics else TEXT, (VARY, *coding))


def ready(reasons: Sequence[str], troubles: Sequence[str]) -> Response:
    """Answer 200, or 503 with one reason a line; then what is wrong with single things, one GPU or disk a line."""
    lines = dict.fromkeys([*(reasons or ["ready"]), *troubles])  # a driver that is down is a reason and a trouble
    return Response.text(503 if reasons else 200, "\n".join(printable(line, 400) for line in lines))


def alerts(answers: Answers) -> AlertsDocument:
    """Return the open incidents as a document."""
    wall = answers.clock.wall()
    return AlertsDocument(
        __version__,
        [
            {
                **msgspec.to_builtins(one.incident),
                "now": msgspec.to_builtins(one.now),
                "silenced_by": list(answers.silences.silencing(one.incident, wall)),
            }
            for one in answers.alerts()
        ],
    )


def encoded(view: View) -> bytes:
    """Return the view as JSON."""
    return Response.json(document(view)).body


def document(view: View) -> ViewDocument:
    """Return the view as a document; what is not a number, and what only detectors use, stays out."""
    return ViewDocument(__version__, view.now, [known(entry) for entry in view.entries.values()])


def known(entry: Entry) -> Known:
    """Return one target as a document."""
    at: dict[str, float] = {}
    for reading in entry.readings:
        at[reading.source] = max(reading.at, at.get(reading.source, 0.0))
    fault = entry.fault
    return Known(
        subject=entry.target.subject.name,
        key=legible(entry.target.key),
        labels=texts(entry.target.labels),
        info=texts(entry.target.info),
        values={metric.id: value for metric, value in entry.values.items() if not metric.internal and math.isfinite(value)},
        absent={metric.id: why.value for metric, why in entry.absent.items() if not metric.internal},
        fault=Fault(fault.kind, legible(fault.words), fault.code) if fault else None,
        at=at,
    )


def texts(found: Mapping[str, str]) -> dict[str, str]:
    """Return text facts that JSON can carry."""
    return {name: legible(value) for name, value in found.items()}
