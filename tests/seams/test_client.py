"""The client against servers that answer, drip, flood, lie or are not there: it always comes back in time."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.client import BODY_LIMIT, Client, Reply, Unreachable, place
from gpuwatch.export.message import Request, Response, Route
from tests.fakes.until import PATIENCE, SLOWER
from tests.fakes.web import serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Scripted:
    """A server that does with each connection what a test says, in a thread."""

    def __init__(self, behaviour: Callable[[socket.socket], None]) -> None:
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def stop(self) -> None:
        """Stop and wait for the thread."""
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join(PATIENCE)
        self._listening.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                try:
                    self._behaviour(connection)
                except OSError:
                    continue


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Return a function that starts a server and returns its address."""
    servers: list[Scripted] = []

    def start(behaviour: Callable[[socket.socket], None]) -> str:
        servers.append(Scripted(behaviour))
        return servers[-1].address

    yield start
    for server in servers:
        server.stop()


Start = Callable[[Callable[[socket.socket], None]], str]


def answering(*parts: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

    return behave


def dripping(sent: bytes) -> Callable[[socket.socket], None]:
    """Send byte by byte, one in 20 ms: slower than any deadline of these tests, and never silent for long."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        for position in range(len(sent)):
            connection.sendall(sent[position : position + 1])
            connection.settimeout(0.02)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    return behave


def silent(connection: socket.socket) -> None:
    """Read and say nothing until the client leaves."""
    while connection.recv(65536):
        pass


@pytest.mark.parametrize(
    ("address", "shown", "tls"),
    [
        ("/run/gpuwatch/gpuwatch.sock", "/run/gpuwatch/gpuwatch.sock", False),
        ("unix:/run/a.sock", "/run/a.sock", False),
        ("gpu02", "gpu02:9843", False),
        ("gpu02:1234", "gpu02:1234", False),
        ("[::1]:1234", "[::1]:1234", False),
        ("http://gpu02", "gpu02:80", False),
        ("https://gpu02/behind/a/proxy/", "gpu02:443", True),
    ],
)
def test_addresses_are_read(address: str, shown: str, tls: bool) -> None:
    found = place(address)
    assert (str(found), found.tls) == (shown, tls)


@pytest.mark.parametrize(
    "address", ["", ":9843", "ftp://gpu02", "gpu02:port", "gpu02:99999", "http://", "http://prom:hunter2@gpu02"]
)
def test_what_is_no_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ValueError, match=r"expected|password") as caught:
        Client(address)
    assert "hunter2" not in str(caught.value)


def test_an_answer_is_given_with_its_status_and_body(scripted: Start) -> None:
    assert Client(scripted(answering(OK))).get("/a") == Reply(200, b"hello")
    refusal = b"HTTP/1.1 503 Busy\r\nContent-Length: 3\r\n\r\nno\n"
    assert Client(scripted(answering(refusal))).get("/a") == Reply(503, b"no\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",  # until the end of the connection
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
def test_each_way_to_send_a_body_is_read(scripted: Start, answer: bytes) -> None:
    assert Client(scripted(answering(answer))).get("/a") == Reply(200, b"hello")


def test_the_request_asks_for_what_it_should_and_the_prefix_of_a_url_is_kept(scripted: Start) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(OK)

    address = scripted(behave)
    Client(f"http://{address}/proxy/").get("/api/v1/view")
    lines = seen[0].split(b"\r\n")
    assert lines[0] == b"GET /proxy/api/v1/view HTTP/1.1"
    assert f"Host: {address}".encode() in lines


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(silent, id="silent"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4000), id="dripped head"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + b"a" * 4000), id="dripped body"),
        pytest.param(
            dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 800), id="dripped chunks"
        ),
        pytest.param(dripping(b"HTTP/1.1 100 Continue\r\n\r\n" * 200), id="for ever continue"),
    ],
)
def test_no_server_holds_the_client_beyond_its_deadline(scripted: Start, behaviour: Callable[[socket.socket], None]) -> None:
    address = scripted(behaviour)
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"no whole answer within 0\.4 s"):
        Client(address).get("/a", 0.4)
    assert time.monotonic() - began < SLOWER


def test_a_silent_tls_server_does_not_hold_the_client_either(scripted: Start) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no whole answer"):
        Client(f"https://{scripted(silent)}").get("/a", 0.4)
    assert time.monotonic() - began < SLOWER


def test_a_server_that_takes_connections_and_never_accepts_them_does_not_hold_the_client(tmp_path: Path) -> None:
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
        full.bind(str(path))
        full.listen(0)
        first.connect(str(path))
        with pytest.raises(Unreachable):
            Client(str(path)).get("/a", 0.4)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\xff" * 100,
        b"HTTP/1.1 huh\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_whole_http_answer_is_said_so(scripted: Start, answer: bytes) -> None:
    address = scripted(answering(answer))
    with pytest.raises(Unreachable, match="does not answer as an HTTP server does"):
        Client(address).get("/a")


def test_a_body_without_end_is_cut(scripted: Start) -> None:
    block = bytes(1 << 20)
    address = scripted(answering(b"HTTP/1.1 200 OK\r\n\r\n", *[block] * ((BODY_LIMIT >> 20) + 2)))
    with pytest.raises(Unreachable, match="the answer is over 32 MiB"):
        Client(address).get("/a")


def test_nobody_there_is_said_for_sockets_and_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "stale.sock"))
    for address in (str(tmp_path / "none.sock"), str(tmp_path / "stale.sock"), f"127.0.0.1:{port}"):
        with pytest.raises(Unreachable, match=r"nobody answers there; is gpuwatch running\?"):
            Client(address).get("/a")
    with pytest.raises(Unreachable, match=r"is gpuwatch running\? Or a demo\.$"):
        Client(str(tmp_path / "none.sock"), otherwise=" Or a demo.").get("/a")


def test_a_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(Unreachable, match="the name cannot be resolved"):
        Client("no-such-host.invalid").get("/a")


def test_a_plain_server_asked_for_tls_is_said(scripted: Start) -> None:
    with pytest.raises(Unreachable, match=r"does not speak TLS as we do; if it speaks no TLS, try http://127\.0\.0\.1:\d+"):
        Client(f"https://{scripted(answering(b'HTTP/1.1 400 Bad' + bytes(500)))}").get("/a")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"hunter2\n", "expected one line"),
        (b"a:hunter2\nb:c", "expected one line"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_wrong_password_file_is_named_without_what_is_in_it(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Unreachable) as caught:
        Client("127.0.0.1:1", str(file)).get("/a")
    assert (str(file) in str(caught.value), words in str(caught.value), "hunter2" in str(caught.value)) == (True, True, False)


def test_a_ca_file_that_is_missing_or_none_is_named(scripted: Start, tmp_path: Path) -> None:
    address = scripted(silent)
    (tmp_path / "empty.pem").write_text("")
    for name in ("none.pem", "empty.pem"):
        with pytest.raises(Unreachable, match=rf"{name}: cannot be used"):
            Client(f"https://{address}", ca_file=str(tmp_path / name)).get("/a")


def test_a_post_sends_its_body_as_json_and_gives_any_answer(tmp_path: Path) -> None:
    asked: list[Request] = []

    def take(request: Request) -> Response:
        asked.append(request)
        return Response.text(409, "no")

    with serving(tmp_path, [Route("/take", take, method="POST")]) as served:
        for address in (str(served.path), f"http://{served.address}"):
            assert Client(address).post("/take", b'{"a": 1}') == Reply(409, b"no\n")
    assert [(one.method, one.body, one.headers["content-type"]) for one in asked] == [
        ("POST", b'{"a": 1}', "application/json")
    ] * 2


def test_a_post_that_gets_no_answer_ends_in_time(scripted: Start) -> None:
    with pytest.raises(Unreachable, match=r"no whole answer within 0\.3 s"):
        Client(scripted(silent)).post("/take", b"x" * 60_000, 0.3)


def test_many_threads_may_ask_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        client = Client(str(served.path))
        replies: list[int] = []
        threads = [threading.Thread(target=lambda: replies.append(client.get("/metrics").status)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert replies == [200] * 16


def test_a_password_file_that_would_be_waited_for_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "password")
    with pytest.raises(Unreachable, match="password: cannot be read: it is not a regular file"):
        Client("http://127.0.0.1:1", password_file=tmp_path / "password").get("/x", 1)
