"""Releasing the GPUs over HTTP: everybody may see how it stands; who may change state releases and resumes.

`POST /api/v1/release` takes `{"seconds": 1800}`, `POST /api/v1/resume` nothing. All answer with the state (`released`,
`attaching`, `attached`, or `unknown` while it has not been read after a start), and once it is attached again with what has
changed (`found`).
"""

from typing import Any, Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.export.asked import AskedError, asker, read
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.model.silence import DAY

LONGEST = 7 * DAY  # seconds: a host whose GPUs are not watched for longer wants [sources.nvml] enabled = false


class Releasing(Protocol):
    """What lets go of the GPUs; every method may be called from any thread."""

    def release(self, seconds: float, by: str) -> dict[str, Any]:
        """Let go of every GPU; waits some seconds for that."""
        ...

    def resume(self, by: str) -> dict[str, Any]:
        """Take them up again."""
        ...

    def state(self) -> dict[str, Any]:
        """Return how it stands."""
        ...


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release as it is asked for."""

    seconds: float


def routes(releasing: Releasing) -> tuple[Route, ...]:
    """Return the routes."""
    return (
        Route("/api/v1/release", lambda _: answer(releasing.state())),
        Route("/api/v1/release", lambda request: released(releasing, request), method="POST", changes=True),
        Route("/api/v1/resume", lambda request: answer(releasing.resume(asker(request))), method="POST", changes=True),
    )


def released(releasing: Releasing, request: Request) -> Response:
    """Release the GPUs for whoever asks."""
    try:
        wish = read(request.body, Wish)
    except AskedError as error:
        return Response.text(400, str(error))
    if not 0 < wish.seconds <= LONGEST:
        return Response.text(400, f"seconds: expected more than 0 and at most {LONGEST:.0f} ({LONGEST / DAY:.0f} days)")
    return answer(releasing.release(wish.seconds, asker(request)))


def answer(state: dict[str, Any]) -> Response:
    """Answer with how it stands."""
    return Response.json({"version": __version__, **state})
