"""Nouns for tests of the store, by number."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gpuwatch.catalogue import gpu
from gpuwatch.model.alert import AlertState, Incident, Severity
from gpuwatch.model.delivery import Delivery, DeliveryKind, Told
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.silence import Matcher, Silence
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.store.history import Round
from gpuwatch.store.ulid import RANDOM_BITS, encode

EPOCH = 1_700_000_000.0


def ulid(number: int) -> str:
    """Return the ULID of a number, in their order."""
    return encode(int((EPOCH + number) * 1000) << RANDOM_BITS)


def incident(number: int, *, ended: float | None = None, key: str | None = None) -> Incident:
    """Return incident `number`, of a GPU of its own unless `key` says which."""
    return Incident(
        id=ulid(number),
        rule="gpu_overheating",
        subject="gpu",
        key=key or f"GPU-{number}",
        labels={"rule": "gpu_overheating", "gpu": str(number), "uuid": f"GPU-{number}", "host": "vision-07"},
        info={"name": "NVIDIA A40", "serial": f"S{number}"},
        severity=Severity.WARNING,
        highest=Severity.CRITICAL,
        state=AlertState.FIRING if ended is None else AlertState.INACTIVE,
        since=EPOCH + number,
        fired_at=EPOCH + number + 60,
        changed_at=ended or EPOCH + number + 60,
        ended_at=ended,
        value=91.5,
        summary=f"gpu {number} at 91 C, limit 85",
        numbers={"threshold": 85.0},
        words={"job": "train 七"},
    )


def told(number: int, state: AlertState = AlertState.FIRING, channel: str = "oncall") -> Told:
    """Return what `channel` was told of incident `number`."""
    return Told(ulid(number), channel, state, Severity.WARNING, EPOCH + number + 61)


def delivery(number: int, channel: str = "oncall") -> Delivery:
    """Return the delivery of incident `number`; its id sorts after that of the incident."""
    return Delivery(
        id=ulid(number)[:-1] + "1",
        channel=channel,
        kind=DeliveryKind.FIRING,
        created=EPOCH + number + 61,
        incidents=(incident(number),),
    )


def silence(number: int, **changes: Any) -> Silence:
    """Return silence `number`, of one GPU for an hour."""
    at = EPOCH + number
    made = Silence(
        id=ulid(number)[:-1] + "2",
        matchers=(Matcher(name="gpu", value=str(number)), Matcher(name="severity", value="critical", is_equal=False)),
        starts_at=at,
        ends_at=at + 3600,
        author="lena",
        comment="换风扇",
    )
    return replace(made, **changes)


def gpu_target(index: int, **info: str) -> Target:
    """Return a GPU."""
    uuid = f"GPU-{index:08d}"
    return Target(subject=gpu.GPU, key=uuid, labels={"gpu": str(index), "uuid": uuid}, info={"name": "NVIDIA A40", **info})


def reading(
    target: Target, values: Mapping[Metric, float], at: float, *, source: str = "nvml", tier: Tier = Tier.FAST
) -> Reading:
    """Return one reading."""
    return Reading(source=source, tier=tier, target=target, at=at, took=0.0, values=values)


def view_of(readings: Sequence[Reading], now: float) -> View:
    """Return the view of these readings, those of one target in the order of trust."""
    entries: dict[Target, Entry] = {}
    for one in readings:
        before = entries.get(one.target)
        kept = (*(before.readings if before else ()), one)
        values = {metric: value for reading in reversed(kept) for metric, value in reading.values.items()}
        entries[one.target] = Entry(one.target, values, {}, kept)
    return View(now, MappingProxyType(entries))


def view(values: Sequence[tuple[Target, Mapping[Metric, float]]], now: float) -> View:
    """Return a view in which every target was read right now."""
    return view_of([reading(target, numbers, now) for target, numbers in values], now)


def round_of(number: int, base: float = EPOCH, *, targets: int = 8) -> Round:
    """Return the round `number` periods after `base`: power of GPUs says the number."""
    rows = tuple((gpu_target(index), {"power_watts": float(number)}) for index in range(targets))
    return Round(base + number * 10, rows)
