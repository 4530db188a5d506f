"""What survives a restart: what detectors and rules remember, open incidents, and what the last run knew when it ended.

It is taken over once: at the start, or where the disk lets itself be read only later, by the judge's thread then. Until it
is, this run saves nothing of its own, so that what lies on the disk is not lost to a start in a bad moment.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.events import KINDS
from gpuwatch.config import Config
from gpuwatch.detectors import Runner
from gpuwatch.detectors.causes import label, title
from gpuwatch.detectors.reboot import Before, Reboot
from gpuwatch.detectors.released import is_explained
from gpuwatch.model.alert import Incident, Severity, Transition
from gpuwatch.model.delivery import Delivery, Told
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.silence import Silence
from gpuwatch.model.view import View
from gpuwatch.sources import sysfs
from gpuwatch.sources.kernel.pstore import Dump

log = logging.getLogger("gpuwatch")

RUN = "run"  # the name of the mark: which boot, and whether it was left in order
RULES = "rules"
VERSION = 1
LAST_SAMPLE = 600.0  # seconds before the last mark of the last run in which its last sample is looked for
MARKED = 300.0  # seconds after it: marks are made every minute, but the disk may have been slow
HELD = 4096  # events; as many as wait for one beat
ENDING = frozenset({"xid", "off_bus", "gsp", "mce"})  # what may be told of in the last minutes of a boot, and have ended it
ERRORS = 3  # of GPUs that are named
PATIENCE = 6.0  # seconds that the history may take to say what it last knew


class Row(Protocol):
    """One stored row."""

    @property
    def at(self) -> float: ...

    @property
    def values(self) -> Mapping[Metric, float]: ...


class Memory(Protocol):
    """What earlier runs left."""

    @property
    def incidents(self) -> Sequence[Incident]: ...

    @property
    def told(self) -> Sequence[Told]: ...

    @property
    def deliveries(self) -> Sequence[Delivery]: ...

    @property
    def silences(self) -> Sequence[Silence]: ...


class Ticket(Protocol):
    """Says whether what was saved is on disk."""

    def wait(self, seconds: float) -> bool: ...


class Store(Protocol):
    """Where it is kept."""

    @property
    def remembers(self) -> bool: ...

    def memory(self) -> Memory: ...

    def commit(self, incidents: Sequence[Incident] = ()) -> object: ...

    def load_state(self, name: str) -> tuple[int, bytes] | None: ...

    def save_state(self, name: str, version: int, blob: bytes) -> Ticket: ...

    def events(self, since: float, until: float, limit: int = 1000, kinds: Collection[str] | None = None) -> Sequence[Event]: ...

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float) -> Sequence[Row]: ...


class Engine(Protocol):
    """The rules with their states."""

    def dump(self, mono: float, wall: float) -> bytes: ...

    def restore(self, blob: bytes, mono: float, wall: float) -> None: ...

    def adopt(self, incidents: Sequence[Incident], mono: float, wall: float) -> list[Transition]: ...


class Incidents(Protocol):
    """The stories that people are told."""

    def restore(self, incidents: Sequence[Incident]) -> None: ...

    def apply(self, transitions: Sequence[Transition]) -> list[Incident]: ...


class Notifier(Protocol):
    """Who tells people."""

    def restore(self, memory: Memory) -> None: ...

    def changed(self, incidents: Sequence[Incident]) -> None: ...


class Remembering:
    """The detectors, and all that survives a restart. `build` makes them from what was known when the last run ended."""

    def __init__(
        self,
        build: Callable[[Before | None], Runner],
        *,
        boot: str,
        left: Callable[[float], Dump],
        store: Store,
        engine: Engine,
        incidents: Incidents,
        notifier: Notifier,
    ) -> None:
        self._build, self._boot, self._left, self._runner = build, boot, left, build(None)
        self._store, self._engine, self._incidents, self._notifier = store, engine, incidents, notifier
        self._has_run = False
        self._saving: dict[str, tuple[Ticket, bytes]] = {}  # states of detectors that are not known to be on disk, by name
        self._held: deque[Event] = deque(maxlen=HELD)
        self.is_whole = False  # what earlier runs left has been taken over
        self._marked = ""  # the boot that this run has marked as its own
        self._is_leaving = False  # this run is being ended in order

    def run(self, view: View, wall: float) -> Findings:
        """Let every detector look at one beat; with the first that remembers, they are shown again what happened before it."""
        self._has_run = True
        if not self.is_whole:
            self._held.extend(view.events)
        elif self._held:
            view = replace(view, events=(*self._held, *view.events))
            self._held.clear()
        written = {name: blob for name, (ticket, blob) in self._saving.items() if ticket.wait(0)}
        if written:
            self._runner.kept(written)
            self._saving = {name: saving for name, saving in self._saving.items() if name not in written}
        return self._runner.run(view, wall)

    def problem(self) -> str:
        """Return which detectors fail, "" while none does."""
        return self._runner.problem()

    def recall(self, mono: float, wall: float) -> None:
        """Take over what earlier runs left, once it can be read; between two beats."""
        if self.is_whole or not self._store.remembers:
            return
        self.is_whole = True
        known = before(self._store, self._boot, self._left)
        present, self._runner = self._runner, self._build(known)
        if known is not None and known.crash:
            self._held.append(crash(known, wall))
        self._runner.restore(lambda name: self._store.load_state(f"detector.{name}"))
        for name, version, blob in self._runner.dump():
            if name in self._runner.passing:  # what the last run left in order is taken over: it must not be so once more
                self._store.save_state(f"detector.{name}", version, blob)
        self._runner.keep_counts(present)
        kept = self._store.load_state(RULES)
        if kept is not None:
            self._engine.restore(kept[1], mono, wall)
        memory = self._store.memory()
        self._incidents.restore(memory.incidents)
        ended = self._incidents.apply(self._engine.adopt(memory.incidents, mono, wall))
        self._notifier.restore(memory)
        if ended:
            self._store.commit(incidents=ended)
            self._notifier.changed(ended)
        if self._has_run:
            log.info(
                "the alert memory could be read: %d open incidents and %d unsent messages of earlier runs are taken over",
                sum(incident.ended_at is None for incident in memory.incidents),
                len(memory.deliveries),
            )

    def save(self, mono: float, wall: float) -> None:
        """Hand it to the store."""
        if not self.is_whole:
            return
        for name, version, blob in self._runner.dump(clean=self._is_leaving):
            self._saving[name] = self._store.save_state(f"detector.{name}", version, blob), blob
        self._store.save_state(RULES, VERSION, self._engine.dump(mono, wall))
        boot = self._runner.states[Reboot.name].boot_id
        if boot:  # it was judged whether this boot was asked for; before that the mark of the last boot must stay
            mark(self._store, boot, wall, clean=self._is_leaving)
            self._marked = boot

    def leave(self, wall: float) -> None:
        """Say that this run is being ended in order, also where the last beat does not end in time to save; any thread."""
        self._is_leaving = True
        if self._marked:
            mark(self._store, self._marked, wall, clean=True)


def mark(store: Store, boot: str, wall: float, *, clean: bool) -> None:
    """Write which boot this is, and whether it is being left in order; the time is that of the mark."""
    store.save_state(RUN, VERSION, json.dumps({"boot_id": boot, "clean": clean, "at": wall}).encode())


def before(store: Store, present: str, left: Callable[[float], Dump], patience: float = PATIENCE) -> Before | None:
    """Return what was known when the last run ended; None on a first start, or where the mark cannot be read.

    `present` is the id of this boot, as far as it is known; `left` reads what the kernel left since a time when it died.
    """
    kept = store.load_state(RUN)
    if kept is None:
        return None
    try:
        known = json.loads(kept[1])
        boot, clean, at = str(known["boot_id"]), bool(known["clean"]), float(known["at"])
    except (ValueError, KeyError, TypeError):
        log.warning("the mark of the last run cannot be read; whether this reboot was asked for is not known")
        return None
    if clean or boot == present:
        return Before(boot, clean, at)  # nothing to tell: the history is not asked
    return end_of(store, Before(boot, clean, at), left, patience)


def end_of(store: Store, known: Before, left: Callable[[float], Dump], patience: float) -> Before:
    """Add how the boot ended: what the kernel left, and what was last known and told, as far as that is said in time."""
    power, hottest = gpu.POWER, gpu.TEMPERATURE["core"]
    since, until = known.at - LAST_SAMPLE, known.at + MARKED
    dumped: list[Dump] = []
    told: list[Event] = []
    rows: list[Row] = []

    def look() -> None:
        dumped.append(left(known.at - MARKED))
        told.extend(store.events(since, until, kinds=ENDING))
        rows.extend(row for row in store.rows(gpu.GPU, [power, hottest], since, until) if row.values)

    thread = threading.Thread(target=look, name="last-sample", daemon=True)  # a disk that hangs must not hold us up
    thread.start()
    thread.join(patience)
    dump = dumped[0] if dumped else Dump(problem="it could not be read in time")
    events = list(told)
    errors = dict.fromkeys(named(event) for event in events if event.kind != "mce" and is_grave(event))
    heard = {one.partition(" (")[0] for one in errors}  # the kernel names a GPU by its address
    errors |= dict.fromkeys(one for one in dump.errors if one.partition(" (")[0] not in heard)
    known = replace(
        known,
        crash=dump.crash,
        errors=tuple(errors)[-ERRORS:],
        machine_check=dump.has_machine_check or any(event.kind == "mce" and is_grave(event) for event in events),
        unread=dump.problem,
        has_place=dump.has_place,
    )
    if thread.is_alive() or not rows:
        return known
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


def crash(known: Before, wall: float) -> Event:
    """Return the event of a crash that was found."""
    return Event(
        source="own",
        kind="crash",
        severity=Severity.INFO,
        at=min(known.at, wall),
        words=printable(f"before this boot: {known.crash}", WORDS_LIMIT),
        subject=KINDS["crash"].subject,
    )


def boot_id(config: Config) -> str:
    """Return the id of this boot; "" where the kernel does not say."""
    return sysfs.fact(Path(config.paths.proc) / "sys/kernel/random/boot_id")
