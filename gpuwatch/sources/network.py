"""Speed and state of the network interfaces, from sysfs; in the probe worker, since some of its files ask the driver.

The counters of bytes, errors and drops are read by `host` from /proc/net/dev.
"""

from functools import partial
from pathlib import Path

from gpuwatch.catalogue.host import NETWORK_CARRIER_CHANGES, NETWORK_SPEED, NETWORK_UP
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sources import interfaces, sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

SOURCE = "network"
MEGABIT = 1e6 / 8  # bytes


class Network:
    """The network interfaces of this host."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._sys = Path(config.paths.sys)
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read every interface that counts, once a slow round."""
        if tier is Tier.SLOW:
            for name in interfaces.counted(self._sys):
                item = interfaces.target(name).key
                if item not in skip:
                    answer.working(item)
                    answer.reading(self._look(name))
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _look(self, name: str) -> Reading:
        """Return one interface as it is now."""
        folder = self._sys / "class/net" / name
        look = Look(SOURCE, Tier.SLOW, interfaces.target(name), self._clock)
        look.take(NETWORK_UP, partial(is_up, folder))
        look.take(NETWORK_SPEED, partial(speed, folder))
        look.take(NETWORK_CARRIER_CHANGES, partial(sysfs.number, folder / "carrier_changes"))
        return look.reading()


def is_up(folder: Path) -> float:
    """Return 1 while an interface can pass packets; a driver that keeps no state says `unknown`, and its carrier counts."""
    state = sysfs.text(folder / "operstate")
    return float(state == "up" or (state == "unknown" and sysfs.trait(folder / "carrier") == "1"))


def speed(folder: Path) -> float | None:
    """Return bytes per second; None where the driver has none to say (-1, 0), as while the link is down (also EINVAL)."""
    megabits = sysfs.number(folder / "speed")
    return megabits * MEGABIT if 0 < megabits < 0xFFFFFFFF else None  # old drivers write -1 as unsigned (SPEED_UNKNOWN)


def source(config: Config, clock: Clock) -> Source:
    """Return the network interfaces as a source."""
    return Network(config, clock)
