"""One client of the HTTP server: heads in, answers out, each under a deadline that aborts the connection.

The deadline is a timer on the transport, not a timeout round each wait: a client that sends or takes one byte a second
cannot prolong it. h11 is the protocol; nothing here knows what is asked.
"""

import asyncio
import contextlib
import socket
import struct
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import msgspec

from gpuwatch.export.access import Peer
from gpuwatch.export.message import Request, Response

LINGER_SECONDS = 1.0
HEAD_BYTES = 16 << 10
BODY_BYTES = 64 << 10
READ_BYTES = 1 << 10  # small, since h11 looks at the size of a head between two reads
WRITE_BYTES = 64 << 10

RESET = struct.pack("ii", 1, 0)  # struct linger: on, no time

WORDS = {400: "this is no HTTP request", 431: "the head of the request is over 16 KiB", 501: "transfer coding not known"}


class Limits(msgspec.Struct, frozen=True):
    """How long a client may take, in seconds, and how many there may be."""

    head: float = 5.0  # from connecting, or from the first byte of a later head
    total: float = 10.0  # from the same moment to the last byte of the answer
    idle: float = 120.0  # between two requests: longer than any usual scrape interval
    connections: int = 1100


class Site(Protocol):
    """What a connection needs of the server."""

    @property
    def limits(self) -> Limits:
        """How long it may take."""
        ...

    async def answer(self, request: Request, *, unix: bool) -> Response:
        """Answer; never raises."""
        ...

    def waits(self, connection: "Connection") -> None:
        """This connection waits for a request and may be closed to make room."""
        ...

    def works(self, connection: "Connection") -> None:
        """A request of this connection is being answered."""
        ...

    @property
    def closing(self) -> bool:
        """Whether connections end after their present answer."""
        ...


