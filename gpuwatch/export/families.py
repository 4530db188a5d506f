"""View -> the two texts that Prometheus reads: text format 0.0.4 and OpenMetrics 1.0.

A line is a head (family and labels, escaped) and a number. Heads are made once a target and metric and kept until the
target's labels or info change, so that a beat only formats numbers. Both texts have the same lines; only the comments differ.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from gpuwatch import catalogue
from gpuwatch.model.metric import Kind, Metric, Subject
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

log = logging.getLogger(__name__)


class Family(msgspec.Struct, frozen=True, eq=False):
    """One family and who gives its lines: metrics in their declared order, or a subject for its `_info` family."""

    name: str  # as its lines say it: counters end in _total
    kind: Kind
    unit: str
    help: str
    members: tuple[Metric | Subject, ...]

    def comments(self, *, openmetrics: bool) -> str:
        """Return the lines above the family's samples. OpenMetrics names a counter without `_total` and states units."""
        name = self.name.removesuffix("_total") if openmetrics and self.kind is Kind.COUNTER else self.name
        words = self.help.replace("\\", r"\\").replace("\n", r"\n")
        if openmetrics:
            words = words.replace('"', r"\"")
        unit = f"# UNIT {name} {self.unit}\n" if openmetrics and self.unit else ""
        return f"# HELP {name} {words}\n# TYPE {name} {self.kind.value}\n{unit}"


def families() -> tuple[Family, ...]:
    """Return every exported family: what things are first, then the numbers in the order of the catalogue."""
    facts = [
        Family(f"{subject.head}_info", Kind.GAUGE, "", subject.help, (subject,))
        for subject in catalogue.SUBJECTS.values()
        if subject.info
    ]
    grouped: dict[str, list[Metric]] = {}
    for metric in catalogue.METRICS:
        if not metric.internal:
            grouped.setdefault(metric.family, []).append(metric)
    numbers = [Family(name, group[0].kind, group[0].unit, group[0].help, tuple(group)) for name, group in grouped.items()]
    return (*facts, *numbers)


FAMILIES = families()


class Heads(msgspec.Struct):
    """The line heads of one target, for the labels and info it had when they were made."""

    labels: Mapping[str, str]
    info: Mapping[str, str]
    text: str  # the labels as written: two targets of a subject that have it equal would repeat a series
    fact: str  # the whole line of the `_info` family, "" where there is none
    lines: dict[Metric, str] = {}


class Samples(msgspec.Struct, frozen=True):
    """The lines of one beat, by family; families without a line are left out."""

    lines: tuple[tuple[Family, str], ...]

    def text(self, *, openmetrics: bool) -> str:
        """Return the families with their comments, without OpenMetrics' end mark."""
        comments = COMMENTS[openmetrics]
        return "".join([part for family, lines in self.lines for part in (comments[family], lines)])


COMMENTS = {flag: {family: family.comments(openmetrics=flag) for family in FAMILIES} for flag in (False, True)}


class Renderer:
    """Makes the lines of a beat, and remembers line heads from beat to beat. Used by one thread at a time."""

    def __init__(self, hidden: Collection[Subject | Metric] = ()) -> None:
        self._hidden = frozenset(hidden)  # what is not on the page
        self._shown = [member for family in FAMILIES for member in family.members if member not in self._hidden]
        self._heads: dict[Target, Heads] = {}
        self._clashing: set[tuple[Subject, str]] = set()
        self.lost = 0  # samples left out because an earlier target has the same labels

    def render(self, view: View) -> Samples:
        """Return the samples of `view`. Where two targets would repeat a series, the first that has the value wins."""
        lines: dict[Metric | Subject, list[str]] = {member: [] for member in self._shown}
        taken: dict[tuple[Subject, str], AbstractSet[Metric]] = {}
        clashing: set[tuple[Subject, str]] = set()
        for entry in view.entries.values():
            if entry.target.subject in self._hidden:
                continue
            heads = self._of(entry.target)
            identity = (entry.target.subject, heads.text)
            values = entry.values
            if identity in taken:
                values = {metric: value for metric, value in values.items() if metric not in taken[identity]}
                if len(values) < len(entry.values):
                    clashing.add(identity)
                    self.lost += len(entry.values) - len(values)
                taken[identity] = taken[identity] | values.keys()
            else:
                taken[identity] = values.keys()
            self._write(entry, heads, values, lines)
        self._tell(clashing)
        if len(self._heads) > len(view.entries):
            self._heads = {target: heads for target, heads in self._heads.items() if target in view.entries}
        return Samples(
            tuple(
                (family, "".join(found))
                for family in FAMILIES
                if (found := [line for member in family.members for line in lines.get(member, ())])
            )
        )

    def _write(
        self, entry: Entry, heads: Heads, values: Mapping[Metric, float], lines: Mapping[Metric | Subject, list[str]]
    ) -> None:
        """Add the lines of one target. What it is goes on the page only while something of it is known to be so now."""
        if heads.fact and entry.readings:
            facts = lines[entry.target.subject]
            if heads.fact not in facts:
                facts.append(heads.fact)
        ready = heads.lines
        for metric, value in values.items():
            mine = lines.get(metric)  # None for what is internal or hidden
            if mine is None or not (text := number(value)):
                continue
            head = ready.get(metric)
            if head is None:
                head = ready[metric] = f"{metric.family}{label_text({**heads.labels, **dict(metric.labels)})} "
            mine.append(f"{head}{text}\n")

    def _of(self, target: Target) -> Heads:
        """Return the heads of a target, made anew when its labels or info have changed."""
        heads = self._heads.get(target)
        if heads is None or heads.labels != target.labels or heads.info != target.info:
            text = label_text(target.labels)
            heads = self._heads[target] = Heads(target.labels, target.info, text, fact(target))
        return heads

    def _tell(self, clashing: set[tuple[Subject, str]]) -> None:
        """Log once when two targets come to share their labels, and once when they no longer do."""
        for subject, labels in clashing - self._clashing:
            log.warning("two targets of %s have the same labels %s: the second is left off the page", subject.name, labels)
        for subject, labels in self._clashing - clashing:
            log.info("the targets of %s no longer share the labels %s", subject.name, labels)
        self._clashing = clashing


def fact(target: Target) -> str:
    """Return the line of the target's `_info` family, "" where the subject has none or nothing of it is known."""
    known = {name: target.info[name] for name in target.subject.info if target.info.get(name) and name not in target.labels}
    return f"{target.subject.head}_info{label_text({**target.labels, **known})} 1\n" if known else ""


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels as both formats write them, "" for none. The order is that of the mapping."""
    return "{" + ",".join(pairs(labels.items())) + "}" if labels else ""


def pairs(items: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Yield `name="value"`, escaped."""
    for name, value in items:
        escaped = legible(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        yield f'{name}="{escaped}"'


def legible(text: str) -> str:
    """Return text that the formats can carry: neither lone surrogates (a path that is not UTF-8 has them) nor NUL."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def number(value: float) -> str:
    """Return a number that parses back to exactly this value; "" for NaN, which would be a made-up value."""
    text = repr(value + 0.0)  # + 0.0: an int or bool from a source becomes a float, and -0.0 becomes 0
    if text.endswith(".0"):
        return text[:-2]
    if text.endswith(("f", "n")):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(text, "")
    return text
