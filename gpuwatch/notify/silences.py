"""The silences of this host: made, ended, remembered, and asked by everybody who must know what is not told."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue import own
from gpuwatch.model.alert import Incident
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.silence import LONGEST, Made, Matcher, Silence
from gpuwatch.model.target import Target
from gpuwatch.notify import dispatch
from gpuwatch.notify.outbox import Ticket

log = logging.getLogger(__name__)

STORED = 3.0  # seconds that the disk may take before it is said that a silence is not stored (rulings 7)
DRIFT = 1.0  # seconds by which the wall clock may lag behind the monotonic one, as it is slewed, before it counts as set back
LIMIT = 300  # silences that are not over at one time; the ended ones that are remembered beside them are three times as many


class Store(Protocol):
    """Where they are kept."""

    def commit(self, *, silences: Sequence[Silence]) -> Ticket:
        """Write these."""
        ...


class Held(msgspec.Struct, frozen=True):
    """A silence, and when it ends at the latest on this run's monotonic clock."""

    silence: Silence
    until: float

    def now(self, wall: float, mono: float) -> Silence:
        """Return the silence with its end on the wall clock as that is now: where it was set back, the end has moved with it."""
        ends_at = wall + self.until - mono
        return replace(self.silence, ends_at=ends_at) if ends_at < self.silence.ends_at - DRIFT else self.silence


class Silences:
    """All silences, those that have ended included for a while. Any thread may call; only `add` and `end` wait for a disk.

    None lasts longer than it was made for, whatever is done to the wall clock: a run measures it by its monotonic clock, and
    one that is restored has at most its whole length before it.
    """

    def __init__(self, store: Store, clock: Clock, new_id: Callable[[], str], host_labels: Mapping[str, str]) -> None:
        self._store, self._clock, self._new_id, self._host_labels = store, clock, new_id, host_labels
        self._lock = threading.Lock()
        self._known: dict[str, Held] = {}
        self.is_whole = False  # what earlier runs left has been taken over; until then nothing is silenced by it
        self._standing: Silence | None = None

    def restore(self, silences: Sequence[Silence]) -> None:
        """Take over what earlier runs left; what this run has said meanwhile stands."""
        wall, mono = self._clock.wall(), self._clock.mono()
        with self._lock:
            for silence in silences:
                lasts = min(silence.ends_at - wall, silence.ends_at - silence.starts_at, LONGEST)
                self._known.setdefault(silence.id, Held(silence, mono + lasts))
            self.is_whole = True

    def add(self, matchers: Sequence[Matcher], seconds: float, *, author: str, comment: str) -> Made | None:
        """Begin a silence now; it holds at once. One that lasts and is equal is the same, to the later end. None: too many."""
        wall, mono, lasts = self._clock.wall(), self._clock.mono(), min(seconds, LONGEST)
        with self._lock:
            known = [(held, held.now(wall, mono)) for held in self._known.values()]
            over = sorted((pair for pair in known if pair[1].is_over(wall)), key=lambda pair: pair[1].ends_at)
            equal = [held for held, now in known if not now.is_over(wall) and set(now.matchers) == set(matchers)]
            before = max(equal, key=lambda held: held.until, default=None)
            if before is not None and before.until >= mono + lasts:
                silence = before.now(wall, mono)
            elif before is not None:
                comment = comment or before.silence.comment
                silence = replace(before.silence, ends_at=wall + lasts, author=author, comment=comment)
            elif len(known) - len(over) >= LIMIT:
                return None
            else:
                silence = Silence(
                    id=self._new_id(),
                    matchers=tuple(matchers),
                    starts_at=wall,
                    ends_at=wall + lasts,
                    author=author,
                    comment=comment,
                )
            for held, _ in over[: -3 * LIMIT]:
                del self._known[held.silence.id]
            self._known[silence.id] = Held(silence, max(mono + lasts, before.until if before else 0.0))
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(silence.ends_at))
        said = [printable(text, 400) for text in (str(silence), author, comment or "no comment")]
        log.info("%s is silenced until %s (%s) by %s: %s", said[0], until, silence.id, *said[1:])
        return Made(silence, self._keep(silence), already=before is not None)

    def end(self, identifier: str, *, by: str) -> tuple[Silence, bool] | None:
        """End a silence now; one that is over stays as it was. None where there is none of this id."""
        wall, mono = self._clock.wall(), self._clock.mono()
        with self._lock:
            held = self._known.get(identifier)
            if held is None:
                return None
            silence = held.now(wall, mono)
            if silence.is_over(wall):
                return silence, True
            silence = replace(silence, ends_at=wall, ended_by=by)
            self._known[identifier] = Held(silence, mono)
        log.info("silence %s of %s is ended by %s", silence.id, printable(str(silence), 400), printable(by))
        return silence, self._keep(silence)

    def hold(self, standing: Silence | None) -> None:
        """Have this one hold beside the others, until it is taken back by None; whoever does so remembers it, and ends it."""
        self._standing = standing

    def known(self) -> list[Silence]:
        """Return all that are known, the oldest first, as they stand by now."""
        wall, mono = self._clock.wall(), self._clock.mono()
        with self._lock:
            lapsed = [held for held in self._known.values() if held.until <= mono and not held.silence.is_over(wall)]
            for held in lapsed:  # the wall clock was set back: a later run must not begin it anew
                silence = replace(held.silence, ends_at=wall)
                self._known[silence.id] = replace(held, silence=silence)
                self._store.commit(silences=[silence])
            return sorted((held.now(wall, mono) for held in self._known.values()), key=lambda silence: silence.id)

    def lasting(self, wall: float) -> list[Silence]:
        """Return those that are not over, the oldest first, then the one that others hold."""
        standing = self._standing
        return [silence for silence in self.known() if not silence.is_over(wall)] + ([] if standing is None else [standing])

    def silencing(self, incident: Incident, wall: float) -> list[str]:
        """Return the ids of the silences that keep this incident from being told."""
        return [silence.id for silence in dispatch.silencing(incident, self.lasting(wall), self._host_labels)]

    def readings(self, wall: float) -> list[Reading]:
        """Return whether the host is in maintenance: a silence of all of it is active."""
        quiet = any(silence.is_whole_host for silence in self.lasting(wall))
        target = Target(subject=own.OWN, key="")
        values = {own.MAINTENANCE_MODE: float(quiet)}
        return [Reading(source="silences", tier=Tier.NORMAL, target=target, at=wall, took=0.0, values=values)]

    def _keep(self, silence: Silence) -> bool:
        stored = self._store.commit(silences=[silence]).wait(STORED)
        if not stored:
            log.warning("what was said of silence %s holds, but the disk has not taken it yet", silence.id)
        return stored
