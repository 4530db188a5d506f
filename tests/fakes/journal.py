"""The store as the notifier knows it, in memory: it outlives notifiers, can stall like a disk, and can die like a process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gpuwatch.model.alert import AlertState, Incident
from gpuwatch.model.delivery import Delivery, Outcome, Told
from gpuwatch.model.silence import Silence


@dataclass
class Memory:
    """What is on the disk."""

    incidents: list[Incident] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)


class Ticket:
    """A transaction that is on the disk once the journal says so."""

    def __init__(self, journal: "Journal") -> None:
        self._journal, self.done = journal, False

    def wait(self, seconds: float) -> bool:
        """Return whether it is on the disk."""
        with self._journal.changed:
            return self._journal.changed.wait_for(lambda: self.done, seconds)


class Journal:
    """Takes commits; `stalled` keeps them off the disk until `flows`, `dead` loses all that comes (we were killed)."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.commits: list[tuple[list[Told], list[Delivery]]] = []
        self.attempts: list[tuple[Delivery, Outcome, float | None]] = []
        self.dead = False
        self.dies_after_commit = False  # with the next delivery on the disk, we are killed
        self._stalled = False
        self._waiting: list[tuple[Ticket, Sequence[Incident], Sequence[Told], Sequence[Delivery], Sequence[Silence]]] = []
        self._incidents: dict[str, Incident] = {}
        self._told: dict[tuple[str, str], Told] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._silences: dict[str, Silence] = {}

    def stall(self) -> None:
        """Let the disk take nothing."""
        self._stalled = True

    def flows(self) -> None:
        """Let the disk take all that waits, and what comes."""
        with self.changed:
            self._stalled = False
            while self._waiting:
                self._write(*self._waiting.pop(0))

    def note(self, *incidents: Incident) -> None:
        """Write incidents, as the judge does before it tells the notifier."""
        self.commit(incidents=incidents)

    def commit(
        self,
        incidents: Sequence[Incident] = (),
        told: Sequence[Told] = (),
        deliveries: Sequence[Delivery] = (),
        silences: Sequence[Silence] = (),
    ) -> Ticket:
        """Write these in one transaction, or none of them."""
        ticket = Ticket(self)
        with self.changed:
            self.commits.append((list(told), list(deliveries)))
            if self._stalled:
                self._waiting.append((ticket, incidents, told, deliveries, silences))
            else:
                self._write(ticket, incidents, told, deliveries, silences)
            self.changed.notify_all()
        return ticket

    def attempted(self, delivery: Delivery, outcome: Outcome, retry_at: float | None) -> None:
        """Count an attempt, end the delivery without `retry_at`."""
        with self.changed:
            self.attempts.append((delivery, outcome, retry_at))
            if not self.dead:
                if retry_at is None:
                    self._deliveries.pop(delivery.id, None)
                else:
                    self._deliveries[delivery.id] = replace(delivery, attempt=delivery.attempt + 1, not_before=retry_at)
            self.changed.notify_all()

    def memory(self) -> Memory:
        """Return what a new life finds."""
        with self.changed:
            untold = {told.incident for told in self._told.values() if told.state is not AlertState.INACTIVE}
            incidents = [found for found in self._incidents.values() if found.ended_at is None or found.id in untold]
            deliveries = sorted(self._deliveries.values(), key=lambda found: found.id)
            return Memory(incidents, list(self._told.values()), deliveries, list(self._silences.values()))

    @property
    def results(self) -> list[str]:
        """What the attempts came to."""
        with self.changed:
            return [outcome.result.value for _, outcome, _ in self.attempts]

    def _write(
        self,
        ticket: Ticket,
        incidents: Sequence[Incident],
        told: Sequence[Told],
        deliveries: Sequence[Delivery],
        silences: Sequence[Silence],
    ) -> None:
        if self.dead:
            return
        self._incidents.update((found.id, found) for found in incidents)
        self._told.update(((found.incident, found.channel), found) for found in told)
        self._deliveries.update((found.id, found) for found in deliveries)
        self._silences.update((found.id, found) for found in silences)
        ticket.done = True
        self.dead = bool(deliveries) and self.dies_after_commit
        self.changed.notify_all()
