"""NVML's events (Xids, ECC, MIG, recovery action) of all GPUs: a watch for each handle, tended once a fast round.

A watch follows its GPU's handle: it begins when a GPU is opened, also after the GPU was lost, the list was made anew or NVML was
initialised again, and ends when the handle is given up. A GPU has one at a time: while its last one has not come back, which an
idle one does within WAIT, there is no other. Before nvmlShutdown all of them must have ended (`quiet`).
"""

import logging
import threading
from collections.abc import Callable, Iterable

from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Tier
from gpuwatch.sources.nvml import bits
from gpuwatch.sources.nvml.gpu import PATIENCE, Gpu
from gpuwatch.sources.nvml.library import Library
from gpuwatch.sources.nvml.watch import WAIT, Watch
from gpuwatch.sources.source import Answer

HUNG = 3.0  # seconds beyond its own end after which a wait counts as hanging
QUIET = WAIT + 1.0  # seconds for a watch to end

log = logging.getLogger(__name__)


class Events:
    """The watches. `look` reads a GPU at once, on its lane, and answers with what it finds."""

    def __init__(
        self, clock: Clock, driver_gone: Callable[[int], None], look: Callable[[Gpu, tuple[Tier, ...], Answer], None]
    ) -> None:
        self._clock = clock
        self.driver_gone = driver_gone
        self._look = look
        self._answer: Answer | None = None
        self._watches: dict[str, Watch] = {}
        self._old: list[Watch] = []  # of handles that were given up, until they end
        self._lock = threading.Lock()
        self._closed = False

    def answered_to(self, answer: Answer) -> None:
        """Take the last Answer: events are told through it whenever they come."""
        self._answer = answer

    def tend(self, library: Library | None, gpus: Iterable[Gpu]) -> None:
        """Begin a watch for every handle that has none, once the GPU's last one has ended; log those that hang or come back."""
        now = self._clock.mono()
        with self._lock:
            self._old = [watch for watch in self._old if not watch.ended(0.0)]
            if self._closed or library is None:
                return
            for gpu in gpus:
                key, watch = gpu.identity.key, self._watches.get(gpu.identity.key)
                if watch is not None and watch.handle is not gpu.handle:
                    self._old.append(self._watches.pop(key))
                    watch = None
                hangs_on = any(old.gpu.identity.key == key for old in self._old)  # else each opening would add a thread for ever
                if watch is None and gpu.handle is not None and not hangs_on and gpu.stuck() < PATIENCE:
                    watch = Watch(library, gpu, self._clock, self)
                    if watch.begin():
                        self._watches[key] = watch
            for watch in (*self._watches.values(), *self._old):
                self._note(watch, now)

    def quiet(self) -> bool:
        """Wait until no watch is left whose handle was given up; return whether that came."""
        end = self._clock.mono() + QUIET
        with self._lock:
            waiting = [watch for watch in (*self._watches.values(), *self._old) if not watch.is_wanted]
        return all(watch.ended(max(0.0, end - self._clock.mono())) for watch in waiting)

    def close(self) -> None:
        """Have every watch end."""
        with self._lock:
            self._closed = True
            for watch in self._watches.values():
                watch.end()

    def tell(self, event: Event) -> None:
        """Tell of an event."""
        answer = self._answer
        if answer is not None:
            answer.event(event)

    def reread(self, gpu: Gpu, kinds: int) -> None:
        """Have read at once what an event says has changed."""
        if self._answer is not None:
            self._look(gpu, (Tier.SLOW, Tier.NORMAL) if kinds & bits.MIG_CHANGED else (Tier.SLOW,), self._answer)

    def _note(self, watch: Watch, now: float) -> None:
        """Log once that a call of a watch does not return, and once that it has."""
        hangs = not watch.ended(0.0) and now - watch.since > WAIT + HUNG
        if hangs and not watch.said:
            log.warning("%s: a call to wait for its events does not return; Xids come from the kernel log only", watch.gpu)
        elif watch.said and not hangs:
            log.info("%s: its event wait has returned", watch.gpu)
        watch.said = hangs
