"""A simulated host in place of the real one, driven by a scenario file: `gpuwatch demo`, pictures and tests.

Its Readings carry the names of the sources they imitate (nvml, host, smart, ...), so that every room behind it works as on
a real host.
"""

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.catalogue import gpu, host
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.simulated import physics, show, work
from gpuwatch.sources.simulated.machine import SimulatedDisk, SimulatedHost, wear_events
from gpuwatch.sources.simulated.models import MODELS
from gpuwatch.sources.simulated.scenario import DEMO, Scenario, read
from gpuwatch.sources.source import Answer

STEP = 0.25  # seconds of simulation at once: fine enough for a control loop with 1 s
LONGEST = 3600.0  # a pause longer than this (a suspended machine) is simulated as this long


class World:
    """The simulated host at one moment."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.elapsed = 0.0
        self.cards = physics.cards(scenario, MODELS[scenario.model])
        self.host = SimulatedHost(cores=scenario.cores)
        self.disks = [SimulatedDisk(index) for index in range(scenario.disks)]
        self.fallen: list[physics.Card] = []  # off the bus, and not told of yet
        self._wear = wear_events(scenario)

    def advance(self, seconds: float) -> None:
        """Let time pass, in small steps."""
        left = min(seconds, LONGEST)
        while left > 1e-9:
            passed = min(STEP, left)
            self.elapsed += passed
            for card in self.cards:
                was_lost = card.lost
                card.advance(self.scenario, self.elapsed, passed)
                self.fallen += [card] if card.lost and not was_lost else []
            self.host.advance(self.cards, passed)
            busy = sum(card.utilization for card in self.cards)
            for drive in self.disks:
                drive.advance(self._wear, busy, self.elapsed, passed)
            left -= passed

    def readings(self, tier: Tier, config: Config, at: float, booted: float) -> Iterator[Reading]:
        """Yield everything that a real host would say at this tier."""
        gpus = [show.gpu_target(card, label(config, show.address(card.index))) for card in self.cards]
        for card, target in zip(self.cards, gpus, strict=True):
            yield show.gpu_reading(card, target, tier, at)
        if tier is Tier.NORMAL:
            yield from work.readings(self.cards, gpus, config.privacy.users, at, booted)
        info = {"name": config.host.name, "machine": "simulated", "kernel": "5.15.0", "os": "simulated", "boot_id": "simulated"}
        place = Target(subject=host.HOST, key="", info=info)
        yield Reading(source="host", tier=tier, target=place, at=at, took=0.0, values=show.host_values(self.host, tier, booted))
        for drive in self.disks:
            yield from show.disk_readings(drive, tier, at)
        if tier is Tier.SLOW:
            yield from (show.pci_reading(card, at) for card in self.cards)
        else:
            state = {**gpu.DRIVER_STATE.at("ok"), gpu.DRIVER_MISMATCH: 0.0}
            yield Reading(source="nvml", tier=tier, target=show.DRIVER, at=at, took=0.0, values=state)
        visible = gpu.VISIBLE["pci" if tier is Tier.SLOW else "nvml"]
        every = Target(subject=gpu.GPUS, key="")
        name = "pci" if tier is Tier.SLOW else "nvml"
        yield Reading(source=name, tier=tier, target=every, at=at, took=0.0, values={visible: float(len(self.cards))})


def label(config: Config, address: str) -> str:
    """Return what the operator calls the GPU at an address, "" where he has no name for it."""
    return config.gpus[address].label if address in config.gpus else ""


class Simulated:
    """The source: it advances its world to the present at every question."""

    def __init__(self, config: Config, clock: Clock, scenario: Scenario) -> None:
        self._config, self._clock = config, clock
        self._world = World(scenario)
        self._before = clock.mono()
        self._booted = clock.wall()

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:  # noqa: ARG002 - nothing here can hang
        """Answer with the whole host at this tier."""
        now = self._clock.mono()
        self._world.advance(now - self._before)
        self._before = now
        for card in self._world.fallen:
            answer.event(show.fall(card, self._clock.wall()))
        self._world.fallen.clear()
        for reading in self._world.readings(tier, self._config, self._clock.wall(), self._booted):
            answer.reading(reading)
        answer.done()

    def close(self) -> None:
        """Hold nothing."""


def source(config: Config, clock: Clock) -> Simulated:
    """Return the simulated host of the configured scenario; raises ConfigError for a mistake in it."""
    path = config.sources.simulated.scenario
    return Simulated(config, clock, read(Path(path) if path else DEMO))
