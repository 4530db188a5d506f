"""Releasing the GPUs over HTTP: everybody may see how it stands; who may change state releases and resumes.

`POST /api/v1/release` takes `{"seconds": 1800}`, `POST /api/v1/resume` nothing; a program that is not the only one names its
`hold` in both, and ends that alone. All answer with the state (`released`, `attaching`, `attached`, or `unknown` while it has
not been read after a start), and once it is attached again with what has changed (`found`).
"""

import re
from typing import Any, Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.export.asked import AskedError, asker, plain, read
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.model.silence import DAY

SHORTEST = 1.0  # seconds: our processes take about as long to end
LONGEST = 7 * DAY  # seconds: a host whose GPUs are not watched for longer wants [sources.nvml] enabled = false

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")  # of a hold
UNNAMED = "hold: expected 1 to 64 letters, digits, dots, dashes and underscores"


class Releasing(Protocol):
    """What lets go of the GPUs; every method may be called from any thread."""

    def release(self, seconds: float, by: str, hold: str = "") -> dict[str, Any]:
        """Let go of every GPU, for people or for who has this hold; waits some seconds for that."""
        ...

    def resume(self, by: str, hold: str | None = None) -> dict[str, Any]:
        """Take them up again; with a hold only where nobody else wants them released. `is_known`: there is or was such a hold."""
        ...

    def state(self) -> dict[str, Any]:
        """Return how it stands."""
        ...


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release as it is asked for."""

    seconds: float
    hold: str | None = None


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a release, or of one hold, as it is asked for."""

    hold: str | None = None


def routes(releasing: Releasing) -> tuple[Route, ...]:
    """Return the routes."""
    return (
        Route("/api/v1/release", plain(lambda: answer(releasing.state()))),
        Route("/api/v1/release", lambda request: released(releasing, request), method="POST", changes=True),
        Route("/api/v1/resume", lambda request: resumed(releasing, request), method="POST", changes=True),
    )


def released(releasing: Releasing, request: Request) -> Response:
    """Release the GPUs for whoever asks."""
    try:
        wish = read(request.body, Wish)
    except AskedError as error:
        return Response.text(400, str(error))
    if not SHORTEST <= wish.seconds <= LONGEST:
        return Response.text(400, f"seconds: expected {SHORTEST:.0f} to {LONGEST:.0f} ({LONGEST / DAY:.0f} days)")
    if not is_name(wish.hold):
        return Response.text(400, UNNAMED)
    return answer(releasing.release(wish.seconds, asker(request), wish.hold or ""))


def resumed(releasing: Releasing, request: Request) -> Response:
    """Take the GPUs up for whoever asks; an empty body asks for nothing else."""
    try:
        end = read(request.body, End) if request.body else End()
    except AskedError as error:
        return Response.text(400, str(error))
    if not is_name(end.hold):
        return Response.text(400, UNNAMED)
    found = releasing.resume(asker(request), end.hold)
    return (
        answer(found) if found.pop("is_known") else Response.text(404, f"no hold is called {end.hold}: it is over, or never was")
    )


def is_name(hold: str | None) -> bool:
    """Say whether a hold may be called so; None is that of people."""
    return hold is None or NAME.fullmatch(hold) is not None


def answer(state: dict[str, Any]) -> Response:
    """Answer with how it stands."""
    return Response.json({"version": __version__, **state})
