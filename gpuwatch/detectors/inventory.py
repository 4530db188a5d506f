"""Which GPUs this host has, by UUID and PCI address, and whether each is there.

New GPUs are learned by themselves. A GPU that is gone keeps its place, with the index it had last, until it works again, is
replaced by another at its PCI address, or the configuration says that the host has fewer. `[inventory] gpus` above what was
ever seen gives a missing GPU without a name for each that is lacking.
"""

from collections.abc import Mapping

import msgspec

from gpuwatch.catalogue.derived import DOWN_REASON, EXPECTED, LAST_SEEN, STATE, UP
from gpuwatch.catalogue.gpu import GPU, GPUS
from gpuwatch.detectors.detector import Clockwork, derived, measured
from gpuwatch.detectors.presence import SETTLE, Known, Scene, Standing, answer, bus, driver_state, judge, listing, works
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.moment import stamp
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View

RETIRED = "retired"  # the fault of a target that is no more; the rules engine ends its alerts
RETIRED_FOR = 600.0  # seconds for which that is said
WHY = {"released": Absence.RELEASED, "late": Absence.LATE, "no_permission": Absence.DENIED, "driver": Absence.FAILED}
REMEDY = "Power cycle the host, a warm reboot is often not enough; then reseat the card and its power cables."
UNTOLD = {"reported": "no Xid was reported", "held_by": ""}  # unless the detectors `events` and `usage` know better
RESET = "Stop its jobs, then reset it: nvidia-smi --gpu-reset."
LOOK = "Look for a card that is not seated or has no power; if the number is wrong, change [inventory] gpus."


class Retired(msgspec.Struct):
    """A GPU that is not part of the inventory any more, and why."""

    key: str
    labels: dict[str, str]
    words: str
    until: float


class State(msgspec.Struct):
    """The inventory, and what has to last before it counts."""

    gpus: dict[str, Known] = {}
    retired: dict[str, Retired] = {}
    nameless: int = 0  # GPUs that were never seen but are expected
    driver_since: float | None = None  # own clock at which the driver came up
    clock: Clockwork = msgspec.field(default_factory=Clockwork)


