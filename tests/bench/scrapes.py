"""Scrapes as Prometheus makes them: raw sockets, gzip, OpenMetrics; each timed from the request's first byte to its last."""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Scraper:
    """One connection to a page; `once` returns the seconds that a scrape took, and the body."""

    def __init__(self, port: int, path: str = "/metrics") -> None:
        self._port = port
        lines = (f"GET {path} HTTP/1.1", "Host: localhost", f"Accept: {ACCEPT}", "Accept-Encoding: gzip", "", "")
        self._request = "\r\n".join(lines).encode()
        self._socket: socket.socket | None = None

    def once(self, *, fresh: bool) -> tuple[float, bytes]:
        """Scrape, over a connection of its own or the one that is kept."""
        if fresh:
            self.close()
        began = time.perf_counter()
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(self._request)
        fields, body = self._answer(self._socket)
        took = time.perf_counter() - began
        return took, gzip.decompress(body) if fields.get(b"content-encoding") == b"gzip" else body

    def _answer(self, connection: socket.socket) -> tuple[dict[bytes, bytes], bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.lower().split(b"\r\n")
        fields = {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        while len(body) < int(fields[b"content-length"]):
            body += self._more(connection)
        if status.startswith(b"http/1.0"):
            self.close()  # as the server does
        return fields, body

    @staticmethod
    def _more(connection: socket.socket) -> bytes:
        more = connection.recv(1 << 20)
        if not more:
            raise ConnectionError("the page was cut")
        return more

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def timed(port: int, count: int, *, fresh: bool, pause: float = 0.0) -> list[float]:
    """Return the seconds of each of `count` scrapes, with a pause before each."""
    scraper = Scraper(port)
    found = []
    for _ in range(count):
        time.sleep(pause)
        found.append(scraper.once(fresh=fresh)[0])
    scraper.close()
    return found


class Prometheus:
    """Scrapes some ports at their pace in the background, as a Prometheus does."""

    def __init__(self, ports: tuple[int, ...], every: float) -> None:
        self._scrapers = [Scraper(port) for port in ports]
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            for scraper in self._scrapers:
                with contextlib.suppress(OSError):
                    scraper.once(fresh=False)

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(20)
        for scraper in self._scrapers:
            scraper.close()


def until_full(port: int, is_full: Callable[[bytes], bool], seconds: float) -> float:
    """Ask for the page until it is full; returns when (monotonic) it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        scraper = Scraper(port)
        with contextlib.suppress(OSError):
            if is_full(scraper.once(fresh=True)[1]):
                return time.monotonic()
        scraper.close()
        time.sleep(0.01)
    raise TimeoutError(f"no full page within {seconds:.0f} s")


def quantile(values: list[float], share: float) -> float:
    """Return a quantile, by the nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
