"""Whether a GPU is there: NVML's answer about it, its list, and the PCI bus as the second witness.

Not there means: NVML says lost (15) or needs a reset (16), at once; it fails with another error, or has vanished from the
list, again and again; or the bus reads all ones. A hung or late GPU, and a driver that is down as a whole, say nothing about
the GPU (alerting.md 3.3, nvml.md 1.3).
"""

from typing import NamedTuple

import msgspec

from gpuwatch.catalogue.gpu import DRIVER, DRIVER_STATE, GPUS, VISIBLE
from gpuwatch.catalogue.host import PCI, PCI_RESPONDING
from gpuwatch.detectors.detector import measured
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.view import Entry, View

AGAIN = 3  # odd answers in a row that count, or ...
LONG = 10.0  # ... seconds for which they last
UNLISTED_FOR = 3.0  # seconds, and two answers: one empty list happens (netdata#23207)
SETTLE = 20.0  # seconds after the driver came up in which GPUs may still come, one by one


class Trouble(msgspec.Struct):
    """An odd answer about one GPU that has to last before it counts."""

    kind: str
    since: float  # the detector's own clock
    at: float  # wall time of the answer, so that one is not counted twice
    count: int = 1


class Known(msgspec.Struct, kw_only=True):
    """One GPU of the inventory. `verdict` is lost, missing or reset_required, and stays until the GPU answers again."""

    key: str
    labels: dict[str, str]
    info: dict[str, str] = {}
    last_seen: float | None = None
    verdict: str = ""
    reason: str = ""
    cause: str = ""
    trouble: Trouble | None = None

    @property
    def pci(self) -> str:
        """Its address on the bus, "" where it is not known."""
        return self.info.get("pci_bus_id", "") or (self.key if ":" in self.key else "")

    def lose(self, verdict: str, reason: str, cause: str) -> None:
        """Count it as gone."""
        self.verdict, self.reason, self.cause, self.trouble = verdict, reason, cause, None

    def odd(self, kind: str, at: float, clock: float) -> Trouble:
        """Take one odd answer; returns all of its kind in a row."""
        if self.trouble is None or self.trouble.kind != kind:
            self.trouble = Trouble(kind, clock, at)
        elif self.trouble.at != at:
            self.trouble.at, self.trouble.count = at, self.trouble.count + 1
        return self.trouble


class Scene(NamedTuple):
    """What one beat says about the GPUs as a whole."""

    driver: str | None  # state of the driver, None where nothing is known of it
    settled: bool
    listed: float | None  # how many NVML lists
    listed_at: float
    answering: int  # of how many there is an answer, good or bad
    bus: dict[str, Entry]
    clock: float


class Standing(NamedTuple):
    """How a GPU is: a name of STATE, or "" where that cannot be said, and why it gives no readings ("" while it does)."""

    state: str
    reason: str


def driver_state(view: View) -> str | None:
    """Return the state that the driver is in, None where the driver has not been heard of."""
    for entry in view.of(DRIVER):
        return next((name for name, metric in DRIVER_STATE.items() if entry.values.get(metric) == 1), None)
    return None


def listing(view: View) -> tuple[float | None, float]:
    """Return how many GPUs NVML lists, and when it was asked."""
    for entry in view.of(GPUS):
        return entry.values.get(VISIBLE["nvml"]), entry.at(VISIBLE["nvml"]) or 0.0
    return None, 0.0


def bus(view: View) -> dict[str, Entry]:
    """Return the GPUs that the bus showed when it was last looked at, by address; older entries only have not gone late yet."""
    looked = max((entry.at(VISIBLE["pci"]) or 0.0 for entry in view.of(GPUS)), default=0.0)
    return {entry.target.key: entry for entry in view.of(PCI) if any(reading.at >= looked for reading in entry.readings)}


def answer(entry: Entry | None) -> Reading | None:
    """Return what the hardware last said of a GPU: its fast reading, else the newest that carries a fault."""
    if entry is None:
        return None
    readings = measured(entry)
    fast = next((reading for reading in readings if reading.tier is Tier.FAST), None)
    return fast or max((reading for reading in readings if reading.fault), key=lambda one: one.at, default=None)


