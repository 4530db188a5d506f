"""TLS and passwords over a real connection, as the web-config file says."""

import asyncio
import base64
import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bcrypt
import pytest

from gpuwatch.client import Client, Unreachable
from gpuwatch.export import webconfig
from gpuwatch.export.connection import Connection, Limits
from gpuwatch.export.message import Request, Response, Route
from tests.fakes.certificate import Authority
from tests.fakes.until import PATIENCE
from tests.fakes.web import Served, read_all, serving, until

PASSWORD = "correct horse battery staple"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return an authority that has signed server.pem."""
    made = Authority(tmp_path)
    made.pair("server")
    return made


def users(rounds: int = 4) -> str:
    return f"basic_auth_users:\n  prom: {bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds)).decode()}\n"


def loaded(folder: Path, text: str) -> webconfig.WebConfig:
    (folder / "web.yml").write_text(text)
    return webconfig.load(str(folder / "web.yml"))


def change(request: Request) -> Response:
    """Say who changes state."""
    return Response.text(200, f"changed by {request.user}")


ROUTES = [Route("/change", change, method="POST", changes=True)]


@pytest.fixture
def served(tmp_path: Path, authority: Authority) -> Iterator[Served]:
    """Return a server with TLS and one user."""
    with serving(tmp_path, ROUTES, web=loaded(tmp_path, TLS + users())) as running:
        yield running


def secret(folder: Path, text: str) -> str:
    (folder / "secret").write_text(text)
    return str(folder / "secret")


def client(served: Served, authority: Authority, password_file: str | None = None) -> Client:
    return Client(f"https://{served.address}", password_file, str(authority.certificate))


def test_the_right_password_over_tls_reads_the_page(served: Served, authority: Authority, tmp_path: Path) -> None:
    asking = client(served, authority, secret(tmp_path, f"prom:{PASSWORD}\n"))
    assert [asking.get("/metrics").status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("line", ["prom:wrong", f"nobody:{PASSWORD}", ":", None])
def test_without_the_right_password_every_path_is_refused(
    served: Served, authority: Authority, tmp_path: Path, line: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asking = client(served, authority, secret(tmp_path, line) if line else None)
    assert {asking.get(path).status for path in ("/metrics", "/-/healthy", "/nowhere", "/")} == {401}
    assert "wrong" not in caplog.text
    assert PASSWORD not in caplog.text


def test_the_unix_socket_asks_for_no_password(served: Served) -> None:
    assert Client(str(served.path)).get("/metrics").status == 200


def test_state_is_changed_over_tcp_with_a_password_and_not_without(served: Served, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    header = base64.b64encode(f"prom:{PASSWORD}".encode())
    answers = []
    for extra in (b"Authorization: Basic " + header + b"\r\n", b""):
        with served.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"POST /change HTTP/1.0\r\nContent-Length: 0\r\n" + extra + b"\r\n")
            answers.append(read_all(connection))
    assert answers[0].endswith(b"changed by prom\n")
    assert answers[1].startswith(b"HTTP/1.1 401 ")
    assert b'WWW-Authenticate: Basic realm="gpuwatch"' in answers[1]


def test_a_certificate_of_an_unknown_authority_is_said(served: Served) -> None:
    with pytest.raises(
        Unreachable, match=r"its certificate is not trusted \(.*\); name the certificate of its authority with --ca-file"
    ):
        Client(f"https://{served.address}").get("/metrics")


def test_plain_http_to_the_tls_port_fails_and_the_next_client_is_served(
    served: Served, authority: Authority, tmp_path: Path
) -> None:
    with pytest.raises(Unreachable, match=f"; if it speaks TLS, try https://{served.address}"):
        Client(served.address).get("/metrics")
    with served.connect() as garbage:
        garbage.sendall(os.urandom(512))
        read_all(garbage)
    assert client(served, authority, secret(tmp_path, f"prom:{PASSWORD}")).get("/metrics").status == 200


def test_silent_handshakes_hold_up_nobody(served: Served, authority: Authority, tmp_path: Path) -> None:
    silent = [served.connect() for _ in range(100)]
    try:
        assert client(served, authority, secret(tmp_path, f"prom:{PASSWORD}")).get("/metrics").status == 200
    finally:
        for connection in silent:
            connection.close()


def test_an_old_tls_version_is_refused(served: Served) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with served.connect() as plain, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(plain, server_hostname="localhost")


def test_client_certificates_are_demanded_where_the_file_says_so(tmp_path: Path, authority: Authority) -> None:
    web = loaded(tmp_path, TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(tmp_path, web=web) as served:
        with pytest.raises(Unreachable):
            client(served, authority).get("/metrics")
        pair = authority.pair("client")
        context.load_cert_chain(pair.certificate, pair.key)
        with served.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert read_all(connection).endswith(b"healthy\n")


def test_passwords_that_are_slow_to_check_hold_up_neither_the_page_nor_each_other_for_ever(tmp_path: Path) -> None:
    """Sixty guesses at once: those that find no place are told to come back, and the Unix socket answers meanwhile."""
    with serving(tmp_path, web=loaded(tmp_path, users(rounds=9))) as served, ThreadPoolExecutor(60) as pool:

        def guess(number: int) -> int:
            file = tmp_path / f"guess{number}"
            file.write_text(f"prom:guess{number}")
            return Client(served.address, str(file)).get("/metrics", 15.0).status

        guesses = [pool.submit(guess, number) for number in range(60)]
        assert until(lambda: any(found.done() for found in guesses))
        assert Client(str(served.path)).get("/metrics", 1.0).status == 200
        statuses = {found.result() for found in guesses}
    assert statuses == {401, 503}


def serial(served: Served, authority: Authority) -> object:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with served.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
        found = connection.getpeercert()
    assert found is not None
    return found["serialNumber"]


def test_a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gpuwatch.export")
    web = loaded(tmp_path, TLS)
    assert web.tls is not None
    with serving(tmp_path, web=web) as served:
        first = serial(served, authority)
        renewed = authority.pair("renewed")
        (tmp_path / "server.pem").write_bytes(renewed.certificate.read_bytes())  # and its key is still the old one
        web.tls.refresh()
        web.tls.refresh()
        assert serial(served, authority) == first
        (tmp_path / "server.key").write_bytes(renewed.key.read_bytes())
        web.tls.refresh()
        assert serial(served, authority) != first
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_client_that_does_not_finish_tls_is_closed_all_the_same(served: Served, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with served.connect() as plain:
        connection = context.wrap_socket(plain, server_hostname="localhost")
        assert until(lambda: served.server.connections == 1)
        connection.close()  # without close_notify
    assert until(lambda: served.server.connections == 0)
    assert isinstance(plain, socket.socket)


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n"], ids=["no head", "half a head"])
def test_a_client_over_tls_whose_time_is_up_leaves_nothing_that_fails_later(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """The connection is aborted; its linger timer and the stop of the server came upon a transport without protocol."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(tmp_path, web=loaded(tmp_path, TLS), limits=Limits(head=0.5)) as served:
        with served.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(sent)
            assert read_all(connection) == b""
        assert until(lambda: served.server.connections == 0)
        began = time.monotonic()
        assert until(lambda: served.server.progress() > 0 and time.monotonic() > began + 3)  # the linger timer has come and gone
        assert client(served, authority).get("/-/healthy").status == 200
    assert [record.getMessage() for record in caplog.records if record.name.startswith("gpuwatch.export")] == []


