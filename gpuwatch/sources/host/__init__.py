"""The host itself: CPU, load, memory, pressure, disk I/O, network counters, RAID. The home of psutil.

It runs in a thread of the daemon, so that it may touch only what cannot block: /proc, and those files of sysfs that the
kernel answers from memory. What asks a device or a mount is another source (`filesystem`, `hwmon`, `network`, `pci`).
Counters are given as the kernel gives them, also when they step back; only those that wrap go on over it.
"""

from functools import partial
from pathlib import Path

from gpuwatch.catalogue import host
from gpuwatch.catalogue.disk import DISK_IO, DISK_IO_TIME
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import disks, interfaces
from gpuwatch.sources.host import facts, hardware, procfs, raid
from gpuwatch.sources.host.wrap import Unwrapped
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

SOURCE = "host"


class Host:
    """This host. Used by one thread."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._proc, self._sys = config.paths.proc, Path(config.paths.sys)
        self._clock = clock
        self._target = facts.target(config)
        self._disks: dict[str, Target] = {}
        self._devices: frozenset[str] = frozenset()  # all names in diskstats when `_disks` was made
        self._io_time = Unwrapped()
        self._interfaces: dict[str, Target] = {}
        self._names: frozenset[str] = frozenset()

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:  # noqa: ARG002 - nothing here can hang
        """Read what belongs to this tier."""
        if tier is Tier.FAST:
            self._fast(answer)
        elif tier is Tier.NORMAL:
            self._normal(answer)
        else:
            self._slow(answer)
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _fast(self, answer: Answer) -> None:
        """CPU, load, memory, pressure; I/O of the disks."""
        look = Look(SOURCE, Tier.FAST, self._target, self._clock)
        for metrics, read in procfs.FAST:
            look.take_all(metrics, partial(read, self._proc))
        answer.reading(look.reading())
        for reading in self._disk_io():
            answer.reading(reading)

    def _disk_io(self) -> list[Reading]:
        """Return what every whole disk has read and written; nothing where the kernel keeps no such counters."""
        try:
            lines = dict(procfs.diskstats(self._proc))
        except OSError:
            return []
        if self._devices != lines.keys():
            self._find_disks(frozenset(lines))
        readings: list[Reading] = []
        for name, target in self._disks.items():
            look = Look(SOURCE, Tier.FAST, target, self._clock)
            look.take_all((*DISK_IO.values(), DISK_IO_TIME), partial(procfs.disk_io, name, lines[name], self._io_time))
            readings.append(look.reading())
        return readings

    def _find_disks(self, devices: frozenset[str]) -> None:
        """Learn which block devices are whole disks: when one comes or goes, and with every slow round."""
        self._devices = devices
        self._disks = {disk.name: disk.target() for disk in disks.disks(self._sys) if disk.name in devices}
        self._io_time.keep(devices)

    def _normal(self, answer: Answer) -> None:
        """Counters of the network interfaces."""
        at, started = self._clock.wall(), self._clock.mono()
        try:
            counters = procfs.network(self._proc)
        except (OSError, ValueError):
            return  # without names there is nothing to say a reason of; the values turn late
        took = self._clock.mono() - started
        if self._names != counters.keys():
            self._names = frozenset(counters)
            self._interfaces = {name: interfaces.target(name) for name in interfaces.counted(self._sys, list(counters))}
        for name, target in self._interfaces.items():
            answer.reading(Reading(source=SOURCE, tier=Tier.NORMAL, target=target, at=at, took=took, values=counters[name]))

    def _slow(self, answer: Answer) -> None:
        """What changes seldom, and RAID."""
        look = Look(SOURCE, Tier.SLOW, self._target, self._clock)
        look.take(host.CPU_CORES, partial(procfs.cores, self._proc))
        look.take(host.BOOT_TIME, partial(procfs.boot_time, self._proc))
        look.take_all(host.CPU_THROTTLES.values(), partial(hardware.throttles, self._sys))
        look.take_all(host.MEMORY_ERRORS.values(), partial(hardware.memory_errors, self._sys))
        answer.reading(look.reading())
        for reading in raid.read(self._proc, self._sys, self._clock):
            answer.reading(reading)
        self._find_disks(self._devices)  # another disk may have taken a name


def source(config: Config, clock: Clock) -> Source:
    """Return this host as a source."""
    return Host(config, clock)
