"""A real HTTP receiver on loopback with a script of answers; it keeps every request with its time.

    with Receiver() as receiver:
        receiver.script(Answer(503), Answer(429, headers={"Retry-After": "1"}))   # then 200 for ever
        ... the daemon posts to receiver.url ...
        first, second, third = receiver.wait(3)

It speaks HTTP by hand, since half of what it must do is no good HTTP. Threads end with `close`.
"""

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, final

from tests.fakes.until import PATIENCE

CHUNK = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `how` says what is wrong with it:

    `plain`: nothing; `drip`: the body comes byte by byte, one each `pause`; `drip_head`: so does the head; `endless`: a body
    that never ends, as fast as it is read; `reset`: the connection is reset once the request was read; `close`: it is closed
    without a word; `garbage`: an answer that is not HTTP; `silent`: no answer, and the connection stays.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    how: str = "plain"
    pause: float = 0.05


LOGIN_PAGE = Answer(200, b"<!doctype html><html><form action='/login'>", {"Content-Type": "text/html"})
REDIRECT = Answer(302, b"", {"Location": "http://127.0.0.1:1/login"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """One request, whole. Header names are in lower case."""

    mono: float
    wall: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


@final
class Receiver:
    """The receiver. Its port stays the same over `down` and `up`."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, path: str = "/hook") -> None:
        self.requests: list[Got] = []
        self.always = Answer()
        self._script: list[Answer] = []
        self._tls, self._path = tls, path
        self._came = threading.Condition()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.up()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{self._path}"

    def script(self, *answers: Answer) -> None:
        """Give these answers to the next requests, one each; then `always` again."""
        with self._came:
            self._script += answers

    def wait(self, count: int, seconds: float = PATIENCE) -> list[Got]:
        """Wait until so many requests came in all, and return them; fails saying how many came."""
        with self._came:
            there = self._came.wait_for(lambda: len(self.requests) >= count, seconds)
            assert there, f"{len(self.requests)} of {count} requests within {seconds:g} s"
            return list(self.requests)

    def up(self) -> None:
        """Listen, on the port it had before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._start(self._accept, listener)

    def down(self) -> None:
        """Refuse connections until `up`."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """End everything."""
        self._closing.set()
        self.down()
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            assert not thread.is_alive(), "a thread of the fake receiver hangs"

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, target: Any, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # `down`
                return
            connection.settimeout(PATIENCE)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                with connection:
                    got = self._read(connection)
                    if got is not None:
                        self._reply(connection, self._note(got))
            except OSError:  # the client went away, or did not like our certificate
                return

    def _note(self, got: Got) -> Answer:
        with self._came:
            self.requests.append(got)
            answer = self._script.pop(0) if self._script else self.always
            self._came.notify_all()
        return answer

    def _receive(self, connection: socket.socket) -> bytes:
        while not self._closing.is_set():
            pending = isinstance(connection, ssl.SSLSocket) and connection.pending()
            if pending or select.select([connection], [], [], 0.1)[0]:
                return connection.recv(CHUNK)
        return b""

    def _read(self, connection: socket.socket) -> Got | None:
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = self._receive(connection)
            if not chunk:
                return None
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            chunk = self._receive(connection)
            if not chunk:
                return None
            body += chunk
        return Got(mono=time.monotonic(), wall=time.time(), method=method, path=path, headers=headers, body=body)

    def _reply(self, connection: socket.socket, answer: Answer) -> None:
        if answer.delay and self._closing.wait(answer.delay):
            return
        if answer.how == "silent":
            while self._receive(connection):
                continue
            return
        if answer.how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        if answer.how == "close":
            return
        if answer.how == "garbage":
            connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            return
        size = {} if answer.how == "endless" else {"Content-Length": str(len(answer.body))}
        fields = {**size, "Connection": "close", **answer.headers}
        head = f"HTTP/1.1 {answer.status} Said\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
        self._send(connection, head.encode("latin-1"), answer.pause if answer.how == "drip_head" else 0.0)
        if answer.how == "endless":
            while not self._closing.is_set():
                self._send(connection, b"x" * CHUNK, 0.0)
        self._send(connection, answer.body, answer.pause if answer.how == "drip" else 0.0)

    def _send(self, connection: socket.socket, data: bytes, pause: float) -> None:
        if not pause:
            connection.sendall(data)
            return
        for index in range(len(data)):
            connection.sendall(data[index : index + 1])
            if self._closing.wait(pause):
                return