class Bounds:
    """What a connection asks of its server before the first request."""

    limits = Limits()
    closing = False

    async def answer(self, request: Request, *, unix: bool) -> Response:
        """Answer nothing: nobody asks."""
        raise AssertionError((request, unix))

    def waits(self, connection: Connection) -> None:
        """Take note of nothing."""

    def works(self, connection: Connection) -> None:
        """Take note of nothing."""


def test_a_connection_over_tls_that_asyncio_has_closed_as_well_can_still_be_aborted(tmp_path: Path, authority: Authority) -> None:
    """A transport that is closed twice has no protocol, and tells no socket any more: the linger timer came upon one."""
    tls = loaded(tmp_path, TLS).tls
    assert tls is not None

    async def run() -> str:
        aborted = asyncio.get_running_loop().create_future()

        async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = Connection(reader, writer, Bounds(), None, unix=False)
            writer.close()
            writer.close()
            try:
                connection.abort()
            except Exception as error:  # noqa: BLE001 - it is what the test asks for
                aborted.set_result(repr(error))
            else:
                aborted.set_result("aborted")

        server = await asyncio.start_server(twice, "127.0.0.1", 0, ssl=tls.context)
        context = ssl.create_default_context(cafile=str(authority.certificate))
        port = server.sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):
            _, client_side = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
            client_side.close()
        try:
            return str(await asyncio.wait_for(aborted, PATIENCE))
        finally:
            server.close()

    assert asyncio.run(run()) == "aborted"
