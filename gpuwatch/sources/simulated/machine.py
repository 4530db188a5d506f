"""The rest of the simulated host: CPU, memory and disks that follow what its GPUs do."""

import msgspec

from gpuwatch.sources.simulated.physics import Card
from gpuwatch.sources.simulated.scenario import Event, Kind, Scenario

CORES_PER_BUSY_GPU = 5.5  # loaders that decode images
BYTES_PER_BUSY_GPU = 350e6  # read from the data set, per second
HOST_MEMORY = 512 * (1 << 30)
DISK_SIZE = 3.84e12
DAY = 86400.0


class SimulatedDisk(msgspec.Struct):
    """One NVMe drive."""

    index: int
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    busy: float = 0.0
    wear: float = 0.03
    temperature: float = 38.0
    fill: float = 0.55

    @property
    def spare(self) -> float:
        """Spare blocks left: whole until the rated endurance is used up, then falling."""
        return max(0.0, 1.0 - max(0.0, self.wear - 1.0) * 5)

    def advance(self, events: list[Event], busy_gpus: float, elapsed: float, passed: float) -> None:
        """Move the drive on."""
        share = 1.0 if self.index == 0 else 0.2
        self.read_bytes += BYTES_PER_BUSY_GPU * busy_gpus * share * passed
        wear = sum(event.amount for event in events if event.disk == self.index and event.holds(elapsed))
        self.wear += wear * passed / DAY
        self.written_bytes += (5e6 + wear * DISK_SIZE * 600 / DAY) * passed
        self.busy += min(1.0, 0.04 * busy_gpus * share + 0.6 * (wear > 0)) * passed
        self.temperature += (38 + 12 * min(1.0, busy_gpus / 8) * share - self.temperature) * min(1.0, passed / 120)


class SimulatedHost(msgspec.Struct):
    """CPU time by mode, load and pressure of the host that feeds the GPUs."""

    cores: int
    user: float = 0.0
    system: float = 0.0
    idle: float = 0.0
    waiting: float = 0.0
    load: float = 0.0
    used: float = 0.0
    memory_used: float = 60e9

    def advance(self, gpus: list[Card], passed: float) -> None:
        """Move the host on: each busy GPU wants its loaders, a starved one has them full."""
        wanted = sum(CORES_PER_BUSY_GPU * (1.4 if card.starved else card.utilization) for card in gpus if not card.lost)
        self.used = min(float(self.cores), wanted)
        self.user += self.used * 0.88 * passed
        self.system += self.used * 0.12 * passed
        self.idle += (self.cores - self.used) * passed
        self.waiting += passed * max(0.0, wanted - self.cores) / self.cores
        self.load += (wanted - self.load) * min(1.0, passed / 60)
        self.memory_used = 60e9 + 6e9 * sum(card.utilization > 0.05 for card in gpus)


def wear_events(scenario: Scenario) -> list[Event]:
    """Return the events that concern disks."""
    return [event for event in scenario.event if event.kind is Kind.WEAR]
