"""The nouns of the HTTP side: Request, Response, Route, and what a client's Accept headers wish for."""

from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.export.access import Peer
from gpuwatch.model.escape import visible

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, whole. `peer` is who is at the other end of the Unix socket, None over TCP; `user` has proven a password."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""
    peer: Peer | None = None
    user: str | None = None


class Response(msgspec.Struct, frozen=True):
    """One answer; Content-Length and Date are added when it is sent."""

    status: int
    body: bytes
    type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, status: int, words: str, *headers: tuple[str, str]) -> "Response":
        """Answer with one short line (or several) of text."""
        return cls(status, f"{words}\n".encode(), TEXT, headers)

    @classmethod
    def json(cls, data: object) -> "Response":
        """Answer with data; half characters in its texts (names that are not UTF-8) become visible."""
        try:
            body = msgspec.json.encode(data)
        except UnicodeEncodeError:
            body = msgspec.json.encode(visible(msgspec.to_builtins(data)))
        return cls(200, body, JSON)


class Route(msgspec.Struct, frozen=True):
    """One path and who answers it. `slow`: runs in the pool. `changes`: runs there too, and only for those who may.

    `apart`: runs in a small pool of its own, since one answer may take seconds, and many ask.
    """

    path: str
    handler: Callable[[Request], Response]
    method: str = "GET"
    slow: bool = False
    apart: bool = False
    changes: bool = False


def wishes(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Read an Accept or Accept-Encoding header: (what, parameters, q). What cannot be read of it is left out."""
    found = []
    for item in header.split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        if name:
            found.append((name.lower(), parameters, quality))
    return found


def wants_openmetrics(accept: str) -> bool:
    """Say whether the client likes OpenMetrics 1.0 at least as well as text; who says nothing (curl) gets text."""
    openmetrics = text = 0.0
    for name, parameters, quality in wishes(accept):
        if name == "application/openmetrics-text" and parameters.get("version", "1.0.0") in {"1.0.0", "0.0.1"}:
            openmetrics = max(openmetrics, quality)
        elif name in {"text/plain", "text/*"}:
            text = max(text, quality)
    return openmetrics > 0 and openmetrics >= text


def wants_gzip(accept_encoding: str) -> bool:
    """Say whether the client takes gzip."""
    return any(name in {"gzip", "*"} and quality > 0 for name, _, quality in wishes(accept_encoding))
