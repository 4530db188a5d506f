"""The collector of a source that cannot block (/proc): a thread of the daemon."""

import logging
import threading
from collections.abc import Callable, Sequence

from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling import tally
from gpuwatch.sampling.events import NOT_YET, Report, Standing
from gpuwatch.sampling.faults import Faults
from gpuwatch.sampling.mailbox import Mailbox
from gpuwatch.sources.source import Candid, Source

IDLE = 60.0  # seconds between two looks at whether to stop; `stop` wakes the thread by itself

log = logging.getLogger(__name__)


class LocalAnswer:
    """The Answer that the source gets for one ask."""

    def __init__(self, post: Callable[[Reading], None], happened: Callable[[Event], None], faults: Faults) -> None:
        self._post, self._happened, self._faults = post, happened, faults
        self.last: float | None = None  # wall time of the last reading that gave something
        self.bug = ""

    def reading(self, reading: Reading) -> None:
        """Hand the reading on."""
        self._post(reading)
        if self._faults.take(reading):
            self.last = reading.at

    def event(self, event: Event) -> None:
        """Hand the event on."""
        self._happened(event)

    def working(self, item: str) -> None:
        """Nothing here can be killed, so nothing is noted."""

    def restart(self, reason: str) -> None:
        """A thread cannot be replaced."""

    def failed(self, words: str) -> None:
        """Note what cost a part of the round."""
        self.bug = words

    def done(self, busy: Sequence[str] = ()) -> None:
        """The round ends when `ask` returns."""


class Local:
    """Asks one source in one thread. A round that does not return is told, and waited for: a thread cannot be killed."""

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        post: Callable[[Reading], None],
        happened: Callable[[Event], None],
        clock: Clock,
        deadline: float,
    ) -> None:
        self.name = name
        self._source = source
        self._post, self._happened = post, happened
        self._clock = clock
        self._deadline = deadline
        self._asks: Mailbox[Tier | None] = Mailbox(len(Tier) + 1)
        self._lock = threading.Lock()
        self._open: dict[Tier, float] = {}  # since when (monotonic)
        self._took: float | None = None
        self._success: bool | None = None
        self._last: float | None = None
        self._bug = ""
        self._faults = Faults(clock.mono)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self, tier: Tier) -> None:
        """Have this tier read, unless it is still being read; never blocks."""
        with self._lock:
            if tier in self._open:
                return
            self._open[tier] = self._clock.mono()
        self._asks.put(tier)

    def stop(self, seconds: float) -> None:
        """End the thread; returns within `seconds`."""
        self._stopping.set()
        self._asks.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if not self._thread.is_alive():
            self._source.close()

    def readings(self, wall: float) -> list[Reading]:
        """Return the collector's own numbers."""
        waited = self._waited()
        with self._lock:
            took = self._took if self._took is None else max(self._took, waited)
            standing = Standing(self._success, took, waited > self._deadline)
            last = {} if self._last is None else {self.name: self._last}
        report = Report({self.name: standing}, {}, "")  # a thread is never replaced
        return [*tally.readings(report, last, wall), tally.dropped(self.name, self._asks.dropped, wall)]

    def pids(self) -> list[int]:
        """Return nothing: it has no process of its own."""
        return []

    def problem(self) -> str:
        """Return "" or why the source gives nothing."""
        waited = self._waited()
        if waited > self._deadline:
            return f"has not answered for {waited:.0f} s"
        if self._success is None:
            return NOT_YET
        return self._bug or self._trouble()

    def _trouble(self) -> str:
        said = self._source.problem() if isinstance(self._source, Candid) else ""
        return said or self._faults.of(self.name)

    def _waited(self) -> float:
        now = self._clock.mono()
        with self._lock:
            return max((now - since for since in self._open.values()), default=0.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            tier = self._asks.get(IDLE)
            if tier is not None:
                self._round(tier)

    def _round(self, tier: Tier) -> None:
        answer = LocalAnswer(self._post, self._happened, self._faults)
        started, bug = self._clock.mono(), ""
        try:
            self._source.ask(tier, frozenset(), answer)
            bug = answer.bug
        except BaseException as error:  # root of the thread: whatever the source raises costs this round
            bug = f"raised {type(error).__name__}: {error}"
            if not self._bug:
                log.exception("%s raised; it is asked again at its pace", self.name)
        if self._bug and not bug:
            log.info("%s answers again", self.name)
        with self._lock:
            del self._open[tier]
            self._took = self._clock.mono() - started
            self._success = not (bug or self._trouble())
            self._bug = bug
            self._last = answer.last or self._last
