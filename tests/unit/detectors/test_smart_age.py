"""The age of SMART data is known just when the data is not."""

import msgspec

from gpuwatch.catalogue.disk import DISK, SMART_LAST_SUCCESS, VERDICT
from gpuwatch.detectors.smart_age import LIMIT, SmartAge, State
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

DETECTOR = SmartAge()


def disk(key: str, values: dict[Metric, float]) -> Entry:
    """What the board knows of one disk."""
    target = Target(subject=DISK, key=key, labels={"device": "sda"})
    reading = Reading(source="smart", tier=Tier.SLOW, target=target, at=1.0, took=0.0, values=values)
    return Entry(target, values, {}, (reading,))


def look(state: State, *entries: Entry) -> dict[str, float]:
    """Let the detector look at these disks; returns what it says of each."""
    _, findings = DETECTOR.step(state, View(50.0, {entry.target: entry for entry in entries}), 50.0)
    return {reading.target.key: reading.values[SMART_LAST_SUCCESS] for reading in findings.readings}


def test_a_disk_that_fails_or_sleeps_keeps_the_time_of_its_last_success() -> None:
    state = DETECTOR.initial()
    assert look(state, disk("a", {SMART_LAST_SUCCESS: 10.0})) == {"a": 10.0}
    assert look(state, disk("a", dict(VERDICT.at("unknown")))) == {"a": 10.0}
    assert look(state, disk("a", {SMART_LAST_SUCCESS: 40.0})) == {"a": 40.0}


def test_a_disk_that_was_never_read_has_no_such_time() -> None:
    assert look(DETECTOR.initial(), disk("a", dict(VERDICT.at("standby")))) == {}


def test_a_restart_knows_it_and_a_disk_that_is_gone_is_not_shown() -> None:
    state = DETECTOR.initial()
    look(state, disk("a", {SMART_LAST_SUCCESS: 10.0}), disk("b", {SMART_LAST_SUCCESS: 11.0}))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    assert look(kept, disk("b", {})) == {"b": 11.0}


def test_its_memory_is_bounded() -> None:
    state = DETECTOR.initial()
    for number in range(LIMIT + 10):
        look(state, disk(f"disk-{number}", {SMART_LAST_SUCCESS: float(number)}))
    assert len(state.last) == LIMIT
    assert "disk-0" not in state.last
