"""The HTTP server: one thread with an asyncio loop over sockets that are handed in.

It holds up nothing and is held up by nobody: slow work runs in a small pool, what may take seconds in one of its own that
refuses at once when it is full, silent clients are cut by their deadlines, and when all places are taken the connection that
has waited longest for its request gives way.
"""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gpuwatch.export.access import IN_A_PAGE, admin_group, completed, may_change, name_of, peer_of, refusal
from gpuwatch.export.connection import Connection, Limits
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.export.password import Passwords
from gpuwatch.export.pool import Pool, PoolFullError
from gpuwatch.export.refusals import Refusals
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.clock import Clock, SystemClock

log = logging.getLogger(__name__)

RESERVED = 256  # descriptors that the rest of the daemon needs
ANSWER_SHARE = 0.8  # of a connection's time; the rest is for sending
HANDSHAKE_SECONDS = 5.0
APART, APART_WAITING = 2, 4  # who reads the disk for one path, and who waits for that: six at once, as a browser asks
STOP_SECONDS = 1.0  # that all pools together may take to end
REFRESH = 30.0  # seconds between two looks at the certificate
LOGIN = ("WWW-Authenticate", 'Basic realm="gpuwatch"')


class Server:
    """Serves the routes until it is stopped. Passwords and TLS hold for TCP; over the Unix socket the kernel says who asks."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        routes: Sequence[Route],
        web: WebConfig | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._answer_seconds = ANSWER_SHARE * self.limits.total
        self._sockets = list(sockets)
        self._paths: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._paths.setdefault(route.path, {})[route.method] = route
        self._web = web or WebConfig()
        self._passwords = Passwords(self._web.users)
        self._clock = clock or SystemClock()
        self._pool = Pool()
        self._door = Pool(threads=1, waiting=16)  # guessing at passwords costs one core at most, and nobody else's place
        self._apart = {route.path: Pool(APART, APART_WAITING) for route in routes if route.apart}
        self._connections: dict[Connection, asyncio.Task[Any] | None] = {}
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._waiting: dict[Connection, None] = {}  # those that wait for a request, the longest first
        self._refusals = Refusals()
        self._failing: set[str] = set()
        self._said: set[str] = set()
        self._turns = 0
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._grace = 0.0
        self.closing = False

    def progress(self) -> int:
        """Return a number that has grown by the next call if the loop runs until then: the watchdog looks at it."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._turn)
        return self._turns

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def take(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on these too, from the start on: who binds only what is right in everything else has them later."""
        self._sockets += sockets

    def start(self) -> None:
        """Start the thread and return once it serves; raises what kept it from doing so."""
        for pool in self._pools():
            pool.start()
        self._thread.start()
        if not self._started.wait(10.0):
            raise TimeoutError("the HTTP server has not started within 10 s")
        if self._failure is not None:
            raise self._failure

    def stop(self, seconds: float) -> None:
        """Stop: no new connections, present answers are finished within the time given, then everything is closed."""
        self._grace = seconds
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(seconds + 1.0)
        pools = self._pools()
        for pool in pools:
            pool.stop(STOP_SECONDS / len(pools))

    def _pools(self) -> list[Pool]:
        return [self._pool, self._door, *self._apart.values()]

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if not self._started.is_set():
                self._failure = error
            else:
                log.exception("the HTTP server has ended")
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._complain)
        self._most = min(self.limits.connections, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED))
        servers = [await self._listen(listening) for listening in self._sockets]
        self._started.set()
        self._refresh()
        await self._end.wait()
        await self._close(servers)

    def _turn(self) -> None:
        self._turns += 1

    def _refresh(self) -> None:
        """Look now and then whether there is a new certificate."""
        if self._web.tls is not None:
            self._loop.call_later(REFRESH, self._refresh)
            self._web.tls.refresh()

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        """Serve one socket."""
        listening.setblocking(False)
        if listening.family == socket.AF_UNIX:
            return await asyncio.start_unix_server(self._over_unix, sock=listening, backlog=512)
        if self._web.tls is None:
            return await asyncio.start_server(self._over_tcp, sock=listening, backlog=512)
        return await asyncio.start_server(
            self._over_tcp, sock=listening, backlog=512, ssl=self._web.tls.context, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )

    async def _close(self, servers: list[asyncio.Server]) -> None:
        """Let present answers end, then close what is left."""
        self.closing = True
        for listening in (one for server in servers for one in server.sockets):
            self._loop.remove_reader(listening.fileno())
        await turns()  # what was just accepted comes to `_serve`, which turns it away: a closed Server would lose it (3.11)
        for server in servers:
            server.close()
        for connection in list(self._waiting):
            connection.abort()
        tasks = {task for task in self._connections.values() if task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._grace)
            for connection, task in list(self._connections.items()):
                if task in late:
                    connection.abort()
                    task.cancel()
            if late:
                await asyncio.wait(late, timeout=0.5)
        for transport in list(self._transports):
            transport.abort()  # also one whose answer is done and that still waits for a slow reader
        await turns()

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what asyncio could not handle, once a kind; broken handshakes and resets not at all: any scanner makes them."""
        message, error = str(context.get("message")), context.get("exception")
        if isinstance(error, ConnectionError | ssl.SSLError | TimeoutError) or message in self._said:
            log.debug("%s: %s", message, error)
            return
        self._said.add(message)
        log.error("the HTTP loop: %s", message, exc_info=error)

    async def _over_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, unix=False)

    async def _over_unix(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, unix=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, unix: bool) -> None:
        """Serve one client, if there is a place for it or one can be made."""
        self._transports.add(writer.transport)
        if self.closing:
            writer.transport.abort()
            return
        if len(self._connections) >= self._most:
            if not self._waiting:
                writer.transport.abort()
                return
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.abort()
        connection = None
        try:
            peer = peer_of(writer.get_extra_info("socket")) if unix else None
            connection = Connection(reader, writer, self, peer, unix=unix)
            self._connections[connection] = asyncio.current_task()
            await connection.serve()
        except asyncio.CancelledError:  # only at the stop; asyncio would log it: it asks the task for its error (3.11)
            writer.transport.abort()
        except OSError:
            writer.transport.abort()  # gone before it could be looked at
        except Exception:
            log.exception("a connection ended by a mistake of ours")  # one client never costs the others
            writer.transport.abort()
        finally:
            if connection is not None:
                self._connections.pop(connection, None)
                self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """This connection waits for a request and may be closed to make room."""
        self._waiting[connection] = None

    def works(self, connection: Connection) -> None:
        """A request of this connection is being answered."""
        self._waiting.pop(connection, None)

    async def answer(self, request: Request, *, unix: bool) -> Response:
        """Find who may ask what, and let the route answer; never raises."""
        try:
            user, refusal = await self._who(request, unix=unix)
            if refusal is not None:
                return refusal
            methods = self._paths.get(request.path)
            if methods is None:
                return Response.text(404, "not found; / lists what is here")
            route = methods.get("GET" if request.method == "HEAD" else request.method)
            if route is None:
                allowed = ", ".join(sorted(methods) + (["HEAD"] if "GET" in methods else []))
                return Response.text(405, f"use {allowed}", ("Allow", allowed))
            return await self._route(route, with_user(request, user))
        except PoolFullError:
            return Response.text(503, "busy, try again", ("Retry-After", "2"))
        except asyncio.TimeoutError:
            return Response.text(504, "no answer in time")

    async def _who(self, request: Request, *, unix: bool) -> tuple[str | None, Response | None]:
        """Return the user who has proven a password, or the answer that asks for one."""
        if unix or not self._passwords.asked:
            return None, None
        header = request.headers.get("authorization", "")
        user = self._passwords.remembered(header, self._clock.mono()) if header else None
        if header and user is None:
            user = await asyncio.wait_for(self._door.run(lambda: self._passwords.check(header)), self._answer_seconds)
            if user is not None:
                self._passwords.remember(header, user, self._clock.mono())
        return user, None if user is not None else Response.text(401, "needs a user and password", LOGIN)

    async def _route(self, route: Route, request: Request) -> Response:
        """Run the handler where it belongs, and turn its failure into an answer."""
        if not (route.slow or route.apart or route.changes):
            return self._handle(route, request)
        pool = self._apart[route.path] if route.apart else self._pool
        work = self._change if route.changes else self._handle
        return await asyncio.wait_for(pool.run(lambda: work(route, request)), self._answer_seconds)

    def _change(self, route: Route, request: Request) -> Response:
        """Let those change state who may; a page in a browser may not, whoever's browser it is."""
        peer = None if request.peer is None else completed(request.peer)
        allowed = may_change(peer, proven=request.user is not None, daemon=os.getuid(), admins=admin_group())
        if not allowed or "origin" in request.headers:
            words = IN_A_PAGE if "origin" in request.headers else refusal(peer)
            who = f"user {name_of(peer.uid)}" if peer else f"TCP user {request.user}" if request.user else "over TCP"
            self._refusals.note(f"{route.method} {route.path} refused: {who}: {words}", self._clock.mono())
            return Response.text(403, words)
        return self._handle(route, request)

    def _handle(self, route: Route, request: Request) -> Response:
        """Call the handler; what it raises is one answer 500, logged when it begins and when it ends."""
        try:
            response = route.handler(request)
        except BaseException:  # whatever it raises ends neither the loop nor a thread
            if route.path not in self._failing:
                self._failing.add(route.path)
                log.exception("%s cannot be answered", route.path)
            return Response.text(500, "a mistake of ours; the daemon's log has it")
        if route.path in self._failing:
            self._failing.discard(route.path)
            log.info("%s is answered again", route.path)
        return response


def with_user(request: Request, user: str | None) -> Request:
    """Return the request with the user who has proven a password."""
    return request if user is None else replace(request, user=user)


async def turns(count: int = 8) -> None:
    """Let the loop do what is ready: asyncio begins a connection, and closes one, some turns later."""
    for _ in range(count):
        await asyncio.sleep(0)
