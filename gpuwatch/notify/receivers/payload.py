"""The body of the generic webhook, version 1: one notification with its alerts, bounded in size."""

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Literal, TypeVar

import msgspec

from gpuwatch import catalogue
from gpuwatch.model.alert import AlertState, Incident, Severity
from gpuwatch.model.delivery import Delivery, DeliveryKind
from gpuwatch.notify.fingerprint import fingerprint
from gpuwatch.notify.receivers.receiver import Attempt

LIMIT = 256 << 10  # bytes of a whole body
AROUND = 64 << 10  # bytes kept for what is around the alerts
TABLE = 16 << 10  # bytes of one table of an alert, so that one alert always fits; the machine's own are far below
TEXT = 2000  # characters of one text
T = TypeVar("T", str, float)


class Status(str, Enum):
    """How an alert stands, in Alertmanager's words, and stale: it fired, and now there is no data."""

    FIRING = "firing"
    STALE = "stale"
    RESOLVED = "resolved"


STATUS = {AlertState.INACTIVE: Status.RESOLVED, AlertState.STALE: Status.STALE}  # all else fires


def said(text: str) -> msgspec.Meta:
    """Describe a field in the schema."""
    return msgspec.Meta(description=text)


Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]  # RFC 3339, UTC


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One incident as it was when the message was decided."""

    fingerprint: Annotated[str, said("FNV-1a of the labels, as Alertmanager computes it: the same for every firing.")]
    incident_id: Annotated[str, said("ULID of this incident, from its firing to its end.")]
    status: Status
    severity: Severity
    rule: str
    labels: Annotated[dict[str, str], said("The alert's identity.")]
    annotations: Annotated[dict[str, str], said("`summary`, and further words such as a cause or the next step.")]
    info: Annotated[dict[str, str], said("What the thing is: model, serial, PCI address, slot label; only what is known.")]
    value: Annotated[float | None, said("The number that the rule looked at; null where there is none.")]
    unit: Annotated[str | None, said("Its unit.")]
    starts_at: Annotated[Time, said("When the condition began to hold.")]
    ends_at: Annotated[Time | None, said("When it ended; null while it has not.")]
    last_seen_at: Annotated[Time, said("When the condition was last known to hold.")]
    attempt: Annotated[int, said("1 for the first try to send this message.")]
    evidence: Annotated[dict[str, float], said("The numbers that made it fire.")]
    links: Annotated[dict[str, str], said("Addresses by what they lead to. No rule has any yet.")]


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A message of gpuwatch's generic webhook, version 1. Fields may be added; unknown ones are to be ignored."""

    version: Literal["1"]
    id: Annotated[str, said("ULID of this message, the same on every attempt: drop what you have seen.")]
    kind: Annotated[DeliveryKind, said("Why it is sent; update means a higher severity.")]
    status: Annotated[Status, said("firing if any alert fires, else stale if any is stale, else resolved.")]
    receiver: Annotated[str, said("What the configuration calls you.")]
    host: str
    host_labels: Annotated[dict[str, str], said("The host's own labels, as its configuration gives them.")]
    summary: Annotated[str, said("The whole in one line.")]
    created_at: Annotated[Time, said("When the message was decided.")]
    sent_at: Annotated[Time, said("When this attempt was made.")]
    late_seconds: Annotated[
        int | None, said("Seconds since the message was owed, where that is over 60; null for one that is no later than that.")
    ]
    stored: Annotated[
        bool, said("False: the sender's disk has not taken it yet; if it dies now it may tell this anew, with another id.")
    ]
    truncated_alerts: Annotated[int, said("Alerts left out to bound the size.")]
    alerts: list[Alert]


