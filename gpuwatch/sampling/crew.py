"""Does what a Plan decides: starts, asks and kills worker processes, and listens to them. One thread, and one more a process.

The thread that starts processes lives until they are gone: the kernel ends a worker with the thread that started it
(PR_SET_PDEATHSIG).
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from gpuwatch import config as configuration
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event as Occurrence
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling import tally
from gpuwatch.sampling.child import Find, Leftover, Process, Spawn
from gpuwatch.sampling.events import (
    Action,
    Answered,
    Asked,
    Broke,
    Dismiss,
    Ended,
    Erred,
    Event,
    Found,
    Heard,
    Kill,
    Pause,
    Plan,
    Question,
    Say,
    Start,
    Tick,
    Wanted,
)
from gpuwatch.sampling.faults import Faults, Standing
from gpuwatch.sampling.mailbox import Mailbox
from gpuwatch.sources import wire

EVENTS = 1000  # waiting for the thread; a round of a probe has some hundred
IDLE = 1.0  # seconds between two looks at processes of which nothing is expected
ASLEEP = 3600.0  # ... when there are none: an event ends the wait
BRISK = 0.05  # ... and at those that are to end
TICKS = 10  # things that can be due at once
LISTENED = 1.0  # seconds in which the listener of a process that has ended comes to the end of its pipe

log = logging.getLogger(__name__)


class Member(msgspec.Struct):
    """A process of the crew and the thread that listens to it."""

    process: Process
    listener: threading.Thread
    is_leaving: bool = False


class Crew:
    """A collector whose sources are read in worker processes."""

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        *,
        config: Config,
        post: Callable[[Reading], None],
        happened: Callable[[Occurrence], None],
        clock: Clock,
        plan: Plan,
        spawn: Spawn,
        find: Find,
        hears: bool,
    ) -> None:
        self.name = name
        self.sources = tuple(sources)
        self._config = config
        self._post, self._happened = post, happened
        self._clock = clock
        self._plan = plan
        self._spawn = spawn
        self._find = find
        self._hears = hears  # the plan takes every reading as a sign of life
        self._events: Mailbox[Event] = Mailbox(EVENTS)
        self._members: dict[int, Member] = {}
        self._leftovers: dict[int, Leftover] = {}  # of earlier daemons, numbered from -1 down
        self._last: dict[str, float] = {}  # wall time of the last reading of each source
        self._stop_at: float | None = None  # monotonic
        self._bug: str = ""
        self._faults = Faults(clock.mono)
        self._standing = Standing(clock.mono)
        self._is_to_pause = self._is_paused = False  # as wanted by others, and as the plan knows it
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and with it the first worker where the plan wants one."""
        self._thread.start()

    def ask(self, tier: Tier) -> None:
        """Have this tier read; never blocks."""
        self._events.put(Asked(tier))

    def pause(self) -> None:
        """End every process, and start none until `go_on`; never blocks, `pids` says who is still there. Also before `start`."""
        self._is_to_pause = True
        self._events.put(Tick())

    def go_on(self) -> None:
        """Start processes again; never blocks."""
        self._is_to_pause = False
        self._events.put(Tick())

    def stop(self, seconds: float) -> None:
        """Let all workers go, kill those that stay, and return within `seconds` whatever they do."""
        self._stop_at = time.monotonic() + seconds * 0.9
        self._events.put(Tick())
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def readings(self, wall: float) -> list[Reading]:
        """Return the collector's own numbers."""
        report = self._plan.report(self._clock.mono())
        failing = {
            source: replace(standing, success=False)
            for source, standing in report.standings.items()
            if standing.success and self._faults.of(source)
        }
        report = replace(report, standings={**report.standings, **failing})
        return [*tally.readings(report, dict(self._last), wall), tally.dropped(self.name, self._events.dropped, wall)]

    def pids(self) -> list[int]:
        """Return the ids of all processes that are there, also of those that could not be killed."""
        return [member.process.pid for member in list(self._members.values())]

    def problem(self) -> str:
        """Return "" or why the collector gives nothing."""
        problem = self._plan.report(self._clock.mono()).problem
        if problem or self._is_paused:
            return problem
        return "; ".join(filter(None, (self._faults.of(source) for source in self.sources)))

    def _run(self) -> None:
        self._take_stock()
        while self._stop_at is None:
            self._turn_safely()
        self._wind_up(self._stop_at)

    def _take_stock(self) -> None:
        """Count in what an earlier daemon has left behind."""
        self._leftovers = {-number: leftover for number, leftover in enumerate(self._find(self.name), 1)}
        for number in self._leftovers:
            self._happen(Found(number))
        if self._leftovers:
            log.warning("%s: %d processes of an earlier run are still there", self.name, len(self._leftovers))

    def _turn_safely(self) -> None:
        try:
            self._turn()
        except BaseException as error:  # root of the thread: without it nothing is asked any more
            if repr(error) != self._bug:
                self._bug = repr(error)
                log.exception("%s: a bug in its supervision; it goes on", self.name)

    def _turn(self) -> None:
        """Take in one event, or none for a while, and look after the processes."""
        if self._is_to_pause is not self._is_paused:
            self._is_paused = not self._is_paused
            self._happen(Pause(self._is_paused))
        now = self._clock.mono()
        is_brisk = any(member.is_leaving for member in self._members.values())
        pause = BRISK if is_brisk else IDLE if self._members or self._leftovers else ASLEEP
        event = self._events.get(max(0.0, min(pause, self._plan.due() - now)))
        if event is not None:
            self._happen(event)
        self._look()
        for _ in range(TICKS):
            if self._plan.due() > self._clock.mono():
                break
            self._happen(Tick())

    def _look(self) -> None:
        """Find the processes that are gone, once all that they wrote is taken in."""
        for worker, member in list(self._members.items()):
            status = member.process.poll()
            if status is not None and not member.listener.is_alive():
                del self._members[worker]
                self._catch_up()
                self._happen(Ended(worker, status))
        for number, leftover in list(self._leftovers.items()):
            if leftover.is_gone():
                del self._leftovers[number]
                self._happen(Ended(number, None))

    def _catch_up(self) -> None:
        """Take in all that waits: what a process wrote last says what it was at when it ended."""
        for _ in range(EVENTS):
            event = self._events.get(0.0)
            if event is None:
                return
            self._happen(event)

    def _happen(self, event: Event) -> None:
        for action in self._plan.step(event, self._clock.mono()):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Start(worker, sources):
                self._begin(worker, self.sources if sources is None else sources)
            case Question(worker, number, tier, skip):
                self._send(worker, wire.Ask(number, tier, list(skip)))
            case Dismiss(worker):
                if member := self._members.get(worker):
                    member.is_leaving = True
                    member.process.dismiss()
            case Kill(worker):
                if member := self._members.get(worker):
                    member.is_leaving = True
                    member.process.kill()
            case Say(level, text, arguments):
                log.log(level, text, *arguments)

    def _begin(self, worker: int, sources: tuple[str, ...]) -> None:
        """Start a process and tell it what it is."""
        try:
            process = self._spawn(self.name)
        except OSError as error:  # no memory, no process slot, no descriptor left
            self._events.put(Broke(worker, f"could not be started: {error.strerror}"))
            self._events.put(Ended(worker, None))
            return
        listener = threading.Thread(target=self._listen, args=(worker, process), name=f"{self.name}-pipe", daemon=True)
        self._members[worker] = Member(process, listener)
        try:
            listener.start()
        except RuntimeError as error:  # the system has no thread to spare: this process cannot be heard, another one later may
            process.output.close()
            self._events.put(Broke(worker, f"could not be listened to: {error}"))
            return
        if not process.send(wire.pack(setup(self._config, sources, self._standing.handed()))):
            listener.join(LISTENED)  # of one that has ended it is the listener that says so, first
            self._events.put(Broke(worker, "does not read its pipe"))

    def _send(self, worker: int, ask: wire.Ask) -> None:
        member = self._members.get(worker)
        if member is not None and not member.process.send(wire.pack(ask)):
            self._events.put(Broke(worker))  # it has ended, or does not read: both end it

    def _listen(self, worker: int, process: Process) -> None:
        """Take in what one process writes, to its end."""
        words = ""
        try:
            for body in wire.frames(process.output):
                self._take(worker, wire.from_worker(body))
        except wire.WireError as error:
            words = f"sent junk ({error})"
        except BaseException as error:  # root of the thread: the process without a listener is of no use
            log.exception("%s: a bug in listening to a worker", self.name)
            words = f"could not be listened to ({type(error).__name__})"
        self._events.put(Broke(worker, words))
        with contextlib.suppress(OSError):
            process.output.close()

    def _take(self, worker: int, frame: wire.FromWorker) -> None:
        match frame:
            case wire.Got():
                self._got(worker, frame)
            case wire.Happened():
                self._hand_on(frame)
            case wire.Working(_, source, item):
                self._events.put(Heard(worker, source, item, begins=True))
            case wire.Done(number):
                self._events.put(Answered(worker, number))
            case wire.Failed(number, source, words):
                self._events.put(Erred(worker, source, words, number))
            case wire.Restart(reason):
                self._events.put(Wanted(worker, reason))

    def _got(self, worker: int, frame: wire.Got) -> None:
        try:
            reading = wire.reading(frame)
        except wire.WireError as error:  # the files on disk are of another version than this daemon: one reading is lost
            self._leave_out("a reading", error)
            return
        self._post(reading)
        self._standing.take(reading)
        source = self.sources[0] if len(self.sources) == 1 else reading.source
        if self._faults.take(reading):
            self._last[source] = reading.at
        if self._hears:
            self._events.put(Heard(worker, source, frame.key, begins=False))

    def _hand_on(self, frame: wire.Happened) -> None:
        try:
            occurrence = wire.event(frame)
        except wire.WireError as error:  # as above: one event is lost
            self._leave_out("an event", error)
            return
        self._happened(occurrence)

    def _leave_out(self, what: str, error: wire.WireError) -> None:
        if str(error) != self._bug:
            self._bug = str(error)
            log.warning("%s: %s is not understood and left out: %s", self.name, what, error)

    def _wind_up(self, end: float) -> None:
        """Let every process go; kill those that do not within half of the time that is left."""
        middle = (time.monotonic() + end) / 2
        for member in self._members.values():
            member.process.dismiss()
        killed = False
        while (now := time.monotonic()) < end:
            if all(member.process.poll() is not None for member in self._members.values()):
                self._members.clear()
                return
            if now >= middle and not killed:
                killed = True
                for member in self._members.values():
                    member.process.kill()
            self._events.get(0.01)
        log.warning("%s: %d processes could not be ended", self.name, len(self._members))


def setup(
    config: Config, sources: tuple[str, ...], standing: Mapping[str, Mapping[str, tuple[str, float]]] | None = None
) -> wire.Setup:
    """Return the first frame to a worker; what may hold a secret stays here."""
    bare = msgspec.structs.replace(
        config, rules={}, receivers=[], routes=[], store=configuration.Store(), http=configuration.Http()
    )
    found = {source: dict(faults) for source, faults in (standing or {}).items() if source in sources}
    return wire.Setup(list(sources), configuration.plain(bare), found)
