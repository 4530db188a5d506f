"""What was, as JSON: `/api/v1/history?metric=&since=&until=&target=&gpu=...`, values and events on one axis of time.

Every label of a target, and of a family's members, may be asked for by its name. Times of the answer are seconds since 1970.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.catalogue import SUBJECTS
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.named import UnknownMetricError, named
from gpuwatch.export.events import Told, span, told
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.metric import Metric
from gpuwatch.model.past import NoTargetError, Past, Question, Series, TooMuchError, UnreadableError
from gpuwatch.model.view import View

PATH = "/api/v1/history"
NAMES = ("metric", "target", "since", "until", "limit")
LEAST, MOST, USUAL = 10, 10_000, 2_500  # values of a series; the usual number is seven hours of rows as they are
SINCE = "6h"
LABELS = frozenset(label for subject in SUBJECTS.values() for label in subject.labels)  # an alert has those of its target, too
WORDS = 2_000  # characters of a refusal: it may name what there is


class Answers(Protocol):
    """Who knows what was; from any thread."""

    @property
    def clock(self) -> Clock:
        """The clocks."""
        ...

    def view(self) -> View:
        """Return what is known now."""
        ...

    def history(self, question: Question) -> Past:
        """Return what was; raises NoTargetError, TooMuchError and UnreadableError."""
        ...


class Line(msgspec.Struct, frozen=True):
    """One metric of one target. `metric` is its id; `members` are the labels that the family gives it beside the target's.

    Each value is of the time up to it, by `keep`. No point: not read then; null: nothing is known until the next point.
    """

    subject: str
    key: str
    labels: Mapping[str, str]
    metric: str
    family: str
    members: Mapping[str, str]
    unit: str
    kind: str
    keep: str
    points: Sequence[tuple[float | None, ...]]  # of model.past.Point; msgspec knows no union of tuples


class HistoryDocument(msgspec.Struct, frozen=True):
    """The series, and the events of the same targets. `truncated` says in words what was left out.

    `step`: seconds from one point to the next. Rows are of 10 s and have [at, value]; of a longer step it is
    [at, value, lowest, highest]. `oldest`: when the history begins, null where there is none yet.
    """

    version: str
    since: float
    until: float
    step: float
    oldest: float | None
    series: list[Line]
    events: list[Told]
    truncated: Sequence[str]


def route(answers: Answers) -> Route:
    """Return the route; it reads the disk."""
    return Route(PATH, lambda request: history(answers, request), apart=True)


def history(answers: Answers, request: Request) -> Response:
    """Answer with what is asked for; what cannot be had is said in words."""
    try:
        question = wanted(request.query, answers.clock.wall())
    except (ValueError, UnknownMetricError) as error:
        return refusal(400, error)
    try:
        past = answers.history(question)
    except TooMuchError as error:
        return refusal(400, error)
    except NoTargetError as error:
        return refusal(404, error)
    except UnreadableError as error:
        return refusal(503, error)
    indexes = {entry.target.key: entry.target.labels.get("gpu", "") for entry in answers.view().of(GPU)}
    document = HistoryDocument(
        version=__version__,
        since=question.since,
        until=question.until,
        step=past.step,
        oldest=past.oldest,
        series=[line(series) for series in past.series],
        events=[told(event, indexes) for event in past.events],
        truncated=past.truncated,
    )
    return Response.json(document)


def refusal(status: int, error: Exception) -> Response:
    """Say in words why there is no answer."""
    return Response.text(status, printable(str(error), WORDS))


def wanted(query: Mapping[str, str], now: float) -> Question:
    """Read a question; raises ValueError and UnknownMetricError in words."""
    if not query.get("metric"):
        raise ValueError("metric: expected the id or the family of a metric; `gpuwatch metrics` lists all")
    metrics = named(query["metric"])
    labels = {name: value for name, value in query.items() if name not in NAMES}
    members = {name for metric in metrics for name, _ in metric.labels if name not in NAMES}
    for name in labels:
        if name not in members and name not in LABELS:
            labelled = ", ".join([*metrics[0].subject.labels, *sorted(members)]) or "none"
            words = f"the labels of {query['metric'][:100]} are {labelled}; beside them there are {', '.join(NAMES)}"
            raise ValueError(f"{name[:40]!r} is not known here: {words}")
    since, until = span(query, now, SINCE, "0s")
    return Question(
        metrics=chosen(metrics, {name: value for name, value in labels.items() if name in members}),
        since=since,
        until=until,
        key=query.get("target"),
        labels={name: value for name, value in labels.items() if name not in members},
        points=limit(query.get("limit", str(USUAL))),
    )


def limit(text: str) -> int:
    """Read how many values a series may have; raises ValueError in words."""
    if not (text.isdecimal() and text.isascii() and len(text) < 9 and LEAST <= int(text) <= MOST):
        raise ValueError(f"limit: expected a number from {LEAST} to {MOST}, got {text[:40]!r}")
    return int(text)


def chosen(metrics: Sequence[Metric], labels: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return the members of a family that have these labels; raises ValueError where none has."""
    found = tuple(metric for metric in metrics if labels.items() <= dict(metric.labels).items())
    if not found:
        there = "; ".join(", ".join(map("=".join, metric.labels)) for metric in metrics)
        raise ValueError(f"no member has {', '.join(map('='.join, labels.items()))[:100]}; there are {there}")
    return found


def line(series: Series) -> Line:
    """Return one series as a document."""
    metric = series.metric
    return Line(
        subject=metric.subject.name,
        key=series.key,
        labels=series.labels,
        metric=metric.id,
        family=metric.family,
        members=dict(metric.labels),
        unit=metric.unit,
        kind=metric.kind.value,
        keep=metric.keep.value,
        points=series.points,
    )
