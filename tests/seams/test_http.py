"""HTTP over a real socket: what is answered, what is refused, and by whom a connection may be held up."""

import asyncio
import gzip
import http.client
import logging
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuwatch.client import Client
from gpuwatch.export.access import IN_A_PAGE, OVER_TCP, Peer, admin_group, peer_of
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.export.pool import THREADS, WAITING, Pool
from gpuwatch.export.server import Server
from tests.fakes.until import PATIENCE, SLOWER
from tests.fakes.web import Answers, Served, read_all, serving, talk, until

GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTHY = GET % b"/-/healthy"


class Echo:
    """Routes that tell what they were asked, change state, fail, or wait until they are let go."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), 0
        self.error: BaseException | None = RuntimeError("fails")
        self.requests: list[Request] = []

    def echo(self, request: Request) -> Response:
        """Keep the request and answer with its body."""
        self.requests.append(request)
        return Response(200, request.body)

    def fail(self, _: Request) -> Response:
        """Raise while there is an error to raise."""
        if self.error is not None:
            raise self.error
        return Response.text(200, "fine")

    def wait(self, _: Request) -> Response:
        """Answer once let go."""
        self.asked += 1
        self.go.wait(PATIENCE)
        return Response.text(200, "at last")

    @property
    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("/echo", self.echo),
            Route("/echo", self.echo, method="POST"),
            Route("/change", self.echo, method="POST", changes=True),
            Route("/fail", self.fail),
            Route("/wait", self.wait, slow=True),
            Route("/big", lambda _: Response(200, b"x" * (20 << 20))),
        )


@pytest.fixture
def echo() -> Iterator[Echo]:
    """Return the routes, and let go whoever waits at the end."""
    made = Echo()
    yield made
    made.go.set()


@pytest.fixture
def served(tmp_path: Path, echo: Echo) -> Iterator[Served]:
    """Return a running server."""
    with serving(tmp_path, echo.routes) as running:
        yield running


def status(answer: bytes) -> int:
    """Return the status of the first response."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_every_route_answers_over_tcp_and_the_unix_socket(served: Served, over: str) -> None:
    client = Client(served.address if over == "tcp" else str(served.path))
    for path in ("/metrics", "/-/healthy", "/-/ready", "/api/v1/view", "/api/v1/alerts", "/api/v1/status", "/"):
        assert (path, client.get(path).status) == (path, 200)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (GET % b"/nowhere", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"DELETE /echo HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /-/healthy HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /-/healthy HTTP/1.0\r\n\r\n", 200),
        (b"GET http://x/-/healthy?a=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /%2d/healthy HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /echo?" + b"a=1&" * 40 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 200),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"a" * 4096 + b"\r\n", 400),
        (
            b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b"a" * 4096 + b"\r\n") * 17,
            413,
        ),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", 400),
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (20 << 10) + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * (200 << 10), 431),  # read on after the answer: closing on unread bytes resets it away
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200000, 413),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), 400),  # a TLS hello
        (b"hello\r\n\r\n", 400),
        (b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n", 400),  # cut off
        (b"", 0),
    ],
)
def test_each_kind_of_request_gets_its_answer(served: Served, sent: bytes, expected: int) -> None:
    assert status(talk(served, sent)) == expected
    assert status(talk(served, HEALTHY)) == 200


