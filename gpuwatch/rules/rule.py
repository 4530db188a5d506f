"""A rule as the engine sees it: everything checked and filled in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from gpuwatch.catalogue import BY_ID
from gpuwatch.model.alert import Severity
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.target import Target
from gpuwatch.rules.judge import Look
from gpuwatch.rules.language import Condition
from gpuwatch.rules.step import Timing
from gpuwatch.rules.text import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One severity of a rule. `clears` is the same condition at the level that is judged once the alert is there."""

    severity: Severity
    when: Condition
    clears: Condition
    timing: Timing
    parameters: Mapping[str, float]  # the numbers in force, for the text
    units: Mapping[str, str] = field(default_factory=dict)  # of those that have one: seconds, bytes
    clear: Mapping[str, float] = field(default_factory=dict)  # by parameter: the level at which it is over, where it has its own
    fires: Callable[[Look], bool | None] = field(compare=False, repr=False)  # `when`, ready to run
    stays: Callable[[Look], bool | None] = field(compare=False, repr=False)  # `clears`, ready to run


class Only(msgspec.Struct, frozen=True, kw_only=True):
    """Other numbers for some targets: their model and their UUID match these globs."""

    model: str
    uuid: str
    steps: tuple[Step, ...]

    def matches(self, target: Target) -> bool:
        """Say whether these numbers are meant for this target."""
        return fnmatchcase(target.info.get("name", ""), self.model) and fnmatchcase(target.key, self.uuid)

    @property
    def width(self) -> tuple[int, ...]:
        """Order from narrow to wide: a UUID before a model, a whole name before a glob, a longer glob before a shorter."""
        return tuple(
            weight
            for pattern in (self.uuid, self.model)
            for weight in (pattern == "*", any(char in pattern for char in "*?["), -len(pattern))
        )


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One table of `alerts/*.toml` with the configuration's numbers in it; steps from the mildest to the gravest."""

    name: str
    subject: Subject
    summary: Template
    resolved: Template
    steps: tuple[Step, ...]
    summaries: Mapping[Severity, Template] = {}  # of the steps that have a text of their own
    only: tuple[Only, ...] = ()  # narrowest first
    until: Metric | None = None  # the latch: an alert ends when this metric says 1, and not before
    inhibits: tuple[str, ...] = ()
    unless: tuple[Metric, ...] = ()  # nothing begins to fire while one of these says 1

    def steps_for(self, target: Target) -> tuple[Step, ...]:
        """Return the steps with the numbers that are meant for this target; none where it is switched off."""
        if not self.only:
            return self.steps
        return next((only.steps for only in self.only if only.matches(target)), self.steps)

    @property
    def fields(self) -> frozenset[str]:
        """The names that its texts ask for."""
        texts = (self.summary, self.resolved, *self.summaries.values())
        return frozenset().union(*(text.fields for text in texts))

    def told_of(self, severity: Severity) -> Metric | None:
        """Return the first number of the target itself that the text of this severity tells, None where it tells none."""
        parts = self.summaries.get(severity, self.summary).parts
        found = (BY_ID.get((self.subject.name, name)) for _, name, _ in parts)
        return next((metric for metric in found if metric is not None), None)

    def mutes(self, other: "Rule") -> bool:
        """Say whether this rule inhibits the other: by name, by glob, or by subject (`gpu.*`); never itself."""
        return self.name != other.name and any(
            pattern == f"{other.subject.name}.*" or fnmatchcase(other.name, pattern) for pattern in self.inhibits
        )
