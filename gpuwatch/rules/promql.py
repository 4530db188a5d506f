"""Rules written for Prometheus: every threshold judged anew there, over the metrics that gpuwatch exports.

Hysteresis and latches read `ALERTS`, the alert's own state. Every condition is reduced to the labels of its target, so that
an alert keeps its identity. Two differences from the daemon remain. A series without data ends a hold there as here, but it
also ends an alert (after `keep_firing_for`), which Prometheus cannot tell from a resolved one. And `increase()` extrapolates
there, so only its comparison with 0 is the same.
"""

import json
from collections.abc import Iterable

from gpuwatch.model.metric import Metric, Subject
from gpuwatch.rules.language import Absent, Age, Comparison, Condition, Either, Increase, Number, Operand, Value, metrics
from gpuwatch.rules.rule import Rule, Step

FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}
OF_THE_HOST = ("instance", "job")  # labels that Prometheus adds when it scrapes


def rule_file(rules: Iterable[Rule], every: float) -> str:
    """Return a Prometheus rule file; `every` is its evaluation interval in seconds."""
    lines = ["groups:", "  - name: gpuwatch", f"    interval: {duration(every)}", "    rules:"]
    for rule in rules:
        for step in rule.steps:
            lines += alerting_rule(rule, step, every)
    return "\n".join(lines) + "\n"


def alerting_rule(rule: Rule, step: Step, every: float) -> list[str]:
    """Return one step as an alerting rule."""
    timing = step.timing
    lines = [f"      - alert: {rule.name}", f"        expr: {json.dumps(expression(rule, step, every))}"]
    if timing.share is None and timing.hold:
        lines.append(f"        for: {duration(timing.hold)}")
    if timing.clear_for:
        lines.append(f"        keep_firing_for: {duration(timing.clear_for)}")
    return [*lines, "        labels:", f"          severity: {step.severity.value}"]


def expression(rule: Rule, step: Step, every: float) -> str:
    """Return the condition of one step with its clear level or its latch."""
    labels = by(rule.subject)
    begins, goes_on = condition(step.when, labels), condition(step.clears, labels)
    timing = step.timing
    for metric in rule.unless:
        if metric.subject is rule.subject:
            begins = f"({begins} unless on({labels}) {series(metric)} == 1)"
        else:
            begins = f"({begins} unless on({', '.join(OF_THE_HOST)}) {series(metric)} == 1)"
    if timing.share is not None:
        window = f"[{duration(timing.window - every)}:{duration(every)}]"
        truth = f"({as_number(step.when, labels)}){window}"
        seen = f"count_over_time({truth}) >= {timing.share * timing.window / every - 1e-6:g}"
        held = f"avg_over_time({truth}) >= {timing.share - 1e-9:.9f} and on({labels}) {seen}"
        begins = f"({begins} and on({labels}) {held})"
    fires = f'max by({labels}) (ALERTS{{alertname="{rule.name}", severity="{step.severity.value}", alertstate="firing"}})'
    if rule.until is not None:
        return f"{begins} or on({labels}) ({fires} unless on({labels}) {series(rule.until)} == 1)"
    if timing.share is None and goes_on == begins:
        return begins
    return f"{begins} or on({labels}) ({goes_on} and on({labels}) {fires})"


def by(subject: Subject) -> str:
    """Return the labels that tell the targets of a subject apart, on all hosts."""
    return ", ".join((*OF_THE_HOST, *subject.labels))


def condition(found: Condition, labels: str) -> str:
    """Return an expression that has an element for each target on which the condition holds."""
    if isinstance(found, Comparison):
        return f"max by({labels}) ({compared(found, labels, '')})"
    joint = f" {'or' if isinstance(found, Either) else 'and'} on({labels}) "
    return "(" + joint.join(condition(part, labels) for part in found.parts) + ")"


def as_number(found: Condition, labels: str) -> str:
    """Return an expression that is 1 where the condition holds, 0 where it does not, and has nothing where there is no data."""
    if isinstance(found, Comparison):
        return f"max by({labels}) ({compared(found, labels, 'bool ')})"
    parts = [as_number(part, labels) for part in found.parts]
    if not isinstance(found, Either):
        return "(" + f" * on({labels}) ".join(parts) + ")"
    return "(" + f" + on({labels}) ".join(parts) + " > bool 0)"


def compared(comparison: Comparison, labels: str, modifier: str) -> str:
    """Return one comparison, with the measured side on the left."""
    left, op, right = comparison.left, comparison.op, comparison.right
    if isinstance(left, Number):
        left, op, right = right, FLIPPED[op], left
    match = "" if isinstance(right, Number) else f"on({labels}) "
    return f"{operand(left, labels)} {op} {modifier}{match}{operand(right, labels)}"


def operand(found: Operand, labels: str) -> str:
    """Return one side of a comparison."""
    if isinstance(found, Number):
        return f"{found.value:.12g}"
    if isinstance(found, Value):
        return series(found.metric)
    if isinstance(found, Increase):
        return f"increase({series(found.metric)}[{duration(found.window)}])"
    if isinstance(found, Age):
        return f"(time() - {series(found.metric)})"
    if isinstance(found, Absent):
        info = f"{found.metric.subject.head}_info"
        return f"(({info} unless on({labels}) {series(found.metric)}) or on({labels}) {info} * 0)"
    raise TypeError(f"parameter {found.name} was not filled in")


def series(metric: Metric) -> str:
    """Return the selector of a metric."""
    labels = ", ".join(f'{name}="{value}"' for name, value in metric.labels)
    return f"{metric.family}{{{labels}}}" if labels else metric.family


def names(rule: Rule) -> set[str]:
    """Return the families that a rule looks at."""
    looked_at = [metric for step in rule.steps for metric in metrics(step.when)]
    return {metric.family for metric in (*looked_at, *rule.unless, *((rule.until,) if rule.until else ()))}


def duration(seconds: float) -> str:
    """Write a length of time as Prometheus does."""
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{seconds * 1000:.0f}ms"
