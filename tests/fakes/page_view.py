"""Made-up Views for the page: every target of every subject, or a host with eight GPUs."""

from collections.abc import Iterable, Mapping
from zlib import crc32

from gpuwatch import catalogue
from gpuwatch.catalogue import disk, gpu, host, own
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

NOW = 1_700_000_000.0

# One target of a subject that has labels beyond those declared: an alert carries those of its target.
ALERT_LABELS = {"rule": "gpu_overheating", "severity": "warning", "gpu": "0", "uuid": "GPU-00000000-0000-4000-8000-000000000000"}


def entry(target: Target, values: Mapping[Metric, float], *, fault: Fault | None = None, source: str = "nvml") -> Entry:
    """Return what one source says of a target."""
    absent = {metric: Absence.UNSUPPORTED for metric in catalogue.of(target.subject) if metric not in values}
    reading = Reading(
        source=source, tier=Tier.FAST, target=target, at=NOW - 0.5, took=0.01, values=values, absent=absent, fault=fault
    )
    return Entry(target, values, absent, (reading,))


def view(entries: Iterable[Entry], now: float = NOW) -> View:
    """Return a View of these entries."""
    return View(now, {known.target: known for known in entries})


def uuid(index: int) -> str:
    """Return a UUID that no card has."""
    return f"GPU-00000000-0000-4000-8000-{index:012d}"


def target(subject: Subject, index: int = 0) -> Target:
    """Return a made-up target of a subject, with all of its labels and facts."""
    known = {
        "gpu": str(index),
        "uuid": uuid(index),
        "fan": str(index % 2),
        "device": f"nvme{index}n1",
        "mountpoint": f"/data{index}",
    }
    labels = ALERT_LABELS if subject is own.ALERT else {name: known.get(name, f"{name}-{index}") for name in subject.labels}
    return Target(
        subject=subject,
        key="/".join(labels.values()),
        labels=labels,
        info={name: f"{name} of {subject.name} {index}" for name in subject.info},
    )


def number(metric: Metric, index: int = 0, beat: int = 0) -> float:
    """Return a number that a metric keeps when others are declared beside it: whole, with a fraction, large or small."""
    seed = crc32(f"{metric.subject.name}.{metric.id}".encode())
    step = index + beat
    return (float((seed + step) % 2), seed % 1000 / 8 + step, 1e9 + seed % 1000 + step, 1e-7 * (seed % 100 + step + 1))[
        seed // 7 % 4
    ]


def everything(beat: int = 0) -> View:
    """Return a View with one target a subject that has every exported metric of the catalogue."""
    return view(
        entry(target(subject), {metric: number(metric, 0, beat) for metric in catalogue.of(subject)})
        for subject in catalogue.SUBJECTS.values()
    )


def big_host(beat: int = 0, gpus: int = 8) -> View:
    """Return a View of a host with many GPUs that have every metric, and the rest of a host."""
    return view(
        entry(
            target(subject, index),
            {metric: number(metric, index, beat) for metric in catalogue.of(subject)},
        )
        for subject, count in (
            (gpu.GPU, gpus),
            (gpu.FAN, 2 * gpus),
            (gpu.DRIVER, 1),
            (gpu.GPUS, 1),
            (host.HOST, 1),
            (host.NETWORK, 4),
            (host.HWMON, 20),
            (host.PCI, gpus),
            (disk.DISK, 4),
            (disk.FILESYSTEM, 6),
            (own.OWN, 1),
            (own.COLLECTOR, 6),
            (own.ALERT, 1),
        )
        for index in range(count)
    )
