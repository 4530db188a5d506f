"""What survives a restart: what detectors and rules remember, open incidents, and what the last run knew when it ended.

It is taken over once: at the start, or where the disk lets itself be read only later, by the judge's thread then, which is not
held up for it. Until it is, this run saves nothing of its own, so that what lies on the disk outlives a start in a bad moment.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeGuard

from msgspec.structs import replace

from gpuwatch.catalogue.events import KINDS
from gpuwatch.config import Config
from gpuwatch.daemon import ending
from gpuwatch.daemon.ending import Ending
from gpuwatch.detectors import Runner
from gpuwatch.detectors.reboot import Before, Reboot
from gpuwatch.model.alert import Incident, Severity, Transition
from gpuwatch.model.delivery import Delivery, Told
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.finding import Findings
from gpuwatch.model.silence import Silence
from gpuwatch.model.view import View
from gpuwatch.sources import sysfs
from gpuwatch.sources.kernel.pstore import Dump

log = logging.getLogger("gpuwatch")

RUN = "run"  # the name of the mark: which boot, and whether it was left in order
RULES = "rules"
VERSION = 1
HELD = 4096  # events; as many as wait for one beat
PATIENCE = 6.0  # seconds that disk and pstore may take to say how the last boot ended
BRIEF = 0.5  # seconds of them that a beat waits: mostly all is read by then, and if not, the page goes on


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


class Store(ending.Store, Protocol):
    """Where it is kept."""

    @property
    def remembers(self) -> bool: ...

    def memory(self) -> Memory: ...

    def commit(self, incidents: Sequence[Incident] = ()) -> object: ...

    def load_state(self, name: str) -> tuple[int, bytes] | None: ...

    def save_state(self, name: str, version: int, blob: bytes) -> Ticket: ...


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
        left: Callable[[float], Iterable[Dump]],
        store: Store,
        engine: Engine,
        incidents: Incidents,
        notifier: Notifier,
    ) -> None:
        self._build, self._boot, self._left, self._runner = build, boot, left, build(None)
        self._store, self._engine, self._incidents, self._notifier = store, engine, incidents, notifier
        self._has_run = False
        self._ending: Ending | None = None
        self._look_until = 0.0  # monotonic
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
        """Take over what earlier runs left, once it can be read, and it is known how it ended; between two beats."""
        if self.is_whole or not self._store.remembers:
            return
        known = last_run(self._store)
        if has_died(known, self._boot):
            if self._ending is None:
                self._ending, self._look_until = Ending(self._store, known, self._left), mono + PATIENCE
            if not self._ending.is_over(BRIEF) and mono < self._look_until:
                return
            known = self._ending.found()
        self.is_whole = True
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

    def keep(self, names: Sequence[str]) -> None:
        """Hand to the store what these detectors have counted, at once."""
        if self.is_whole:
            for name, version, blob in self._runner.dump(names):
                self._store.save_state(f"detector.{name}", version, blob)

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


def last_run(store: Store) -> Before | None:
    """Return the mark of the last run; None on a first start, or where it cannot be read."""
    kept = store.load_state(RUN)
    if kept is None:
        return None
    try:
        known = json.loads(kept[1])
        return Before(str(known["boot_id"]), bool(known["clean"]), float(known["at"]))
    except (ValueError, KeyError, TypeError):
        log.warning("the mark of the last run cannot be read; whether this reboot was asked for is not known")
        return None


def has_died(known: Before | None, present: str) -> TypeGuard[Before]:
    """Say whether that run ended with its boot, and nobody had ended it. `present` is the id of this boot, as far as is known."""
    return known is not None and not known.clean and known.boot_id != present


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
