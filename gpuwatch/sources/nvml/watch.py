"""The event wait of one GPU: an event set and a thread of its own, for as long as this handle of the GPU is good.

One set a GPU, not one for all: a call that hangs, a GPU that is lost or a driver that refuses costs the events of one GPU, and
who is to blame for an error of the set is never a question. A set is used by its thread alone, and freed by it.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.sources.nvml import bits, verdicts
from gpuwatch.sources.nvml.gpu import Gpu
from gpuwatch.sources.nvml.lane import begin
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, Library
from gpuwatch.sources.nvml.storm import Fold

WAIT = 2.0  # seconds of one wait: how soon a set is freed that is no longer wanted; each costs 0.1 ms of CPU a GPU
SOON = 1.0  # ... while something is held back that is due by then
BREATH = 0.1  # seconds between waits that come back early with nothing, or after a burst
EARLY = 0.01  # seconds: a wait that was shorter did not wait
BURST = 500  # events in a row after which others get their turn
FIRST_RETRY, LAST_RETRY = 1.0, 300.0  # seconds until events are asked for again after an error
GONE_RETRY = 60.0  # seconds after "lost": the GPU's own next look says so, and the handle is not to be touched before that
REREAD = 1.0  # seconds between two readings that events ask for

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who hears what a watch has to say; called on its thread."""

    @property
    def driver_gone(self) -> Callable[[int], None]:
        """Take that NVML as a whole is gone, with its code."""
        ...

    def tell(self, event: Event) -> None:
        """Take an event."""
        ...

    def reread(self, gpu: Gpu, kinds: int) -> None:
        """Take that numbers of this GPU have changed, with the bits that say so."""
        ...


class Watch:
    """Waits for events of one GPU until its handle is given up."""

    def __init__(
        self,
        library: Library,
        gpu: Gpu,
        clock: Clock,
        listener: Listener,
    ) -> None:
        self.gpu = gpu
        self.handle = gpu.handle
        self.since = clock.mono()  # when the call that it is in began, or the pause
        self.said = False  # it was logged that it hangs
        self._library = library
        self._clock = clock
        self._listener = listener
        self._fold = Fold()
        self._owed = 0  # bits of events after which numbers have to be read again
        self._owed_at = 0.0  # not before that
        self._ending = threading.Event()
        self._ended = threading.Event()

    def begin(self) -> bool:
        """Start waiting; returns False where there is no thread to be had for it."""
        return begin(self._run, f"nvml-events-{self.gpu.index}")

    def end(self) -> None:
        """Have the wait end within WAIT."""
        self._ending.set()

    def ended(self, seconds: float) -> bool:
        """Return whether its set is freed, after waiting that long for it."""
        return self._ended.wait(seconds)

    @property
    def is_wanted(self) -> bool:
        """Whether its handle is still the one of its GPU."""
        return not self._ending.is_set() and self.gpu.handle is self.handle

    def _run(self) -> None:
        retry = FIRST_RETRY
        try:
            while self.is_wanted:
                began = self._clock.mono()
                code = self._watch()
                if code in verdicts.PERMANENT:
                    log.info("%s: this driver tells no events of it (code %d)", self.gpu, code)
                    return
                retry = FIRST_RETRY if self._clock.mono() - began > LAST_RETRY else retry
                self._pause(GONE_RETRY if code in verdicts.GONE else retry)
                retry = min(LAST_RETRY, 2 * retry)
        except DriverGoneError as error:
            if self.is_wanted:
                self._listener.driver_gone(error.code)
        except Exception:
            log.exception("a bug in the event wait of %s, its events are missing", self.gpu)
        finally:
            self._ended.set()

    def _watch(self) -> int:
        """Register and wait until an error ends it; return its code. Raises DriverGoneError; the set is freed in any case."""
        event_set: Any = None
        try:
            event_set = self._call("nvmlEventSetCreate")
            self._register(event_set)
            while self.is_wanted:
                self._burst(event_set)
        except DriverGoneError:
            raise
        except CallError as error:
            return error.code
        finally:
            if event_set is not None:
                self._free(event_set)
            for event in self._fold.rest():
                self._listener.tell(event)
        return 0

    def _register(self, event_set: Any) -> None:
        """Ask for what is wanted and supported: one bit that is not, and nothing is registered (nvml.md 2.15)."""
        mask = bits.WANTED & int(self._call("nvmlDeviceGetSupportedEventTypes", self.handle))
        if not mask:
            raise CallError(verdicts.NOT_SUPPORTED)
        try:
            self._call("nvmlDeviceRegisterEvents", self.handle, mask, event_set)
        except CallError as error:
            if error.code not in (verdicts.NOT_SUPPORTED, verdicts.INVALID_ARGUMENT) or not mask & bits.XID:
                raise
            # it says of a bit that it knows it, and then does not: the one that counts most must not go with it
            self._call("nvmlDeviceRegisterEvents", self.handle, bits.XID, event_set)

    def _burst(self, event_set: Any) -> None:
        """Wait and take what comes, until nothing does or others must have their turn."""
        for _ in range(BURST):
            self.since = started = self._clock.mono()
            answer = self._library.wait(event_set, int(1e3 * (SOON if self._owed or self._fold.holds else WAIT)))
            now = self._clock.mono()
            for event in self._fold.due(now):
                self._listener.tell(event)
            self._settle(now)
            if answer is None:
                return
            if not answer.eventType:  # it may come back early for nothing
                if now - started < EARLY:
                    self._pause(BREATH)
                return
            if self.gpu.handle not in (None, self.handle):
                return  # another watch has the GPU by now, and tells it
            self._took(int(answer.eventType), int(answer.eventData), answer, now)
            if not self.is_wanted:
                return
        self._pause(BREATH)

    def _took(self, kinds: int, data: int, answer: Any, now: float) -> None:
        """Tell of an event; what it says that has changed is read again, once for all that come together."""
        instance = int(answer.gpuInstanceId), int(answer.computeInstanceId)
        at = self._clock.wall()
        for bit in bits.MEANINGS:
            if kinds & bit:
                event = bits.event(self.gpu.identity.key, bit, data, instance, at)
                for told in () if event is None else self._fold.add(event, now):
                    self._listener.tell(told)
        self._owed |= kinds & bits.REREAD
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Have read again what has changed: at once, but in a storm once a second."""
        if self._owed and now >= self._owed_at:
            owed, self._owed, self._owed_at = self._owed, 0, now + REREAD
            self._listener.reread(self.gpu, owed)

    def _free(self, event_set: Any) -> None:
        try:
            self._call("nvmlEventSetFree", event_set)
        except CallError as error:
            log.info("%s: its event set could not be freed (code %d)", self.gpu, error.code)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.since = self._clock.mono()
        return self._library.named(name, *arguments)

    def _pause(self, seconds: float) -> None:
        """Wait, but no longer than the handle is good."""
        end = self._clock.mono() + seconds
        while self.is_wanted and (left := end - self._clock.mono()) > 0:
            self.since = self._clock.mono()
            self._ending.wait(min(WAIT, left))
