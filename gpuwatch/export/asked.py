"""What a request that changes state asks for, and who asks."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpuwatch.export.access import name_of
from gpuwatch.export.message import Request, Response
from gpuwatch.model.escape import printable
from gpuwatch.model.misfit import refusal

Asked = TypeVar("Asked", bound=msgspec.Struct)


class AskedError(Exception):
    """What is asked for cannot be had; the words say why, to a person."""


def plain(answer: Callable[[], Response]) -> Callable[[Request], Response]:
    """Return the handler of a path that takes no parameters: who gives one would take the answer for that to his question."""

    def handler(request: Request) -> Response:
        if request.query:
            name = next(iter(request.query))
            return Response.text(400, f"{name[:40]!r} is not known here; this path takes no parameters")
        return answer()

    return handler


def asker(request: Request) -> str:
    """Return who asks: the user who has proven a password, or whom the kernel vouches for."""
    return request.user or (name_of(request.peer.uid) if request.peer else "")


def read(body: bytes, kind: type[Asked]) -> Asked:
    """Read what is asked for; raises AskedError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:  # before 0.19 msgspec lets UnicodeDecodeError through
        raise AskedError(f"cannot be read: {printable(refusal(error))}") from None