class Inventory:
    """The detector; `configured` is `[inventory] gpus`, `names` the operator's own for a PCI address."""

    name = "inventory"
    version = 1

    def __init__(self, configured: int | None, names: Mapping[str, str]) -> None:
        self.configured, self.names = configured, names

    def initial(self) -> State:
        """Return an empty inventory."""
        return State()

    def step(self, state: State, view: View, wall: float) -> tuple[State, Findings]:
        """Learn, judge every GPU, and say how it is."""
        if not state.clock.tick(wall, view.mono):
            state.driver_since = None  # nobody knows what the driver did meanwhile
        # What only DCGM tells of is not learned: its exporter may be that of another host.
        entries = {entry.target.key: entry for entry in view.of(GPU) if any(one.source != "dcgm" for one in measured(entry))}
        answers = {key: answer(entry) for key, entry in entries.items()}
        aliases = self.learn(state, entries, answers)
        scene = self.scene(state, view, answers)
        standings = {
            known.key: judge(known, answers.get(known.key) or answers.get(aliases.get(known.key, "")), scene)
            for known in state.gpus.values()
        }
        self.shrink(state, standings)
        return state, self.findings(state, standings, scene, wall)

    def learn(self, state: State, entries: Mapping[str, Entry], answers: Mapping[str, Reading | None]) -> dict[str, str]:
        """Take in new GPUs, indexes and facts. Returns, by UUID, the address under which a nameless GPU answers."""
        aliases: dict[str, str] = {}
        for key, entry in entries.items():
            target = entry.target
            pci = target.info.get("pci_bus_id", "") or (key if ":" in key else "")
            others = [known for known in state.gpus.values() if pci and known.pci == pci and known.key != key]
            if key == pci and others:
                aliases[others[0].key] = key
                continue
            for other in others:
                if not works(answers.get(other.key)):
                    self.retire(state, other, replaced(other, target))
            known = state.gpus.setdefault(key, Known(key=key, labels=dict(target.labels)))
            known.labels, known.info = dict(target.labels), {**known.info, **target.info}
            state.retired.pop(key, None)
        return aliases

    def scene(self, state: State, view: View, answers: Mapping[str, Reading | None]) -> Scene:
        """Return what this beat says about the GPUs as a whole."""
        driver = driver_state(view)
        if driver not in ("ok", None):  # None is no news, as after a start: who is restarted all the time must not wait for ever
            state.driver_since = None
        elif driver is not None and state.driver_since is None:
            state.driver_since = state.clock.now
        settled = state.driver_since is not None and state.clock.now - state.driver_since >= SETTLE
        listed, listed_at = listing(view)
        answering = sum(reading is not None for reading in answers.values())
        return Scene(driver, settled, listed, listed_at, answering, bus(view), state.clock.now)

    def shrink(self, state: State, standings: dict[str, Standing]) -> None:
        """Let go of GPUs that are gone while the configured number of them works."""
        if self.configured is None or sum(not standing.reason for standing in standings.values()) < self.configured:
            return
        for key in [known.key for known in state.gpus.values() if known.verdict]:
            self.retire(state, state.gpus[key], f"this host should have {self.configured} GPUs, and has them")
            del standings[key]

    def retire(self, state: State, known: Known, words: str) -> None:
        """Take a GPU out of the inventory."""
        state.gpus.pop(known.key, None)
        state.retired[known.key] = Retired(known.key, known.labels, words, state.clock.now + RETIRED_FOR)

    def findings(self, state: State, standings: Mapping[str, Standing], scene: Scene, wall: float) -> Findings:
        """Say how every GPU is."""
        readings: list[Reading] = []
        evidence: dict[tuple[Target, Metric], Evidence] = {}
        for known in state.gpus.values():
            info = {**known.info, "label": self.names[known.pci]} if known.pci in self.names else known.info
            target = Target(subject=GPU, key=known.key, labels=known.labels, info=info)
            standing = standings[known.key]
            readings.append(presence(target, standing, known.last_seen, wall))
            if standing.state in ("lost", "missing", "reset_required"):
                remedy = RESET if standing.state == "reset_required" else REMEDY
                words = {"cause": known.cause, "last_seen": when(known.last_seen), "remedy": remedy}
                told = {name: word for name, word in words.items() if word}  # after a restart there may be no cause yet
                evidence[target, STATE[standing.state]] = Evidence(words=told, otherwise=UNTOLD)
        self.lacking(state, scene, readings, evidence, wall)
        expected = len(state.gpus) if self.configured is None else self.configured
        readings.append(derived(Target(subject=GPUS, key=""), {EXPECTED: float(expected)}, {}, wall))
        state.retired = {key: gone for key, gone in state.retired.items() if gone.until > state.clock.now}
        for gone in state.retired.values():
            target = Target(subject=GPU, key=gone.key, labels=gone.labels)
            fault = Fault(RETIRED, gone.words)
            readings.append(Reading(source="derived", tier=Tier.FAST, target=target, at=wall, took=0.0, values={}, fault=fault))
        return Findings(tuple(readings), evidence)

    def lacking(
        self,
        state: State,
        scene: Scene,
        readings: list[Reading],
        evidence: dict[tuple[Target, Metric], Evidence],
        wall: float,
    ) -> None:
        """Say that GPUs are missing which were never seen but are expected; not before all had the time to come."""
        lacking = max(0, (self.configured or 0) - len(state.gpus))
        if not scene.settled:
            lacking = min(lacking, state.nameless)
        for number in range(1, max(lacking, state.nameless) + 1):
            name = f"missing-{number}"
            target = Target(subject=GPU, key=name, labels={"gpu": name, "uuid": name})
            if number > lacking:
                state.retired[name] = Retired(
                    name, dict(target.labels), "all expected GPUs are there", state.clock.now + RETIRED_FOR
                )
                continue
            state.retired.pop(name, None)
            standing = (
                Standing("missing", "missing") if scene.driver == "ok" else Standing("", "driver" if scene.driver else "late")
            )
            readings.append(presence(target, standing, None, wall))
            cause = f"this host should have {self.configured} GPUs ([inventory] gpus), and {len(state.gpus)} are known"
            words = {"cause": cause, "last_seen": when(None), "remedy": LOOK}
            evidence[target, STATE["missing"]] = Evidence(words=words, otherwise=UNTOLD)
        state.nameless = lacking


def presence(target: Target, standing: Standing, last_seen: float | None, wall: float) -> Reading:
    """Return the reading that says how one GPU is."""
    values: dict[Metric, float] = {UP: float(not standing.reason)}
    absent: dict[Metric, Absence] = {}
    if standing.state:
        values |= STATE.at(standing.state)
    else:
        absent = dict.fromkeys(STATE.values(), WHY.get(standing.reason, Absence.FAILED))
    if standing.reason:
        values |= DOWN_REASON.at(standing.reason)
    if last_seen is not None:
        values[LAST_SEEN] = last_seen
    return derived(target, values, absent, wall)


def replaced(old: Known, new: Target) -> str:
    """Say that another card sits in the slot."""
    serials = [
        f"serial {info['serial']}" if info.get("serial") else key for info, key in ((old.info, old.key), (new.info, new.key))
    ]
    return f"replaced at {old.pci}: {serials[0]} by {serials[1]}"


def when(at: float | None) -> str:
    """Write when a GPU was seen last, with the time zone: who reads it may be elsewhere."""
    return "never" if at is None else stamp(at, is_local=False)
