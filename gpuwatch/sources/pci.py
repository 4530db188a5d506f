"""NVIDIA GPUs as the PCI bus sees them: the second witness while NVML is silent. In the probe worker: it touches devices.

A GPU that fell off the bus reads as all ones; one that sleeps (runtime D3) is left asleep. Virtual functions of a vGPU
host are not counted.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpuwatch.catalogue.gpu import GPUS, VISIBLE
from gpuwatch.catalogue.host import (
    AER_ERRORS,
    PCI,
    PCI_GENERATION,
    PCI_GENERATION_MAX,
    PCI_RESPONDING,
    PCI_WIDTH,
    PCI_WIDTH_MAX,
)
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.pci import address_of
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

SOURCE = "pci"
NVIDIA = "0x10de"
DISPLAY = ("0x0300", "0x0302")  # VGA and 3D controllers
GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}  # by GT/s
WIDTHS = frozenset((1, 2, 4, 8, 12, 16, 32))
ALL_ONES = b"\xff" * 4  # what the bus gives for a device that is not there


class Pci:
    """The GPUs on the bus."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._devices = Path(config.paths.sys) / "bus/pci/devices"
        self._wsl = Path(config.paths.dev) / "dxg"  # Windows keeps the bus to itself; the GPU comes in through this node
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read every GPU on the bus, once a slow round."""
        if tier is Tier.SLOW:
            look = Look(SOURCE, Tier.SLOW, Target(subject=GPUS, key=""), self._clock)
            found: list[str] = []
            look.take_all([VISIBLE["pci"]], lambda: self._count(found))
            answer.reading(look.reading())
            for address in found:
                if address in skip:
                    answer.reading(self._hung(address))
                else:
                    answer.working(address)
                    answer.reading(self._look(address))
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _count(self, found: list[str]) -> dict[Metric, float]:
        """Put the addresses of the GPUs into `found` and return their number; nothing where this host shows no bus."""
        if sysfs.exists(self._wsl):
            return {}
        found += [name for name in sysfs.names(self._devices) if is_gpu(self._devices / name)]
        return {VISIBLE["pci"]: float(len(found))}

    def _hung(self, address: str) -> Reading:
        """Return what is to be said of a GPU that did not return when its configuration space was last read."""
        look = Look(SOURCE, Tier.SLOW, target(self._devices / address), self._clock)
        look.lack([PCI_RESPONDING, *LINK, *AER_ERRORS.values()], Absence.LATE)
        return look.reading(Fault("hung", "reading it over the bus does not return"))

    def _look(self, address: str) -> Reading:
        """Return one GPU as the bus shows it now."""
        device = self._devices / address
        look = Look(SOURCE, Tier.SLOW, target(device), self._clock)
        look.take(PCI_RESPONDING, partial(responds, device))
        lost = look.values.get(PCI_RESPONDING) == 0.0
        if lost or look.absent.get(PCI_RESPONDING) is Absence.EMPTY:
            look.lack(LINK, Absence.LOST if lost else Absence.EMPTY)
        else:
            for metric, (file, meaning) in LINK.items():
                look.take(metric, partial(said, device / file, meaning))
        for severity, metric in AER_ERRORS.items():
            look.take(metric, partial(total, device / f"aer_dev_{severity}"))
        return look.reading(Fault("lost", "it reads as all ones: it fell off the bus") if lost else None)


def is_gpu(device: Path) -> bool:
    """Return whether a device is a GPU of NVIDIA; the kernel answers from memory, also for a dead device."""
    return (
        sysfs.trait(device / "vendor") == NVIDIA
        and sysfs.trait(device / "class").startswith(DISPLAY)
        and not sysfs.is_link(device / "physfn")
    )


def target(device: Path) -> Target:
    """Return a device as the target of its readings; `driver` is "" while no driver is bound."""
    link, place = device / "driver", Path(os.path.realpath(device))
    return Target(
        subject=PCI,
        key=device.name,
        labels={"pci_bus_id": device.name},
        info={
            "vendor_id": sysfs.fact(device / "vendor"),
            "device_id": sysfs.fact(device / "device"),
            "driver": Path(os.path.realpath(link)).name if sysfs.is_link(link) else "",
            "ports": " ".join(part for part in place.parent.parts if address_of(part)),  # above it: their errors are on its path
        },
    )


def responds(device: Path) -> float | None:
    """Return whether a device answers on the bus; None for one in runtime suspend, which asking would wake."""
    if sysfs.trait(device / "power/runtime_status") == "suspended":
        return None
    head = sysfs.read(device / "config", 4)
    if len(head) < 4:
        raise ValueError("no configuration space")
    return float(head != ALL_ONES)


def said(file: Path, meaning: Callable[[str], int | None]) -> int | None:
    """Return what a file says; raises OSError and ValueError."""
    return meaning(sysfs.text(file))


def generation(speed: str) -> int | None:
    """Return the PCIe generation of a speed such as "16.0 GT/s PCIe", None for one that the kernel calls unknown."""
    if speed.startswith("Unknown"):
        return None
    try:
        return GENERATIONS[speed.split(" ", 1)[0].removesuffix(".0")]
    except KeyError:
        raise ValueError(f"no speed of a PCIe link: {speed}") from None


def width(lanes: str) -> int | None:
    """Return the lanes of a link, None for a link that is down; 63 and the like come from a dead device."""
    count = int(lanes)
    if count and count not in WIDTHS:
        raise ValueError(f"no width of a PCIe link: {lanes}")
    return count or None


def total(file: Path) -> int:
    """Return the sum that an aer_dev_* file ends with (`TOTAL_ERR_COR 3`): Advanced Error Reporting, counted by the kernel."""
    for line in reversed(sysfs.read(file).splitlines()):
        words = line.split()
        if len(words) == 2 and words[0].startswith(b"TOTAL_ERR_") and words[1].isdigit() and len(words[1]) <= 20:
            return int(words[1])
    raise ValueError("no total in an AER file")


LINK: dict[Metric, tuple[str, Callable[[str], int | None]]] = {
    PCI_GENERATION: ("current_link_speed", generation),
    PCI_GENERATION_MAX: ("max_link_speed", generation),
    PCI_WIDTH: ("current_link_width", width),
    PCI_WIDTH_MAX: ("max_link_width", width),
}


def source(config: Config, clock: Clock) -> Source:
    """Return the GPUs on the bus as a source."""
    return Pci(config, clock)
