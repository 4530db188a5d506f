"""What happens on a simulated host, and when: a TOML file -> Scenario; docs/simulation.md has an example with every key."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

from gpuwatch import config
from gpuwatch.config import ConfigError, convert
from gpuwatch.model.quantity import Duration
from gpuwatch.sources.simulated.models import MODELS

DEMO = Path(__file__).parent / "demo.toml"


class Kind(str, Enum):
    """What can go wrong, and what `amount` is."""

    OVERHEATING = "overheating"  # factor on the thermal resistance: dust, a dead fan
    POWER_CAP = "power_cap"  # watts of the new limit
    LEAK = "leak"  # bytes a second that are never released
    LOST = "lost"  # off the bus; amount is not used
    HUNG = "hung"  # calls do not return; amount is not used
    STARVATION = "starvation"  # share of its load that the GPU still gets
    WEAR = "wear"  # share of the disk's endurance a day


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From this moment on these GPUs are this busy."""

    at: Duration
    level: Annotated[float, msgspec.Meta(ge=0, le=1)]
    gpus: list[int] | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something goes wrong at this moment, for a while."""

    kind: Kind
    at: Duration
    lasts: Duration | None = None
    gpu: int | None = None
    disk: int | None = None
    amount: float = 1.0

    def holds(self, elapsed: float) -> bool:
        """Whether it is going on at this moment."""
        return self.at <= elapsed and (self.lasts is None or elapsed < self.at + self.lasts)


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated host and its fate."""

    model: str = "A40"
    gpus: Annotated[int, msgspec.Meta(ge=0, le=72)] = 8
    cores: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 64
    disks: Annotated[int, msgspec.Meta(ge=0, le=16)] = 2
    seed: int = 1
    ambient: float = 24.0  # celsius at the inlet
    load: list[Load] = []
    event: list[Event] = []


def read(path: Path) -> Scenario:
    """Read a scenario file; raises ConfigError."""
    table = config.read(path)
    scenario = convert(table, Scenario, {}, str(path))
    check(scenario, str(path))
    return scenario


def check(scenario: Scenario, place: str) -> None:
    """Refuse names and numbers that the simulated host does not have; raises ConfigError."""
    if scenario.model not in MODELS:
        raise ConfigError(place, "model", f'expected one of {", ".join(MODELS)}, found "{scenario.model}"')
    for index, load in enumerate(scenario.load):
        for gpu in load.gpus or ():
            if not 0 <= gpu < scenario.gpus:
                raise ConfigError(place, f"load[{index}].gpus", f"expected GPUs below {scenario.gpus}, found {gpu}")
    for index, event in enumerate(scenario.event):
        name, thing, count = (
            ("disk", event.disk, scenario.disks) if event.kind is Kind.WEAR else ("gpu", event.gpu, scenario.gpus)
        )
        if thing is None or not 0 <= thing < count:
            found = "none" if thing is None else str(thing)
            raise ConfigError(place, f"event[{index}].{name}", f"expected a {name} below {count}, found {found}")
