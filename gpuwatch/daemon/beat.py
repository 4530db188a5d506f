"""The judge's thread: once a beat from the board through detectors and rules to incidents, store, notifier and page."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from gpuwatch import sd
from gpuwatch.catalogue import own
from gpuwatch.model.alert import AlertState, Incident, Severity, Transition
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

log = logging.getLogger("gpuwatch.beat")
alarms = logging.getLogger(sd.ALARMS)

REPORT_EVERY = 10.0  # seconds between reports of our own numbers
SAVE_EVERY = 60.0  # seconds between saves of what detectors and rules remember
AFTER = 0.05  # seconds from a tick to its beat: what was asked for at that tick is there by then, mostly
LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}
SAVE_EARLY = 5.0  # seconds between them in the first minute, in which most is learned: a host may die soon after it came up


class Board(Protocol):
    """Where readings are."""

    def post(self, reading: Reading, mono: float) -> object: ...

    def view(self, wall: float, mono: float) -> View: ...


class Inbox(Protocol):
    """Where events wait for their beat."""

    def take(self) -> tuple[Event, ...]: ...


class Detectors(Protocol):
    """All detectors, and what of them and of the rules survives a restart."""

    def run(self, view: View, wall: float) -> Findings: ...

    def recall(self, mono: float, wall: float) -> None: ...

    def keep(self, names: Sequence[str]) -> None: ...

    def save(self, mono: float, wall: float) -> None: ...


class Engine(Protocol):
    """The rules with their states."""

    def beat(self, view: View, mono: float, evidence: Mapping[tuple[Target, Metric], Evidence]) -> list[Transition]: ...

    def readings(self, wall: float) -> Sequence[Reading]: ...


class Incidents(Protocol):
    """The stories that people are told."""

    def apply(self, transitions: Sequence[Transition]) -> list[Incident]: ...

    def open(self) -> list[Incident]: ...


class Store(Protocol):
    """Where history and incidents go."""

    def observe(self, view: View) -> None: ...

    def record(self, events: Sequence[Event]) -> None: ...

    def commit(self, incidents: Sequence[Incident] = ()) -> object: ...


class Notifier(Protocol):
    """Who tells people."""

    def changed(self, incidents: Sequence[Incident]) -> None: ...


class Page(Protocol):
    """What Prometheus sees."""

    def turn(self) -> None: ...


class Beat:
    """Runs one beat for each tick; a tick that comes during a beat is not queued twice."""

    def __init__(
        self,
        *,
        clock: Clock,
        board: Board,
        inbox: Inbox,
        detectors: Detectors,
        engine: Engine,
        incidents: Incidents,
        store: Store,
        notifier: Notifier,
        page: Page,
        reports: Sequence[Callable[[float], Sequence[Reading]]],
        turning: Sequence[Callable[[float], Sequence[Reading]]] = (),
    ) -> None:
        self._clock, self._board, self._inbox, self._detectors, self._engine = clock, board, inbox, detectors, engine
        self._incidents, self._store, self._notifier, self._page = incidents, store, notifier, page
        self._reports = reports  # of our own numbers, every 10 s
        self._turning = turning  # of what people turn by hand and then look for: with every beat
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)
        self._alerts: dict[Target, Reading] = {}
        self._reported = self._saved = float("-inf")
        self._began = clock.mono()
        self._failing_since: float | None = None
        self.finished: float | None = None  # monotonic time of the last whole beat

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def tick(self) -> None:
        """Ask for a beat; never blocks."""
        self._due.set()

    def end(self) -> None:
        """Begin no further beat; does not wait for the present one."""
        self._stopping.set()
        self._due.set()

    def stop(self, seconds: float) -> bool:
        """End after the present beat; False where it did not end in that time."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._due.wait(timeout=1.0):
                continue
            if self._stopping.wait(AFTER):
                return
            self._due.clear()
            try:
                self.once()
            except BaseException:  # root of the thread: no fault must end all judging
                if self._failing_since is None:
                    self._failing_since = self._clock.mono()
                    log.exception("a beat failed: nothing is judged until one is whole again")
            else:
                if self._failing_since is not None:
                    log.info("beats are whole again after %.0f s", self._clock.mono() - self._failing_since)
                self._failing_since = None

    def once(self) -> None:
        """Judge what the board knows now."""
        wall, mono = self._clock.wall(), self._clock.mono()
        self._detectors.recall(mono, wall)
        if mono - self._reported >= REPORT_EVERY:
            self._reported = mono
            for report in self._reports:
                self._post(report(wall), mono)
        for report in self._turning:
            self._post(report(wall), mono)
        seen = replace(self._board.view(wall, mono), events=self._inbox.take())
        found = self._detectors.run(seen, wall)
        self._post(found.readings, mono)
        self._store.record(found.events)
        view = self._board.view(wall, mono)
        transitions = self._engine.beat(view, mono, found.evidence)
        before = {incident.id: incident for incident in self._incidents.open()} if transitions else {}
        changed = self._incidents.apply(transitions)
        if changed:
            self._store.commit(incidents=changed)
            self._notifier.changed(changed)
            tell_the_log(changed, before)
            self._saved = float("-inf")  # what led to them must not be older than they are, should we be killed
        if found.counted:
            self._detectors.keep(found.counted)  # on its way to the disk before it is on the page: one that falls counts anew
        self._show_alerts(wall, mono)
        self._store.observe(view)
        self._page.turn()
        self.finished = self._clock.mono()
        if mono - self._saved >= (SAVE_EARLY if mono - self._began < SAVE_EVERY else SAVE_EVERY):
            self._saved = mono
            self._detectors.save(mono, wall)

    def _post(self, readings: Sequence[Reading], mono: float) -> None:
        for reading in readings:
            self._board.post(reading, mono)

    def _show_alerts(self, wall: float, mono: float) -> None:
        """Post the state of every alert that is not inactive; one that became inactive is taken off the page at once."""
        present = {reading.target: reading for reading in self._engine.readings(wall)}
        for target, before in self._alerts.items():
            if target not in present and target.subject is own.ALERT:
                present[target] = Reading(source=before.source, tier=before.tier, target=target, at=wall, took=0.0, values={})
        self._post(list(present.values()), mono)
        self._alerts = {target: reading for target, reading in present.items() if reading.values}


def tell_the_log(changed: Sequence[Incident], before: Mapping[str, Incident]) -> None:
    """Say each change of an incident once: who has no receiver yet reads the journal. `before` are those open before, by id."""
    for incident in changed:
        alarms.log(*wording(incident, before.get(incident.id)))


def wording(incident: Incident, before: Incident | None) -> tuple[int, str, str, str]:
    """Return level, text and arguments of one change. Only what gets worse is told as an alarm."""
    severity, rule = incident.severity, incident.rule
    if incident.state is AlertState.INACTIVE:
        return logging.INFO, "%s is over: %s", rule, incident.summary
    if incident.state is AlertState.STALE:
        return logging.WARNING, "%s has no data any more, it is not resolved: %s", rule, incident.summary
    if before is None or severity.rank > before.severity.rank:
        return LEVELS[severity], "%s: %s", rule, incident.summary
    where = incident.words.get("where", incident.key)
    if severity.rank < before.severity.rank:  # its text is that of an alarm, and what it says may be true no more
        return logging.INFO, f"%s of %s is no longer {before.severity.value}, but {severity.value} until it is over", rule, where
    if before.state is AlertState.STALE:
        return logging.INFO, "%s has data again, and is not over: %s", rule, incident.summary
    return logging.INFO, "%s, more is known: %s", rule, incident.summary