def body(delivery: Delivery, attempt: Attempt) -> Notification:
    """Build the message; alerts that do not fit into LIMIT are left out and counted."""
    alerts: list[Alert] = []
    room = LIMIT - AROUND
    for incident in delivery.incidents:
        alert = one(incident, delivery, attempt)
        room -= len(msgspec.json.encode(alert)) + 1
        if room < 0:
            break
        alerts.append(alert)
    missing = len(delivery.incidents) - len(alerts)
    return Notification(
        version="1",
        id=delivery.id,
        kind=delivery.kind,
        status=overall(delivery.incidents),
        receiver=text(delivery.channel),
        host=text(attempt.host),
        host_labels=texts(attempt.host_labels),
        summary=summary(delivery, missing),
        created_at=stamp(delivery.created),
        sent_at=stamp(attempt.at),
        late_seconds=None if attempt.late is None else int(attempt.late),
        stored=attempt.stored,
        truncated_alerts=missing,
        alerts=alerts,
    )


def one(incident: Incident, delivery: Delivery, attempt: Attempt) -> Alert:
    """Write one incident."""
    return Alert(
        fingerprint=fingerprint(incident.labels),
        incident_id=incident.id,
        status=STATUS.get(incident.state, Status.FIRING),
        severity=incident.severity,
        rule=incident.rule,
        labels=texts(incident.labels),
        annotations=texts({"summary": incident.summary} | {**alone(incident.words), "summary": incident.summary}),
        info=texts(incident.info),
        value=number(incident.value),
        unit=unit(incident),
        starts_at=stamp(incident.since),
        ends_at=None if incident.ended_at is None else stamp(incident.ended_at),
        last_seen_at=stamp(last_seen(incident, delivery.created)),
        attempt=attempt.number,
        evidence=bounded({text(key): value for key, value in incident.numbers.items() if math.isfinite(value)}),
        links={},
    )


def overall(incidents: tuple[Incident, ...]) -> Status:
    """Return the status of the whole: the first of firing, stale, resolved that any incident has."""
    found = {STATUS.get(incident.state, Status.FIRING) for incident in incidents}
    return next(status for status in Status if status in found)


def summary(delivery: Delivery, missing: int) -> str:
    """Say it in one line: the first incident, and how many more there are."""
    first = text(delivery.incidents[0].summary)
    others = len(delivery.incidents) - 1
    left_out = f", of which {missing} did not fit" if missing else ""
    return f"{first} (+{others} more{left_out})" if others else first


def last_seen(incident: Incident, decided: float) -> float:
    """Return when the condition was last known to hold: until it ended or its data stopped, else when we decided to tell."""
    if incident.state is AlertState.FIRING:
        return max(decided, incident.changed_at)
    return incident.changed_at if incident.ended_at is None else incident.ended_at


def unit(incident: Incident) -> str | None:
    """Return the unit of `value`: that of the metric among the numbers that has it, None where there is none."""
    for name, value in incident.numbers.items():
        metric = catalogue.BY_ID.get((incident.subject, name))
        if metric is not None and value == incident.value:
            return metric.unit or None
    return None


def number(value: float | None) -> float | None:
    """Return a number that JSON can carry; what is not finite is no value."""
    return value if value is not None and math.isfinite(value) else None


def alone(words: Mapping[str, str]) -> dict[str, str]:
    """Return words without what joins some of them to the sentence before: `; it had: ...`."""
    return {name: word.lstrip(" ;,") for name, word in words.items()}


def texts(table: Mapping[str, str]) -> dict[str, str]:
    """Return a bounded table of bounded texts."""
    return bounded({text(key): text(value) for key, value in table.items()})


def bounded(table: dict[str, T]) -> dict[str, T]:
    """Return as many entries, from the first on, as fit into TABLE bytes of JSON."""
    kept, room = {}, TABLE
    for key, value in table.items():
        room -= len(msgspec.json.encode(key)) + len(msgspec.json.encode(value)) + 2
        if room < 0:
            break
        kept[key] = value
    return kept


def text(value: str) -> str:
    """Return text that JSON can carry, cut to a bound; names from /proc may hold half characters (surrogateescape)."""
    short = value if len(value) <= TEXT else value[: TEXT - 1] + "…"
    return short.encode("utf-8", "replace").decode()


def stamp(seconds: float) -> str:
    """Write a time as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
