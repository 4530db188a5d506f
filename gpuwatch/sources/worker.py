"""The worker process: builds the sources it is told to, answers what it is asked, and ends with the daemon.

`python -m gpuwatch.sources.worker NAME` reads frames (`wire.py`) on stdin and writes frames to what was its stdout. It
imports only the sources that its Setup frame names. NAME becomes the name of the process (`ps`, `fuser`).
"""

import contextlib
import ctypes
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Protocol, cast

from gpuwatch import config as configuration
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sources import wire
from gpuwatch.sources.source import Source
from gpuwatch.stderr import log_to_stderr

SOURCES: Mapping[str, str] = {
    "nvml": "gpuwatch.sources.nvml:source",
    "host": "gpuwatch.sources.host:source",  # for `gpuwatch read`; the daemon runs it in a thread of its own
    "pci": "gpuwatch.sources.pci:source",
    "filesystem": "gpuwatch.sources.filesystem:source",
    "hwmon": "gpuwatch.sources.hwmon:source",
    "network": "gpuwatch.sources.network:source",
    "infiniband": "gpuwatch.sources.infiniband:source",
    "services": "gpuwatch.sources.services:source",
    "nextboot": "gpuwatch.sources.nextboot:source",
    "smart": "gpuwatch.sources.smart:source",
    "dcgm": "gpuwatch.sources.dcgm:source",
    "simulated": "gpuwatch.sources.simulated:source",
}

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
NAME_LIMIT = 15  # bytes of a process name that the kernel keeps (TASK_COMM_LEN, with its NUL)

log = logging.getLogger("gpuwatch.worker")


class Pipe:
    """The way to the daemon: whole frames, from any thread."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def send(self, frame: wire.FromWorker) -> None:
        """Write one frame; without a daemon at the other end the process has nothing left to do."""
        data = memoryview(wire.pack(frame))
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._number, data) :]
            except OSError:
                os._exit(0)


class Round:
    """One Ask: over when every source has called `done`, from whichever thread."""

    def __init__(self, number: int, pipe: Pipe, names: Sequence[str]) -> None:
        self._number = number
        self._pipe = pipe
        self._open = set(names)
        self._busy: dict[str, None] = {}
        self._lock = threading.Lock()

    def finish(self, name: str, busy: Sequence[str]) -> None:
        """Mark one source as done (once: later calls change nothing) and send Done after the last of them."""
        with self._lock:
            if name not in self._open:
                return
            self._open.remove(name)
            self._busy.update(dict.fromkeys(busy))
            over = not self._open
        if over:
            self._pipe.send(wire.Done(self._number, list(self._busy)))


class PipeAnswer:
    """The Answer that one source gets for one Ask."""

    def __init__(self, number: int, name: str, pipe: Pipe, round_: Round) -> None:
        self._number, self._name, self._pipe, self._round = number, name, pipe, round_

    def reading(self, reading: Reading) -> None:
        """Send one reading."""
        self._pipe.send(wire.got(reading))

    def event(self, event: Event) -> None:
        """Send one event."""
        self._pipe.send(wire.happened(event))

    def working(self, item: str) -> None:
        """Say what is about to be touched."""
        self._pipe.send(wire.Working(self._number, self._name, item))

    def restart(self, reason: str) -> None:
        """Ask for a new process."""
        self._pipe.send(wire.Restart(reason))

    def failed(self, words: str) -> None:
        """Say what has cost a part of the round."""
        self._pipe.send(wire.Failed(self._number, self._name, words))

    def done(self, busy: Sequence[str] = ()) -> None:
        """End this source's part of the round."""
        self._round.finish(self._name, busy)


