"""Every rule on every target, once a beat: View -> Transitions. One thread owns an engine.

Rules run over the targets of their subject that the view shows; a target that vanished keeps its alert, which turns stale.
A target whose reading carries the fault `retired` (a replaced GPU) has no alerts any more.
"""

import logging
from collections.abc import Iterable

from gpuwatch.catalogue import own
from gpuwatch.model.alert import AlertState, Incident, Severity, Transition
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.rules import memory
from gpuwatch.rules.alert import CALM, Alert
from gpuwatch.rules.judge import Growth, Look
from gpuwatch.rules.language import Increase, comparisons
from gpuwatch.rules.rule import Rule
from gpuwatch.rules.step import step
from gpuwatch.rules.telling import Beat, EvidenceOf, facts, recalled, told

log = logging.getLogger(__name__)

RESUME = 60.0  # seconds after a restart in which a target that has not answered yet is not called silent
COMPLETION = 3.0  # seconds from a change until the words of an alert are first brought up to date; critical news waits for 5
RETIRED = "retired"
LIVE = (AlertState.FIRING, AlertState.RECOVERING)


class Engine:
    """All rules, and where each stands with each target."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.alerts: dict[str, dict[str, Alert]] = {name: {} for name in self.rules}
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
        self.failing: dict[str, str] = {}
        self.resting: frozenset[Subject] = frozenset()  # of these nothing is judged, from the next beat on; any thread may set it
        self.rested: tuple[frozenset[Subject], float] = (frozenset(), 0.0)  # ... as of the last beat, and since when
        self.fired = {(rule.name, one.severity): 0 for rule in self.rules.values() for one in rule.steps}

    def beat(self, view: View, mono: float, evidence: EvidenceOf) -> list[Transition]:
        """Judge everything once; returns what people may hear of."""
        beat = Beat(view, mono, evidence)
        self.rest(mono)
        looks = {
            subject: [(entry, Look(entry.values, entry.absent, view.now)) for entry in view.of(subject)]
            for subject in {rule.subject for rule in self.rules.values()}
        }
        transitions: list[Transition] = []
        for rule in self.rules.values():
            if rule.subject in self.rested[0]:
                continue
            try:
                transitions += self.apply(rule, looks[rule.subject], beat)
            except Exception as error:  # as with detectors: one rule must not silence the others
                if self.failing.get(rule.name) != repr(error):
                    self.failing[rule.name] = repr(error)
                    log.exception("rule %s failed: it judges nothing until it works again", rule.name)
            else:
                if self.failing.pop(rule.name, None):
                    log.info("rule %s works again", rule.name)
        return transitions

    def apply(self, rule: Rule, seen: list[tuple[Entry, Look]], beat: Beat) -> list[Transition]:
        """Judge one rule on every target of its subject."""
        transitions: list[Transition] = []
        alerts, counts = self.alerts[rule.name], bool(self.increases[rule.name])
        for entry, look in seen:
            alert = alerts.get(entry.target.key)
            if alert is None:
                alert = alerts[entry.target.key] = Alert(rule, entry.target)
            if alert.target is not entry.target or not alert.steps:
                alert.aim(entry.target)
            if counts or alert.idle is None or not alert.rests([one.fires(look) for one in alert.steps], beat.mono):
                transitions += self.judge(alert, entry, beat)
        if len(alerts) > len(seen):
            transitions += self.vanished(alerts, {entry.target.key for entry, _ in seen}, beat)
        return transitions

    def rest(self, mono: float) -> None:
        """Take up which subjects rest. Their alerts stay as they are; afterwards it is as after a restart, a gap."""
        before, since = self.rested
        resting = self.resting
        if resting == before:
            return
        for name, alerts in self.alerts.items():
            if self.rules[name].subject in before - resting:
                for alert in alerts.values():
                    alert.wake()
                    alert.shift(mono - (since if alert.resumed is None else alert.resumed))
                    alert.resumed = mono
        self.rested = resting, mono

    def problem(self) -> str:
        """Return which rules fail, "" while none does."""
        return f"rules that fail: {', '.join(sorted(self.failing))}" if self.failing else ""

    def vanished(self, alerts: dict[str, Alert], seen: set[str], beat: Beat) -> list[Transition]:
        """Judge targets that the view does not show any more, until nothing is left to say of them."""
        transitions: list[Transition] = []
        for key in alerts.keys() - seen:
            transitions += self.judge(alerts[key], None, beat)
            if alerts[key].phase is AlertState.INACTIVE and alerts[key].resumed is None:
                del alerts[key]
        return transitions

    def judge(self, alert: Alert, entry: Entry | None, beat: Beat) -> list[Transition]:
        """Judge one rule on one target; returns no transition or one."""
        alert.wake()
        before, severity, mono = alert.phase, alert.severity, beat.mono
        look = look_at(entry, beat, alert)
        if severity is not None and entry is not None and (words := retired(entry)):
            alert.states = [CALM] * len(alert.steps)
            return [told(alert, before, severity, beat, look, because=words)]
        for operand in self.increases[alert.rule.name]:
            if operand.metric in look.values:
                alert.growth.setdefault(operand, Growth()).add(look.values[operand.metric], mono, operand.window)
        verdicts = self.verdicts(alert, look, beat.view)
        if alert.resumed is not None:
            if all(verdict is None for verdict in verdicts) and mono - alert.resumed < RESUME:
                return []
            alert.shift(mono - alert.resumed)
            alert.resumed = None
        for index, verdict in enumerate(verdicts):
            alert.states[index], _ = step(alert.steps[index].timing, alert.states[index], verdict, mono)
        alert.doze(verdicts, mono)
        return self.changed(alert, before, severity, beat, look)

    def verdicts(self, alert: Alert, look: Look, view: View) -> list[bool | None]:
        """Judge each step: its firing level, or once it is active its clear level or its latch."""
        rule = alert.rule
        found: list[bool | None] = []
        for one, state in zip(alert.steps, alert.states, strict=True):
            if not state.active:
                verdict = one.fires(look)
                if verdict and rule.unless and self.excused(rule, look, view):
                    verdict = False
            elif rule.until is None:
                verdict = one.stays(look)
            else:
                healed = look.values.get(rule.until)
                verdict = None if healed is None else healed != 1 or one.fires(look) is True
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
            return self.completed(alert, now, beat, look)
        alert.pause = COMPLETION
        alert.complete_at = beat.mono + alert.pause
        return [told(alert, before, now, beat, look)]

    def completed(self, alert: Alert, severity: Severity, beat: Beat, look: Look) -> list[Transition]:
        """Return the transition that carries later words: the kernel log says a moment later why a GPU is gone, or much later.

        It only adds to what was told: what is not known any more, as of a GPU whose driver has gone too, stays.
        It is looked for ever more seldom, so that words that never rest make few lines, and is no news of its own: who was told
        already is not told again.
        """
        if alert.complete_at is None or beat.mono < alert.complete_at:
            return []
        alert.pause *= 2
        alert.complete_at = beat.mono + alert.pause
        if alert.phase is not AlertState.FIRING or facts(alert, severity, look, beat.evidence).words == alert.facts.words:
            return []
        return [told(alert, AlertState.FIRING, severity, beat, look)]

    def muted(self) -> frozenset[tuple[str, Target]]:
        """Return the (rule, target) that another rule's alert inhibits: on the same target, or anywhere for another subject."""
        found: set[tuple[str, Target]] = set()
        for name, others in self.mutes.items():
            for alert in self.alerts[name].values() if others else ():
                if alert.idle is not None or alert.severity is None:
                    continue
                for other in others:
                    same = other.subject is alert.rule.subject
                    everywhere = () if same else (one.target for one in self.alerts[other.name].values())
                    found.update((other.name, target) for target in ([alert.target] if same else everywhere))
        return frozenset(found)

    def readings(self, wall: float) -> list[Reading]:
        """Return the states of all that is not inactive, and how often each rule fired."""
        found = [
            own_reading(own.ALERTS, {"rule": rule, "severity": severity.value}, {own.ALERTS_FIRED: float(count)}, wall)
            for (rule, severity), count in self.fired.items()
        ]
        muted = self.muted()
        for alert in self.awake():
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

    def awake(self) -> list[Alert]:
        """Return the alerts in which something may be going on."""
        return [alert for alerts in self.alerts.values() for alert in alerts.values() if alert.idle is None]

    def dump(self, mono: float, wall: float) -> bytes:
        """Return all that must survive a restart."""
        return memory.pack((alert for alerts in self.alerts.values() for alert in alerts.values()), mono, wall)

    def restore(self, blob: bytes, mono: float, wall: float) -> None:
        """Take over what `dump` wrote; the time between is a gap that counts for nothing. What fires by now goes on firing."""
        for alert in memory.unpack(blob, self.rules, mono, wall):
            mine = self.alerts[alert.rule.name].get(alert.target.key)
            if mine is None or mine.severity is None:
                self.alerts[alert.rule.name][alert.target.key] = alert

    def adopt(self, incidents: Iterable[Incident], mono: float, wall: float) -> list[Transition]:
        """Agree with all open incidents, after `restore`: they are the truth, the dump may be a minute older.

        An alert without an incident begins anew; an incident without an alert is firing. Returns the ends of incidents
        whose rule does not exist any more, or is switched off for this target.
        """
        open_now = {(one.rule, one.subject, one.key): one for one in incidents if one.state is not AlertState.INACTIVE}
        for alert in self.awake():
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
            alert = self.alerts[rule.name].setdefault(target.key, Alert(rule, target))
            alert.wake()
            alert.aim(target)
            alert.since, alert.summary, alert.facts = one.since, one.summary, recalled(alert, one)
            if alert.severity is None:
                memory.fire(alert, one.severity, mono)
        return ended


def look_at(entry: Entry | None, beat: Beat, alert: Alert) -> Look:
    """Return what conditions see of a target; nothing where it is not in the view."""
    return Look(entry.values if entry else {}, entry.absent if entry else {}, beat.view.now, alert.growth)


def retired(entry: Entry) -> str:
    """Return why this target is no more, "" while it is."""
    return next((reading.fault.words for reading in entry.readings if reading.fault and reading.fault.kind == RETIRED), "")


def page_key(rule: str, severity: str, key: str) -> str:
    """Return the key under which the page has one step of a rule on the target with this key, or with "" what is of no target."""
    return f"{rule}|{severity}|{key}"


def own_reading(subject: Subject, labels: dict[str, str], values: dict[Metric, float], wall: float, key: str = "") -> Reading:
    """Return one of our own readings."""
    target = Target(subject=subject, key=page_key(labels["rule"], labels["severity"], key), labels=labels)
    return Reading(source="own", tier=Tier.FAST, target=target, at=wall, took=0.0, values=values)
