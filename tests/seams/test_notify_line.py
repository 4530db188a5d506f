"""One POST over a real socket: every way in which an answer can fail to come, each under one deadline."""

import asyncio
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from gpuwatch.notify.line import BODY, Line, Reply, UnreachableError, hush, prepare
from gpuwatch.notify.receivers.receiver import Request
from gpuwatch.notify.resolver import Resolver
from tests.fakes.certificate import Authority
from tests.fakes.receiver import REDIRECT, Answer, Receiver
from tests.fakes.threadless import threadless
from tests.fakes.until import PATIENCE, SLOWER

T = TypeVar("T")
DEADLINE = 1.5


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def to(url: str) -> Request:
    return Request(url=url, headers={"content-type": "application/json", "webhook-id": "1"}, body=b'{"version":"1"}')


def at(*addresses: str) -> Resolver:
    """Return a resolver that knows these addresses for every name."""

    def lookup(host: str) -> Sequence[str]:
        return addresses

    return Resolver(lookup)


def on_line(
    work: Callable[[Line], Awaitable[T]],
    *,
    tls: ssl.SSLContext | None = None,
    resolver: Resolver | None = None,
    deadline: float = PATIENCE,
) -> T:
    async def run() -> T:
        line = Line(tls or ssl.create_default_context(), resolver or Resolver(), deadline)
        try:
            return await work(line)
        finally:
            await line.close()

    return asyncio.run(run())


def post(url: str, *, tls: ssl.SSLContext | None = None, resolver: Resolver | None = None, deadline: float = PATIENCE) -> Reply:
    return on_line(lambda line: line.post(to(url)), tls=tls, resolver=resolver, deadline=deadline)


def failure(url: str, *, tls: ssl.SSLContext | None = None, resolver: Resolver | None = None, deadline: float = PATIENCE) -> str:
    """Return why a POST failed, and in time; the words hold nothing of the address."""
    started = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        post(url, tls=tls, resolver=resolver, deadline=deadline)
    assert time.monotonic() - started < DEADLINE + SLOWER
    words = str(caught.value)
    assert "token-in-the-path" not in words
    assert "127.0.0.1" not in words
    return words


def test_a_request_arrives_as_it_was_built(receiver: Receiver) -> None:
    reply = post(receiver.url)
    (got,) = receiver.wait(1)
    assert (reply.status, got.method, got.path, got.body) == (200, "POST", "/hook", b'{"version":"1"}')
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_the_answer_comes_back_with_header_names_in_lower_case(receiver: Receiver) -> None:
    receiver.script(Answer(429, b"slow down", {"Retry-After": "7"}))
    reply = post(receiver.url)
    assert (reply.status, reply.headers["retry-after"], bytes(reply.body)) == (429, "7", b"slow down")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(how="silent"), "no answer within 1.5 s"),
        (Answer(how="drip_head"), "no answer within 1.5 s"),
        (Answer(delay=PATIENCE), "no answer within 1.5 s"),
        (Answer(how="reset"), "connection reset by peer"),
        (Answer(how="close"), "it closed the connection or answered with what is not HTTP"),
        (Answer(how="garbage"), "it closed the connection or answered with what is not HTTP"),
        (Answer(headers={"X-Long": "x" * 300_000}), "it closed the connection or answered with what is not HTTP"),
    ],
    ids=lambda value: value.how if isinstance(value, Answer) else "",
)
def test_no_answer_is_named_and_the_next_try_is_whole(receiver: Receiver, answer: Answer, words: str) -> None:
    receiver.script(answer)
    deadline = DEADLINE if "within" in words else PATIENCE
    assert (failure(receiver.url, deadline=deadline), post(receiver.url).status, len(receiver.requests)) == (words, 200, 2)


