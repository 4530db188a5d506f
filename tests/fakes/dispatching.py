"""A story for the dispatcher: incidents that change while time passes, and every message it decides on."""

from typing import Any

from gpuwatch import notify
from gpuwatch.config import Config, Route
from gpuwatch.model.alert import Incident
from gpuwatch.model.delivery import Delivery, Told
from gpuwatch.model.silence import Matcher, Silence
from gpuwatch.notify.dispatch import Group, Mark, decide, remembered
from tests.fakes.clock import FakeClock


def channels(*tables: dict[str, Any], routes: list[Route] | None = None) -> notify.Channels:
    """Build channels from tables that lack what every one has; none: one called a."""
    whole = [{"kind": "webhook", "url": "http://127.0.0.1:1/", **table} for table in tables or ({"name": "a"},)]
    return notify.build(Config(receivers=whole, routes=routes or []))


class Story:
    """Incidents that change while time passes; every message is kept with its time since the start."""

    def __init__(self, who: notify.Channels | None = None) -> None:
        self.clock = FakeClock()
        self.start = self.clock.mono()
        self.who = who or channels()
        self.incidents: dict[str, Incident] = {}
        self.silences: list[Silence] = []
        self.marks: dict[tuple[str, str], Mark] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self.sent: list[tuple[float, Delivery]] = []
        self.settled: list[Told] = []
        self.look: float | None = None
        self._ids = 0

    def _id(self) -> str:
        self._ids += 1
        return f"01HG{self._ids:022d}"

    def tell(self, *incidents: Incident) -> "Story":
        """Let incidents be as given from now on, and look."""
        self.incidents.update((incident.id, incident) for incident in incidents)
        return self.beat()

    def beat(self) -> "Story":
        """Decide once."""
        plan = decide(
            self.incidents.values(),
            self.marks,
            self.who,
            self.groups,
            mono=self.clock.mono(),
            wall=self.clock.wall(),
            new_id=self._id,
            silences=self.silences,
        )
        self.groups, self.look = dict(plan.groups), plan.look
        for told in (*plan.settled, *(mark for message in plan.messages for mark in message.told)):
            self.marks[told.incident, told.channel] = Mark(told, self.clock.mono())
        self.settled += plan.settled
        self.sent += [(self.clock.mono() - self.start, message.delivery) for message in plan.messages]
        return self

    def silence(self, seconds: float, *matchers: Matcher) -> "Story":
        """Silence what these match from now on, and look."""
        wall = self.clock.wall()
        made = Silence(id=self._id(), matchers=matchers, starts_at=wall, ends_at=wall + seconds, author="a", comment="")
        self.silences.append(made)
        return self.beat()

    def forward(self, seconds: float, step: float = 1.0) -> "Story":
        """Let time pass, looking every `step`."""
        until = self.clock.mono() + seconds
        while self.clock.mono() < until:
            self.clock.forward(min(step, until - self.clock.mono()))
            self.beat()
        return self

    def restart(self) -> "Story":
        """Die and live again with what the store holds: incidents and marks, no timers; the monotonic clock is another."""
        self.clock = FakeClock(wall=self.clock.wall(), mono=self.clock.mono() - self.start + 7.0)
        self.start = 7.0
        self.marks = {
            key: remembered(mark.told, mono=self.clock.mono(), wall=self.clock.wall()) for key, mark in self.marks.items()
        }
        self.groups = {}
        return self.beat()

    @property
    def kinds(self) -> list[tuple[float, str]]:
        """When what kind was sent."""
        return [(at, delivery.kind.value) for at, delivery in self.sent]
