"""What the daemon says of itself: is it ready, and how is everything. Pure, over the view and the rooms' own words."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from gpuwatch.catalogue import derived, disk, gpu, host
from gpuwatch.daemon.cards import lacking, of_cards, state
from gpuwatch.daemon.troubles import expects_gpus, of_things
from gpuwatch.model.alert import Open
from gpuwatch.model.silence import Silence
from gpuwatch.model.view import Entry, View
from gpuwatch.sampling.events import NOT_YET


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """What says whether there is something fresh to tell. It is asked for on the loop of HTTP, so it costs next to nothing."""

    view: View
    beat_age: float | None  # seconds since the last whole beat; None before the first
    beat_limit: float  # seconds after which a beat is late
    wants_gpus: bool  # a source that reads GPUs is on
    collectors: Mapping[str, str]  # by name: "" or why it gives nothing
    seldom: Collection[str]  # of them those that are read every minute or less: their trouble leaves the rest fresh


class Facts(Freshness, frozen=True, kw_only=True):
    """What the answers are made of."""

    version: str
    name: str  # of the host
    started: float  # wall clock
    incidents: Sequence[Open]
    silenced: Mapping[str, Sequence[str]]  # by id of an incident: the ids of the silences that keep it from being told
    silences: Sequence[Silence]  # those that are not over
    nobody: bool  # nobody will be told
    telling: Sequence[str]  # what is wrong with the channels
    store: str  # "" or what is wrong with the store
    judging: Sequence[str]  # detectors and rules that fail
    receivers: Sequence[str]  # who is told, by name
    notes: Sequence[str]  # what was said at start, and what of the configuration is for no GPU
    release: Mapping[str, Any] = {}  # whether the GPUs are released
    unheard: Sequence[str] = ()  # which alerts are sent to nobody although there are receivers

    def gravity(self, one: Open) -> tuple[int, bool, float]:
        """Return what to sort by: the worst first, then what is told before what is silenced, then the oldest."""
        incident = one.incident
        return -incident.severity.rank, bool(self.silenced.get(incident.id)), incident.since


def reasons(facts: Freshness) -> list[str]:
    """Return why there is nothing fresh to tell; empty when ready."""
    if facts.beat_age is None:
        return ["no sample has been taken yet"]
    found = []
    if facts.beat_age > facts.beat_limit:
        found.append(f"the last sample is {facts.beat_age:.0f} s old")
    found += [f"{name}: {why}" for name, why in facts.collectors.items() if why and name not in facts.seldom]
    driver = next(iter(facts.view.of(gpu.DRIVER)), None)
    if facts.wants_gpus and expects_gpus(facts.view):
        if driver is None:
            found.append("nvml: no answer yet")
        elif (how := state(driver, gpu.DRIVER_STATE)) not in {"ok", "released"}:  # a release is wanted, and is no reason
            words = driver.fault.words if driver.fault else "gives no reading"
            found.append(f"driver {how or 'unknown'}: {words}")
    return found


def troubles(facts: Freshness) -> list[str]:
    """Return what is wrong while the rest is fresh, one line each: collectors that are asked seldom, and single things.

    Of what is read every few minutes, and has not been yet, nothing is wrong: it comes, or is said to hang.
    """
    late = [f"{name}: {why}" for name, why in facts.collectors.items() if why not in {"", NOT_YET} and name in facts.seldom]
    return [*late, *of_things(facts.view)]


def status(facts: Facts) -> dict[str, Any]:
    """Return the page of `gpuwatch status` as plain data."""
    view, why = facts.view, reasons(facts)
    driver = next(iter(view.of(gpu.DRIVER)), None)
    machine = next(iter(view.of(host.HOST)), None)
    return {
        "version": facts.version,
        "now": view.now,
        "started": facts.started,
        "host": {"name": facts.name, **(dict(machine.target.info) if machine else {})},
        "ready": not why,
        "reasons": why,
        "driver": {
            "state": state(driver, gpu.DRIVER_STATE) if driver else "",
            "words": driver.fault.words if driver and driver.fault else "",
            "waits": bool(driver and driver.fault and driver.fault.waits),
            **(dict(driver.target.info) if driver else {}),
        },
        "release": dict(facts.release),
        "expected_gpus": next((entry.values.get(derived.EXPECTED) for entry in view.of(gpu.GPUS)), None),
        "gpus": of_cards(view, released=facts.release.get("state") == "released"),
        "lacking": lacking(view),
        "disks": [of_disk(entry) for entry in view.of(disk.DISK)],
        "collectors": dict(facts.collectors),
        "alerts": [of_alert(one, facts.silenced.get(one.incident.id, ())) for one in sorted(facts.incidents, key=facts.gravity)],
        "silences": [of_silence(silence, view.now) for silence in facts.silences],
        "telling": {
            "nobody": facts.nobody,
            "receivers": list(facts.receivers),
            "problems": list(facts.telling),
            "unheard": list(facts.unheard),
        },
        "judging": list(facts.judging),
        "store": facts.store,
        "notes": list(facts.notes),
        "troubles": troubles(facts),
    }


def of_disk(entry: Entry) -> dict[str, Any]:
    """Return one disk with its verdict."""
    shown = (disk.TEMPERATURE, disk.WEAR_USED, disk.SMART_LAST_SUCCESS)
    return {
        **entry.target.labels,
        **entry.target.info,
        "verdict": state(entry, disk.VERDICT),
        "words": entry.fault.words if entry.fault else "",
        "values": {metric.id: entry.values[metric] for metric in shown if metric in entry.values},
    }


def of_silence(silence: Silence, wall: float) -> dict[str, Any]:
    """Return one silence in short."""
    return {
        "id": silence.id,
        "of": str(silence),
        "state": silence.state(wall),
        "starts_at": silence.starts_at,
        "ends_at": silence.ends_at,
        "author": silence.author,
        "comment": silence.comment,
    }


def of_alert(one: Open, silenced_by: Sequence[str]) -> dict[str, Any]:
    """Return one open incident in short."""
    incident = one.incident
    return {
        "id": incident.id,
        "rule": incident.rule,
        "severity": incident.severity.value,
        "state": incident.state.value,
        "now": msgspec.to_builtins(one.now),
        "since": incident.since,
        "summary": incident.summary,
        "labels": dict(incident.labels),
        "silenced_by": list(silenced_by),
    }
