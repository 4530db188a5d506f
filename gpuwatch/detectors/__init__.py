"""What the numbers mean: pure state machines from Views to derived Readings with Evidence, one file each.

A new detector gets a file with its State and its class, its metrics in `catalogue/derived.py`, the words of its evidence in
`derived.WORDS`, and its line in DETECTORS. They run in that order, once a beat; none sees what another found in the same beat.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuwatch.config import Config
from gpuwatch.detectors.access import Access
from gpuwatch.detectors.accumulate import Accumulate
from gpuwatch.detectors.detector import Clockwork, Detector
from gpuwatch.detectors.ended import Ended
from gpuwatch.detectors.events import Events
from gpuwatch.detectors.headroom import Headroom
from gpuwatch.detectors.inventory import Inventory
from gpuwatch.detectors.reboot import Before, Reboot
from gpuwatch.detectors.smart_age import SmartAge
from gpuwatch.detectors.unified import Unified
from gpuwatch.detectors.usage import Usage, joined
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

log = logging.getLogger(__name__)

AnyDetector = Detector[Any]
BEAT = 1.0  # seconds between two looks of a detector: readings may come faster than they are looked at


def inventory(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the inventory of GPUs."""
    return Inventory(config.inventory.gpus, {address: gpu.label for address, gpu in config.gpus.items()})


