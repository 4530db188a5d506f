"""The silences of this host: made, ended, remembered, and asked by everybody who must know what is not told."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpuwatch.catalogue import own
from gpuwatch.model.alert import Incident
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.silence import LONGEST, Matcher, Silence
from gpuwatch.model.target import Target
from gpuwatch.notify import dispatch
from gpuwatch.notify.outbox import Ticket

log = logging.getLogger(__name__)

STORED = 3.0  # seconds that the disk may take before it is said that a silence is not stored (rulings 7)
LIMIT = 300  # silences that are not over at one time; the ended ones that are remembered beside them are three times as many


class Store(Protocol):
    """Where they are kept."""

    def commit(self, *, silences: Sequence[Silence]) -> Ticket:
        """Write these."""
        ...


class Silences:
    """All silences, those that have ended included for a while. Any thread may call; only `add` and `end` wait for a disk."""

    def __init__(self, store: Store, clock: Clock, new_id: Callable[[], str], host_labels: Mapping[str, str]) -> None:
        self._store, self._clock, self._new_id, self._host_labels = store, clock, new_id, host_labels
        self._lock = threading.Lock()
        self._known: dict[str, Silence] = {}

    def restore(self, silences: Sequence[Silence]) -> None:
        """Take over what earlier runs left; what this run has said meanwhile stands."""
        with self._lock:
            self._known = {**{silence.id: silence for silence in silences}, **self._known}

    def add(self, matchers: Sequence[Matcher], seconds: float, *, author: str, comment: str) -> tuple[Silence, bool] | None:
        """Begin a silence now; it holds at once, and the bool says whether it is on the disk. None where there are too many."""
        wall = self._clock.wall()
        with self._lock:
            present = [silence for silence in self._known.values() if not silence.is_over(wall)]
            if len(present) >= LIMIT:
                return None
            silence = Silence(
                id=self._new_id(),
                matchers=tuple(matchers),
                starts_at=wall,
                ends_at=wall + min(seconds, LONGEST),
                author=author,
                comment=comment,
                created_at=wall,
            )
            over = sorted((known for known in self._known.values() if known.is_over(wall)), key=lambda known: known.ends_at)
            self._known = {known.id: known for known in (*over[-3 * LIMIT :], *present, silence)}
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(silence.ends_at))
        said = [printable(text, 400) for text in (str(silence), author, comment or "no comment")]
        log.info("%s is silenced until %s (%s) by %s: %s", said[0], until, silence.id, *said[1:])
        return silence, self._keep(silence)

    def end(self, identifier: str, *, by: str) -> tuple[Silence, bool] | None:
        """End a silence now; one that is over stays as it was. None where there is none of this id."""
        wall = self._clock.wall()
        with self._lock:
            silence = self._known.get(identifier)
            if silence is None:
                return None
            if silence.is_over(wall):
                return silence, True
            silence = self._known[identifier] = replace(silence, ends_at=wall, ended_by=by)
        log.info("silence %s of %s is ended by %s", silence.id, printable(str(silence), 400), printable(by))
        return silence, self._keep(silence)

    def known(self) -> list[Silence]:
        """Return all that are known, the oldest first."""
        with self._lock:
            return sorted(self._known.values(), key=lambda silence: silence.id)

    def lasting(self, wall: float) -> list[Silence]:
        """Return those that are not over, the oldest first."""
        return [silence for silence in self.known() if not silence.is_over(wall)]

    def silencing(self, incident: Incident, wall: float) -> list[str]:
        """Return the ids of the silences that keep this incident from being told."""
        return [silence.id for silence in dispatch.silencing(incident, self.lasting(wall), self._host_labels, wall)]

    def readings(self, wall: float) -> list[Reading]:
        """Return whether the host is in maintenance: a silence of all of it is active."""
        quiet = any(silence.is_whole_host and silence.is_active(wall) for silence in self.known())
        target = Target(subject=own.OWN, key="")
        values = {own.MAINTENANCE_MODE: float(quiet)}
        return [Reading(source="silences", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values=values)]

    def _keep(self, silence: Silence) -> bool:
        stored = self._store.commit(silences=[silence]).wait(STORED)
        if not stored:
            log.warning("what was said of silence %s holds, but the disk has not taken it yet", silence.id)
        return stored
