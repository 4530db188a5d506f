"""What one channel still has to be sent, in order, and which comes next. Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import Severity
from gpuwatch.model.delivery import Delivery
from gpuwatch.notify.retry import GIVE_UP, WISH_CAP

PATIENCE = 3  # failed attempts of one message after which the next ones may try: it could be the message, not the receiver
LIMIT = 1000  # messages of one channel (rulings 7)


class Ticket(Protocol):
    """A transaction on its way to the disk."""

    def wait(self, seconds: float) -> bool:
        """Return whether it is on the disk, waiting for at most so long."""
        ...


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One message that waits. Times are monotonic."""

    delivery: Delivery
    ready: float  # not tried before
    owed: float  # since when somebody should have heard; older than the delivery where it replaced an unsent one
    until: float  # given up then
    ticket: Ticket | None = None  # None: it came from the disk

    @property
    def incidents(self) -> frozenset[str]:
        """The incidents that it is about."""
        return frozenset(incident.id for incident in self.delivery.incidents)


def entry(delivery: Delivery, ticket: Ticket | None, *, mono: float, wall: float) -> Entry:
    """Put a delivery onto the monotonic clock; stamps from the future (the clock was set back) count as now."""
    age = max(0.0, wall - delivery.created)
    worst = max((incident.severity for incident in delivery.incidents), key=lambda severity: severity.rank, default=Severity.INFO)
    wait = min(max(0.0, delivery.not_before - wall), WISH_CAP)
    return Entry(delivery=delivery, ready=mono + wait, owed=mono - age, until=mono - age + GIVE_UP[worst], ticket=ticket)


def pick(entries: Iterable[Entry], mono: float) -> tuple[Entry | None, float | None]:
    """Return what is sent now, else None and when to look again.

    Messages go out in order. One that was tried PATIENCE times lets others pass, never those about its own incidents.
    """
    blocked: set[str] = set()
    look: float | None = None
    for waiting in entries:
        if not blocked.isdisjoint(waiting.incidents):
            blocked |= waiting.incidents
            continue
        if waiting.ready <= mono:
            return waiting, None
        look = waiting.ready if look is None else min(look, waiting.ready)
        if waiting.delivery.attempt < PATIENCE:
            break
        blocked |= waiting.incidents
    return None, look


def collapse(entries: Sequence[Entry], busy: str) -> tuple[list[Entry], list[Entry]]:
    """Split into what is still worth sending and what later messages say as well (alerting.md 1.4 point 4).

    A message nobody got is superseded when each of its incidents has a later one; that one counts as owed since then.
    The delivery with id `busy` is under way and stays.
    """
    kept: list[Entry] = []  # the latest first
    superseded: list[Entry] = []
    for older in reversed(entries):
        later = {incident for newer in kept for incident in newer.incidents}
        if older.delivery.id != busy and older.incidents <= later:
            superseded.append(older)
            kept = [newer if newer.incidents.isdisjoint(older.incidents) else inherit(newer, older) for newer in kept]
        else:
            kept.append(older)
    return kept[::-1], superseded[::-1]


def inherit(newer: Entry, older: Entry) -> Entry:
    """Let a message be owed since the one it replaces."""
    return replace(newer, owed=min(newer.owed, older.owed))
