"""Host names to addresses without ever blocking the loop: getaddrinfo has no timeout and can hang for minutes."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

Lookup = Callable[[str], Sequence[str]]


class ResolveError(Exception):
    """A name has no address; the text says why."""


def system(host: str) -> list[str]:
    """Ask the system's resolver; raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Looks names up in daemon threads, one a name at most: a name that hangs costs one thread, however often it is asked.

    Used from one loop only.
    """

    def __init__(self, lookup: Lookup = system) -> None:
        self._lookup = lookup
        self._asked: dict[str, asyncio.Future[list[str] | ResolveError]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a host, the system's favourite first; raises ResolveError. The caller brings the deadline."""
        if is_address(host):
            return [host]
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = asyncio.get_running_loop().create_future()
            try:
                threading.Thread(target=self._ask, args=(host, asked), name="resolve", daemon=True).start()
            except RuntimeError as error:  # the system has no thread to spare: whoever asks next tries again
                del self._asked[host]
                raise ResolveError(f"name resolution failed: {error}") from None
        found = await asyncio.shield(asked)  # a caller that gives up leaves the question to the next one
        if isinstance(found, ResolveError):
            raise found
        return found

    def _ask(self, host: str, asked: "asyncio.Future[list[str] | ResolveError]") -> None:
        """Run in a thread of its own: look up, and hand the answer to the loop if that still lives."""
        found: list[str] | ResolveError
        try:
            found = list(self._lookup(host)) or ResolveError("the name has no address")
        except socket.gaierror as error:
            found = ResolveError(f"name resolution failed: {error.strerror}")
        except (OSError, UnicodeError, LookupError, ImportError) as error:  # the last two: Python lacks its codec for names
            found = ResolveError(f"name resolution failed: {type(error).__name__}")
        try:
            asked.get_loop().call_soon_threadsafe(self._answered, host, asked, found)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _answered(self, host: str, asked: "asyncio.Future[Any]", found: list[str] | ResolveError) -> None:
        del self._asked[host]
        if not asked.done():
            asked.set_result(found)


def is_address(host: str) -> bool:
    """Return whether this is an address already."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
