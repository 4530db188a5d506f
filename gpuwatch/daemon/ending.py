"""How a boot ended that nobody had ended: what the kernel left, what was told in its last minutes, and the last sample.

Each of the three is looked for in a thread of its own, since disk and pstore may hang; what fails or is late has a reason, and
costs the other two nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from gpuwatch.catalogue import gpu
from gpuwatch.detectors.causes import label, title
from gpuwatch.detectors.reboot import Before
from gpuwatch.detectors.released import is_explained
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.past import UnreadableError
from gpuwatch.sources.kernel.pstore import Dump

log = logging.getLogger("gpuwatch")

LAST_SAMPLE = 600.0  # seconds before the last mark of the last run in which its last sample is looked for
MARKED = 300.0  # seconds after it: marks are made every minute, but the disk may have been slow
ENDING = frozenset({"xid", "off_bus", "gsp", "mce"})  # what may be told of in the last minutes of a boot, and have ended it
ERRORS = 3  # of GPUs that are named
LATE = "it could not be read in time"

Found = TypeVar("Found")


class Row(Protocol):
    """One stored row."""

    @property
    def at(self) -> float: ...

    @property
    def values(self) -> Mapping[Metric, float]: ...


class Store(Protocol):
    """Where it was kept."""

    def events(self, since: float, until: float, limit: int = 1000, kinds: Collection[str] | None = None) -> Sequence[Event]: ...

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float) -> Sequence[Row]: ...


class Look(Generic[Found]):
    """One look in a thread: `outcome` is what was found so far, and why that may not be all. What it yields last is all."""

    def __init__(self, name: str, look: Callable[[], Iterable[Found]], nothing: Found) -> None:
        self.outcome = nothing, LATE
        self._name, self._look = name, look
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread to spare
            log.warning("how the last boot ended is known in part only: %s: %s", name, error)
            self.outcome = nothing, f"it could not be read ({error})"

    def is_over(self, seconds: float) -> bool:
        """Wait this long for its end; say whether that has come."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for found in self._look():
                self.outcome = found, LATE
            self.outcome = self.outcome[0], ""
        except UnreadableError as error:
            log.warning("how the last boot ended is known in part only: %s", error)
            self.outcome = self.outcome[0], str(error)
        except Exception as error:  # root of the thread: one look that fails must not cost the others
            log.exception("how the last boot ended is known in part only: %s failed", self._name)
            self.outcome = self.outcome[0], f"it could not be read ({type(error).__name__})"


class Ending:
    """The looks for the end of one boot; `known` is what was known without them, `left` reads what the kernel left since then."""

    def __init__(self, store: Store, known: Before, left: Callable[[float], Iterable[Dump]]) -> None:
        since, until = known.at - LAST_SAMPLE, known.at + MARKED
        metrics = [gpu.POWER, gpu.TEMPERATURE["core"]]
        self._known = known
        self._dump = Look("last-dump", lambda: left(known.at - MARKED), Dump())
        self._told = Look[Sequence[Event]]("last-events", lambda: (store.events(since, until, kinds=ENDING),), ())
        self._rows = Look[Sequence[Row]]("last-sample", lambda: (store.rows(gpu.GPU, metrics, since, until),), ())

    def is_over(self, seconds: float) -> bool:
        """Wait this long for all of them; say whether they have come to their end."""
        end = time.monotonic() + seconds
        return all(look.is_over(max(0.0, end - time.monotonic())) for look in (self._dump, self._told, self._rows))

    def found(self) -> Before:
        """Return what is known by now."""
        (dump, undumped), (events, unheard) = self._dump.outcome, self._told.outcome
        errors = dict.fromkeys(named(event) for event in events if event.kind != "mce" and is_grave(event))
        heard = {one.partition(" (")[0] for one in errors}  # the kernel names a GPU by its address
        errors |= dict.fromkeys(one for one in dump.errors if one.partition(" (")[0] not in heard)
        known = replace(
            self._known,
            crash=dump.crash,
            errors=tuple(errors)[-ERRORS:],
            machine_check=dump.has_machine_check or any(event.kind == "mce" and is_grave(event) for event in events),
            unread=undumped or dump.problem,
            has_place=dump.has_place,
            unheard=unheard,
        )
        return sampled(known, *self._rows.outcome)


def sampled(known: Before, rows: Sequence[Row], problem: str) -> Before:
    """Add the last sample."""
    power, hottest = gpu.POWER, gpu.TEMPERATURE["core"]
    rows = [row for row in rows if row.values]
    if not rows:
        return replace(known, unsampled=problem)
    last = max(row.at for row in rows)
    powers = [row.values[power] for row in rows if row.at == last and power in row.values]
    temperatures = [row.values[hottest] for row in rows if row.at == last and hottest in row.values]
    return replace(
        known,
        at=max(known.at, last),
        power_watts=sum(powers) if powers else None,
        temperature_celsius=max(temperatures, default=None),
    )


def is_grave(event: Event) -> bool:
    """Say whether an event may have to do with the end of its boot; a release explains what came of it."""
    return event.severity is Severity.CRITICAL and not is_explained(event)


def named(event: Event) -> str:
    """Return a short name of an error of a GPU."""
    return f"{label(event)} ({event.key})" if event.kind == "xid" else f"{title(event)} ({event.key})"
