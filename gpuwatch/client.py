"""Asks a running daemon, or whoever speaks HTTP, over its Unix socket or TCP, within a total deadline.

`http.client` knows only a timeout for each wait, which a peer that drips one byte a second prolongs for ever; here every
wait gets what is left of the whole. Errors name the address, never a password or a full URL.
"""

import base64
import http.client
import io
import json
import queue
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpuwatch import plainfile

PORT = 9843
SECONDS = 5.0
BODY_LIMIT = 32 << 20  # bytes


class Unreachable(Exception):  # noqa: N818 - reads as what it says: the daemon is unreachable
    """There is no answer, and why, in words for a person. `asked`: the question may have arrived, and be acted upon."""

    def __init__(self, words: str, *, asked: bool = False) -> None:
        super().__init__(words)
        self.asked = asked


class UnusableFile(Unreachable):
    """The file with the password or the authorities cannot be used: the mistake of who named it."""


class Reply(msgspec.Struct, frozen=True):
    """One answer, whatever its status."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Read the body as JSON; raises ValueError where it is none, or one that no program of ours sends."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deep") from None


class Place(msgspec.Struct, frozen=True):
    """Where to ask: a Unix socket, or host and port, with or without TLS."""

    path: str = ""
    host: str = ""
    port: int = PORT
    tls: bool = False
    prefix: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place(address: str) -> Place:
    """Read `/run/.../gpuwatch.sock`, `host`, `host:9843`, `[::1]:9843` or a URL; raises ValueError in words."""
    if address.startswith(("/", "./", "unix:")):
        return Place(path=address.removeprefix("unix:"))
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        host, port = url.hostname, url.port
    except ValueError:
        raise ValueError("expected the path of a socket, host:port, or a URL") from None
    if url.scheme not in {"http", "https"} or not host:
        raise ValueError("expected the path of a socket, host:port, or an http or https URL")
    if url.username is not None or url.password is not None:
        raise ValueError(
            "a password does not belong into an address; put USER:PASSWORD into a file, and name it with --password-file"
        )
    default = PORT if "://" not in address else 443 if url.scheme == "https" else 80
    return Place(host=host, port=port or default, tls=url.scheme == "https", prefix=url.path.rstrip("/"))


class Client:
    """Asks one place. Each question is a connection of its own; any thread may ask."""

    def __init__(
        self,
        address: str,
        password_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        who: str = "gpuwatch",
        otherwise: str = "",
    ) -> None:
        """Raises ValueError for an address that is none. The files are read when asked, so that renewed ones count.

        `who` is what should answer there, and `otherwise` what to do where nobody does, for the words of an error.
        """
        self.place = place(address)
        self._password_file, self._ca_file = password_file, ca_file
        self._who, self._otherwise = who, otherwise

    def get(self, path: str, seconds: float = SECONDS, limit: int = BODY_LIMIT) -> Reply:
        """Ask for a path; raises Unreachable when there is no whole answer within the time and `limit` bytes."""
        return self._ask("GET", path, None, seconds, limit)

    def post(self, path: str, body: bytes, seconds: float = SECONDS) -> Reply:
        """Send JSON to a path; raises Unreachable when there is no whole answer in time: it may have been taken all the same."""
        return self._ask("POST", path, body, seconds, BODY_LIMIT)

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float, limit: int) -> Reply:
        deadline, asked = time.monotonic() + seconds, False
        try:
            headers = {"Connection": "close", "Accept-Encoding": "identity"} | self._authorization()
            if body is not None:
                headers["Content-Type"] = "application/json"
            wire = self._connect(deadline)
            asked = True
            try:
                question = Question(method, self.place.prefix + path, headers, body)
                return exchange(wire, self.place, question, limit)
            finally:
                wire.hang_up()
        except TimeoutError:
            raise Unreachable(f"{self.place}: no whole answer within {seconds:g} s", asked=asked) from None
        except http.client.HTTPException as error:
            words = f"does not answer as an HTTP server does ({type(error).__name__}){self._other_scheme(error)}"
            raise Unreachable(f"{self.place}: {words}", asked=asked) from None
        except OSError as error:
            words = f"{reason(error, self._who, self._otherwise)}{self._other_scheme(error)}"
            raise Unreachable(f"{self.place}: {words}", asked=asked) from None

    def _other_scheme(self, error: Exception) -> str:
        """Return the advice to ask with TLS, or without, where the answer looks like that; "" where it does not."""
        if self.place.path:
            return ""
        if self.place.tls:
            is_plain = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError)
            return f"; if it speaks no TLS, try http://{self.place}" if is_plain else ""
        is_strange = isinstance(error, http.client.BadStatusLine | ConnectionResetError)
        return f"; if it speaks TLS, try https://{self.place}" if is_strange else ""

    def _authorization(self) -> dict[str, str]:
        """Return the header for the password file (one line, `user:password`); raises UnusableFile."""
        if not self._password_file:
            return {}
        try:
            line = plainfile.text(self._password_file).strip()
        except plainfile.UnreadableError as error:
            raise UnusableFile(f"{self._password_file}: {error.problem}") from None
        if ":" not in line or "\n" in line:
            raise UnusableFile(f"{self._password_file}: expected one line, user:password")
        return {"Authorization": "Basic " + base64.b64encode(line.encode()).decode()}

    def _connect(self, deadline: float) -> "Wire":
        """Connect to the first address that takes us."""
        if self.place.path:
            return dial(socket.AF_UNIX, self.place.path, deadline)
        failure: OSError | None = None
        for family, where in resolve(self.place.host, self.place.port, deadline):
            try:
                wire = dial(family, where, deadline)
            except TimeoutError:
                raise
            except OSError as error:
                failure = error
                continue
            return self._secured(wire) if self.place.tls else wire
        raise failure or OSError("the name has no address")

    def _secured(self, wire: "Wire") -> "Wire":
        """Shake hands; raises OSError where the certificate is not to be trusted, UnusableFile where the CA file is none."""
        try:
            context = self._context()
            wire.socket.settimeout(left(wire.deadline))
            wire.socket = context.wrap_socket(wire.socket, server_hostname=self.place.host)
        except BaseException:
            wire.hang_up()
            raise
        return wire

    def _context(self) -> ssl.SSLContext:
        """Return what we trust: the CA file where one is named, else the system's authorities."""
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise UnusableFile(f"{self._ca_file}: cannot be used: {error.strerror or 'it holds no certificate'}") from None


