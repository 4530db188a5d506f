"""What is attached: driver, GPUs, VBIOS and MIG layout, before and after a release, and what has changed. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.catalogue.derived import STATE
from gpuwatch.catalogue.gpu import DRIVER, GPU
from gpuwatch.catalogue.mig import MIG
from gpuwatch.daemon.troubles import place
from gpuwatch.detectors.presence import driver_state, listing
from gpuwatch.model.alert import Severity
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.moment import stamp
from gpuwatch.model.reading import Tier
from gpuwatch.model.view import Entry, View

SOURCE = "nvml"
SETTLE = 20.0  # seconds after the driver came up in which GPUs may still come, one by one
GIVE_UP = 60.0  # seconds after which a driver that is not up is told of as it is: one that was there before may load slowly


class Card(msgspec.Struct, frozen=True):
    """One GPU."""

    index: str
    vbios: str
    mig: tuple[str, ...]  # profiles of its instances, sorted


class Snapshot(msgspec.Struct, frozen=True):
    """All GPUs by UUID, those that are known but do not answer, and the driver; "" where it is not known.

    What is lost may be known by its UUID, its PCI address, or both: one that NVML lists and cannot name, and the inventory's.
    """

    driver: str = ""
    gpus: Mapping[str, Card] = {}
    lost: Mapping[str, str] = {}  # and the index that they had
    places: Mapping[str, str] = {}  # the PCI address of each of both kinds


def snapshot(view: View) -> Snapshot:
    """Return what NVML shows now."""
    layouts: dict[str, list[str]] = {}
    for entry in view.of(MIG):
        if is_shown(entry):
            layouts.setdefault(entry.target.labels["uuid"], []).append(entry.target.info.get("profile", "?"))
    driver = next((entry.target.info.get("driver_version", "") for entry in view.of(DRIVER)), "")
    gpus = {
        entry.target.key: Card(
            entry.target.labels.get("gpu", "?"),
            entry.target.info.get("vbios_version", ""),
            tuple(sorted(layouts.get(entry.target.key, []))),
        )
        for entry in view.of(GPU)
        if is_shown(entry)
    }
    lost = {entry.target.key: entry.target.labels.get("gpu", "?") for entry in view.of(GPU) if is_lost(entry)}
    places = {entry.target.key: place(entry) for entry in view.of(GPU) if entry.target.key in gpus or entry.target.key in lost}
    named = {where for key, where in places.items() if where and key != where}
    return Snapshot(driver, gpus, {key: index for key, index in lost.items() if key not in named}, places)


def is_known(key: str, one: Snapshot, keys: Collection[str], others: Snapshot) -> bool:
    """Say whether a GPU of `one` is among these of another snapshot: by its key, or by where it sits."""
    where = one.places.get(key, "")
    return key in keys or bool(where and where in {others.places.get(other) for other in keys})


def is_shown(entry: Entry) -> bool:
    """Say whether NVML tells of a target now, and that it is there."""
    return any(reading.source == SOURCE and not (reading.fault and reading.fault.kind == "lost") for reading in entry.readings)


def is_lost(entry: Entry) -> bool:
    """Say whether a GPU is known and gone, by NVML's word or by the inventory's."""
    is_told = any(reading.source == SOURCE for reading in entry.readings)
    return not is_shown(entry) and (is_told or any(entry.values.get(STATE[state]) == 1 for state in ("lost", "missing")))


def is_whole(view: View, before: Snapshot) -> bool:
    """Say whether every GPU that there was, and every one that is listed, has told all of itself."""
    if driver_state(view) != "ok":
        return False
    listed, _ = listing(view)
    told = 0
    for entry in view.of(GPU):
        tiers = {reading.tier for reading in entry.readings if reading.source == SOURCE}
        told += {Tier.NORMAL, Tier.SLOW} <= tiers or any(reading.fault for reading in entry.readings)
    return listed is not None and told >= max(listed, len(before.gpus))


def patience(view: View, before: Snapshot) -> float:
    """Return for how many seconds a driver that is not well is waited for: for none that never was, once it says so."""
    return GIVE_UP if before.driver or not driver_state(view) else 0.0


def trouble(view: View, before: Snapshot) -> str:
    """Return how the driver is where it is not well, "" where it is."""
    state = driver_state(view)
    if state == "ok":
        return ""
    words = next((entry.fault.words for entry in view.of(DRIVER) if entry.fault), "it does not answer")
    return f"the driver is {'not back' if before.driver else 'not there, as before'} ({state or 'late'}): {words}"


def is_other_driver(before: Snapshot, after: Snapshot) -> bool:
    """Say whether another version of the driver is there."""
    return bool(before.driver and after.driver and before.driver != after.driver)


def missing(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the GPUs that are not there, by UUID as far as it is known: those that were before, and what is lost now."""
    gone = [uuid for uuid in before.gpus if uuid not in after.gpus]
    return gone + [key for key in after.lost if not is_known(key, after, gone, before)]


