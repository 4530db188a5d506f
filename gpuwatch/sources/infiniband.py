"""Ports of InfiniBand and RoCE adapters, from sysfs; in the probe worker, since a read of a counter asks the adapter's firmware.

What the counters mean, and that data is counted in words of four bytes: Documentation/ABI/stable/sysfs-class-infiniband.
"""

import errno
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from gpuwatch.catalogue.host import INFINIBAND, INFINIBAND_BYTES, INFINIBAND_ERRORS, INFINIBAND_RATE, INFINIBAND_UP
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

SOURCE = "infiniband"
LIMIT = 64  # ports
ACTIVE = "4:"  # of "4: ACTIVE"; 1 is down, 2 and 3 wait for a subnet manager
RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) Gb/sec\b")  # of "100 Gb/sec (4X EDR)"
GIGABIT = 1e9 / 8  # bytes
WORD = 4  # bytes
FULL = 0xFFFFFFFF  # where a counter of 32 bits stays once it is full: how much there was after that is not known
BYTES: Mapping[Metric, str] = {
    INFINIBAND_BYTES["receive"]: "port_rcv_data",
    INFINIBAND_BYTES["transmit"]: "port_xmit_data",
}
ERRORS: Mapping[Metric, str] = {
    INFINIBAND_ERRORS["symbol"]: "symbol_error",
    INFINIBAND_ERRORS["link_recovery"]: "link_error_recovery",
    INFINIBAND_ERRORS["link_downed"]: "link_downed",
    INFINIBAND_ERRORS["rcv"]: "port_rcv_errors",
    INFINIBAND_ERRORS["local_link_integrity"]: "local_link_integrity_errors",
    INFINIBAND_ERRORS["buffer_overrun"]: "excessive_buffer_overrun_errors",
}


class Infiniband:
    """The ports of this host."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._devices = Path(config.paths.sys) / "class/infiniband"
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read every port, once a slow round."""
        if tier is Tier.SLOW:
            for device, port in ports(self._devices):
                target = target_of(device, port)
                look = Look(SOURCE, Tier.SLOW, target, self._clock)
                if target.key in skip:
                    look.lack([INFINIBAND_UP, INFINIBAND_RATE, *BYTES, *ERRORS], Absence.LATE)
                    answer.reading(look.reading())
                else:
                    answer.working(target.key)
                    answer.reading(read(look, self._devices / device / "ports" / port))
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""


def ports(devices: Path) -> list[tuple[str, str]]:
    """Return the ports in the order of their names; those of virtual functions are the business of who was given them."""

    def every() -> Iterator[tuple[str, str]]:
        for device in sysfs.entries(devices):
            if not sysfs.is_link(devices / device / "device/physfn"):
                yield from ((device, port) for port in sysfs.entries(devices / device / "ports"))

    return list(islice(every(), LIMIT))


def target_of(device: str, port: str) -> Target:
    """Return a port as the target of its readings."""
    labels = {"device": printable(device), "port": printable(port)}
    return Target(subject=INFINIBAND, key=f"{labels['device']}/{labels['port']}", labels=labels)


def read(look: Look, folder: Path) -> Reading:
    """Return one port as it is now."""
    look.take(INFINIBAND_UP, lambda: float(sysfs.text(folder / "state").startswith(ACTIVE)))
    if look.values.get(INFINIBAND_UP) == 0:
        look.lack([INFINIBAND_RATE], Absence.EMPTY)
    else:
        look.take(INFINIBAND_RATE, partial(rate, folder / "rate"))
    for metric, name in BYTES.items():
        look.take(metric, partial(counted, folder / "counters" / name, WORD))
    for metric, name in ERRORS.items():
        look.take(metric, partial(counted, folder / "counters" / name, 1))
    return look.reading()


def rate(file: Path) -> float:
    """Return bytes per second; raises OSError and ValueError."""
    found = RATE.match(sysfs.text(file))
    if found is None:
        raise ValueError("no rate of an InfiniBand port")
    return float(found[1]) * GIGABIT


def counted(file: Path, size: int) -> float | None:
    """Return a counter in units of `size`, None while a counter of 32 bits is full; raises OSError and ValueError.

    Adapters that count nothing (i40iw) write "N/A (no PMA)" or refuse the read.
    """
    text = sysfs.text(file)
    if text.startswith("N/A"):
        raise OSError(errno.EOPNOTSUPP, text)
    count = int(text)
    return None if size > 1 and count == FULL else float(count * size)


def source(config: Config, clock: Clock) -> Source:
    """Return the InfiniBand ports as a source."""
    return Infiniband(config, clock)