class Wire:
    """A connection whose every wait ends at the deadline; what http.client needs of a socket, and no more."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.socket, self.deadline = connected, deadline

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self.socket.settimeout(left(self.deadline))
        self.socket.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        """Return the reading side."""
        return io.BufferedReader(Reader(self))

    def close(self) -> None:
        """Do nothing: http.client closes its socket once it has the head, and counts on the reading side to keep it open."""

    def hang_up(self) -> None:
        """Close the connection."""
        self.socket.close()


class Reader(io.RawIOBase):
    """The reading side of a Wire; closing it leaves the Wire open."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, at the latest until the deadline."""
        self._wire.socket.settimeout(left(self._wire.deadline))
        return self._wire.socket.recv_into(buffer)


class Question(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None = None


def exchange(wire: Wire, where: Place, question: Question, limit: int) -> Reply:
    """Send one request and take its answer, up to the limit; raises what http.client and the socket raise."""
    connection = http.client.HTTPConnection("localhost" if where.path else where.host, where.port)
    connection.auto_open = 0
    connection.sock = wire
    connection.request(question.method, question.path, body=question.body, headers=question.headers)
    response = connection.getresponse()
    try:
        answer = response.read(limit + 1)
        missing = response.length
    finally:
        response.close()
    if len(answer) > limit:
        raise Unreachable(f"{where}: the answer is over {limit >> 20} MiB", asked=True)
    if missing:  # http.client takes a body that ends early for whole when it is read by size
        raise http.client.IncompleteRead(answer, missing)
    return Reply(response.status, answer)


def dial(family: int, where: Any, deadline: float) -> Wire:
    """Connect to one address."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(left(deadline))
        made.connect(where)
    except BaseException:
        made.close()
        raise
    return Wire(made, deadline)


def resolve(host: str, port: int, deadline: float) -> list[tuple[int, Any]]:
    """Return the addresses of a name. The resolver knows no deadline, so it runs in a thread that may be left behind."""
    found: queue.Queue[list[tuple[int, Any]] | OSError] = queue.Queue(1)

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put([(family, where) for family, _, _, _, where in infos])
        except OSError as error:
            found.put(error)

    try:
        threading.Thread(target=look_up, name="resolve", daemon=True).start()
    except RuntimeError as error:
        raise OSError(f"no thread to look up {host} with: {error}") from None
    try:
        answer = found.get(timeout=left(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def left(deadline: float) -> float:
    """Return the seconds left; raises TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def reason(error: OSError, who: str, otherwise: str) -> str:
    """Say why there is no connection."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return f"nobody answers there; is {who} running?{otherwise}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); name the certificate of its authority with --ca-file"
    if isinstance(error, ssl.SSLError):
        return "does not speak TLS as we do"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    return str(error.strerror or error)
