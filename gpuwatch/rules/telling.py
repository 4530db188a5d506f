"""What one change is told as: the Transition with its numbers, its words and its text."""

from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.model.alert import AlertState, Severity, Transition
from gpuwatch.model.finding import Evidence
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.rules.alert import Alert
from gpuwatch.rules.judge import Look, witness
from gpuwatch.rules.language import metrics
from gpuwatch.rules.text import lasted, where

ENDED = "because"  # the word that says why an alert ended without its condition having cleared

EvidenceOf = Mapping[tuple[Target, Metric], Evidence]


class Beat(NamedTuple):
    """One beat of the engine: what is known, when, and what the detectors found."""

    view: View
    mono: float
    evidence: EvidenceOf


def told(alert: Alert, before: AlertState, severity: Severity, beat: Beat, look: Look, *, because: str = "") -> Transition:
    """Return the transition into the alert's present phase, and keep its text for the time when there is no data."""
    rule, after, wall = alert.rule, alert.phase, beat.view.now
    numbers, words = facts(alert, severity, look, beat.evidence)
    alert.words = dict(words)
    words["where"] = where(alert.target)
    if because:
        words[ENDED] = because
    if after is AlertState.INACTIVE:
        words["lasted"] = lasted(wall - alert.since)
        summary = rule.resolved.fill(numbers, words) + (f" ({because})" if because else "")
    elif after is AlertState.STALE and alert.summary:
        summary = alert.summary
    else:
        summary = alert.summary = rule.summaries.get(severity, rule.summary).fill(numbers, words)
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


def facts(alert: Alert, severity: Severity, look: Look, evidence: EvidenceOf) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers and words that a text may name; what has no data is left out."""
    step = next((step for step in alert.steps if step.severity is severity), alert.steps[0])
    numbers = {metric.id: value for metric, value in look.values.items() if metric.id in alert.rule.fields}
    numbers |= step.parameters
    words: dict[str, str] = {}
    for name, number in zip(("value", "threshold"), witness(step.when, look), strict=True):
        if number is not None:
            numbers[name] = number
    for metric in metrics(step.when):
        found = evidence.get((alert.target, metric))
        if found is not None:
            numbers |= found.numbers
            words |= found.words
    return numbers, words
