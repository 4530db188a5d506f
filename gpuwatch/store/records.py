"""How incidents, told-marks, deliveries, silences and state blobs lie in the alert memory: a row each, the noun itself as JSON.

The version stands beside the JSON. Fields that are new in a noun have defaults and fields that went are ignored, so that the
version changes only where the meaning of a field does.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Table, delete, func, select
from sqlalchemy import Row as Read
from sqlalchemy.dialects.sqlite import insert

from gpuwatch.model.alert import AlertState, Incident, Severity
from gpuwatch.model.delivery import Delivery, Outcome, Result, Told
from gpuwatch.model.escape import visible
from gpuwatch.model.silence import Silence
from gpuwatch.store.schema import BLOB, DELIVERY, INCIDENT, SILENCE, TOLD

VERSION = 1  # of the JSON of Incident, Delivery and Silence
ENDED_LIMIT = 1_000  # ended incidents, the newest ones, in which an untold end is looked for
SILENCE_LIMIT = 1_000  # silences that are known to a run: those that end last
QUEUED = "queued"
KEEP_DELIVERIES = 30 * 86400.0  # seconds
KEEP_NEWEST = 1_000
PRUNE_STEP = 500

Row = Mapping[str, object]
Key = tuple[str, ...]  # table, primary key
Noun = TypeVar("Noun", Incident, Delivery, Silence)


class Found(msgspec.Struct, frozen=True):
    """What a database holds for the next run; `refused` rows could not be read."""

    incidents: list[Incident]
    told: list[Told]
    deliveries: list[Delivery]
    blobs: dict[str, tuple[int, bytes]]
    newest: str  # the highest ULID
    refused: int
    silences: list[Silence] = []


def encode(noun: Incident | Delivery | Silence) -> str:
    """Write a noun as JSON; a character that is none (a lone surrogate from a garbled name) becomes visible."""
    try:
        return msgspec.json.encode(noun, enc_hook=plain).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(visible(msgspec.to_builtins(noun, enc_hook=plain))).decode()


def plain(value: object) -> object:
    """Turn a read-only mapping into a dict, for msgspec."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in the alert memory")


def incident_row(incident: Incident) -> tuple[Key, Row]:
    """Return the row of an incident."""
    row = {name: visible(getattr(incident, name)) for name in ("id", "rule", "subject", "key", "changed_at", "ended_at")}
    return ("incident", incident.id), {**row, "state": incident.state.value, "version": VERSION, "data": encode(incident)}


def told_row(told: Told) -> tuple[Key, Row]:
    """Return the row of a told-mark."""
    row = {"incident": told.incident, "channel": told.channel, "at": told.at}
    return ("told", told.incident, told.channel), {**row, "state": told.state.value, "severity": told.severity.value}


def delivery_row(delivery: Delivery, outcome: Outcome | None = None, *, finished: bool = False) -> tuple[Key, Row]:
    """Return the row of a delivery; `finished` with what came of its last attempt."""
    state = QUEUED
    if finished:
        state = "sent" if outcome and outcome.result is Result.SENT else "dead"
    row = {name: getattr(delivery, name) for name in ("id", "channel", "created", "attempt", "not_before")}
    said = visible(outcome.words) if outcome else ""
    more = {"kind": delivery.kind.value, "state": state, "words": said, "version": VERSION, "data": encode(delivery)}
    return ("delivery", delivery.id), {**row, **more}


def silence_row(silence: Silence) -> tuple[Key, Row]:
    """Return the row of a silence."""
    row = {name: getattr(silence, name) for name in ("id", "starts_at", "ends_at")}
    return ("silence", silence.id), {**row, "version": VERSION, "data": encode(silence)}


def blob_row(name: str, version: int, data: bytes) -> tuple[Key, Row]:
    """Return the row of a room's state."""
    return ("state", name), {"name": name, "version": version, "data": data}


TABLES: Mapping[str, Table] = {"incident": INCIDENT, "told": TOLD, "delivery": DELIVERY, "silence": SILENCE, "state": BLOB}


def write(connection: Connection, rows: Mapping[Key, Row]) -> None:
    """Put rows in place of those with the same key, within the caller's transaction."""
    for name, table in TABLES.items():
        if chosen := [dict(row) for key, row in rows.items() if key[0] == name]:
            connection.execute(insert(table).prefix_with("OR REPLACE"), chosen)


