"""What a number means: Subject, Metric, and the families that enumerate their members."""

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import product

import msgspec

PREFIX = "gpuwatch"


class Kind(str, Enum):
    """How a number behaves over time, in Prometheus' words."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Keep(str, Enum):
    """What a history row keeps of the readings within its period."""

    MEAN = "mean"
    MAX = "max"
    LAST = "last"


class Subject(msgspec.Struct, frozen=True, eq=False):
    """A kind of thing that has numbers: its label names, the head of its families, and its text facts.

    `info` names the text facts (`Target.info`) that become the labels of `<prefix>_info`; empty means no such family.
    Targets of a `brief` subject come and go all day: the board forgets one as soon as nothing of it counts any more.
    """

    name: str
    labels: tuple[str, ...] = ()
    prefix: str = ""
    info: tuple[str, ...] = ()
    help: str = ""
    brief: bool = False

    @property
    def head(self) -> str:
        """The start of every family name of this subject."""
        return self.prefix or f"{PREFIX}_{self.name}"

    def __repr__(self) -> str:
        return f"Subject({self.name})"


class Metric(msgspec.Struct, frozen=True, eq=False):
    """One number of a subject: a family plus fixed labels. Compared by identity: declared once, in the catalogue.

    `id` is unique within the subject and is what rules, wire, history and JSON use; `family` and `labels` are what
    Prometheus sees. `internal` metrics feed detectors and are neither exported nor stored.
    """

    subject: Subject
    id: str
    family: str
    unit: str
    kind: Kind
    keep: Keep
    help: str
    labels: tuple[tuple[str, str], ...] = ()
    short: str = ""
    internal: bool = False

    def __repr__(self) -> str:
        return f"Metric({self.subject.name}.{self.id})"


class Members(Mapping[str, Metric]):
    """All members of an enumeration, by label value (several labels: joined with `_`, as in the id)."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Metric]) -> None:
        self._members = dict(members)

    def __getitem__(self, value: str) -> Metric:
        return self._members[value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class StateSet(Members):
    """One Metric per state, 1 for the state that holds and 0 for the others."""

    __slots__ = ()

    def at(self, *states: str) -> dict[Metric, float]:
        """Return the values of all states, with `states` at 1 (mostly one; several where states can hold together).

        Raises KeyError for a state that was not declared.
        """
        for state in states:
            self[state]
        return {metric: float(value in states) for value, metric in self.items()}


def declare(
    subject: Subject,
    name: str,
    unit: str = "",
    *,
    kind: Kind,
    help: str,  # noqa: A002 - Prometheus' word for it
    keep: Keep | None = None,
    short: str = "",
    internal: bool = False,
    labels: tuple[tuple[str, str], ...] = (),
) -> Metric:
    """Build one Metric; ids and families follow from subject, name, unit and labels."""
    stem = "_".join(part for part in (name, unit, "total" if kind is Kind.COUNTER else "") if part)
    return Metric(
        subject=subject,
        id="_".join((stem, *(value for _, value in labels))),
        family=f"{subject.head}_{stem}",
        unit=unit,
        kind=kind,
        keep=keep or (Keep.LAST if kind is Kind.COUNTER else Keep.MEAN),
        help=help,
        labels=labels,
        short=short,
        internal=internal,
    )


def gauge(
    subject: Subject,
    name: str,
    unit: str = "",
    *,
    help: str,  # noqa: A002 - Prometheus' word for it
    keep: Keep | None = None,
    short: str = "",
    internal: bool = False,
    **labels: str,
) -> Metric:
    """Declare a gauge; `keep` is MEAN unless said."""
    return declare(
        subject, name, unit, kind=Kind.GAUGE, help=help, keep=keep, short=short, internal=internal, labels=tuple(labels.items())
    )


def counter(
    subject: Subject,
    name: str,
    unit: str = "",
    *,
    help: str,  # noqa: A002 - Prometheus' word for it
    short: str = "",
    internal: bool = False,
    **labels: str,
) -> Metric:
    """Declare a counter (`_total` is added); history keeps the last value."""
    return declare(
        subject, name, unit, kind=Kind.COUNTER, help=help, short=short, internal=internal, labels=tuple(labels.items())
    )


def members(
    subject: Subject,
    name: str,
    unit: str = "",
    *,
    kind: Kind = Kind.GAUGE,
    help: str,  # noqa: A002 - Prometheus' word for it
    keep: Keep | None = None,
    short: str = "",
    **labels: tuple[str, ...],
) -> Members:
    """Declare every member of an enumeration: the product of the given label values."""
    return Members(
        {
            "_".join(values): declare(
                subject, name, unit, kind=kind, help=help, keep=keep, short=short, labels=tuple(zip(labels, values, strict=True))
            )
            for values in product(*labels.values())
        }
    )


def states(
    subject: Subject,
    name: str,
    label: str,
    values: tuple[str, ...],
    *,
    help: str,  # noqa: A002 - Prometheus' word for it
) -> StateSet:
    """Declare a state set: one 0/1 gauge a state, the last one kept in history."""
    return StateSet(
        {value: declare(subject, name, kind=Kind.GAUGE, help=help, keep=Keep.LAST, labels=((label, value),)) for value in values}
    )
