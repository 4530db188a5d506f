"""Questions whose answer may take for ever (a name server, a disk that hangs), asked in a thread that may be lost.

Whoever asks waits a moment for a new question and goes on with what is known. There is one thread, so that what hangs holds up
later answers only, and it is said once.
"""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from gpuwatch.model.clock import Clock

PATIENCE = 0.2  # seconds that a first answer is waited for, once a round
HANGS = 10.0  # seconds after which the thread counts as lost in its question
MOST = 4096  # answers that are kept
WAITING = 256  # questions that wait; more are counted and asked again later
IDLE = 10.0  # seconds after which the thread looks whether it is still wanted

Q = TypeVar("Q")
A = TypeVar("A")

log = logging.getLogger(__name__)


class Known(msgspec.Struct, Generic[A]):
    """An answer and until when it holds (monotonic)."""

    answer: A
    until: float


class Lookups(Generic[Q, A]):
    """Answers by question. `find` runs in the thread and returns the answer and for how many seconds it holds.

    `what` names them in the log and where it is counted what was dropped.
    """

    def __init__(self, what: str, find: Callable[[Q], tuple[A, float]], clock: Clock) -> None:
        self.what, self._find, self._clock = what, find, clock
        self._known: dict[Q, Known[A]] = {}
        self._asked: set[Q] = set()
        self._questions: queue.Queue[Q | None] = queue.Queue(WAITING)
        self._closed = False
        self.dropped = 0  # questions for which there was no room
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._since: float | None = None
        self._patience = PATIENCE
        self._told = False
        self._bugs: set[str] = set()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin a round: its questions together may wait for PATIENCE."""
        self._patience = PATIENCE
        since = self._since
        hangs = since is not None and self._clock.mono() - since > HANGS
        if hangs and not self._told:
            log.warning("%s: a look-up does not come back; what is known stays, and numbers stand for what is not", self.what)
        elif self._told and not hangs:
            log.info("%s: look-ups come back again", self.what)
        self._told = hangs

    def get(self, question: Q) -> A | None:
        """Return the answer, an old one rather than none; None while there is none."""
        now = self._clock.mono()
        with self._lock:
            known = self._known.get(question)
            if known is not None and now < known.until:
                return known.answer
            if question not in self._asked:
                self._ask(question)
            if known is None and self._patience > 0:
                came = self._answered.wait_for(lambda: question in self._known, self._patience)
                self._patience = self._patience - (self._clock.mono() - now) if came else 0.0
                known = self._known.get(question)
            return None if known is None else known.answer

    def close(self) -> None:
        """End the thread when it comes back, whatever is still asked."""
        self._closed = True
        with suppress(queue.Full):  # then it does not wait for a question, and looks before it takes the next
            self._questions.put_nowait(None)

    def _ask(self, question: Q) -> None:
        if self._closed:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"look-up of {self.what}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread to spare: it is asked again with the next look
                return
            self._thread = thread
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            self.dropped += 1
            return
        self._asked.add(question)

    def _run(self) -> None:
        while not self._closed:
            try:
                question = self._questions.get(timeout=IDLE)
            except queue.Empty:
                continue
            if question is None:
                return
            self._since = self._clock.mono()
            found: tuple[A, float] | None = None
            try:
                found = self._find(question)
            except Exception as error:  # root of the thread: a bug costs this answer
                if type(error).__name__ not in self._bugs:
                    self._bugs.add(type(error).__name__)
                    log.exception("a bug in the look-up of %s", self.what)
            self._since = None
            with self._lock:
                self._asked.discard(question)
                if found is not None:
                    self._known.pop(question, None)
                    self._known[question] = Known(found[0], self._clock.mono() + found[1])
                    while len(self._known) > MOST:
                        del self._known[next(iter(self._known))]
                self._answered.notify_all()
