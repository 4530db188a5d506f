"""A served daemon for tests, and a bare socket to talk to it with."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwatch.export import sockets
from gpuwatch.export.api import routes
from gpuwatch.export.connection import Limits
from gpuwatch.export.message import Route
from gpuwatch.export.page import Page
from gpuwatch.export.server import Server
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.alert import Open, Severity
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import Event
from gpuwatch.model.naming import Firing, Naming
from gpuwatch.model.past import Past, Question
from gpuwatch.model.view import View
from gpuwatch.notify import Silences
from gpuwatch.store.ulid import Ulid
from tests.fakes import page_view
from tests.fakes.journal import Journal
from tests.fakes.until import PATIENCE

FIRINGS = (
    Firing(rule="gpu_dropped", severities=(Severity.CRITICAL,), labels=("gpu", "uuid")),
    Firing(rule="gpu_overheating", severities=(Severity.WARNING, Severity.CRITICAL), labels=("gpu", "uuid")),
    Firing(rule="disk_failing", severities=(Severity.WARNING,), labels=("device",)),
    Firing(rule="host_rebooted", severities=(Severity.WARNING,), labels=()),
    Firing(rule="disk_full", severities=(Severity.INFO,), labels=("device",)),
)
NAMING = Naming(FIRINGS, {"rack": "A3"}, off=frozenset({"disk_full"}))
VIEWS = tuple(page_view.big_host(beat) for beat in range(4))  # making one costs more than rendering it


class Releasing:
    """GPUs that can be released; what was asked for is noted, and for which hold."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, str]] = []
        self.holds: list[str | None] = []

    def release(self, seconds: float, by: str, hold: str = "") -> dict[str, Any]:
        """Note it."""
        self.asked.append(("release", seconds, by))
        self.holds.append(hold)
        return {"already": False, "stuck": [], "stored": True, **self.state()}

    def resume(self, by: str, hold: str | None = None) -> dict[str, Any]:
        """Note it."""
        self.asked.append(("resume", 0.0, by))
        self.holds.append(hold)
        return {"is_known": True, "was_released": True, **self.state()}

    def state(self) -> dict[str, Any]:
        """Return that nothing is released."""
        return {"state": "attached", "found": "", "is_back": True, "missing": []}


class Answers:
    """What a daemon with eight GPUs would answer; `beat` brings the next numbers."""

    def __init__(self) -> None:
        self.beats, self.rendered = 0, 0
        self.page = Page(self.view)
        self.host = "vision-07"
        self.nobody = False
        self.happened: list[Event] = []
        self.past: Callable[[Question], Past] = lambda _: Past(step=10.0, oldest=None, series=(), events=())
        self.naming = NAMING
        self.clock = SystemClock()
        self.journal = Journal()
        self.silences = Silences(self.journal, self.clock, Ulid(self.clock), {})
        self.silences.restore(())
        self.releasing = Releasing()

    def beat(self) -> None:
        """Let a beat pass."""
        self.beats += 1
        self.page.turn()

    def ready(self) -> list[str]:
        """Return nothing: it is ready."""
        return []

    def troubles(self) -> list[str]:
        """Return nothing: all is well."""
        return []

    def view(self) -> View:
        """Return the view of this beat."""
        self.rendered += 1
        return VIEWS[self.beats % len(VIEWS)]

    def events(self, since: float, until: float, limit: int, keys: Collection[str] | None) -> Sequence[Event]:
        """Return those that the test says, as far as they are asked for."""
        found = [one for one in self.happened if since <= one.at < until and (keys is None or one.key in keys)]
        return found[-limit:]

    def history(self, question: Question) -> Past:
        """Answer as a store does that has just begun, unless the test hands in another."""
        return self.past(question)

    def alerts(self) -> Sequence[Open]:
        """Return none."""
        return ()

    def status(self) -> dict[str, Any]:
        """Return a little."""
        return {"beats": self.beats}


@dataclass(frozen=True, slots=True)
class Served:
    """A running server, over TCP and a Unix socket."""

    server: Server
    port: int
    path: Path

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """Return a bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)


@contextmanager
def serving(
    folder: Path,
    extra: Sequence[Route] = (),
    answers: Answers | None = None,
    web: WebConfig | None = None,
    limits: Limits | None = None,
) -> Iterator[Served]:
    """Serve the daemon's routes and some more until the end of the block."""
    path = folder / "gpuwatch.sock"
    tcp, unix = sockets.listen_tcp("127.0.0.1:0"), sockets.listen_unix(path)
    server = Server([tcp, unix], (*routes(answers or Answers()), *extra), web, limits=limits)
    server.start()
    try:
        yield Served(server, tcp.getsockname()[1], path)
    finally:
        server.stop(2.0)


def read_all(connection: socket.socket) -> bytes:
    """Return all that comes until the other end closes; a reset ends it too."""
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def talk(served: Served, *parts: bytes) -> bytes:
    """Send bytes, say that there will be no more, and return all that comes back."""
    with served.connect() as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def until(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait for a condition; False when the time is up."""
    deadline, never = time.monotonic() + seconds, threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            return False
        never.wait(0.005)
    return True
