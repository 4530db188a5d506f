"""What sources say of things that are in trouble: said in the log once when it begins and once when it ends.

A source that answers with a fault has answered: no deadline and no supervisor speaks of it. Nor can a source in a short-lived
worker say it only once, since it knows no earlier round. So it is said here, where all readings come by. Not said are GPUs, their
driver and the kernel log: their sources stay and say it themselves. What a worker that stays has said of GPUs is kept here for
the one that takes its place (`Standing`), so that it goes on where the last one was.
"""

import logging
import threading
from collections.abc import Callable

import msgspec

from gpuwatch.catalogue.disk import DISK, FILESYSTEM, MD
from gpuwatch.catalogue.gpu import DCGM, DRIVER, GPU
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target

SAID = frozenset((DCGM, DISK, FILESYSTEM, MD))
SUPERVISED = frozenset(("hung",))  # what does not return is said by the supervisor
FORGET = 86400.0  # seconds after which a thing that nobody told of any more (a disk that was pulled) has no trouble
UNSURE = frozenset(("unknown_error", "no_permission"))  # what may be a fault of the driver as a whole
WORDS = 300  # bytes of what a source says that go into one line

log = logging.getLogger(__name__)


class Trouble(msgspec.Struct):
    """What is wrong with one thing, since when and when it was last told (monotonic)."""

    fault: Fault
    since: float
    last: float
    stops: bool  # the source as a whole gives nothing


class Faults:
    """The things of one collector that are in trouble; used by any thread."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._lock = threading.Lock()
        self._troubles: dict[tuple[str, Target], Trouble] = {}

    def take(self, reading: Reading) -> bool:
        """Take in a reading and say what has changed; return whether it gives more than that its source gives nothing."""
        fault = reading.fault
        if reading.target.subject not in SAID or (fault is None and not self._troubles):
            return True
        stops = fault is not None and reading.target.key == "" and not any(reading.values.values())  # all there is, and not up
        if fault is None or fault.kind not in SUPERVISED:
            self._change(reading, fault, stops)
        return not stops

    def _change(self, reading: Reading, fault: Fault | None, stops: bool) -> None:
        key, now = (reading.source, reading.target), self._mono()
        with self._lock:
            before = self._troubles.pop(key, None)
            for old in [one for one, trouble in self._troubles.items() if now - trouble.last > FORGET]:
                del self._troubles[old]
            if fault is None:
                if before is not None and not self._is_told(reading.source, before.fault):
                    log.info("%s: %s is well again after %.0f s", reading.source, reading.target, now - before.since)
                return
            is_same = before is not None and before.fault.kind == fault.kind
            if not is_same and not self._is_told(reading.source, fault):
                log.warning("%s: %s: %s: %s", reading.source, reading.target, fault.kind, printable(fault.words, WORDS))
            since = before.since if before is not None else now
            self._troubles[key] = Trouble(fault, since, now, stops)

    def of(self, source: str) -> str:
        """Return "" or why this source as a whole gives nothing."""
        with self._lock:
            found = [trouble.fault for (who, _), trouble in self._troubles.items() if who == source and trouble.stops]
        return next((f"{fault.kind}: {printable(fault.words, WORDS)}" for fault in found), "")

    def _is_told(self, source: str, fault: Fault) -> bool:
        """Say whether another thing has the same trouble: that smartctl is missing is one line, not one a disk."""
        return any(who == source and trouble.fault == fault for (who, _), trouble in self._troubles.items())


class Known(msgspec.Struct):
    """A fault of a GPU that gives nothing: since when, and whether its source has said so by now."""

    kind: str
    since: float
    is_said: bool


class Standing:
    """The faults of GPUs that a worker has logged and that are not over; used by any thread.

    What is sure is logged with its first reading. What may be a fault of the driver as a whole is logged a normal round later,
    and not where the driver is to blame.
    """

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Known] = {}
        self._is_driver_well = True

    def take(self, reading: Reading) -> None:
        """Take in a reading."""
        fault, subject = reading.fault, reading.target.subject
        if subject is not DRIVER and subject is not GPU:
            return
        key, place = (reading.source, reading.target.key), (reading.source, reading.target.info.get("pci_bus_id", ""))
        with self._lock:
            if subject is DRIVER:
                self._is_driver_well = fault is None
            elif reading.values:
                self._known.pop(key, None)
                self._known.pop(place, None)  # as which it was known before it could be opened
            elif fault is not None and fault.kind != "driver" and self._is_driver_well:
                before = self._known.get(key)
                is_said = fault.kind not in UNSURE or (before is not None and reading.tier is Tier.NORMAL)
                since = self._mono() if before is None else before.since
                self._known[key] = Known(fault.kind, since, is_said or (before is not None and before.is_said))

    def handed(self) -> dict[str, dict[str, tuple[str, float]]]:
        """Return kind and age in seconds of each, by source and key."""
        found: dict[str, dict[str, tuple[str, float]]] = {}
        with self._lock:
            for (source, key), known in self._known.items():
                if known.is_said:
                    found.setdefault(source, {})[key] = (known.kind, self._mono() - known.since)
        return found