def test_a_name_that_no_thread_can_look_up_is_looked_up_by_the_next_try(receiver: Receiver) -> None:
    url, resolver = receiver.url.replace("127.0.0.1", "hook.example"), at("127.0.0.1")

    async def twice(line: Line) -> int | None:
        with threadless(), pytest.raises(UnreachableError, match="name resolution failed: can't start new thread"):
            await line.post(to(url))
        return (await line.post(to(url))).status

    assert on_line(twice, resolver=resolver) == 200


def test_nobody_listens_is_named(receiver: Receiver) -> None:
    receiver.down()
    assert failure(receiver.url) == "connection refused"


def test_a_connection_that_nobody_takes_ends_at_the_deadline() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        words = failure(f"http://127.0.0.1:{full.getsockname()[1]}/token-in-the-path", deadline=DEADLINE)
        for filler in fillers:
            filler.close()
    assert words == "no connection in time"


def test_a_body_that_drips_costs_the_deadline_and_the_verdict_counts(receiver: Receiver) -> None:
    receiver.script(Answer(200, b"x" * 1000, how="drip"))
    started = time.monotonic()
    reply = post(receiver.url, deadline=2 * DEADLINE)
    assert (reply.status, 0 < len(reply.body) < 1000, time.monotonic() - started < DEADLINE + SLOWER) == (200, True, True)


def test_a_body_without_end_is_read_up_to_the_cap(receiver: Receiver) -> None:
    receiver.script(Answer(500, how="endless"))
    started = time.monotonic()
    reply = post(receiver.url, deadline=PATIENCE)
    assert (reply.status, len(reply.body), time.monotonic() - started < SLOWER) == (500, BODY, True)


def test_a_compressed_bomb_is_not_unpacked(receiver: Receiver) -> None:
    receiver.script(Answer(200, b"\x1f\x8b never unpacked", {"Content-Encoding": "gzip"}))
    reply = post(receiver.url)
    assert (bytes(reply.body), receiver.requests[0].headers["accept-encoding"]) == (b"\x1f\x8b never unpacked", "identity")


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with Receiver() as other:
        receiver.script(Answer(307, headers={"Location": other.url}), REDIRECT)
        found = [post(receiver.url).status, post(receiver.url).status]
        assert (found, other.requests) == ([307, 302], [])


def test_a_proxy_of_the_environment_is_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert (post(receiver.url).status, proxy.requests) == (200, [])


def test_every_message_has_a_connection_of_its_own(receiver: Receiver) -> None:
    receiver.always = Answer(headers={"Connection": "keep-alive"})

    async def thrice(line: Line) -> list[int | None]:
        return [(await line.post(to(receiver.url))).status for _ in range(3)]

    assert on_line(thrice) == [200, 200, 200]


def serving(authority: Authority) -> ssl.SSLContext:
    """Return the context of a server with a certificate for 127.0.0.1 and localhost."""
    pair = authority.pair("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_an_own_authority_is_trusted_for_a_name_and_for_an_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    with Receiver(serving(authority)) as receiver:
        by_name = f"https://localhost:{receiver.port}/hook"
        found = [
            post(receiver.url, tls=trust, deadline=PATIENCE).status,
            post(by_name, tls=trust, resolver=at("127.0.0.1"), deadline=PATIENCE).status,
        ]
        assert (found, receiver.requests[1].headers["host"]) == ([200, 200], f"localhost:{receiver.port}")


def test_a_certificate_of_an_unknown_authority_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with Receiver(serving(Authority(tmp_path))) as receiver:
        words = failure(receiver.url)
        assert (words, receiver.requests) == ("its certificate is not trusted: unable to get local issuer certificate", [])


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    with Receiver(serving(authority)) as receiver:
        words = failure(f"https://hook.example:{receiver.port}/", tls=trust, resolver=at("127.0.0.1"))
        assert (words, receiver.requests) == (
            "its certificate is not trusted: Hostname mismatch, certificate is not valid for 'hook.example'.",
            [],
        )


def test_plain_http_behind_https_is_named(receiver: Receiver) -> None:
    """It waits for the end of a head that a TLS client never sends."""
    assert failure(receiver.url.replace("http:", "https:"), deadline=DEADLINE) == "no connection in time"


def test_a_name_that_does_not_exist_is_named() -> None:
    def unknown(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert failure("http://hook.example/", resolver=Resolver(unknown)) == "name resolution failed: Name or service not known"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(24, "Too many open files"), "name resolution failed: OSError"),
        (UnicodeError("label too long"), "name resolution failed: UnicodeError"),
    ],
)
def test_a_resolver_that_fails_otherwise_is_named(error: Exception, words: str) -> None:
    def broken(host: str) -> Sequence[str]:
        raise error

    assert failure("http://hook.example/", resolver=Resolver(broken)) == words


