"""Log lines on stderr, of the daemon and of its workers. Whoever logs waits for a moment at most, whatever becomes of the line.

A journal that stands still with its disk, or a pipe that nobody reads, must hold up neither judging nor telling nor the stop.
"""

import logging
import os
import select
import threading
from collections import deque

from gpuwatch import sd

DESCRIPTOR = 2
MOMENT = 0.1  # seconds that a line may take before those who log wait no more
LIMIT = 1000  # lines that wait; more are lost, and counted
END = 0.3  # seconds for what still waits at the end


class Stderr(logging.Handler):
    """Writes lines from a thread of its own, in their order. Lines that nobody took are counted, and that is said afterwards."""

    def __init__(self, descriptor: int = DESCRIPTOR) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._lines: deque[tuple[bytes, int]] = deque()  # and for how many each stands; the first is being written
        self._given = self._done = 0  # lines so far
        self._lost = 0  # since it was last said
        self._is_stuck = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a line over, and see it written, unless that takes long. Never raises: a line costs nobody more than itself."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - whatever the arguments of a line do when they are written
            line = f"a log line that cannot be written: {_shown(record.msg):.400}\n".encode("utf-8", "backslashreplace")
        with self._changed:
            if len(self._lines) >= LIMIT or not self._has_thread():
                self._lost += 1
                return
            self._say_lost()
            self._give(line)
            mine = self._given
            if not self._is_stuck and not self._changed.wait_for(lambda: self._done >= mine, MOMENT):
                self._is_stuck = True

    def _has_thread(self) -> bool:
        """Start the thread where there is none yet; False where the system has none left, until it has."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="log", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def flush(self) -> None:
        """Wait a little for what has not been written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, END)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _give(self, line: bytes, count: int = 1) -> None:
        self._lines.append((line, count))
        self._given += 1
        self._changed.notify_all()

    def _say_lost(self) -> None:
        if self._lost:
            lines = "1 log line is missing here: it" if self._lost == 1 else f"{self._lost} log lines are missing here: they"
            words = f"{lines} could not be written"
            notice = logging.makeLogRecord({"msg": words, "levelno": logging.WARNING, "levelname": "WARNING"})
            self._give(self._line(notice), self._lost)
            self._lost = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line, count = self._lines[0]
            is_taken = self._write(line)
            with self._changed:
                self._lines.popleft()
                self._done += 1
                self._lost += 0 if is_taken else count
                if is_taken and not self._lines:
                    self._is_stuck = False
                    self._say_lost()
                self._changed.notify_all()

    def _write(self, line: bytes) -> bool:
        """Write a line, however long that takes; False where it cannot be."""
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody has made it so for whatever shares it
                waiting = select.poll()
                waiting.register(self._descriptor, select.POLLOUT)
                waiting.poll()
            except OSError:  # a disk that is full, a reader that has gone
                return False
        return True


def _shown(message: object) -> str:
    """Return a message as it is written in code, or of what kind it is, where it raises even then."""
    try:
        return repr(message)
    except Exception:  # noqa: BLE001 - whatever the message of a line does when it is written
        return f"a {type(message).__name__}"


def log_to_stderr(name: str = "", *, level: int = logging.INFO) -> None:
    """Log with the priorities that the journal reads, or with the time where a person reads; `name` is that of a worker."""
    handler = Stderr()
    handler.setFormatter(sd.lines(name))
    logging.basicConfig(level=level, handlers=[handler])
    logging.raiseExceptions = False  # it would write to stderr itself, and wait for it