def accumulate(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the counters."""
    source = config.sources.simulated if config.sources.simulated.enabled else config.sources.nvml
    return Accumulate(
        {Tier.FAST: max(BEAT, source.every), Tier.NORMAL: max(BEAT, source.every_normal), Tier.SLOW: source.every_slow}
    )


def headroom(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the margin to slowdown."""
    return Headroom()


def unified(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the memory of GPUs that share the host's."""
    return Unified()


def reboot(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the watch over reboots."""
    return Reboot(before)


def smart_age(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the memory of when each disk was last read."""
    return SmartAge()


def events(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the watch over what driver and kernel report."""
    source = config.sources.simulated if config.sources.simulated.enabled else config.sources.nvml
    return Events(source.every_slow + source.deadline)


def usage(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the accounts of users and jobs."""
    source = config.sources.simulated if config.sources.simulated.enabled else config.sources.nvml
    return Usage(max(BEAT, source.every), config.processes.users, config.processes.jobs)


def ended(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the watch over processes that end."""
    return Ended()


def access(config: Config, before: Before | None) -> AnyDetector:  # noqa: ARG001 - all builders are called alike
    """Build the watch over containers that lose their GPUs."""
    return Access()


DETECTORS: Mapping[str, Callable[[Config, Before | None], AnyDetector]] = {
    "inventory": inventory,
    "accumulate": accumulate,
    "headroom": headroom,
    "unified": unified,
    "reboot": reboot,
    "smart_age": smart_age,
    "usage": usage,
    "ended": ended,
    "access": access,
    "events": events,
}


def build(config: Config, before: Before | None) -> tuple[AnyDetector, ...]:
    """Return all detectors in order; `before` is what the store knew at the last stop."""
    return tuple(make(config, before) for make in DETECTORS.values())


class Runner:
    """The detectors with their states. One that fails costs only its own findings. One thread owns it."""

    def __init__(self, detectors: Iterable[AnyDetector]) -> None:
        self.detectors = tuple(detectors)
        self.states: dict[str, Any] = {detector.name: detector.initial() for detector in self.detectors}
        self.failures = dict.fromkeys(self.states, 0)
        self.failing: set[str] = set()
        self.passing = {
            one.name for one in self.detectors if isinstance(one, Accumulate)
        }  # what they count goes on after a stop only

    def run(self, view: View, wall: float) -> Findings:
        """Let every detector look at one beat; returns one derived reading a target, the evidence, and what happened."""
        readings: dict[tuple[Target, Tier], list[Reading]] = {}
        evidence: dict[tuple[Target, Metric], Evidence] = {}
        events: list[Event] = []
        counted: list[str] = []
        for detector in self.detectors:
            findings = self.step(detector, view, wall)
            events += findings.events
            counted += findings.counted
            for place, found in findings.evidence.items():
                before = evidence.get(place)
                evidence[place] = found if before is None else together(before, found)
            for reading in findings.readings:
                readings.setdefault((reading.target, reading.tier), []).append(reading)
        return Findings(tuple([merged(found) for found in readings.values()]), evidence, tuple(events), tuple(counted))

    def step(self, detector: AnyDetector, view: View, wall: float) -> Findings:
        """Let one detector look."""
        name = detector.name
        try:
            self.states[name], findings = detector.step(self.states[name], view, wall)
        except Exception:
            self.failures[name] += 1
            if name not in self.failing:
                self.failing.add(name)
                log.exception("detector %s failed: nothing is derived by it until it works again", name)
            return Findings()
        if name in self.failing:
            self.failing.discard(name)
            log.info("detector %s works again, after %d failures", name, self.failures[name])
        return findings

    def keep_counts(self, present: "Runner") -> None:
        """Go on with what `present` has counted, where it has begun before the states of an earlier run could be read.

        The accounts, which have not been told yet, are added to the old ones. Counters that were told go on as they are: one
        that leaps to an old total is a huge rate.
        """
        for detector in self.detectors:
            if isinstance(detector, Accumulate) and present.states[detector.name] != detector.initial():
                self.states[detector.name] = present.states[detector.name]
            elif isinstance(detector, Usage):
                self.states[detector.name] = joined(self.states[detector.name], present.states[detector.name])

    def kept(self, blobs: Mapping[str, bytes]) -> None:
        """Take that these states, as `dump` gave them, are on disk by now."""
        for detector in self.detectors:
            if isinstance(detector, Usage) and detector.name in blobs:
                detector.written = msgspec.msgpack.decode(blobs[detector.name], type=type(detector.initial()))

    def problem(self) -> str:
        """Return which detectors fail, "" while none does."""
        return f"detectors that fail: {', '.join(sorted(self.failing))}" if self.failing else ""

    def dump(self, names: Collection[str] | None = None, *, clean: bool = False) -> list[tuple[str, int, bytes]]:
        """Return name, version and state of each detector, or of these, for the store; `clean`: it is the last one of this run.

        Before that, counters that are told as they are leave nothing behind: they would fall after a kill.
        """
        return [
            (
                one.name,
                one.version,
                msgspec.msgpack.encode(self.states[one.name] if clean or one.name not in self.passing else one.initial()),
            )
            for one in self.detectors
            if names is None or one.name in names
        ]

    def restore(self, load: Callable[[str], tuple[int, bytes] | None]) -> None:
        """Take over what `dump` gave; `load` returns version and state by name. What cannot be read begins afresh."""
        for detector in self.detectors:
            kept = load(detector.name)
            if kept is None:
                continue
            version, blob = kept
            if version != detector.version:
                log.warning(
                    "detector %s begins afresh: its state is of version %d, not %d", detector.name, version, detector.version
                )
                continue
            try:
                state = self.states[detector.name] = msgspec.msgpack.decode(blob, type=type(detector.initial()))
            except (msgspec.MsgspecError, RecursionError) as error:
                log.warning("detector %s begins afresh: its state cannot be read: %s", detector.name, error)
                continue
            if isinstance(clock := getattr(state, "clock", None), Clockwork):
                clock.mono = None  # that of another process means nothing here
        self.kept({one.name: msgspec.msgpack.encode(self.states[one.name]) for one in self.detectors if isinstance(one, Usage)})


def together(first: Evidence, second: Evidence) -> Evidence:
    """Return what two detectors know of one number."""
    return Evidence({**first.numbers, **second.numbers}, {**first.words, **second.words}, {**first.otherwise, **second.otherwise})


def merged(found: Sequence[Reading]) -> Reading:
    """Return one reading with the values of all; the target of the one that knows most text facts."""
    first = found[0]
    if len(found) == 1:
        return first
    values: dict[Metric, float] = {}
    absent: dict[Metric, Absence] = {}
    target = first.target
    for reading in found:
        values.update(reading.values)
        absent.update(reading.absent)
        if len(reading.target.info) > len(target.info):
            target = reading.target
    fault = next((reading.fault for reading in found if reading.fault), None)
    return replace(first, target=target, values=values, absent=absent, fault=fault)
