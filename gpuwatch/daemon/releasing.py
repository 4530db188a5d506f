"""Lets go of every GPU on request, and takes them up again: after a time, on request, and over restarts of the daemon.

While the GPUs are released no process of ours has a device open, what was read of them counts as RELEASED, the rules of GPU
subjects rest, and nothing about GPUs is told. A release that outlives its time lasts on, five minutes at a time, while an
installer is at work: attaching then would get into its way, and the driver that is missing is no fault.

It lasts as long as anybody wants it: a command drops its own hold when it ends, a person who resumes ends all. What is asked for
before the alert memory can be read, and what an earlier run left, become one release then.

The last release is remembered when it is over: what the kernel log tells of its time may come late, and after a restart again
(`detectors/released.py`). A wall clock that is set meanwhile takes the start along; one that goes back behind the end makes the
time of the release void, since that is passed once more: an error too much is better than one too few.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from gpuwatch import catalogue
from gpuwatch.catalogue.gpu import DCGM, DRIVER, GPUS
from gpuwatch.catalogue.host import PCI
from gpuwatch.daemon import attached
from gpuwatch.daemon.kept import (
    PEOPLE,
    STATE,
    VERSION,
    Hold,
    Kept,
    Store,
    Ticket,
    Workers,
    clock_time,
    lasted,
    left,
    of_driver,
    read,
    silence,
)
from gpuwatch.daemon.seen import Seen
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Subject
from gpuwatch.model.reading import Reading
from gpuwatch.model.silence import Silence
from gpuwatch.model.view import View

log = logging.getLogger("gpuwatch")

SOURCES = ("nvml", "dcgm")  # whose numbers are of GPUs, and whose processes have them open
SUBJECTS = frozenset(one for one in catalogue.SUBJECTS.values() if "uuid" in one.labels or one in (DRIVER, GPUS, DCGM, PCI))
GRACE = 300.0  # seconds by which a release goes on while an installer is at work
CLOSING = 2.0  # seconds in which the worker processes have ended, unless one is stuck in the kernel
STORED = 1.0  # seconds that the disk may take beyond that
LOOK = 0.25  # seconds between two looks at the clock
STEP = 1.0  # seconds by which the wall clock has to be off to have been set
HOLDS = 64  # at one time; who comes beyond that shares that of people, which lasts until its time


class Board(Protocol):
    """Where readings are."""

    def post(self, reading: Reading, mono: float) -> object: ...

    def withdraw(self, sources: Collection[str], mono: float) -> None: ...

    def admit(self) -> None: ...

    def view(self, wall: float, mono: float) -> View: ...


class Engine(Protocol):
    """The rules."""

    resting: frozenset[Subject]


class Silences(Protocol):
    """What is not told."""

    def hold(self, standing: Silence | None) -> None: ...


class Releasing:
    """Whether the GPUs are ours. Any thread may call; only `release` and `resume` wait: for processes to end, and the disk."""

    def __init__(
        self,
        workers: Sequence[Workers],
        *,
        board: Board,
        engine: Engine,
        silences: Silences,
        store: Store,
        clock: Clock,
        happened: Callable[[Event], None],
        at_work: Callable[[], str],
    ) -> None:
        self._workers, self._board, self._engine, self._silences = workers, board, engine, silences
        self._store, self._clock, self._happened, self._at_work = store, clock, happened, at_work
        self._seen = Seen(store)
        self._lock = threading.RLock()
        self._kept: Kept | None = None
        self._last: Kept | None = None  # the one before, which is over and told
        self._since = 0.0  # monotonic: since then it is released
        self._ends: dict[str, float] = {}  # monotonic: until when each hold lasts
        self._until = 0.0  # monotonic: until then it is released, or since then attaching
        self._up_since: float | None = None  # monotonic: the driver is well again
        self._words, self._is_back = "", True  # what the last attaching found, and whether the driver was there ...
        self._missing: list[str] = []  # ... and which GPUs were not
        self._ended = 0  # releases that this run has ended
        self._recalled = False  # what an earlier run left has been taken up, or overtaken; until then nothing is stored
        self._dropped: set[str] = set()  # holds that what an earlier run left may have
        self._stopping = threading.Event()
        self._changed = threading.Event()  # there is a time to watch, or nothing any more
        self._thread = threading.Thread(target=self._run, name="release", daemon=True)

    # --- what people ask for ----------------------------------------------------------------------------------------

    def release(self, seconds: float, by: str, hold: str = PEOPLE) -> dict[str, Any]:
        """Let go of every GPU for this long, or longer where this hold was for longer before; says who could not be ended."""
        with self._lock:
            began, wall, before = self._clock.mono(), self._clock.wall(), self._kept
            already = before is not None and not before.is_over
            if before is None or before.is_over:
                seen = self._seen.before(self._view()) if before is None else before.before  # else we have not seen them since
                begun, earlier = attached.begun(seen, wall, wall + seconds, by), lasted(before or self._last, wall)
                before = Kept(since=wall, holds={}, settled_at=wall, before=seen, begun=begun, earlier=earlier)
                self._happened(begun)
                self._since, self._ends = began, {}
            ends = {name: end for name, end in self._ends.items() if end > began}
            name = hold if hold in ends or len(ends) < HOLDS else PEOPLE
            ends[name] = max(began + seconds, ends.get(name, began))
            self._dropped.discard(hold)
            kept, ended = self._held(before, ends, by), self._ended
            ticket = self._keep()
            self._let_go()
        log.info("the GPUs are released until %s by %s", clock_time(kept.until, wall), printable(by))
        while (stuck := self._stuck(ended)) and self._clock.mono() - began < CLOSING and not self._stopping.wait(0.02):
            continue
        if stuck:
            log.error("%s cannot be ended (it is stuck in the kernel) and still has GPUs open", ", ".join(stuck))
        stored = ticket is not None and ticket.wait(STORED)
        return {"already": already, "stuck": stuck, "stored": stored, **self.state(), "until": kept.until, "by": kept.by}

    def resume(self, by: str, hold: str | None = None) -> dict[str, Any]:
        """Take the GPUs up again, and wait until that is stored; what has changed is known some seconds later (`state`).

        With a `hold` only that is dropped: the GPUs are taken up where it was the last. `is_known`: there is, or was, such a one.
        """
        ticket: Ticket | None = None
        with self._lock:
            was = self._kept is not None and not self._kept.is_over
            is_unread = not self._recalled
            is_held = hold is None or is_unread or any(one is not None and hold in one.holds for one in (self._kept, self._last))
            if hold is not None:
                ticket = self._drop(hold, by)
            else:
                self._recalled = True  # what an earlier run left, which cannot be read yet, is ended all the same
                if was:
                    ticket = self._attach(by)
                elif self._kept is not None or self._last is not None:  # once more, perhaps since it was not stored
                    ticket = self._keep()
                elif is_unread:
                    ticket = self._store.save_state(STATE, VERSION, b"")
            is_read = self._recalled
        stored = is_read if ticket is None else ticket.wait(STORED)
        return {"is_known": is_held, "was_released": was, "stored": stored, **self.state()}

    def state(self) -> dict[str, Any]:
        """Return how it stands: `released`, `attaching`, `attached` and what that found, or `unknown`: not read after a start."""
        with self._lock:
            kept = self._kept
            if kept is None:
                if not self._recalled:
                    return {"state": "unknown", "found": ""}
                return {"state": "attached", "found": self._words, "is_back": self._is_back, "missing": self._missing}
            facts = {"since": kept.since, "until": kept.until, "by": kept.by, "waits_for": kept.waits_for}
            return {"state": "attaching" if kept.is_over else "released", **facts, "found": ""}

    # --- in its time ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what an earlier run left, if that can be read by now, and watch the time; call it before workers start."""
        self._recall()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._changed.set()

    def readings(self, wall: float) -> list[Reading]:
        """Return the driver's state while it is released, else look whether all is there again; for the judge, each beat."""
        self._recall()  # here too: a beat that remembers must not take Xids of a reset under release for stories
        with self._lock:
            self._void()
            kept, mono = self._kept, self._clock.mono()
            if kept is None and self._seen.is_due(mono):
                self._seen.note(self._view(), mono)
            if kept is None:
                return [] if self._last is None else [of_driver(self._last, wall, self._last.since)]
            if kept.is_over:
                self._look(kept, wall)
            return [of_driver(kept, wall, self._began(kept))]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(LOOK if self._kept is not None or not self._recalled else None)
            self._changed.clear()
            try:
                self._recall()
                self._pass()
            except BaseException:  # root of the thread: a release must end all the same
                log.exception("a bug in releasing the GPUs; it goes on")
                self._stopping.wait(10.0)

    def _recall(self) -> None:
        """Take up what an earlier run left, once it can be read; what this one was asked for by then is part of it."""
        with self._lock:
            if self._recalled or not self._store.remembers:
                return
            self._recalled = True
            self._seen.recall()
            old, is_new = read(self._store.load_state(STATE)), self._kept is None and self._last is None
            is_owed = old is not None and not old.is_told
            if old is not None and is_owed and old.begun is not None:
                self._happened(old.begun)  # the same, which the history has once
            if self._kept is not None:
                older = old.before if old is not None and is_owed else attached.Snapshot()
                before = next((one for one in (older, self._kept.before, self._seen.last) if one.driver), older)
                self._kept = msgspec.structs.replace(self._kept, before=before)
            if old is not None and not old.is_over:
                self._rejoin(old)
            elif old is not None and is_owed and is_new:
                self._engine.resting = SUBJECTS
                self._take(old, self._clock.mono())
            elif is_new:
                self._last = old
                return
            self._keep()

    def _rejoin(self, old: Kept) -> None:
        """Have a release of an earlier run go on, with what this one was asked for, unless all its holds were dropped by now."""
        wall, mono = self._clock.wall(), self._clock.mono()
        ends = {name: mono + rest for name, rest in left(old, wall, self._dropped).items()}
        own = None if self._kept is None or self._kept.is_over else self._kept
        if not ends:
            if self._kept is None:
                self._engine.resting, self._kept, self._since = SUBJECTS, old, mono - max(0.0, wall - old.since)
                self._attach("its command")
            return
        joined = old
        if own is not None:
            ends |= {name: max(end, ends.get(name, end)) for name, end in self._ends.items()}
            joined = msgspec.structs.replace(
                old, since=min(old.since, own.since), holds={**own.holds, **old.holds}, before=own.before
            )
        self._since = mono - max(0.0, wall - joined.since)
        kept = self._held(joined, ends, waits_for=old.waits_for if own is None else "")
        log.info("the GPUs are still released, until %s by %s", clock_time(kept.until, wall), printable(kept.by))
        self._let_go()

    def _pass(self) -> None:
        """End a release whose time has come, unless an installer is at work: to ask that may hang, and so nobody waits for it."""
        with self._lock:
            kept = self._kept
            if kept is None or kept.is_over or self._clock.mono() < self._until:
                return
        who = self._at_work()
        with self._lock:
            if self._kept is not kept:
                return  # somebody was faster
            if not who:
                self._attach("its time")
                return
            last = [name for name, end in self._ends.items() if end >= self._until]  # those that ended before are not wanted
            self._held(kept, dict.fromkeys(last, self._clock.mono() + GRACE), waits_for=who)
            self._keep()
        if who != kept.waits_for:
            log.info("the time of the release is over, and %s is at work: it lasts on, 5 minutes at a time", printable(who))

    # --- what is done -----------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        self._engine.resting = SUBJECTS
        self._board.withdraw(SOURCES, self._clock.mono())
        for one in self._workers:
            one.pause()
        assert self._kept is not None
        self._board.post(of_driver(self._kept, self._clock.wall(), self._began(self._kept)), self._clock.mono())

    def _drop(self, hold: str, by: str) -> Ticket | None:
        """Let somebody not want it any more; it goes on while others do."""
        if not self._recalled:
            self._dropped.add(hold)
        kept = self._kept
        if kept is None or kept.is_over or hold not in kept.holds:
            return None
        ends = {name: end for name, end in self._ends.items() if name != hold and end > self._clock.mono()}
        if not ends:
            return self._attach(by)
        kept = self._held(kept, ends, waits_for=kept.waits_for)
        log.info("the GPUs stay released until %s by %s", clock_time(kept.until, self._clock.wall()), printable(kept.by))
        return self._keep()

    def _attach(self, by: str) -> Ticket | None:
        assert self._kept is not None
        self._ended += 1
        since, now = self._began(self._kept), self._clock.wall()
        over = msgspec.structs.replace(self._kept, since=since, is_over=True, ended_by=by, ended_at=now, waits_for="")
        self._take(over, self._clock.mono())
        ticket = self._keep()
        self._board.admit()
        for one in self._workers:
            one.go_on()
        self._board.post(of_driver(over, now, since), self._clock.mono())
        log.info("the release of the GPUs is ended by %s", printable(by))
        return ticket

    def _look(self, kept: Kept, wall: float) -> None:
        """Tell once what has changed, when all is there again or is not to be waited for any longer."""
        view, mono = self._view(), self._clock.mono()
        trouble = attached.trouble(view, kept.before)
        self._up_since = None if trouble else self._up_since or mono
        if trouble and mono - self._until < attached.patience(view, kept.before):
            return
        if self._up_since is not None and mono - self._up_since < attached.SETTLE and not attached.is_whole(view, kept.before):
            return
        # Only now: a GPU that does not answer yet has all its old troubles, which its first answer ends.
        self._engine.resting = frozenset()
        after = attached.snapshot(view)
        event = attached.news(kept.before, after, trouble, wall, by=kept.by, ended_by=kept.ended_by)
        self._words, self._is_back = event.words, not trouble
        self._missing = [] if trouble else attached.missing(kept.before, after)
        self._happened(event)
        log.info("after the release: %s", self._words)
        self._seen.note(view, mono)
        self._take(None, 0.0)
        self._last = msgspec.structs.replace(kept, is_told=True)
        self._keep()

    def _held(self, kept: Kept, ends: dict[str, float], by: str = "", waits_for: str = "") -> Kept:
        """Have a release last until these ends of its holds, a new one of which is by whoever asks."""
        ahead = self._clock.wall() - self._clock.mono()
        holds = {name: Hold(kept.holds[name].by if name in kept.holds else by, end + ahead) for name, end in ends.items()}
        kept = msgspec.structs.replace(kept, holds=holds, settled_at=self._clock.wall(), waits_for=waits_for)
        self._ends = ends
        self._take(kept, max(ends.values()))
        return kept

    def _take(self, kept: Kept | None, until: float) -> None:
        self._kept, self._until, self._up_since = kept, until, None
        self._changed.set()
        held = kept is not None and not kept.is_over
        self._silences.hold(silence(kept) if kept is not None and held else None)

    def _began(self, kept: Kept) -> float:
        """Return when it began by the wall clock of now, which may have been set since; once it is over that is settled."""
        began = self._clock.wall() - (self._clock.mono() - self._since)
        return kept.since if kept.is_over or abs(began - kept.since) < STEP else began

    def _void(self) -> None:
        """Have a release that is over explain nothing any more once the wall clock is behind its end, over restarts too."""
        was = self._last if self._kept is None else self._kept
        if was is None or not was.is_over or was.is_void or self._clock.wall() >= was.ended_at:
            return
        void = msgspec.structs.replace(was, is_void=True)
        if self._kept is None:
            self._last = void
        else:
            self._kept = void
        self._keep()
        log.info("the clock was set back behind the end of the last release: what the kernel log tells is not explained by that")

    def _keep(self) -> Ticket | None:
        """Store it, unless that would overwrite what an earlier run left and nobody has read yet."""
        if not self._recalled:
            return None
        return self._store.save_state(STATE, VERSION, msgspec.msgpack.encode(self._kept or self._last))

    def _stuck(self, ended: int) -> list[str]:
        """Return our processes that are still there; once that release has ended, those that live are new ones."""
        with self._lock:
            return [f"{one.name} (pid {pid})" for one in self._workers for pid in one.pids()] if ended == self._ended else []

    def _view(self) -> View:
        return self._board.view(self._clock.wall(), self._clock.mono())
