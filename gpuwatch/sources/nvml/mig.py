"""The MIG side of one GPU: whether it is divided, and each GPU instance as a target of its own, found anew in every look.

Power, temperature, clocks and the like are the card's: they are never repeated for its parts (NVIDIA/dcgm-exporter#353).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuwatch.catalogue.gpu import ENGINE_UTILIZATION, MEMORY_ACTIVITY, UTILIZATION
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_MEMORY_USED
from gpuwatch.model.alert import Severity
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml.amounts import Amounts, reading
from gpuwatch.sources.nvml.gpm import PART, Gpm
from gpuwatch.sources.nvml.library import CallError, Library
from gpuwatch.sources.nvml.mig_devices import Device, find

MOST_NAMED = 8  # devices that the words of an event name
# What a divided GPU has not: drivers answer NOT_SUPPORTED (seen on A100 and H100), and no 0 of theirs would be true.
UNDIVIDED: tuple[Metric, ...] = (UTILIZATION, MEMORY_ACTIVITY, *ENGINE_UTILIZATION.values())


class Mig:
    """What is known of it. It outlives the handle of its GPU, so that a layout that a reset took away is told. On its lane."""

    def __init__(self, library: Library, clock: Clock, tell: Callable[[Event], None]) -> None:
        self._library = library
        self._clock = clock
        self._told_to = tell
        self._asked = False
        self._mode: bool | None = None  # None: never told, as on a GPU without MIG
        self._known: dict[int, Device] | None = None  # by NVML's index; None before the first look
        self._targets: dict[int, Target] = {}  # by GPU instance

    @property
    def is_on(self) -> bool:
        """Whether the GPU is divided."""
        return self._mode is True

    @property
    def devices(self) -> list[Device]:
        """The MIG devices as last seen."""
        return sorted((self._known or {}).values(), key=place)

    def opened(self) -> None:
        """Have the mode asked for again, since the GPU was opened anew."""
        self._asked = False

    def learn(self, handle: Any, card: Target) -> None:
        """Ask for the mode, once for each opening; raises GpuGoneError and DriverGoneError."""
        if self._asked:
            return
        try:
            mode = int(self._library.named("nvmlDeviceGetMigMode", handle)[0])
        except CallError as error:
            if type(error) is not CallError:
                raise
        else:
            self.switched(on=mode == 1, card=card)
        self._asked = True  # the slow tier goes on asking

    def switched(self, *, on: bool, card: Target) -> bool:
        """Take the mode as it is now; return whether it is another than before."""
        before, self._mode = self._mode, on
        if before is None or before is on:
            return False
        self._tell(card, f"MIG was switched {'on' if on else 'off'}", {"mode": "on" if on else "off"})
        return True

    def look(self, handle: Any, card: Target, load: Gpm) -> list[Reading]:
        """Return one Reading a GPU instance, and an empty one for each that is gone; raises GpuGoneError and DriverGoneError."""
        if not self.is_on and not self._targets:
            return []
        at, started = self._clock.wall(), self._clock.mono()
        found = find(self._library, handle, self._known or {}) if self.is_on else {}
        self._compare({index: device for index, (device, _) in found.items()}, card)
        targets: dict[int, Target] = {}
        readings: list[Reading] = []
        for instance, parts in instances(found.values()).items():
            mine = target(card, instance, [device for device, _ in parts])
            amounts = {**told(amounts for _, amounts in parts), **load.part(handle, instance, mine.info.get("mig_uuid", ""))}
            readings.append(reading(Tier.NORMAL, mine, amounts, at=at, took=self._clock.mono() - started))
            targets[instance] = mine
        load.keep({(instance, mine.info.get("mig_uuid", "")) for instance, mine in targets.items()})
        gone = (one for instance, one in self._targets.items() if instance not in targets)
        readings += [
            reading(Tier.NORMAL, one, {}, at=at, took=0.0) for one in gone
        ]  # which ends its series: the subject is a brief one
        self._targets = targets
        return readings

    def silent(self, why: Absence) -> list[Reading]:
        """Return one Reading an instance without values; made without a call."""
        amounts: Amounts = dict.fromkeys((MIG_MEMORY_USED, MIG_MEMORY_SIZE, *(metric for metric, _ in PART.values())), why)
        return [reading(Tier.NORMAL, one, amounts, at=self._clock.wall(), took=0.0) for one in self._targets.values()]

    def _compare(self, now: dict[int, Device], card: Target) -> None:
        """Tell what has changed since the last look."""
        before, self._known = self._known, now
        if before is None:
            return
        gone, new = set(before.values()) - set(now.values()), set(now.values()) - set(before.values())
        if gone or new:
            changes = [f"{word} {names(some)}" for word, some in (("gone:", gone), ("new:", new)) if some]
            facts = {"gone": str(len(gone)), "new": str(len(new)), "devices": str(len(now))}
            self._tell(card, f"the MIG layout has changed, {'; '.join(changes)}", facts)

    def _tell(self, card: Target, words: str, facts: Mapping[str, str]) -> None:
        self._told_to(
            Event(
                source="nvml",
                kind="mig_changed",
                severity=Severity.INFO,
                at=self._clock.wall(),
                words=words[:WORDS_LIMIT],
                subject="gpu",
                key=card.key,
                facts=facts,
            )
        )


def place(device: Device) -> tuple[int, int]:
    """Return where on the GPU a device is."""
    return device.gpu_instance, device.compute_instance


def names(devices: Iterable[Device]) -> str:
    """Return some devices by name."""
    some = sorted(devices, key=place)
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return ", ".join(str(device) for device in some[:MOST_NAMED]) + more


def instances(found: Iterable[tuple[Device, Amounts]]) -> dict[int, list[tuple[Device, Amounts]]]:
    """Return the devices by GPU instance, each in the order of its compute instances."""
    grouped: dict[int, list[tuple[Device, Amounts]]] = {}
    for device, amounts in sorted(found, key=lambda one: place(one[0])):
        grouped.setdefault(device.gpu_instance, []).append((device, amounts))
    return grouped


def told(amounts: Iterable[Amounts]) -> Amounts:
    """Return the memory of a GPU instance: its compute instances share it, so that one that answers tells it."""
    found = list(amounts)
    whole = (one for one in found if not any(isinstance(value, Absence) for value in one.values()))
    return next(whole, found[0])


def target(card: Target, instance: int, devices: list[Device]) -> Target:
    """Return a GPU instance as a target; one that is made anew in the place of another goes on under its key."""
    facts = {
        "mig_uuid": ",".join(device.uuid for device in devices),
        "compute_instance": ",".join(str(device.compute_instance) for device in devices),
        "profile": ",".join(dict.fromkeys(device.profile for device in devices if device.profile)),
    }
    return Target(
        subject=MIG,
        key=f"{card.key}/{instance}",
        labels={**card.labels, "gpu_instance": str(instance)},
        info={name: text for name, text in facts.items() if text},
    )
