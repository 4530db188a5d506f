"""The wire to one receiver: one POST under one deadline, and why it failed in words that hold no secret."""

import asyncio
import importlib
import logging
import os
import ssl
from collections.abc import Iterator

import httpx
import msgspec

from gpuwatch.notify.receivers.receiver import Request
from gpuwatch.notify.resolver import ResolveError, Resolver, is_address

DEADLINE = 15.0  # seconds for one attempt: name, connection, TLS, request and answer together
CONNECT = 1 / 3  # share of the deadline for one address, and again for its TLS: 5 s of 15
ADDRESSES = 4  # tried of one name
LATER = ("httpcore", "anyio._backends._asyncio", "encodings.idna")  # by httpx 0.28, anyio 4 and Python's resolver
OPTIONAL = frozenset({"anyio._backends._asyncio"})  # a name of its own: another version of anyio may have another
BODY = 64 << 10  # bytes read of an answer

log = logging.getLogger(__name__)


class UnreachableError(Exception):
    """No answer came; the text says why. The message may have been delivered all the same."""


class Reply(msgspec.Struct):
    """What has come back so far."""

    status: int | None = None
    headers: dict[str, str] = {}
    body: bytearray = msgspec.field(default_factory=bytearray)


class Resolving(httpx.AsyncBaseTransport):
    """A transport that resolves names through our Resolver and connects to the addresses one after the other.

    TLS is still checked against the name: httpcore takes `sni_hostname` for both SNI and the certificate.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, resolver: Resolver) -> None:
        self._inner, self._resolver = inner, resolver

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the first address that takes a connection."""
        host = request.url.raw_host.decode("ascii")
        if is_address(host):
            return await self._inner.handle_async_request(request)
        last: httpx.HTTPError = httpx.ConnectError("the name has no address")
        for address in (await self._resolver.addresses(host))[:ADDRESSES]:
            aimed = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # Host is in it, from the name
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(aimed)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing was sent yet
                last = error
        raise last

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class Line:
    """One client for one channel. Used from one loop only; raises OSError where a part of httpx cannot be imported just now."""

    def __init__(self, tls: ssl.SSLContext, resolver: Resolver, deadline: float = DEADLINE) -> None:
        # Messages are rare: a connection of its own for each is never half closed by the other end.
        limits = httpx.Limits(max_connections=2, max_keepalive_connections=0)
        try:
            inner = httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)
        except ImportError as error:  # as where no descriptor is left: the caller tries again
            raise OSError(str(error)) from error
        self._deadline = deadline
        self._client = httpx.AsyncClient(
            transport=Resolving(inner, resolver),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=deadline * CONNECT),  # the whole is bounded by `post`
        )

    async def post(self, request: Request) -> Reply:
        """Send, and return the answer with as much of its body as came in time; raises UnreachableError.

        httpx' own time-outs are per operation: an answer dripped byte by byte never meets them, so all of it is bounded here.
        """
        reply = Reply()
        try:
            await asyncio.wait_for(self._exchange(request, reply), self._deadline)
        except asyncio.TimeoutError:
            problem = f"no answer within {self._deadline:g} s"
        except (httpx.HTTPError, ResolveError) as error:
            problem = why(error)
        else:
            return reply
        if reply.status is None:
            raise UnreachableError(problem)
        return reply  # the verdict came; the rest of the body did not

    async def _exchange(self, request: Request, reply: Reply) -> None:
        headers = {"accept-encoding": "identity", **request.headers}
        async with self._client.stream("POST", request.url, headers=headers, content=request.body) as response:
            reply.headers.update((name.lower(), value) for name, value in response.headers.items())
            reply.status = response.status_code
            async for chunk in response.aiter_raw():
                reply.body += chunk[: BODY - len(reply.body)]
                if len(reply.body) >= BODY:
                    return

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()


def why(error: BaseException) -> str:
    """Say why an exchange failed. httpx' own texts may carry the address, so only known causes and names are used."""
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time"
    for cause in causes(error):
        if isinstance(cause, ResolveError):
            return str(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {(cause.reason or 'no reason given').lower().replace('_', ' ')}"
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno).lower()
    if isinstance(error, httpx.RemoteProtocolError):
        return "it closed the connection or answered with what is not HTTP"
    return f"the connection failed ({type(error).__name__})"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what caused it, and so on; the innermost is the one that knows."""
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < 20:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return reversed(chain)


def prepare() -> None:
    """Import what httpx and its parts import only when they send: the moment of an alert may be one without a free descriptor.

    What fails now is tried again by who needs it, and costs an attempt then: that is no reason to tell nobody of anything.
    """
    for name in LATER:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            if name not in OPTIONAL:
                log.warning("messages cannot be sent as long as %s cannot be imported: %s", name, error)


def hush() -> None:
    """Keep httpx and httpcore from logging: at INFO they write whole addresses, at DEBUG headers too."""
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
