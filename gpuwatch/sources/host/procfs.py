"""What the files of /proc say of the host: text -> numbers. Each reader raises OSError, and ValueError for garbage.

A metric that a reader does not return is one that this kernel lacks. psutil is used where it is as cheap as reading the
file (measured: CPU times 11 us, network 29 us); its memory functions parse /proc/meminfo twice and are three times as dear.
"""

import os
from collections.abc import Callable, Iterator

import psutil

from gpuwatch.catalogue import host
from gpuwatch.catalogue.disk import DISK_IO, DISK_IO_TIME
from gpuwatch.model.metric import Metric
from gpuwatch.sources import sysfs
from gpuwatch.sources.host.wrap import Unwrapped

Values = dict[Metric, float]
GARBAGE = (ValueError, IndexError, KeyError, TypeError, AssertionError, OverflowError, RuntimeError)  # what psutil raises for it
KIB = 1024
SECTOR = 512  # bytes, in /proc/diskstats always


def cpu(proc: str) -> Values:
    """Return the CPU seconds of all cores by mode."""
    psutil.PROCFS_PATH = proc
    try:
        times = psutil.cpu_times()
    except GARBAGE as error:
        raise ValueError("no CPU times in /proc/stat") from error
    return {metric: float(getattr(times, mode)) for mode, metric in host.CPU_SECONDS.items() if hasattr(times, mode)}


def load(proc: str) -> Values:
    """Return the load averages."""
    one, five, fifteen = sysfs.read(f"{proc}/loadavg").split()[:3]
    return {host.LOAD1: float(one), host.LOAD5: float(five), host.LOAD15: float(fifteen)}


def memory(proc: str) -> Values:
    """Return memory and swap. Kernels before 3.14 do not say what is available, and nothing else says it."""
    kilobytes: dict[bytes, int] = {}
    for line in sysfs.read(f"{proc}/meminfo").splitlines():
        name, _, rest = line.partition(b":")
        if name in MEMORY_LINES:
            kilobytes[name] = int(rest.split()[0]) if rest.strip() else -1
            if len(kilobytes) == len(MEMORY_LINES):
                break
    if not kilobytes or min(kilobytes.values()) < 0:
        raise ValueError("no memory in /proc/meminfo")
    values: Values = {
        metric: float(kilobytes[name] * KIB) for name, metric in MEMORY_LINES.items() if metric and name in kilobytes
    }
    if b"SwapTotal" in kilobytes and b"SwapFree" in kilobytes:
        values[host.SWAP_USED] = float((kilobytes[b"SwapTotal"] - kilobytes[b"SwapFree"]) * KIB)
    return values


MEMORY_LINES: dict[bytes, Metric | None] = {
    b"MemTotal": host.MEMORY_SIZE,
    b"MemAvailable": host.MEMORY_AVAILABLE,
    b"SwapTotal": host.SWAP_SIZE,
    b"SwapFree": None,
}


def pressure(proc: str, resource: str) -> Values:
    """Return the seconds in which tasks waited for a resource (PSI, kernel 4.20 and later)."""
    values: Values = {}
    for line in sysfs.read(f"{proc}/pressure/{resource}").splitlines():
        kind, _, rest = line.partition(b" ")
        metric = PRESSURE.get((resource, kind))
        if metric is not None:
            values[metric] = int(rest.rpartition(b"total=")[2]) / 1e6
    if not values:
        raise ValueError("no total in a file of /proc/pressure")
    return values


PRESSURE: dict[tuple[str, bytes], Metric] = {
    **{(resource, b"some"): metric for resource, metric in host.PRESSURE_WAITING.items()},
    **{(resource, b"full"): metric for resource, metric in host.PRESSURE_STALLED.items()},
}

# What is read every fast beat: the metrics of a file, and its reader.
FAST: tuple[tuple[tuple[Metric, ...], Callable[[str], Values]], ...] = (
    (tuple(host.CPU_SECONDS.values()), cpu),
    ((host.LOAD1, host.LOAD5, host.LOAD15), load),
    ((host.MEMORY_SIZE, host.MEMORY_AVAILABLE, host.SWAP_SIZE, host.SWAP_USED), memory),
    *(
        (
            tuple(states[resource] for states in (host.PRESSURE_WAITING, host.PRESSURE_STALLED) if resource in states),
            lambda proc, resource=resource: pressure(proc, resource),
        )
        for resource in host.RESOURCES
    ),
)


def cores(proc: str) -> int:
    """Return the logical cores that are online: the cpuN lines of /proc/stat."""
    count = sum(line[:3] == b"cpu" and line[3:4].isdigit() for line in sysfs.read(f"{proc}/stat").splitlines())
    if not count:
        raise ValueError("no core in /proc/stat")
    return count


def boot_time(proc: str) -> float:
    """Return when this host was booted, as the kernel reckons it now."""
    psutil.PROCFS_PATH = proc
    try:
        return float(psutil.boot_time())
    except GARBAGE as error:
        raise ValueError("no boot time in /proc/stat") from error


def diskstats(proc: str) -> Iterator[tuple[str, list[bytes]]]:
    """Yield (kernel name, fields) of every block device; the fields as Documentation/admin-guide/iostats.rst counts them."""
    for line in sysfs.read(f"{proc}/diskstats").splitlines():
        fields = line.split()
        if len(fields) >= 14:
            yield os.fsdecode(fields[2]), fields[3:]


def disk_io(name: str, fields: list[bytes], unwrapped: Unwrapped) -> Values:
    """Return bytes read, bytes written and seconds in which the disk was busy, which the kernel counts in 32 bits of ms."""
    return {
        DISK_IO["read"]: float(int(fields[2]) * SECTOR),
        DISK_IO["write"]: float(int(fields[6]) * SECTOR),
        DISK_IO_TIME: unwrapped.follow(name, int(fields[9])) / 1e3,
    }


def network(proc: str) -> dict[str, Values]:
    """Return the counters of every interface of our network namespace."""
    psutil.PROCFS_PATH = proc
    try:
        counters = psutil.net_io_counters(pernic=True, nowrap=False)  # raw: who reads our counters handles their resets
    except GARBAGE as error:
        raise ValueError("no interfaces in /proc/net/dev") from error
    return {
        name: {
            host.NETWORK_BYTES["receive"]: float(found.bytes_recv),
            host.NETWORK_BYTES["transmit"]: float(found.bytes_sent),
            host.NETWORK_ERRORS["receive"]: float(found.errin),
            host.NETWORK_ERRORS["transmit"]: float(found.errout),
            host.NETWORK_DROPS["receive"]: float(found.dropin),
            host.NETWORK_DROPS["transmit"]: float(found.dropout),
        }
        for name, found in counters.items()
    }
