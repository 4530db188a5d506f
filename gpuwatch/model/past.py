"""What was: the question for some metrics of the history over a time, and the answer, which has the events of that time, too."""

from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject

# (at, value), as a row has it; None: from here to the next point nothing is known. Of a longer step (at, value, lowest, highest).
Point = tuple[float, float | None] | tuple[float, float, float, float]


class UnreadableError(Exception):
    """The history cannot be read now; the words say why, to a person."""


class NoTargetError(Exception):
    """The history has no such target; the words say which there are, to a person."""


class TooMuchError(Exception):
    """More is asked for than one answer is made of; the words name the limit, to a person."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of one subject, with since <= at < until, of the target with this key and of those that have these labels.

    The label `gpu` is a GPU's index, UUID or PCI address. A series gets `points` values at most.
    """

    metrics: tuple[Metric, ...]
    since: float
    until: float
    key: str | None = None
    labels: Mapping[str, str] = {}
    points: int = 2_500

    @property
    def subject(self) -> Subject:
        """What the metrics are of."""
        return self.metrics[0].subject

    @property
    def is_narrowed(self) -> bool:
        """Whether only some targets are asked for."""
        return self.key is not None or bool(self.labels)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one target. Each value is of the time from the point before up to `at`, by the metric's `keep`."""

    metric: Metric
    key: str
    labels: Mapping[str, str]
    points: Sequence[Point]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What was. A series that has no value in that time is not there."""

    step: float  # seconds between two points, where there is a value for each
    oldest: float | None  # when the history begins; None where there is none yet
    series: Sequence[Series]
    events: Sequence[Event]  # of the targets that are asked for, of the whole host where none is; the oldest first
    truncated: Sequence[str] = ()  # what was left out, in words
