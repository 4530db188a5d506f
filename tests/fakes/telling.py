"""A notifier with everything around it under a test's hand: clock, journal, receivers. One `Life` is one run of the daemon."""

import itertools
from types import TracebackType
from typing import Any, final

from gpuwatch import notify
from gpuwatch.config import Config
from gpuwatch.model.alert import Incident
from gpuwatch.notify.outbox import pick
from gpuwatch.notify.resolver import Resolver
from tests.fakes.clock import FakeClock
from tests.fakes.journal import Journal
from tests.fakes.until import PATIENCE, until

HOST = "vision-07"
COUNTER = itertools.count(1)


def new_id() -> str:
    """Return an id that sorts behind all earlier ones, over every life of a test."""
    return f"01HG{next(COUNTER):022d}"


def channels(**urls: Any) -> notify.Channels:
    """Build channels from `name=url` or `name={keys}`."""
    tables = ({"url": found} if isinstance(found, str) else found for found in urls.values())
    return notify.build(
        Config(receivers=[{"name": name, "kind": "webhook", **table} for name, table in zip(urls, tables, strict=True)])
    )


@final
class Life:
    """One run: restores what the journal holds and starts; leaving it stops it."""

    def __init__(
        self,
        who: notify.Channels,
        clock: FakeClock,
        journal: Journal,
        *,
        deadline: float = PATIENCE,
        resolver: Resolver | None = None,
    ) -> None:
        self.clock, self.journal = clock, journal
        self.silences = notify.Silences(journal, clock, new_id, {})
        self.notifier = notify.Notifier(
            who, journal, clock, HOST, new_id, silences=self.silences, deadline=deadline, resolver=resolver
        )
        self.notifier.restore(journal.memory())
        self.notifier.start()
        until(lambda: self.notifier._mine is None and not self.notifier._inbox)

    def tell(self, *incidents: Incident) -> None:
        """Let incidents be so, as the judge does; returns once the notifier has looked at them."""
        self.journal.note(*incidents)
        self.notifier.changed(incidents)
        until(lambda: not self.notifier._inbox)  # the clock may move on only then: the round has read it

    def forward(self, seconds: float) -> None:
        """Let time pass, and tick."""
        self.clock.forward(seconds)
        self.notifier.tick()

    def fire(self, *incidents: Incident, wait: float = 10.0) -> None:
        """Let incidents fire, and let the group's wait pass once they are known."""
        before = len(self.journal.commits)
        self.tell(*incidents)
        self.forward(wait)
        until(lambda: len(self.journal.commits) > before + 1)

    def attempts(self, count: int) -> None:
        """Wait until so many attempts were made in all."""
        until(lambda: len(self.journal.attempts) >= count)

    def rests(self) -> None:
        """Wait until nothing is due any more."""
        senders = self.notifier._senders.values()
        until(lambda: all(pick(tuple(sender._entries), self.clock.mono())[0] is None for sender in senders))

    def value(self, channel: str, metric: str) -> float | None:
        """Return one number of a channel."""
        (found,) = [reading for reading in self.notifier.readings(self.clock.wall()) if reading.target.key == channel]
        return {known.id: value for known, value in found.values.items()}.get(metric)

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.notifier.stop(0.5)
