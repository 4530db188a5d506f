"""Transitions folded into incidents: one story told to people for one rule on one target.

What fires again within half an hour of its end is the same incident (alerting.md 1.5): it goes on under its old id.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Incident, Transition
from gpuwatch.model.escape import printable
from gpuwatch.rules.text import lasted

REOPEN = 1800.0  # seconds
Key = tuple[str, str, str]


class Incidents:
    """The open incidents of this host, and those that ended a short while ago."""

    def __init__(self, host: str, new_id: Callable[[], str]) -> None:
        self.host, self.new_id = host, new_id
        self.known: dict[Key, Incident] = {}

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take over what the store remembers; of two of one rule and target, the open one goes on."""
        for incident in sorted(incidents, key=lambda one: (one.ended_at is None, one.changed_at)):
            self.known[incident.rule, incident.subject, incident.key] = incident

    def apply(self, transitions: Iterable[Transition]) -> list[Incident]:
        """Fold transitions in; returns the incidents that changed, each once, as they are now."""
        changed: dict[Key, Incident] = {}
        for transition in transitions:
            key = (transition.rule, transition.target.subject.name, transition.target.key)
            before = self.known.get(key)
            ended = before is None or before.ended_at is not None
            if transition.after is AlertState.INACTIVE and ended:
                continue  # the end of something that nobody was told of
            if before is None or (before.ended_at is not None and transition.at - before.ended_at >= REOPEN):
                incident = self.begin(transition)
            else:
                incident = self.go_on(before, transition)
            self.known[key] = changed[key] = incident
            self.forget(transition.at)
        return list(changed.values())

    def open(self) -> list[Incident]:
        """Return the incidents that have not ended, the oldest first. Any thread."""
        known = list(self.known.values())  # at once: the judge may be adding one
        return sorted((one for one in known if one.ended_at is None), key=lambda one: one.fired_at)

    def begin(self, transition: Transition) -> Incident:
        """Return a new incident."""
        target = transition.target
        return Incident(
            id=self.new_id(),
            rule=transition.rule,
            subject=target.subject.name,
            key=target.key,
            labels={"rule": transition.rule, **escaped(target.labels), "host": self.host},
            info=escaped(target.info),
            severity=transition.severity,
            highest=transition.severity,
            state=AlertState.STALE if transition.after is AlertState.STALE else AlertState.FIRING,
            since=transition.since,
            fired_at=transition.at,
            changed_at=transition.at,
            ended_at=None,
            value=transition.value,
            summary=transition.summary,
            numbers=transition.numbers,
            words=transition.words,
        )

    def go_on(self, before: Incident, transition: Transition) -> Incident:
        """Return the incident after one more transition."""
        ends = transition.after is AlertState.INACTIVE
        state = transition.after if transition.after in (AlertState.STALE, AlertState.INACTIVE) else AlertState.FIRING
        gone_silent = state is AlertState.STALE
        words = {**before.words, **transition.words}
        if ends:
            words["lasted"] = lasted(transition.at - before.since)
        else:
            words.pop("lasted", None)
        return replace(
            before,
            info=escaped(transition.target.info) or before.info,
            severity=transition.severity,
            highest=max(before.highest, transition.severity, key=lambda one: one.rank),
            state=state,
            changed_at=transition.at,
            ended_at=transition.at if ends else None,
            value=before.value if gone_silent else transition.value,
            summary=transition.summary,
            numbers=before.numbers if gone_silent else transition.numbers,
            words=words,
        )

    def forget(self, now: float) -> None:
        """Let go of what ended too long ago to go on."""
        self.known = {key: one for key, one in self.known.items() if one.ended_at is None or now - one.ended_at < REOPEN}


def escaped(facts: Mapping[str, str]) -> dict[str, str]:
    """Return text facts that are safe to print."""
    return {name: printable(text) for name, text in facts.items()}