class Worker:
    """The sources of this process, and how an Ask is spread over them."""

    def __init__(self, setup: wire.Setup, table: Mapping[str, str], pipe: Pipe, clock: Clock) -> None:
        self._names = tuple(setup.sources)
        self._config = configuration.from_plain(setup.config)
        self._standing = setup.standing
        self._table = table
        self._pipe = pipe
        self._clock = clock
        self._sources: dict[str, Source] = {}
        self._missing: dict[str, str] = {}  # why a source is not there
        self._bugs: set[tuple[str, str]] = set()
        for name in self._names:
            self._begin(0, name)
            self._build(name, 0)

    def ask(self, ask: wire.Ask) -> None:
        """Let every source answer, one after another; one that raises has the bug to itself.

        One that leaves the interpreter (SystemExit) ends the process, which says so: the next one skips what it was at.
        """
        round_ = Round(ask.number, self._pipe, self._names)
        if not self._names:
            self._pipe.send(wire.Done(ask.number))
        for name in self._names:
            answer = PipeAnswer(ask.number, name, self._pipe, round_)
            self._begin(ask.number, name)
            source = self._find(name, ask)
            if source is None:
                answer.done()
                continue
            head = f"{name}:"
            skip = frozenset(item.removeprefix(head) for item in ask.skip if item.startswith(head))
            try:
                source.ask(ask.tier, skip, answer)
            except Exception as error:  # noqa: BLE001 - root of a source's work: its bug must not cost the other sources
                self._fail(name, ask.number, "raised", error)
                answer.done()

    def _begin(self, number: int, name: str) -> None:
        """Say whose turn it is: one that hangs before its first item must not be taken for the source before it."""
        if len(self._names) > 1:
            self._pipe.send(wire.Working(number, name, ""))

    def _find(self, name: str, ask: wire.Ask) -> Source | None:
        """Return a source; one that could not be built is tried again with every slow round."""
        if name in self._missing:
            if ask.tier is Tier.SLOW:
                self._build(name, ask.number)
            else:
                self._pipe.send(wire.Failed(ask.number, name, self._missing[name]))
        return self._sources.get(name)

    def _build(self, name: str, number: int) -> None:
        """Build one source, and tell the daemon what is in the way."""
        self._missing.pop(name, None)
        try:
            standing = self._standing.get(name)
            more = () if standing is None else (standing,)  # only to a source of which something was kept
            self._sources[name] = load(self._table[name])(self._config, self._clock, *more)
        except BaseException as error:  # noqa: BLE001 - what a source imports may raise anything, SystemExit too; the others go on
            self._missing[name] = self._fail(name, number, "cannot be built", error)

    def _fail(self, name: str, number: int, what: str, error: BaseException) -> str:
        """Tell the daemon each time, and the log once for each kind of failure."""
        words = f"{what}: {traceback.format_exception_only(error)[-1].strip()}"
        bug = (name, f"{what}: {type(error).__name__}")
        if bug not in self._bugs:
            self._bugs.add(bug)
            log.error("source %s %s", name, words, exc_info=error)
        self._pipe.send(wire.Failed(number, name, words))
        return words


class Builder(Protocol):
    """Builds a source; `more` is what an earlier worker has left to it."""

    def __call__(self, config: configuration.Config, clock: Clock, *more: Any) -> Source: ...


def load(place: str) -> Builder:
    """Import the function behind "module:function"."""
    module, _, function = place.partition(":")
    return cast("Builder", getattr(importlib.import_module(module), function))


class DeafError(Exception):
    """The system has no thread to spare that would listen to the daemon, which begins another worker, later and later."""


def serve(stream: BinaryIO, pipe: Pipe, table: Mapping[str, str]) -> None:
    """Read frames until the daemon closes the pipe, and answer them; this thread asks, another one listens."""
    asks: queue.SimpleQueue[wire.ToWorker] = queue.SimpleQueue()
    try:
        threading.Thread(target=listen, args=(stream, asks), name="listen", daemon=True).start()
    except RuntimeError as error:
        raise DeafError(f"{error} (limits: ulimit -u, TasksMax, memory), so this worker ends") from None
    worker: Worker | None = None
    while True:
        frame = asks.get()  # ends with the process: `listen` leaves it when the pipe closes
        if isinstance(frame, wire.Setup):
            worker = Worker(frame, table, pipe, SystemClock())
        elif worker is not None:
            worker.ask(frame)


def listen(stream: BinaryIO, asks: "queue.SimpleQueue[wire.ToWorker]") -> None:
    """Take frames off the pipe, and leave the process at its end, even while a source is stuck."""
    status = 1
    try:
        for body in wire.frames(stream):
            asks.put(wire.to_worker(body))
        status = 0
    except (wire.WireError, OSError) as error:
        log.error("the daemon's pipe is broken, so this worker ends: %s", error)  # noqa: TRY400 - no trace is needed
    finally:
        os._exit(status)  # no clean-up: a thread stuck in the driver would hold it up


def take_over(name: str) -> tuple[BinaryIO, Pipe]:
    """Name this process, tie its life to the daemon's, and keep the two pipes to ourselves.

    A library that prints, or a program that it starts, finds stderr at 1 and nothing at 0: neither can hurt the frames.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # the pipe's end says it too, unless somebody holds a copy of it
    libc.prctl(PR_SET_NAME, name.encode()[:NAME_LIMIT], 0, 0, 0)
    stream = os.fdopen(os.dup(0), "rb")
    pipe = Pipe(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return stream, pipe


def main(arguments: Sequence[str], table: Mapping[str, str] = SOURCES) -> None:
    """Run the worker; returns never, the process ends with its pipe."""
    name = arguments[0] if arguments else "gpuwatch-worker"
    stream, pipe = take_over(name)
    log_to_stderr(name)
    try:
        serve(stream, pipe, table)
    except DeafError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{name}: {error}\n".encode())  # not by the log, which would need a thread, too
        os._exit(1)
    except BaseException:  # the interpreter's own end would wait for stuck threads
        log.exception("this worker ends by a bug of its own")
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