def works(reading: Reading | None) -> bool:
    """Say whether an answer shows that the GPU is there: no fault, or one that leaves other values readable."""
    return reading is not None and (reading.fault is None or (reading.fault.kind == "unknown_error" and bool(reading.values)))


def judge(known: Known, reading: Reading | None, scene: Scene) -> Standing:
    """Say how one GPU is, and remember in `known` what has to last."""
    if reading is not None and works(reading):
        known.last_seen, known.verdict, known.reason, known.cause, known.trouble = reading.at, "", "", "", None
        return Standing("degraded" if reading.fault else "ok", "")
    is_drivers = reading is not None and reading.fault is not None and reading.fault.kind == "driver"
    if scene.driver not in ("ok", None) or is_drivers:  # the GPU's reading may come before the driver's own
        known.trouble = None
        return Standing("", "released" if scene.driver == "released" else "driver")
    if reading is not None and reading.fault is not None:
        standing = ill(known, reading, reading.fault, scene)
    else:
        standing = silent(known, scene)
    if known.verdict:
        return Standing(known.verdict, known.reason)
    return standing


def ill(known: Known, reading: Reading, fault: Fault, scene: Scene) -> Standing:
    """Judge a GPU of which NVML says what is wrong."""
    code = "" if fault.code is None else f" (code {fault.code})"
    if fault.kind == "reset_required":
        known.lose("reset_required", "reset_required", f"NVML says that it must be reset{code}")
    elif fault.kind == "lost" and fault.code is not None:
        known.lose("lost", "lost", f"NVML says that it is lost{code}")
    elif fault.kind == "lost":
        trouble = known.odd("lost", reading.at, scene.clock)
        if trouble.count >= 2 and scene.clock - trouble.since >= UNLISTED_FOR:
            known.lose("lost", "lost", fault.words)
        return Standing("", "lost")
    elif fault.kind == "unknown_error":
        trouble = known.odd("unknown_error", reading.at, scene.clock)
        if trouble.count >= AGAIN or scene.clock - trouble.since >= LONG:
            known.lose("lost", "unknown_error", fault.words)
        return Standing("degraded", "unknown_error")
    elif all_ones(known, scene):
        known.lose("lost", "lost", "it reads as all ones on the PCI bus")
    elif fault.kind == "hung":
        return Standing("hung", "hung")
    return Standing("", fault.kind if fault.kind == "no_permission" else "unknown_error")


def silent(known: Known, scene: Scene) -> Standing:
    """Judge a GPU of which nothing is heard: late, given to a virtual machine, or not listed any more."""
    witness = scene.bus.get(known.pci)
    if witness is not None and witness.target.info.get("driver") == "vfio-pci":
        known.verdict, known.trouble = "", None
        return Standing("", "released")
    if known.verdict:
        return Standing(known.verdict, known.reason)
    if all_ones(known, scene):
        known.lose("lost", "lost", "it reads as all ones on the PCI bus")
        return Standing("lost", "lost")
    old = scene.listed_at <= (known.last_seen or 0.0)  # asked before this GPU was last heard of
    if scene.driver is None or scene.listed is None or scene.listed > scene.answering or old:
        # What was found before stands, until this GPU answers: every start begins with a while in which nothing is known.
        return Standing("", "late")
    trouble = known.odd("missing", scene.listed_at, scene.clock)
    lasts = scene.clock - trouble.since
    if scene.settled and ((trouble.count >= 2 and lasts >= UNLISTED_FOR) or lasts >= LONG):
        seen = "still shows it" if witness is not None else "does not show it either" if scene.bus else "cannot be asked"
        verdict = "lost" if witness is not None else "missing"
        known.lose(verdict, verdict, f"NVML lists {scene.listed:.0f} GPUs without it, and the PCI bus {seen}")
    return Standing("", "missing")


def all_ones(known: Known, scene: Scene) -> bool:
    """Say whether the bus has found the device dead since it last answered."""
    witness = scene.bus.get(known.pci)
    if witness is None or witness.values.get(PCI_RESPONDING) != 0:
        return False
    return (witness.at(PCI_RESPONDING) or 0.0) > (known.last_seen or 0.0)