class RefusedError(Exception):
    """The request gets this answer, and the connection ends."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.response = Response.text(status, words)


class Connection:
    """Serves one client until it leaves, its time is up, or it breaks the protocol."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: Site, peer: Peer | None, *, unix: bool
    ) -> None:
        self._reader, self._writer, self._site = reader, writer, site
        self._limits, self._peer, self._unix = site.limits, peer, unix
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        # Now: asyncio's TLS transport loses its protocol when it is closed twice, and then raises AttributeError (sslproto.py).
        self._socket: socket.socket | None = writer.get_extra_info("socket")
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._loop.time()
        self._resting = False  # between two requests: the next byte starts the clock of the next head
        self._aborted = False
        # drain() waits until the kernel has it all. Not high=0: asyncio's TLS pauses at >= high, and would never resume.
        writer.transport.set_write_buffer_limits(high=1, low=0)

    async def serve(self) -> None:
        """Answer request by request. Whatever ends it, the transport is closed within a second."""
        self._until(self._limits.head)
        try:
            while await self._exchange():
                self._protocol.start_next_cycle()
                self._rest()
        except (OSError, h11.LocalProtocolError):
            pass  # the client reset the connection, broke TLS, or its time was up: nobody is left to tell
        finally:
            if not self._aborted:
                self._writer.close()
                self._until(LINGER_SECONDS)

    def abort(self) -> None:
        """Close at once; whoever reads or writes wakes up and ends.

        Without SO_LINGER the kernel would go on sending what it holds, for as long as a slow reader likes. It is done once, and
        nothing touches the transport after it.
        """
        if self._timer is not None:
            self._timer.cancel()
        if self._aborted:
            return
        self._aborted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._writer.transport.abort()

    async def _exchange(self) -> bool:
        """Take one request and answer it; False ends the connection."""
        try:
            head = await self._head()
            if head is None:
                return False
            self._site.works(self)
            self._until(self._began + self._limits.total - self._loop.time())
            body = await self._body(head)
            request = self._request(head, body)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            await self._refuse(Response.text(status, WORDS.get(status, WORDS[400])))
            return False
        except RefusedError as refused:
            await self._refuse(refused.response)
            return False
        await self._send(await self._site.answer(request, unix=self._unix), head_only=request.method == "HEAD")
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    async def _head(self) -> h11.Request | None:
        """Wait for the head of the next request; None where the client left."""
        self._site.waits(self)
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            await self._feed()

    async def _body(self, head: h11.Request) -> bytes:
        """Take the body of a request that may have one, up to the limit."""
        headers = dict(head.headers)
        declared = headers.get(b"content-length", b"0")
        if head.method in {b"GET", b"HEAD"} and (declared != b"0" or b"transfer-encoding" in headers):
            raise RefusedError(400, f"{head.method.decode()} takes no body")
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise RefusedError(400, "a request has one length")  # RFC 9112 section 6.3: what follows cannot be trusted
        if int(declared) > BODY_BYTES:
            raise RefusedError(413, f"the body is over {BODY_BYTES} bytes")
        if self._protocol.they_are_waiting_for_100_continue:
            goes_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._writer.write(self._protocol.send(goes_on) or b"")
        body = bytearray()
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(body)
            if isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES:
                    raise RefusedError(413, f"the body is over {BODY_BYTES} bytes")
            elif event is h11.NEED_DATA:
                await self._feed()
            else:
                raise ConnectionAbortedError

    async def _feed(self) -> None:
        """Read a little more. The first byte after an answer starts the clock of the next request."""
        data = await self._reader.read(READ_BYTES)
        if self._resting and data:
            self._begin()
        self._protocol.receive_data(data)

    def _request(self, head: h11.Request, body: bytes) -> Request:
        """Build our Request; a target that cannot be read is refused."""
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        try:
            target = urlsplit(head.target.decode("ascii"))
            query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=32))
        except ValueError:
            raise RefusedError(400, "the address cannot be read") from None
        return Request(
            method=head.method.decode("ascii"),
            path=unquote(target.path) or "/",
            query=query,
            headers=headers,
            body=body,
            peer=self._peer,
        )

    async def _refuse(self, response: Response) -> None:
        """Answer what cannot be served, then read on for a moment: closing on unread bytes would reset the answer away."""
        if self._protocol.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        await self._send(response, last=True)
        self._until(LINGER_SECONDS)
        if self._writer.can_write_eof():
            self._writer.write_eof()
        for _ in range(256):
            if not await self._reader.read(READ_BYTES):
                return

    async def _send(self, response: Response, *, head_only: bool = False, last: bool = False) -> None:
        """Write an answer piece by piece, so that a slow reader holds 64 KiB and not a page."""
        headers = [
            ("Content-Type", response.type),
            ("Content-Length", str(len(response.body))),
            ("Date", formatdate(time.time(), usegmt=True)),
            ("X-Content-Type-Options", "nosniff"),
            *response.headers,
        ]
        if last or self._site.closing:
            headers.append(("Connection", "close"))
        start = (
            self._protocol.send(
                h11.Response(status_code=response.status, headers=headers, reason=HTTPStatus(response.status).phrase)
            )
            or b""
        )
        rest = b"" if head_only else response.body
        self._writer.write(start + rest[:WRITE_BYTES])
        await self._writer.drain()
        for at in range(WRITE_BYTES, len(rest), WRITE_BYTES):
            self._writer.write(rest[at : at + WRITE_BYTES])
            await self._writer.drain()
        if rest:
            self._protocol.send_with_data_passthrough(h11.Data(data=rest))  # for its count of bytes; they are written
        self._protocol.send(h11.EndOfMessage())

    def _rest(self) -> None:
        """Wait for the next request; a pipelined one has begun already."""
        if self._protocol.trailing_data[0]:
            self._begin()
        else:
            self._resting = True
            self._until(self._limits.idle)

    def _begin(self) -> None:
        """A request has begun: its head has its time."""
        self._resting = False
        self._began = self._loop.time()
        self._until(self._limits.head)

    def _until(self, seconds: float) -> None:
        """Abort the connection in so many seconds unless told anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, seconds), self.abort)
