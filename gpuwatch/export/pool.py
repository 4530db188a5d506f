"""A few daemon threads for what would hold up the HTTP loop. Not concurrent.futures: its threads are joined at exit."""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

log = logging.getLogger(__name__)
T = TypeVar("T")

THREADS = 4
WAITING = 32
IDLE = 60.0  # seconds between two looks at whether to stop; `stop` wakes the threads by itself


class PoolFullError(Exception):
    """All threads are at work and the queue is full."""


class Job(msgspec.Struct, frozen=True):
    """One piece of work and the future on the loop that waits for it."""

    work: Callable[[], object]
    future: asyncio.Future[Any]


class Pool:
    """Runs work off the loop. A full queue refuses; what hangs costs one thread, and never the stop of the daemon."""

    def __init__(self, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._jobs: queue.Queue[Job | None] = queue.Queue(waiting)
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"http-slow-{index}", daemon=True) for index in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue work; called on the loop. Raises PoolFullError."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._jobs.put_nowait(Job(work, future))
        except queue.Full:
            raise PoolFullError from None
        return future

    def stop(self, seconds: float) -> None:
        """Let the threads end; one that hangs is left behind."""
        self._stopping.set()
        for _ in self._threads:
            with contextlib.suppress(queue.Full):  # then there is work to wake up for
                self._jobs.put_nowait(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(seconds / len(self._threads))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                job = self._jobs.get(timeout=IDLE)
            except queue.Empty:
                continue
            if job is None or job.future.cancelled():
                continue
            try:
                result, error = job.work(), None
            except Exception as caught:  # noqa: BLE001 - root of a thread: whoever waits for the future gets it
                result, error = None, caught
            except BaseException as caught:  # noqa: BLE001 - bcrypt panics as one that is no Exception; the loop could end by it
                result, error = None, RuntimeError(f"work ended by {type(caught).__name__}")
                error.__cause__ = caught
            try:
                job.future.get_loop().call_soon_threadsafe(settle, job.future, result, error)
            except RuntimeError:  # the loop has closed: nobody waits any more
                return


def settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    """Give the result to whoever still waits; runs on the loop."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
