"""The alert memory as the daemon sees it: in RAM at once, on disk when the disk answers.

`commit` never touches a disk: it updates what `snapshot` gives and puts rows into a queue, from which the writing thread takes
them all for one transaction. In the queue a newer row takes the place of an older one with the same key, so that a dead disk
costs one row a thing and not one a change; over 1,000 rows the oldest are dropped and counted.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakSet

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Incident
from gpuwatch.model.delivery import Delivery, Outcome, Told
from gpuwatch.model.silence import Silence
from gpuwatch.store.records import (
    ENDED_LIMIT,
    SILENCE_LIMIT,
    Found,
    Key,
    Row,
    blob_row,
    delivery_row,
    incident_row,
    silence_row,
    told_row,
)

QUEUE_LIMIT = 1_000  # rows (rulings 7)


class Memory(msgspec.Struct, frozen=True):
    """What a new run must know: open incidents and those whose end is not told, what was told of them, what is still owed."""

    incidents: list[Incident]
    told: list[Told]
    deliveries: list[Delivery]  # in the order of their ids
    silences: list[Silence] = []  # in the order of their ids


class Ticket:
    """Says whether one commit is on disk. Any thread may wait for it."""

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._lost = False

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; True once it is on disk, False while it is not or when it was dropped from the queue."""
        return self._settled.wait(seconds) and not self._lost

    def settle(self, *, lost: bool = False) -> None:
        """Say what became of it; the first word counts."""
        if not self._settled.is_set():
            self._lost = lost
            self._settled.set()


class Unit:
    """Rows that reach the disk together or not at all: those of one commit, and of others that took the place of some of them."""

    def __init__(self) -> None:
        self.into: Unit | None = None  # what it has become a part of

    def whole(self) -> "Unit":
        """Return the unit that this one has become a part of, itself where it is none."""
        unit = self
        while unit.into is not None:
            unit = unit.into
        return unit

    def join(self, other: "Unit") -> None:
        """Become a part of another one."""
        mine, whole = self.whole(), other.whole()
        if mine is not whole:
            mine.into = whole


class Entry(msgspec.Struct, frozen=True):
    """One row that waits for the disk, the commits that wait with it, and the rows that go with it."""

    row: Row
    tickets: WeakSet[Ticket]
    unit: Unit


def units(taken: Mapping[Key, Entry]) -> list[dict[Key, Entry]]:
    """Return rows by what must be written together."""
    found: dict[Unit, dict[Key, Entry]] = {}
    for key, entry in taken.items():
        found.setdefault(entry.unit.whole(), {})[key] = entry
    return list(found.values())


