"""Transitions become incidents: one story for one rule on one target."""

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.alert import AlertState, Severity, Transition
from gpuwatch.model.target import Target
from gpuwatch.rules.incidents import Incidents

CARD = Target(subject=GPU, key="GPU-1", labels={"gpu": "0", "uuid": "GPU-1"}, info={"name": "NVIDIA\x1b[31m A40"})


def change(at: float, after: AlertState, severity: Severity = Severity.WARNING, value: float | None = 88.0) -> Transition:
    """Return one transition of the card."""
    return Transition(
        rule="gpu_overheating",
        target=CARD,
        before=AlertState.INACTIVE,
        after=after,
        severity=severity,
        at=at,
        since=at - 96,
        value=value,
        summary=f"{after.value} at {at:g}",
        numbers={} if value is None else {"value": value},
    )


def begin() -> Incidents:
    """Return incidents with counted ids."""
    ids = iter(range(1, 100))
    return Incidents("vision-07", lambda: f"id-{next(ids)}")


def test_an_alert_is_known_by_its_rule_its_target_and_the_host_alone() -> None:
    (incident,) = begin().apply([change(1000, AlertState.FIRING)])
    expected = {"rule": "gpu_overheating", "gpu": "0", "uuid": "GPU-1", "host": "vision-07"}
    assert (incident.labels, incident.info) == (expected, {"name": "NVIDIA\\x1b[31m A40"})
    assert (incident.subject, incident.key, incident.since, incident.fired_at) == ("gpu", "GPU-1", 904, 1000)


def test_severities_go_up_and_down_in_one_incident() -> None:
    incidents = begin()
    steps = [(1000, Severity.WARNING), (1100, Severity.CRITICAL), (1200, Severity.WARNING)]
    (last,) = incidents.apply([change(at, AlertState.FIRING, severity) for at, severity in steps])
    assert (last.id, last.severity, last.highest, last.fired_at) == ("id-1", Severity.WARNING, Severity.CRITICAL, 1000)


def test_a_stale_incident_keeps_its_last_value_and_is_open() -> None:
    incidents = begin()
    (incident,) = incidents.apply([change(1000, AlertState.FIRING), change(1100, AlertState.STALE, value=None)])
    assert (incident.state, incident.value, incident.ended_at) == (AlertState.STALE, 88.0, None)
    assert incidents.open() == [incident]
    (incident,) = incidents.apply([change(1200, AlertState.RECOVERING, value=79.0)])
    assert (incident.state, incident.value) == (AlertState.FIRING, 79.0)


def test_the_end_says_how_long_it_lasted() -> None:
    incidents = begin()
    (incident,) = incidents.apply([change(1000, AlertState.FIRING), change(904 + 21_840, AlertState.INACTIVE)])
    assert (incident.state, incident.ended_at, incident.words) == (AlertState.INACTIVE, 22_744, {"lasted": "6 h 4 min"})
    assert incidents.open() == []


def test_what_fires_again_within_half_an_hour_is_the_same_incident() -> None:
    incidents = begin()
    incidents.apply([change(1000, AlertState.FIRING), change(2000, AlertState.INACTIVE)])
    (again,) = incidents.apply([change(3799, AlertState.FIRING)])
    assert (again.id, again.state, again.ended_at, again.since, again.words) == ("id-1", AlertState.FIRING, None, 904, {})


def test_what_fires_again_later_is_a_new_incident() -> None:
    incidents = begin()
    incidents.apply([change(1000, AlertState.FIRING), change(2000, AlertState.INACTIVE)])
    (again,) = incidents.apply([change(3800, AlertState.FIRING)])
    assert (again.id, again.since) == ("id-2", 3704)


def test_the_memory_of_the_store_is_taken_over() -> None:
    before = begin()
    kept = before.apply([change(1000, AlertState.FIRING), change(2000, AlertState.INACTIVE)])
    after = begin()
    after.restore(kept)
    (again,) = after.apply([change(2100, AlertState.FIRING)])
    assert again.id == kept[0].id


def test_the_end_of_something_unknown_is_nothing() -> None:
    assert begin().apply([change(1000, AlertState.INACTIVE)]) == []