def begun(before: Snapshot, wall: float, until: float, by: str) -> Event:
    """Return what is told once of the beginning of a release: until when it was asked for, and what is let go of."""
    facts = {"by": by, "driver": before.driver, "gpus": str(len(before.gpus)) if before.driver else ""}
    return Event(
        source="own",
        kind="released",
        severity=Severity.INFO,
        at=wall,
        words=printable(f"until {stamp(until)} by {by}", WORDS_LIMIT),
        subject="driver",
        facts={name: text for name, text in facts.items() if text},
    )


def news(before: Snapshot, after: Snapshot, problem: str, wall: float, *, by: str, ended_by: str) -> Event:
    """Return what is told once of the end of a release; `problem` is what is wrong with the driver."""
    facts = {"by": by, "ended_by": ended_by, "driver": after.driver, "gpus": str(len(after.gpus))}
    return Event(
        source="own",
        kind="not_resumed" if problem else "driver_changed" if is_other_driver(before, after) else "resumed",
        severity=Severity.WARNING if problem else Severity.INFO,
        at=wall,
        words=printable(problem or changes(before, after), WORDS_LIMIT),
        subject="driver",
        facts={name: text for name, text in facts.items() if text},
    )


def changes(before: Snapshot, after: Snapshot) -> str:
    """Say in words what there is, and what has changed: `driver 535.154.05 -> 550.90.07, 4 GPUs, same UUIDs`."""
    parts = [f"driver {arrow(before.driver, after.driver) or 'of unknown version'}", counted(before, after)]
    gone = [f"GPU {card.index} {uuid}" for uuid, card in before.gpus.items() if uuid not in after.gpus]
    new = [f"GPU {card.index} {uuid}" for uuid, card in after.gpus.items() if uuid not in before.gpus]
    if before.gpus and after.gpus and not gone and not new:
        parts.append("same UUIDs" if len(after.gpus) > 1 else "same UUID")
    if before.gpus:
        parts += [f"{word} {', '.join(some)}" for word, some in (("gone:", gone), ("new:", new)) if some]
    others = {key: index for key, index in after.lost.items() if not is_known(key, after, before.gpus, before)}
    still = [f"GPU {index} {key}" for key, index in others.items() if is_known(key, after, before.lost, before)]
    fresh = [f"GPU {index} {key}" for key, index in others.items() if not is_known(key, after, before.lost, before)]
    parts += [f"{word} {', '.join(some)}" for word, some in (("lost as before:", still), ("lost:", fresh)) if some]
    for uuid, card in after.gpus.items():
        old = before.gpus.get(uuid)
        if old is None:
            continue
        if old.vbios and card.vbios and old.vbios != card.vbios:
            parts.append(f"VBIOS of GPU {card.index} {old.vbios} -> {card.vbios}")
        if old.mig != card.mig:
            parts.append(f"MIG of GPU {card.index} {layout(old.mig)} -> {layout(card.mig)}")
    return ", ".join(parts)


def counted(before: Snapshot, after: Snapshot) -> str:
    """Say how many GPUs there are, and were where that is another number."""
    count = len(after.gpus)
    words = f"{count or 'no'} GPU{'' if count < 2 else 's'}"
    return f"{len(before.gpus)} -> {words}" if before.gpus and len(before.gpus) != count else words


def arrow(old: str, new: str) -> str:
    """Return what is, and what was where that was something else."""
    return f"{old} -> {new}" if old and new and old != new else new or old


def layout(profiles: tuple[str, ...]) -> str:
    """Write a MIG layout: `2 x 3g.20gb + 1 x 1g.5gb`."""
    return " + ".join(f"{profiles.count(one)} x {one}" for one in dict.fromkeys(profiles)) or "none"