class AlertMemory:
    """Incidents, told-marks, deliveries, silences and state blobs. Any thread may call it."""

    def __init__(self) -> None:
        self.adopted = False  # a database was read, even if it was an empty one
        self.dropped = 0
        self._gap = False  # something was dropped that may still count
        self._lock = threading.Lock()
        self._queue: dict[Key, Entry] = {}
        self._incidents: dict[str, Incident] = {}
        self._told: dict[tuple[str, str], Told] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._silences: dict[str, Silence] = {}
        self._blobs: dict[str, tuple[int, bytes]] = {}
        self._older: dict[str, Incident] = {}  # by an id of this run: the incident of an earlier one that it continues

    def commit(
        self,
        incidents: Sequence[Incident],
        told: Sequence[Told],
        deliveries: Sequence[Delivery],
        silences: Sequence[Silence] = (),
    ) -> Ticket:
        """Take these together: they reach the disk in one transaction or not at all."""
        with self._lock:
            incidents, told = [*map(self._continued, incidents)], [*map(self._marked, told)]
            rows = [*map(incident_row, incidents), *map(told_row, told), *map(delivery_row, deliveries)]
            rows += map(silence_row, silences)
            self._incidents.update((incident.id, incident) for incident in incidents)
            self._told.update(((mark.incident, mark.channel), mark) for mark in told)
            self._deliveries.update((delivery.id, delivery) for delivery in deliveries)
            self._silences.update((silence.id, silence) for silence in silences)
            self._forget()
            return self._push(rows)

    def attempted(self, delivery: Delivery, outcome: Outcome, retry_at: float | None) -> Ticket:
        """Count an attempt; without `retry_at` the delivery is over."""
        with self._lock:
            known = self._deliveries.get(delivery.id, delivery)
            not_before = known.not_before if retry_at is None else retry_at
            counted = replace(delivery, attempt=max(known.attempt, delivery.attempt) + 1, not_before=not_before)
            if retry_at is None:
                self._deliveries.pop(delivery.id, None)
            else:
                self._deliveries[delivery.id] = counted
            return self._push([delivery_row(counted, outcome, finished=retry_at is None)])

    def save(self, name: str, version: int, data: bytes) -> Ticket:
        """Keep a room's state by name."""
        with self._lock:
            self._blobs[name] = version, data
            return self._push([blob_row(name, version, data)])

    def blob(self, name: str) -> tuple[int, bytes] | None:
        """Return a room's state, None where there is none."""
        with self._lock:
            return self._blobs.get(name)

    def snapshot(self) -> Memory:
        """Return what a new run must know."""
        with self._lock:
            untold = {mark.incident for mark in self._told.values() if mark.state is not AlertState.INACTIVE}
            incidents = [item for item in self._incidents.values() if item.ended_at is None or item.id in untold]
            known = {incident.id for incident in incidents}
            return Memory(
                incidents=sorted(incidents, key=lambda incident: incident.id),
                told=[mark for mark in self._told.values() if mark.incident in known],
                deliveries=sorted(self._deliveries.values(), key=lambda delivery: delivery.id),
                silences=sorted(self._silences.values(), key=lambda silence: silence.id),
            )

    def take(self) -> dict[Key, Entry]:
        """Empty the queue into the writing thread."""
        with self._lock:
            taken, self._queue = self._queue, {}
            return taken

    def put_back(self, taken: dict[Key, Entry]) -> None:
        """Return what could not be written, before what came meanwhile; the newer row of a thing wins."""
        with self._lock:
            newer, self._queue = self._queue, taken
            for key, entry in newer.items():
                self._enqueue(key, entry)
            self._bound()

    def written(self, taken: Iterable[Entry]) -> None:
        """Settle the commits that are on disk now."""
        with self._lock:
            for entry in taken:
                for ticket in entry.tickets:
                    ticket.settle()
            if self._gap:  # the disk answers again: all that still counts is written anew
                self._gap = False
                self._requeue()

    def refused(self, entries: Iterable[Entry]) -> None:
        """Give up rows that no database takes."""
        with self._lock:
            for entry in entries:
                self._drop(entry)

    @property
    def waiting(self) -> int:
        """How many rows are not on disk."""
        return len(self._queue)

    def adopt(self, found: Found) -> None:
        """Take over what a database held. Where it was opened late, what this run has decided since stands.

        An open incident of an earlier run whose rule and target have an open one of this run by now is the same story: it
        goes on under its old id and with its old age. What this run still says of the other id is taken for the old one.
        """
        with self._lock:
            current = {(item.rule, item.subject, item.key): item for item in self._incidents.values() if item.ended_at is None}
            for incident in found.incidents:
                if incident.id in self._incidents:
                    continue
                heir = current.get((incident.rule, incident.subject, incident.key))
                if incident.ended_at is None and heir is not None:
                    self._merge(incident, heir)
                else:
                    self._incidents[incident.id] = incident
            for mark in found.told:
                if mark.incident in self._incidents:
                    self._told.setdefault((mark.incident, mark.channel), mark)
            for delivery in found.deliveries:
                if ("delivery", delivery.id) not in self._queue:  # else it was attempted, and perhaps ended, meanwhile
                    self._deliveries.setdefault(delivery.id, delivery)
            for silence in found.silences:
                self._silences.setdefault(silence.id, silence)
            for name, blob in found.blobs.items():
                self._blobs.setdefault(name, blob)
            self.adopted = True

    def requeue(self) -> None:
        """Put all that is known into the queue: the file on disk is a fresh one."""
        with self._lock:
            self._requeue()

    def _merge(self, older: Incident, heir: Incident) -> None:
        """Let an incident of this run go on as the older one. No row of it is on disk: that has only now been read."""
        self._older[heir.id] = older
        del self._incidents[heir.id]
        merged = self._incidents[older.id] = self._continued(heir)
        self._move(("incident", heir.id), *incident_row(merged))
        for mark in [mark for mark in self._told.values() if mark.incident == heir.id]:
            del self._told[heir.id, mark.channel]
            moved = self._told[older.id, mark.channel] = self._marked(mark)
            self._move(("told", heir.id, mark.channel), *told_row(moved))

    def _continued(self, incident: Incident) -> Incident:
        """Return an incident under the identity of the older one that it continues, itself where there is none."""
        older = self._older.get(incident.id)
        if older is None:
            return incident
        highest = max(older.highest, incident.highest, key=lambda severity: severity.rank)
        return replace(incident, id=older.id, since=older.since, fired_at=older.fired_at, highest=highest)

    def _marked(self, mark: Told) -> Told:
        """Return a mark on the older incident that its own continues."""
        older = self._older.get(mark.incident)
        return mark if older is None else replace(mark, incident=older.id)

    def _move(self, before: Key, key: Key, row: Row) -> None:
        """Put a row into the queue in place of one with another key, with the commits that wait for that."""
        entry = self._queue.pop(before, None)
        self._enqueue(key, Entry(row, WeakSet(), Unit()) if entry is None else replace(entry, row=row))

    def _requeue(self) -> None:
        rows = [*map(incident_row, self._incidents.values()), *map(told_row, self._told.values())]
        rows += [*map(delivery_row, self._deliveries.values()), *map(silence_row, self._silences.values())]
        rows += [blob_row(name, version, data) for name, (version, data) in self._blobs.items()]
        for key, row in rows:
            if key not in self._queue:
                self._queue[key] = Entry(row, WeakSet(), Unit())

    def _push(self, rows: Sequence[tuple[Key, Row]]) -> Ticket:
        ticket, unit = Ticket(), Unit()
        if not rows:
            ticket.settle()
        for key, row in rows:
            self._enqueue(key, Entry(row, WeakSet([ticket]), unit))
        self._bound()
        return ticket

    def _enqueue(self, key: Key, entry: Entry) -> None:
        before = self._queue.pop(key, None)
        if before is not None:
            entry.unit.join(before.unit)
            entry = replace(entry, tickets=before.tickets | entry.tickets)
        self._queue[key] = entry

    def _bound(self) -> None:
        while len(self._queue) > QUEUE_LIMIT:
            self._gap = True
            self._drop(self._queue.pop(next(iter(self._queue))))

    def _drop(self, entry: Entry) -> None:
        self.dropped += 1
        for ticket in entry.tickets:
            ticket.settle(lost=True)

    def _forget(self) -> None:
        """Let the oldest ended incidents and silences go, so that a long run stays small."""
        ended = [item for item in self._incidents.values() if item.ended_at is not None]
        if len(ended) > ENDED_LIMIT:
            for incident in sorted(ended, key=lambda item: item.id)[: len(ended) - ENDED_LIMIT // 2]:
                del self._incidents[incident.id]
            self._told = {pair: mark for pair, mark in self._told.items() if pair[0] in self._incidents}
        if len(self._silences) > SILENCE_LIMIT:
            last = sorted(self._silences.values(), key=lambda item: (item.ends_at, item.id))[-SILENCE_LIMIT // 2 :]
            self._silences = {silence.id: silence for silence in last}
