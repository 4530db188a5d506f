"""How open incidents stand at this moment: what people are told changes seldom, and the page every beat. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuwatch.catalogue import own
from gpuwatch.model.alert import AlertState, Incident, Now, Open
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.rules.engine import page_key
from gpuwatch.rules.rule import Rule

STATES = (AlertState.FIRING, AlertState.RECOVERING, AlertState.STALE)  # of an alert that is open


def standing(incident: Incident, view: View, rules: Mapping[str, Rule]) -> Open:
    """Return an open incident in the state that the page shows of its severity, with what its text tells as it is now."""
    on_page = view.entries.get(Target(subject=own.ALERT, key=page_key(incident.rule, incident.severity.value, incident.key)))
    shown = {} if on_page is None else on_page.values
    state = next((state for state in STATES if shown.get(own.ALERT_STATE[state.value]) == 1), incident.state)
    rule = rules.get(incident.rule)
    metric = None if rule is None else rule.told_of(incident.severity)
    value = None if metric is None else view.value(Target(subject=metric.subject, key=incident.key), metric)
    now = None if metric is None or value is None else Now(metric.id, value, metric.unit)
    return Open(replace(incident, state=state), now)
