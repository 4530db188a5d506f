"""A thread that may be lost in the driver: one for each GPU, one for the session. What it does can hang; we cannot."""

import logging
import queue
import threading
import traceback
from collections.abc import Callable

from gpuwatch.model.clock import Clock

log = logging.getLogger(__name__)


class Threads:
    """Whether the system has threads to spare; said once when it has none, and once when it has again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_short = False

    def begin(self, run: Callable[[], None], name: str) -> bool:
        """Start a daemon thread; return False where that cannot be done now."""
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                is_first, self._is_short = not self._is_short, True
            if is_first:
                log.warning("%s: %s (limits: ulimit -u, TasksMax, memory); what it does waits until there is one", name, error)
            return False
        with self._lock:
            is_over, self._is_short = self._is_short, False
        if is_over:
            log.info("%s: threads can be started again", name)
        return True


begin = Threads().begin  # of this process


class Lane:
    """A daemon thread that runs jobs one after another; `running` says for how long the present one has been at it."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._since: float | None = None
        self.job = 0  # number of the present job, or of the last one
        self._bugs: set[tuple[str, str, int | None]] = set()
        self._name = name
        self._has_thread = False

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job; it runs after those before it.

        Returns False where the lane is closed or there is no thread to be had for it: the job will never run.
        """
        with self._lock:
            if self._closed:
                return False
            self._has_thread = self._has_thread or begin(self._run, self._name)
            if self._has_thread:
                self._jobs.put(job)
            return self._has_thread

    def close(self) -> None:
        """End the thread after the jobs that are queued."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)

    def running(self, now: float) -> float:
        """Return for how many seconds the present job has been running, 0 while idle."""
        since = self._since
        return 0.0 if since is None else now - since

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:  # idle until there is work; a daemon thread ends with the process
            self.job += 1
            self._since = self._clock.mono()
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - root of the thread: neither a bug nor a SystemExit of pynvml costs later readings
                self._report(error)
            finally:
                self._since = None

    def _report(self, error: BaseException) -> None:
        """Log a bug once for each kind and place, not once a second."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        kind = (type(error).__name__, where.filename, where.lineno)
        if kind not in self._bugs:
            self._bugs.add(kind)
            said = traceback.format_exception_only(error)[-1].strip()
            log.error("a bug in %s, its readings are incomplete: %s", threading.current_thread().name, said, exc_info=error)


def raised(error: BaseException) -> str:
    """Return words for what nobody expected to be raised."""
    return f"raised: {traceback.format_exception_only(error)[-1].strip()}"
