"""Every rule on every target, once a beat: View -> Transitions. One thread owns an engine.

Rules run over the targets of their subject that the view shows; a target that vanished keeps its alert, which turns stale.
A target whose reading carries the fault `retired` (a replaced GPU) has no alerts any more.
"""

from collections.abc import Iterable

from gpuwatch.catalogue import own
from gpuwatch.model.alert import AlertState, Incident, Severity, Transition
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules import memory
from gpuwatch.rules.alert import CALM, Alert
from gpuwatch.rules.judge import Growth, Look, holds
from gpuwatch.rules.language import Increase, comparisons
from gpuwatch.rules.rule import Rule
from gpuwatch.rules.step import step
from gpuwatch.rules.telling import Beat, EvidenceOf, told

RESUME = 60.0  # seconds after a restart in which a target that has not answered yet is not called silent
RETIRED = "retired"
LIVE = (AlertState.FIRING, AlertState.RECOVERING)


class Engine:
    """All rules, and where each stands with each target."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.alerts: dict[str, dict[Target, Alert]] = {name: {} for name in self.rules}
        self.increases = {
            rule.name: tuple(
                dict.fromkeys(
                    side
                    for steps in (rule.steps, *(only.steps for only in rule.only))
                    for one in steps
                    for comparison in comparisons(one.when)
                    for side in (comparison.left, comparison.right)
                    if isinstance(side, Increase)
                )
            )
            for rule in self.rules.values()
        }
        self.mutes = {rule.name: [other for other in self.rules.values() if rule.mutes(other)] for rule in self.rules.values()}
        self.fired = {(rule.name, one.severity): 0 for rule in self.rules.values() for one in rule.steps}

    def beat(self, view: View, mono: float, evidence: EvidenceOf) -> list[Transition]:
        """Judge everything once; returns what people may hear of."""
        beat = Beat(view, mono, evidence)
        entries: dict[Subject, list[Entry]] = {}
        for entry in view.entries.values():
            entries.setdefault(entry.target.subject, []).append(entry)
        transitions: list[Transition] = []
        for rule in self.rules.values():
            alerts = self.alerts[rule.name]
            for entry in entries.get(rule.subject, ()):
                alert = alerts.get(entry.target)
                if alert is None:
                    alert = alerts[entry.target] = Alert(rule, entry.target)
                if alert.target is not entry.target or not alert.steps:
                    alert.aim(entry.target)
                transitions += self.judge(alert, entry, beat)
            for target in [target for target in alerts if target not in view.entries]:
                transitions += self.judge(alerts[target], None, beat)
                if alerts[target].phase is AlertState.INACTIVE and alerts[target].resumed is None:
                    del alerts[target]
        return transitions

    def judge(self, alert: Alert, entry: Entry | None, beat: Beat) -> list[Transition]:
        """Judge one rule on one target; returns no transition or one."""
        before, severity, mono = alert.phase, alert.severity, beat.mono
        if severity is not None and entry is not None and (words := retired(entry)):
            alert.states = [CALM] * len(alert.steps)
            return [told(alert, before, severity, beat, look_at(entry, beat, alert), because=words)]
        look = look_at(entry, beat, alert)
        if entry is not None:
            for operand in self.increases[alert.rule.name]:
                if operand.metric in entry.values:
                    alert.growth.setdefault(operand, Growth()).add(entry.values[operand.metric], mono, operand.window)
        verdicts = self.verdicts(alert, look, beat.view)
        if alert.resumed is not None:
            if all(verdict is None for verdict in verdicts) and mono - alert.resumed < RESUME:
                return []
            alert.shift(mono - alert.resumed)
            alert.resumed = None
        if all(not verdict for verdict in verdicts) and before is AlertState.INACTIVE and not any_share(alert):
            return []
        for index, verdict in enumerate(verdicts):
            alert.states[index], _ = step(alert.steps[index].timing, alert.states[index], verdict, mono)
        return self.changed(alert, before, severity, beat, look)

    def verdicts(self, alert: Alert, look: Look, view: View) -> list[bool | None]:
        """Judge each step: its firing level, or once it is active its clear level or its latch."""
        rule, found = alert.rule, []
        for one, state in zip(alert.steps, alert.states, strict=True):
            if not state.active:
                verdict = holds(one.when, look)
                if verdict and rule.unless and self.excused(rule, look, view):
                    verdict = False
            elif rule.until is None:
                verdict = holds(one.clears, look)
            else:
                healed = look.values.get(rule.until)
                verdict = None if healed is None else healed != 1 or holds(one.when, look) is True
            found.append(verdict)
        return found

    def excused(self, rule: Rule, look: Look, view: View) -> bool:
        """Say whether one of the conditions under which nothing begins to fire holds."""
        return any(
            look.values.get(metric) == 1
            if metric.subject is rule.subject
            else any(entry.values.get(metric) == 1 for entry in view.of(metric.subject))
            for metric in rule.unless
        )

    def changed(self, alert: Alert, before: AlertState, severity: Severity | None, beat: Beat, look: Look) -> list[Transition]:
        """Compare with the last beat; returns the transition where there is one."""
        after, now = alert.phase, alert.severity
        if now is None:
            return [told(alert, before, severity, beat, look)] if severity is not None else []
        if severity is None:
            alert.since = beat.view.now - (beat.mono - min(state.since for state in alert.states if state.active))
        if severity is None or now.rank > severity.rank:
            self.fired[alert.rule.name, now] += 1
        if now is severity and (before is after or (before in LIVE and after in LIVE)):
            return []
        return [told(alert, before, now, beat, look)]

    def muted(self) -> frozenset[tuple[str, Target]]:
        """Return the (rule, target) that another rule's alert inhibits: on the same target, or anywhere for another subject."""
        found: set[tuple[str, Target]] = set()
        for name, others in self.mutes.items():
            for target, alert in self.alerts[name].items() if others else ():
                if alert.severity is None:
                    continue
                for other in others:
                    same = other.subject is alert.rule.subject
                    found.update((other.name, each) for each in ([target] if same else self.alerts[other.name]))
        return frozenset(found)

    def readings(self, wall: float) -> list[Reading]:
        """Return the states of all that is not inactive, and how often each rule fired."""
        found = [
            own_reading(own.ALERTS, {"rule": rule, "severity": severity.value}, {own.ALERTS_FIRED: float(count)}, wall)
            for (rule, severity), count in self.fired.items()
        ]
        muted = self.muted()
        for alert in (alert for alerts in self.alerts.values() for alert in alerts.values()):
            gravest = alert.severity
            for one, state in zip(alert.steps, alert.states, strict=True):
                if state.phase is AlertState.INACTIVE:
                    continue
                outdone = gravest is not None and gravest.rank > one.severity.rank
                states = [state.phase.value]
                if outdone or (alert.rule.name, alert.target) in muted:
                    states.append("muted")
                labels = {"rule": alert.rule.name, "severity": one.severity.value, **alert.target.labels}
                found.append(own_reading(own.ALERT, labels, own.ALERT_STATE.at(*states), wall, alert.target.key))
        return found

    def dump(self, mono: float, wall: float) -> bytes:
        """Return all that must survive a restart."""
        return memory.pack((alert for alerts in self.alerts.values() for alert in alerts.values()), mono, wall)

    def restore(self, blob: bytes, mono: float, wall: float) -> None:
        """Take over what `dump` wrote, before the first beat; the time between is a gap that counts for nothing."""
        for alert in memory.unpack(blob, self.rules, mono, wall):
            self.alerts[alert.rule.name][alert.target] = alert

    def adopt(self, incidents: Iterable[Incident], mono: float, wall: float) -> list[Transition]:
        """Agree with the open incidents, after `restore`: they are the truth, the dump may be a minute older.

        An alert without an incident begins anew; an incident without an alert is firing. Returns the ends of incidents
        whose rule does not exist any more, or is switched off for this target.
        """
        open_now = {(one.rule, one.subject, one.key): one for one in incidents if one.state is not AlertState.INACTIVE}
        for alert in (alert for alerts in self.alerts.values() for alert in alerts.values()):
            one = open_now.get((alert.rule.name, alert.target.subject.name, alert.target.key))
            if alert.severity is not None and one is None:
                alert.states = [CALM] * len(alert.steps)
        ended: list[Transition] = []
        for one in open_now.values():
            target = memory.target_of(one)
            rule = self.rules.get(one.rule)
            if rule is None or not rule.steps_for(target):
                ended.append(memory.switched_off(one, target, wall))
                continue
            alert = self.alerts[rule.name].setdefault(target, Alert(rule, target))
            alert.aim(target)
            alert.since, alert.summary = one.since, one.summary
            if alert.severity is None:
                memory.fire(alert, one.severity, mono)
        return ended


def look_at(entry: Entry | None, beat: Beat, alert: Alert) -> Look:
    """Return what conditions see of a target; nothing where it is not in the view."""
    return Look(entry.values if entry else {}, entry.absent if entry else {}, beat.view.now, alert.growth)


def any_share(alert: Alert) -> bool:
    """Say whether a step needs every sample, because it is timed by the share of a window."""
    return any(one.timing.share is not None for one in alert.steps)


def retired(entry: Entry) -> str:
    """Return why this target is no more, "" while it is."""
    return next((reading.fault.words for reading in entry.readings if reading.fault and reading.fault.kind == RETIRED), "")


def own_reading(subject: Subject, labels: dict[str, str], values: dict[Metric, float], wall: float, key: str = "") -> Reading:
    """Return one of our own readings."""
    target = Target(subject=subject, key="|".join((labels["rule"], labels["severity"], key)), labels=labels)
    return Reading(source="own", tier=Tier.FAST, target=target, at=wall, took=0.0, values=values)