def find(connection: Connection) -> Found:
    """Read what the next run must know: incidents that are open or whose end is untold, their marks, what is owed, silences.

    SQLite keeps any type in any column, and its check of a file finds nothing wrong with that: what is not of the type that was
    written costs its own row.
    """
    with connection.begin():
        untold = select(TOLD.c.incident).where(TOLD.c.state != AlertState.INACTIVE.value)
        live = connection.execute(select(INCIDENT).where(INCIDENT.c.ended_at.is_(None))).all()
        over = connection.execute(
            select(INCIDENT)
            .where(INCIDENT.c.ended_at.is_not(None), INCIDENT.c.id.in_(untold))
            .order_by(INCIDENT.c.id.desc())
            .limit(ENDED_LIMIT)
        ).all()
        queued = connection.execute(select(DELIVERY).where(DELIVERY.c.state == QUEUED).order_by(DELIVERY.c.id)).all()
        marks = connection.execute(select(TOLD)).all()
        quiet = connection.execute(select(SILENCE).order_by(SILENCE.c.ends_at.desc()).limit(SILENCE_LIMIT)).all()
        blobs = connection.execute(select(BLOB)).all()
        newest = [
            connection.execute(select(column).where(func.typeof(column) == "text").order_by(column.desc()).limit(1)).scalar()
            for column in IDS
        ]
    rows = sorted((*live, *over), key=lambda row: str(row.id))
    incidents = list(decoded(contents(rows), Incident))
    deliveries = list(decoded(contents(queued), Delivery))
    silences = list(decoded(contents(quiet), Silence))
    known = {incident.id for incident in incidents}
    about = [row for row in marks if row.incident in known or not isinstance(row.incident, str)]
    told = list(marked((row.incident, row.channel, row.state, row.severity, row.at) for row in about))
    states = {row.name: (row.version, row.data) for row in blobs if types(row.name, row.version, row.data) == (str, int, bytes)}
    taken = len(incidents) + len(deliveries) + len(silences) + len(told) + len(states)
    return Found(
        incidents=incidents,
        told=told,
        deliveries=deliveries,
        blobs=states,
        newest=max((one for one in newest if isinstance(one, str)), default=""),
        refused=sum(map(len, (rows, queued, quiet, about, blobs))) - taken,
        silences=silences,
    )


IDS = (INCIDENT.c.id, DELIVERY.c.id, SILENCE.c.id)


def prune(connection: Connection, wall: float, keep_incidents: float) -> None:
    """Delete a few of the ended incidents and silences and finished deliveries that are too old.

    The newest 1,000 of each stay whatever their age, so that a wall clock that jumps forward takes nothing of use with it;
    "newest" goes by ULID, which follows the order of writing.
    """
    with connection.begin():
        for table, over in (
            (INCIDENT, INCIDENT.c.ended_at < wall - keep_incidents),
            (SILENCE, SILENCE.c.ends_at < wall - keep_incidents),
            (DELIVERY, (DELIVERY.c.state != QUEUED) & (DELIVERY.c.created < wall - KEEP_DELIVERIES)),
        ):
            newest = select(table.c.id).order_by(table.c.id.desc()).limit(1).offset(KEEP_NEWEST).scalar_subquery()
            old = select(table.c.id).where(over, table.c.id < newest).order_by(table.c.id).limit(PRUNE_STEP)
            connection.execute(delete(table).where(table.c.id.in_(old)))
        connection.execute(delete(TOLD).where(TOLD.c.incident.not_in(select(INCIDENT.c.id))))


def types(*values: object) -> tuple[type, ...]:
    """Return what was read, by type."""
    return tuple(map(type, values))


def contents(rows: Iterable[Read[Any]]) -> Iterator[tuple[int, str]]:
    """Yield version and JSON of the rows whose key and JSON are texts."""
    return ((row.version, row.data) for row in rows if types(row.id, row.data) == (str, str))


def decoded(rows: Iterable[tuple[int, str]], noun: type[Noun]) -> Iterator[Noun]:
    """Yield the nouns that can be read; one bad row does not cost the others."""
    for version, data in rows:
        if version == VERSION:
            with suppress(msgspec.MsgspecError, RecursionError):
                yield msgspec.json.decode(data, type=noun)


def marked(rows: Iterable[tuple[str, str, str, str, float]]) -> Iterator[Told]:
    """Yield the told-marks that can be read; one with a state of a newer gpuwatch is told again rather than never."""
    for incident, channel, state, severity, at in rows:
        if types(incident, channel, at) == (str, str, float) and isfinite(at):
            with suppress(ValueError):
                yield Told(incident, channel, AlertState(state), Severity(severity), at)
