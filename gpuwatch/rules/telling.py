"""What one change is told as: the Transition with its numbers, its words and its text."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch import catalogue
from gpuwatch.model.alert import AlertState, Incident, Severity, Transition
from gpuwatch.model.finding import Evidence
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.rules.alert import Alert, Facts
from gpuwatch.rules.judge import Look, amount, witness
from gpuwatch.rules.language import Comparison, Number, Value, metrics
from gpuwatch.rules.rule import Step
from gpuwatch.rules.text import RESOLVED, lasted, template, where

ENDED = "because"  # the word that says why an alert ended without its condition having cleared
OVER = template(RESOLVED, ("where", "lasted"))  # such an end, since a rule's own words say that its condition has cleared
OURS = ("where", "lasted", ENDED)  # words that are made anew each time
SIDES = ("value", "threshold")
SILENT = (AlertState.INACTIVE, AlertState.PENDING)

EvidenceOf = Mapping[tuple[Target, Metric], Evidence]


class Beat(NamedTuple):
    """One beat of the engine: what is known, when, and what the detectors found."""

    view: View
    mono: float
    evidence: EvidenceOf


def told(alert: Alert, before: AlertState, severity: Severity, beat: Beat, look: Look, *, because: str = "") -> Transition:
    """Return the transition into the alert's present phase, and keep its text for the time when there is no data."""
    rule, after, wall = alert.rule, alert.phase, beat.view.now
    if before in SILENT:
        alert.facts = Facts()
    elif after is AlertState.INACTIVE:  # how it was measured in its time says nothing of how it is now
        alert.facts = replace(alert.facts, measured={}, sides={})
    known = alert.facts = facts(alert, severity, look, beat.evidence)
    parameters = step_of(alert, severity).parameters
    numbers = {**known.measured, **parameters, **known.sides, **known.numbers}
    named = {**numbers, **{name: parameters[name] for name in SIDES if name in parameters}}  # a text means what its step calls so
    words = {**known.otherwise, **known.words, "where": where(alert.target)}
    if because:
        words[ENDED] = because
    if after is AlertState.INACTIVE:
        words["lasted"] = lasted(wall - alert.since)
        summary = OVER.fill(named, words) + f" ({because})" if because else rule.resolved.fill(named, words)
    elif after is AlertState.STALE and alert.summary:
        summary = alert.summary
    else:
        summary = alert.summary = rule.summaries.get(severity, rule.summary).fill(named, words)
    return Transition(
        rule=rule.name,
        target=alert.target,
        before=before,
        after=after,
        severity=severity,
        at=wall,
        since=alert.since,
        value=numbers.get("value"),
        summary=summary,
        numbers=numbers,
        words=words,
    )


def facts(alert: Alert, severity: Severity, look: Look, evidence: EvidenceOf) -> Facts:
    """Return what is known now, with what was known before of all that nobody tells now.

    A word that a detector leaves empty is what it says: of another story than before there may be no more to tell. What is
    measured while only the clear level holds is not what an alert was raised for, and its text would not be true of it.
    """
    known, step = alert.facts, step_of(alert, severity)
    when = step.when
    comparison = witness(when, look)
    sides = {} if comparison is None else sides_of(comparison, look)
    shown = alert.rule.fields if comparison is None else alert.rule.fields | compared(comparison)
    measured = {metric.id: value for metric, value in look.values.items() if metric.id in shown}
    if (known.measured or known.sides) and step.fires(look) is not True:
        measured, sides = {}, {}
    numbers, words, otherwise = dict(known.numbers), dict(known.words), dict(known.otherwise)
    for metric in metrics(when):
        found = evidence.get((alert.target, metric))
        if found is not None:
            numbers |= found.numbers
            words |= found.words
            otherwise |= found.otherwise
    return Facts({**known.measured, **measured}, sides or known.sides, numbers, words, otherwise)


def sides_of(comparison: Comparison, look: Look) -> dict[str, float]:
    """Return the two sides of a comparison by their names: the value is what was measured, on whichever side a rule has it."""
    sides = (comparison.left, comparison.right)
    if isinstance(comparison.left, Number):
        sides = (comparison.right, comparison.left)
    numbers = ((name, amount(side, look)) for name, side in zip(SIDES, sides, strict=True))
    return {name: number for name, number in numbers if number is not None}


def compared(comparison: Comparison) -> frozenset[str]:
    """Return the ids of two metrics that are compared with each other, so that each is told by its own name, too."""
    left, right = comparison.left, comparison.right
    return frozenset({left.metric.id, right.metric.id}) if isinstance(left, Value) and isinstance(right, Value) else frozenset()


def recalled(alert: Alert, incident: Incident) -> Facts:
    """Return what is known of an alert with what was told in its incident, of which more may be known by now."""
    known, told_of = alert.facts, incident.numbers
    parameters = {name for step in alert.steps for name in step.parameters}
    mine = {metric.id for metric in catalogue.of(alert.target.subject)}
    return Facts(
        {name: number for name, number in told_of.items() if name in mine} | dict(known.measured),
        known.sides or {name: told_of[name] for name in SIDES if name in told_of},
        {name: number for name, number in told_of.items() if name not in mine | parameters and name not in SIDES}
        | dict(known.numbers),
        {name: word for name, word in incident.words.items() if name not in OURS} | dict(known.words),
        known.otherwise,
    )


def step_of(alert: Alert, severity: Severity) -> Step:
    """Return the step of a severity, the mildest where the rule has none of it any more."""
    return next((step for step in alert.steps if step.severity is severity), alert.steps[0])
