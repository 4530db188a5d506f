"""Temperatures and fans of board, CPU and drives, from sysfs (hwmon); in the probe worker, since each file asks a chip.

A chip's label is the name of its driver and where it sits (`nvme-0000:01:00.0`, `coretemp-coretemp.0`): the number in
hwmonN shifts between boots. SATA drives (`drivetemp`) that rotate are left out: reading may keep a disk from its sleep;
their temperature comes from SMART. An NVMe drive gets one health-log command a round (smart.md section 6).
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuwatch.catalogue.host import HWMON, HWMON_FAN, HWMON_TEMPERATURE
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

SOURCE = "hwmon"
LIMIT = 256  # sensors of a host, in the order of their chips
INPUT = re.compile(r"(temp|fan)(\d+)_input")
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NUMBERED = re.compile(r"(nvme|phy|thermal_zone|hwmon)\d+")  # names of devices that shift, too
COLDEST, HOTTEST = -100.0, 200.0  # open inputs read as -128, 255 or more


class Hwmon:
    """The sensors of this host."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._folder = Path(config.paths.sys) / "class/hwmon"
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read every sensor, once a slow round."""
        if tier is Tier.SLOW:
            left = LIMIT
            for label, chip in chips(self._folder):
                if left <= 0 or label in skip:
                    continue
                answer.working(label)
                found = sensors(chip)[:left]
                left -= len(found)
                for sensor, file, metric in found:
                    target = Target(subject=HWMON, key=f"{label} {sensor}", labels={"chip": label, "sensor": sensor})
                    if target.key not in skip:
                        answer.working(target.key)
                        self._look(target, chip / file, metric, answer)
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _look(self, target: Target, file: Path, metric: Metric, answer: Answer) -> None:
        """Report one sensor as it is now; one that went away between listing and reading is not there."""
        look = Look(SOURCE, Tier.SLOW, target, self._clock)
        look.take(metric, lambda: fan(file) if metric is HWMON_FAN else temperature(file))
        if look.absent.get(metric) is not Absence.UNSUPPORTED:
            answer.reading(look.reading())


def chips(folder: Path) -> list[tuple[str, Path]]:
    """Return the chips under a label that outlives a boot, with their folders; two of one label get numbers."""
    found: dict[str, Path] = {}
    for name in sorted(sysfs.entries(folder), key=lambda name: (len(name), name)):
        chip = folder / name
        try:
            driver = sysfs.trait(chip / "name")
            if not driver or rests(chip, driver):
                continue
            place = where(chip)
        except OSError:
            continue  # not to be told apart from others this time
        label = f"{driver}-{place}" if place else driver
        free = next(text for text in (label, *(f"{label}-{number}" for number in range(2, len(found) + 3))) if text not in found)
        found[free] = chip
    return sorted(found.items())


def where(chip: Path) -> str:
    """Return what names the device of a chip for good: a drive's WWN, its own name, or the PCI address above it."""
    device = chip / "device"
    if not sysfs.is_link(device):
        return ""
    parts = os.path.realpath(device).split("/")
    if wwn := sysfs.trait(device / "wwid"):
        return wwn
    if not NUMBERED.fullmatch(parts[-1]):
        return sysfs.clean(os.fsencode(parts[-1]))
    return next((part for part in reversed(parts) if PCI_ADDRESS.fullmatch(part)), "")


def rests(chip: Path, driver: str) -> bool:
    """Return whether reading would disturb the sleep of a device: a rotating disk, or one in runtime suspend."""
    if driver == "drivetemp":
        disks = sysfs.entries(chip / "device/block")
        return not disks or any(sysfs.trait(chip / "device/block" / disk / "queue/rotational") != "0" for disk in disks)
    return sysfs.trait(chip / "device/power/runtime_status") == "suspended"


def sensors(chip: Path) -> list[tuple[str, str, Metric]]:
    """Return the sensors of a chip as (name, file, metric); a name that a chip gives twice is told apart by its file."""
    found: dict[str, tuple[str, str, Metric]] = {}
    for channel, file, metric in inputs(sysfs.entries(chip)):
        with suppress(OSError):  # one whose label fails to come is left out this time rather than given another name
            label = sysfs.trait(chip / f"{channel}_label") or channel
            name = label if label not in found else f"{label} {channel}"
            found[name] = (name, file, metric)
    return list(found.values())


def inputs(files: list[str]) -> Iterator[tuple[str, str, Metric]]:
    """Yield the readable inputs among the files of a chip, in the order of their numbers, temperatures first."""
    matches = [match for file in files if (match := INPUT.fullmatch(file))]
    for match in sorted(matches, key=lambda match: (match[1] != "temp", int(match[2]))):
        yield f"{match[1]}{match[2]}", match[0], HWMON_TEMPERATURE if match[1] == "temp" else HWMON_FAN


def temperature(file: Path) -> float:
    """Return degrees Celsius; raises OSError, and ValueError for what no sensor can measure or the chip calls a fault."""
    degrees = sysfs.number(file) / 1e3
    if not COLDEST < degrees < HOTTEST:
        raise ValueError(f"no temperature: {degrees}")
    return sound(file, degrees)


def fan(file: Path) -> float:
    """Return turns a minute; 0 is a fan that stands still. Raises as `temperature` does."""
    turns = sysfs.number(file)
    if turns < 0:
        raise ValueError(f"no speed of a fan: {turns}")
    return sound(file, turns)


def sound(file: Path, value: float) -> float:
    """Return the value unless the chip says that this sensor is open or shorted (`*_fault`)."""
    if sysfs.trait(file.with_name(file.name.replace("_input", "_fault"))) == "1":
        raise ValueError("the chip calls this sensor faulty")
    return value


def source(config: Config, clock: Clock) -> Source:
    """Return the sensors as a source."""
    return Hwmon(config, clock)