def test_what_is_not_allowed_says_what_is(served: Served) -> None:
    answer = talk(served, b"PUT /echo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"\r\nAllow: GET, POST, HEAD\r\n" in answer


def test_head_has_the_head_of_get_and_no_body(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    heads = []
    for method in ("GET", "HEAD"):
        connection.request(method, "/-/healthy")
        response = connection.getresponse()
        heads.append((response.status, response.getheader("Content-Length"), response.getheader("Content-Type")))
        assert response.read() == (b"healthy\n" if method == "GET" else b"")
    connection.close()
    assert heads[0] == heads[1] == (200, "8", "text/plain; charset=utf-8")


def test_a_connection_is_kept_for_further_requests_and_for_pipelined_ones(served: Served) -> None:
    with served.connect() as connection:
        for _ in range(3):
            connection.sendall(HEALTHY)
            assert connection.recv(4096).endswith(b"healthy\n")
        connection.sendall(HEALTHY * 50)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).count(b"200 OK\r\n") == 50


def test_a_client_that_wants_to_leave_is_let_go(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = read_all(connection)
    assert b"\r\nConnection: close\r\n" in answer


def test_a_request_that_drips_in_is_read_whole(served: Served, echo: Echo) -> None:
    sent = b"POST /echo?q=%C3%A4&empty= HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 5\r\n\r\nhello"
    answer = talk(served, *(sent[index : index + 1] for index in range(len(sent))))
    assert answer.endswith(b"\r\n\r\nhello")
    [request] = echo.requests
    assert (request.method, request.path, request.query) == ("POST", "/echo", {"q": "ä", "empty": ""})
    assert (request.headers["x-a"], request.peer, request.user) == ("1, 2", None, None)


def test_a_client_that_asks_first_whether_to_send_its_body_is_told_so(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"hello")
        assert connection.recv(4096).endswith(b"hello")


def test_gzip_is_sent_to_those_who_take_it(served: Served) -> None:
    answer = talk(served, b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"\ngpuwatch_gpu_power_watts{" in gzip.decompress(body)


def test_work_that_panics_costs_itself_and_no_thread() -> None:
    """bcrypt panics by raising what is no Exception."""

    def panic() -> str:
        raise KeyboardInterrupt

    def fine() -> str:
        return "fine"

    async def work(pool: Pool) -> list[str]:
        said = []
        for act in (panic, panic, fine):
            try:
                said.append(await asyncio.wait_for(pool.run(act), PATIENCE))
            except RuntimeError as error:
                said.append(str(error))
        return said

    pool = Pool(threads=1)
    pool.start()
    assert asyncio.run(work(pool)) == ["work ended by KeyboardInterrupt"] * 2 + ["fine"]
    pool.stop(PATIENCE)


@pytest.mark.parametrize("error", [RuntimeError("fails"), SystemExit("fails")])
def test_a_handler_that_fails_is_one_500_and_is_logged_once_until_it_works(
    served: Served, echo: Echo, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level(logging.INFO, "gpuwatch.export")
    echo.error = error
    client = Client(served.address)
    assert [client.get("/fail").status for _ in range(3)] == [500, 500, 500]
    echo.error = None
    assert [client.get("/fail").status for _ in range(3)] == [200, 200, 200]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_twenty_scrapes_at_once_render_one_page(tmp_path: Path) -> None:
    answers = Answers()
    with serving(tmp_path, answers=answers) as served, ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda _: Client(served.address).get("/metrics"), range(20)))
    assert ({reply.status for reply in replies}, len({reply.body for reply in replies}), answers.rendered) == ({200}, 1, 1)


def test_slow_work_holds_up_nobody_and_too_much_of_it_is_refused(served: Served, echo: Echo) -> None:
    client = Client(served.address)
    with ThreadPoolExecutor(THREADS + WAITING + 4) as pool:
        slow = [pool.submit(client.get, "/wait", 15.0) for _ in range(THREADS + WAITING + 4)]
        assert until(lambda: sum(reply.done() for reply in slow) == 4)
        assert client.get("/metrics").status == 200
        echo.go.set()
        statuses = sorted(reply.result().status for reply in slow)
    assert statuses == [200] * (THREADS + WAITING) + [503] * 4


def test_the_peer_of_the_unix_socket_is_known_by_the_kernel(served: Served, echo: Echo) -> None:
    Client(str(served.path)).get("/echo")
    Client(served.address).get("/echo")
    peer = Peer(os.getuid(), os.getgid(), frozenset(os.getgroups()))
    assert [request.peer for request in echo.requests] == [peer, None]


def test_a_tcp_connection_has_no_peer(served: Served) -> None:
    with served.connect() as connection:
        assert peer_of(connection) is None


def over_unix(path: Path, sent: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


CHANGE = b"POST /change HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def test_the_daemons_own_user_may_change_state_over_the_socket(served: Served, echo: Echo) -> None:
    assert status(over_unix(served.path, CHANGE)) == 200
    assert len(echo.requests) == 1


def test_over_tcp_without_a_password_nobody_may_change_state(
    served: Served, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    answer = talk(served, CHANGE)
    assert (status(answer), answer.endswith(f"{OVER_TCP}\n".encode()), echo.requests) == (403, True, [])
    assert [record.message for record in caplog.records] == [f"POST /change refused: over TCP: {OVER_TCP}"]


def test_a_page_in_a_browser_may_not_change_state(served: Served, echo: Echo) -> None:
    sent = b"POST /change HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n"
    answer = over_unix(served.path, sent)
    assert (status(answer), answer.endswith(f"{IN_A_PAGE}\n".encode()), echo.requests) == (403, True, [])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_may_read_over_the_socket_and_change_nothing(served: Served, echo: Echo, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path(folder.anchor):
            folder.chmod(folder.stat().st_mode | 0o011)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            os.write(write, b"%d %d" % (status(over_unix(served.path, HEALTHY)), status(over_unix(served.path, CHANGE))))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        assert answers.read() == b"200 403"
    os.waitpid(child, 0)
    assert echo.requests == []


def test_the_admin_group_is_looked_up_and_may_be_missing() -> None:
    assert admin_group() is None or isinstance(admin_group(), int)


def test_stopping_finishes_present_answers_and_leaves_nothing_open(served: Served, echo: Echo) -> None:
    with ThreadPoolExecutor(1) as pool, served.connect() as idle:
        late = pool.submit(Client(served.address).get, "/wait", 10.0)
        assert until(lambda: echo.asked == 1)
        stopping = threading.Thread(target=served.server.stop, args=(PATIENCE,))
        stopping.start()
        assert until(lambda: served.server.closing)
        echo.go.set()
        assert late.result().status == 200
        stopping.join(SLOWER)  # well before the idle connection's own time is up
        assert not stopping.is_alive()
        assert read_all(idle) == b""
    assert served.server.connections == 0


def test_a_handler_that_hangs_does_not_hold_up_the_stop(served: Served, echo: Echo) -> None:
    with served.connect() as connection:
        connection.sendall(GET % b"/wait")
        assert until(lambda: echo.asked == 1)
        served.server.stop(0.2)
        assert read_all(connection) == b""


def test_a_server_that_cannot_serve_says_so_at_the_start_and_can_be_stopped() -> None:
    closed = socket.socket()
    closed.close()
    server = Server([closed], ())
    with pytest.raises(OSError, match="Bad file descriptor"):
        server.start()
    server.stop(1.0)


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    Server([], ()).stop(1.0)


def test_progress_grows_while_the_loop_runs_and_stands_still_after(served: Served) -> None:
    before = served.server.progress()
    assert until(lambda: served.server.progress() > before)
    served.server.stop(1.0)
    after = served.server.progress()
    assert not until(lambda: served.server.progress() > after, 0.1)
