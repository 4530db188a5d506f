"""A physically plausible GPU: power follows utilisation and clock, temperature follows power, clock follows temperature.

Temperature goes to `ambient + resistance x power` with one time constant. From one degree below the slowdown limit the
driver takes clock away, as real cards do, so that a hot card settles near its limit with its clock down.
"""

import random

import msgspec

from gpuwatch.sources.simulated.models import Model
from gpuwatch.sources.simulated.scenario import Event, Kind, Scenario

JOB_MEMORY = 0.62  # share of its memory that the simulated training job takes
THROTTLE_STEP = 0.03  # share of the clock taken or given back a second, as the driver's control loop does
CLOCK_FLOOR = 0.3


class Card(msgspec.Struct):
    """One simulated GPU at one moment; `advance` moves it on."""

    model: Model
    index: int
    noise: random.Random
    temperature: float
    utilization: float = 0.0
    power: float = 0.0
    clock_share: float = 1.0  # what heat leaves of the clock
    capped: bool = False
    hot: bool = False
    limit: float = 0.0
    memory_used: float = 0.0
    leaked: float = 0.0
    energy: float = 0.0
    busy: float = 0.0
    hot_seconds: float = 0.0
    capped_seconds: float = 0.0
    lost: bool = False
    hung: bool = False
    starved: bool = False
    events: tuple[Event, ...] = ()

    def advance(self, scenario: Scenario, elapsed: float, passed: float) -> None:
        """Move the card on by `passed` seconds, to `elapsed` seconds after the start."""
        now = {event.kind: event for event in self.events if event.holds(elapsed)}
        self.lost, self.hung, self.starved = Kind.LOST in now, Kind.HUNG in now, Kind.STARVATION in now
        level = self.load(scenario, elapsed)
        if self.starved:
            level *= now[Kind.STARVATION].amount
        wanted = min(1.0, max(0.0, level + self.noise.gauss(0, 0.02) * (level > 0)))
        self.utilization += (wanted - self.utilization) * min(1.0, passed / 2)
        self.limit = now[Kind.POWER_CAP].amount if Kind.POWER_CAP in now else self.model.power_limit
        self.draw(passed)
        self.heat(scenario.ambient, now[Kind.OVERHEATING].amount if Kind.OVERHEATING in now else 1.0, passed)
        self.leaked += now[Kind.LEAK].amount * passed if Kind.LEAK in now else 0.0
        job = self.model.memory_size * JOB_MEMORY if level > 0 else 0.0
        self.memory_used = min(job + self.leaked, self.model.memory_size - self.model.memory_reserved)

    def load(self, scenario: Scenario, elapsed: float) -> float:
        """Return how busy the scenario wants this card."""
        level = 0.0
        for load in scenario.load:
            if load.at <= elapsed and (load.gpus is None or self.index in load.gpus):
                level = load.level
        return level

    def draw(self, passed: float) -> None:
        """Power follows utilisation and clock, up to the limit."""
        span = self.model.power_limit * 0.97 - self.model.idle_power
        wanted = self.model.idle_power + span * self.utilization * self.clock_share**2
        self.capped = wanted > self.limit
        self.power = min(wanted, self.limit)
        self.energy += self.power * passed
        self.busy += self.utilization * passed
        self.capped_seconds += passed * self.capped

    def heat(self, ambient: float, factor: float, passed: float) -> None:
        """Temperature follows power; near the limit the clock goes down, and comes back when it is cool again."""
        resistance = self.model.full_load_rise / self.model.power_limit * factor
        final = ambient + resistance * self.power
        self.temperature += (final - self.temperature) * min(1.0, passed / self.model.time_constant)
        self.hot = self.temperature >= self.model.slowdown - 1
        step = THROTTLE_STEP * passed
        self.clock_share = max(CLOCK_FLOOR, self.clock_share - step) if self.hot else min(1.0, self.clock_share + step)
        self.hot_seconds += passed * (self.clock_share < 1.0)

    @property
    def is_held(self) -> bool:
        """Whether a process is on it; a fall from the bus ends that."""
        return self.memory_used > 0 and not self.lost

    @property
    def clock(self) -> float:
        """Present SM clock in hertz; a capped card runs at the clock that its power allows."""
        if self.utilization < 0.01:
            return 210e6  # the idle clock of most cards
        share = self.clock_share * ((self.limit / self.model.power_limit) ** 0.5 if self.capped else 1.0)
        return self.model.sm_clock * share


def cards(scenario: Scenario, model: Model) -> list[Card]:
    """Return the GPUs of a scenario, cold and idle."""
    return [
        Card(
            model=model,
            index=index,
            noise=random.Random(scenario.seed * 1000 + index),  # noqa: S311 - weather, not secrets
            temperature=scenario.ambient + 6,
            limit=model.power_limit,
            events=tuple(event for event in scenario.event if event.gpu == index and event.kind is not Kind.WEAR),
        )
        for index in range(scenario.gpus)
    ]