def test_a_name_without_addresses_is_named() -> None:
    assert failure("http://hook.example/", resolver=at()) == "the name has no address"


def test_the_systems_resolver_finds_this_host(receiver: Receiver) -> None:
    assert post(receiver.url.replace("127.0.0.1", "localhost"), deadline=PATIENCE).status == 200


def test_the_next_address_is_tried_where_one_refuses(receiver: Receiver) -> None:
    several = at("127.0.0.2", "127.0.0.1")  # nobody listens on the first
    assert post(f"http://hook.example:{receiver.port}/hook", resolver=several, deadline=PATIENCE).status == 200


def test_a_resolver_that_hangs_costs_one_thread_and_the_deadline_each_time(receiver: Receiver) -> None:
    release, asked = threading.Event(), []

    def hangs(host: str) -> Sequence[str]:
        asked.append(host)
        release.wait(PATIENCE)
        return ["127.0.0.1"]

    async def story(line: Line) -> tuple[list[str], list[str], int | None]:
        failures = []
        for _ in range(3):
            with pytest.raises(UnreachableError) as caught:
                await line.post(to(f"http://hook.example:{receiver.port}/"))
            failures.append(str(caught.value))
        threads = [thread.name for thread in threading.enumerate() if thread.name == "resolve"]
        release.set()
        return failures, threads, (await line.post(to(f"http://hook.example:{receiver.port}/"))).status

    found = on_line(story, resolver=Resolver(hangs), deadline=0.3)
    assert (found, asked) == ((["no answer within 0.3 s"] * 3, ["resolve"], 200), ["hook.example"])


def test_an_answer_that_comes_after_the_loop_has_ended_harms_nobody() -> None:
    release = threading.Event()

    def slow(host: str) -> Sequence[str]:
        release.wait(PATIENCE)
        return ["127.0.0.1"]

    failure("http://hook.example/", resolver=Resolver(slow), deadline=DEADLINE)
    release.set()
    for thread in threading.enumerate():
        if thread.name == "resolve":
            thread.join(PATIENCE)
    assert [thread.name for thread in threading.enumerate() if thread.name == "resolve"] == []


@pytest.mark.parametrize("name", ["anyio._backends._asyncio", "httpcore", "encodings.idna"])
def test_what_cannot_be_imported_ahead_is_said_where_it_is_needed_and_ends_nothing(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, name, None)  # as Python marks what may not be imported
        prepare()
    said = [record.message.partition(" cannot be imported: ")[0] for record in caplog.records]
    assert said == ([] if name.startswith("anyio") else [f"messages cannot be sent as long as {name}"])
    prepare()
    assert on_line(lambda line: line.post(to(receiver.url))).status == 200


def test_a_line_that_lacks_a_part_of_httpx_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.create_default_context()
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "httpcore", None)
        with pytest.raises(OSError, match="httpcore"):  # for which the notifier waits, as for a descriptor
            Line(tls, Resolver())
    asyncio.run(Line(tls, Resolver()).close())


def test_the_libraries_log_no_address(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hush()
    post(receiver.url.replace("/hook", "/token-in-the-path"))
    failure("http://127.0.0.1:1/token-in-the-path")
    assert [
        record.message for record in caplog.records if "token" in record.getMessage() or "127.0.0.1" in record.getMessage()
    ] == []
