"""What the engine remembers over a restart: alerts to bytes and back, and agreement with the open incidents.

Times are kept relative to the moment of the dump, so that the monotonic clock may start anew; the time between is left out.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpuwatch import catalogue
from gpuwatch.model.alert import AlertState, Incident, Severity, Transition
from gpuwatch.model.metric import Subject
from gpuwatch.model.target import Target
from gpuwatch.rules.alert import CALM, Alert, shifted
from gpuwatch.rules.judge import Growth
from gpuwatch.rules.language import Increase
from gpuwatch.rules.rule import Rule
from gpuwatch.rules.step import State

VERSION = 1
log = logging.getLogger(__name__)


class Counted(msgspec.Struct, array_like=True):
    """What one counter grew by."""

    metric: str
    window: float
    last: float | None
    steps: list[tuple[float, float]]


class Kept(msgspec.Struct, array_like=True):
    """One alert."""

    rule: str
    subject: str
    key: str
    labels: dict[str, str]
    info: dict[str, str]
    states: dict[Severity, State]
    growth: list[Counted]
    since: float
    summary: str


class Dump(msgspec.Struct, array_like=True):
    """All of it."""

    version: int
    wall: float
    alerts: list[Kept]


def pack(alerts: Iterable[Alert], mono: float, wall: float) -> bytes:
    """Write the alerts that are not simply inactive."""
    kept = []
    for alert in alerts:
        back = -(mono if alert.resumed is None else alert.resumed)
        states = {
            step.severity: shifted(state, back)
            for step, state in zip(alert.steps, alert.states, strict=True)
            if state.phase is not AlertState.INACTIVE
        }
        growth = [
            Counted(operand.metric.id, operand.window, growth.last, [(at + back, by) for at, by in growth.steps])
            for operand, growth in alert.growth.items()
        ]
        if states or growth:
            target = alert.target
            kept.append(
                Kept(
                    rule=alert.rule.name,
                    subject=target.subject.name,
                    key=target.key,
                    labels=dict(target.labels),
                    info=dict(target.info),
                    states=states,
                    growth=growth,
                    since=alert.since,
                    summary=alert.summary,
                )
            )
    return msgspec.msgpack.encode(Dump(VERSION, wall, kept))


def unpack(blob: bytes, rules: Mapping[str, Rule], mono: float, wall: float) -> Iterator[Alert]:
    """Read them back; what does not fit today's rules is left out, and what cannot be read at all is said in the log."""
    try:
        dump = msgspec.msgpack.decode(blob, type=Dump)
    except (msgspec.MsgspecError, RecursionError) as error:
        log.warning("the states of the rules cannot be read back and begin afresh: %s", error)
        return
    if dump.version != VERSION:
        log.warning("the states of the rules are of version %d, not %d, and begin afresh", dump.version, VERSION)
        return
    down = max(0.0, wall - dump.wall)
    for kept in dump.alerts:
        rule, subject = rules.get(kept.rule), catalogue.SUBJECTS.get(kept.subject)
        if rule is None or subject is not rule.subject:
            continue
        alert = Alert(rule, Target(subject=subject, key=kept.key, labels=kept.labels, info=kept.info))
        alert.aim(alert.target)
        alert.since, alert.summary, alert.resumed = kept.since, kept.summary, mono
        for index, step in enumerate(alert.steps):
            state = kept.states.get(step.severity, CALM)
            if state.active or down <= max(step.timing.hold, step.timing.window):  # a longer gap ends a hold
                alert.states[index] = shifted(state, mono)
        for counted in kept.growth:
            metric = catalogue.BY_ID.get((subject.name, counted.metric))
            if metric is not None:
                growth = alert.growth[Increase(metric, counted.window)] = Growth(counted.last)
                growth.steps.extend((at + mono, by) for at, by in counted.steps)
        yield alert


def target_of(incident: Incident) -> Target:
    """Return the target that an incident is about; its subject may be one that only a newer gpuwatch knows."""
    subject = catalogue.SUBJECTS.get(incident.subject) or Subject(incident.subject)
    labels = {label: incident.labels[label] for label in subject.labels if label in incident.labels}
    return Target(subject=subject, key=incident.key, labels=labels, info=incident.info)


def fire(alert: Alert, severity: Severity, mono: float) -> None:
    """Put an alert into the state that its incident says it is in."""
    for index, step in enumerate(alert.steps):
        if step.severity is severity:
            alert.states[index] = State(phase=AlertState.FIRING, since=mono, at=mono)
    if alert.severity is None:  # the step is gone from the rule: the gravest that is left takes its place
        alert.states[-1] = State(phase=AlertState.FIRING, since=mono, at=mono)
    alert.resumed = mono


def switched_off(incident: Incident, target: Target, wall: float) -> Transition:
    """Return the end of an incident whose rule is no more."""
    return Transition(
        rule=incident.rule,
        target=target,
        before=incident.state,
        after=AlertState.INACTIVE,
        severity=incident.severity,
        at=wall,
        since=incident.since,
        value=None,
        summary=f"{incident.rule} is switched off",
        words={"because": "the rule is switched off"},
    )
