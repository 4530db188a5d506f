"""Silences over HTTP: everybody may see them; who may change state makes and ends them.

`POST /api/v1/silences` takes `{"matchers": [{"name": "gpu", "value": "3"}], "seconds": 7200, "comment": "..."}`, without matchers
for the whole host; `POST /api/v1/silences/end` takes `{"id": "..."}`. Both answer with the silence and whether it is `stored`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gpuwatch import __version__
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.export.asked import AskedError, asker, plain, read
from gpuwatch.export.message import Request, Response, Route
from gpuwatch.model.card import meant
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.naming import Naming
from gpuwatch.model.silence import DAY, LONGEST, Made, Matcher, Silence
from gpuwatch.model.view import View

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")
VALUE_LENGTH = 400
COMMENT_LENGTH = 400
MATCHERS = 16
ENDED = 100  # ended ones that are listed: those that ended last
NOT_READ = "the alert memory has not been read yet: what was silenced before this start is not known, and silences nothing"


class Silences(Protocol):
    """What the daemon knows of silences; every method may be called from any thread."""

    @property
    def is_whole(self) -> bool:
        """Whether those of earlier runs are among them."""
        ...

    def add(self, matchers: Sequence[Matcher], seconds: float, *, author: str, comment: str) -> Made | None:
        """Begin one now, or have an equal one last as long; None where there are too many."""
        ...

    def end(self, identifier: str, *, by: str) -> tuple[Silence, bool] | None:
        """End one now, and say whether that is on the disk; None where it is not known."""
        ...

    def known(self) -> Sequence[Silence]:
        """Return all that are known, the oldest first."""
        ...

    def lasting(self, wall: float) -> Sequence[Silence]:
        """Return those that hold, with the one that a release holds."""
        ...


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A matcher as it is asked for."""

    name: str
    value: str
    is_equal: bool = True


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A silence as it is asked for."""

    seconds: float
    matchers: list[Condition] = []
    comment: str = ""


class Which(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which silence to end."""

    id: str


def routes(silences: Silences, clock: Clock, naming: Naming, host: str, view: Callable[[], View]) -> tuple[Route, ...]:
    """Return the routes of silences."""

    def make(request: Request) -> Response:
        try:
            wish = read(request.body, Wish)
            matchers = checked(wish, naming, host, view())
        except AskedError as error:
            return Response.text(400, str(error))
        return made(silences, matchers, wish, asker(request), clock.wall())

    return (
        Route("/api/v1/silences", plain(lambda: listed(silences, clock.wall())), slow=True),
        Route("/api/v1/silences", make, method="POST", changes=True),
        Route("/api/v1/silences/end", lambda request: ended(silences, request, clock.wall()), method="POST", changes=True),
    )


def listed(silences: Silences, wall: float) -> Response:
    """Answer with all silences that hold and those that ended last; without `complete` those of earlier runs are not known."""
    complete, known = (
        silences.is_whole,
        {silence.id: silence for silence in (*silences.known(), *silences.lasting(wall))}.values(),
    )
    over = sorted((silence for silence in known if silence.is_over(wall)), key=lambda silence: silence.ends_at)[:-ENDED]
    left_out = {silence.id for silence in over}
    shown = [document(silence, wall) for silence in known if silence.id not in left_out]
    return Response.json({"version": __version__, "now": wall, "complete": complete, "silences": shown})


def made(silences: Silences, matchers: Sequence[Matcher], wish: Wish, author: str, wall: float) -> Response:
    """Begin a silence."""
    kept = silences.add(matchers, wish.seconds, author=author, comment=wish.comment.strip())
    if kept is None:
        return Response.text(409, "there are too many silences; end one that is not needed any more")
    return done(kept.silence, wall, stored=kept.stored, already=kept.already)


def ended(silences: Silences, request: Request, wall: float) -> Response:
    """End a silence for whoever asks."""
    try:
        which = read(request.body, Which)
    except AskedError as error:
        return Response.text(400, str(error))
    kept = silences.end(which.id, by=asker(request))
    if kept is None and not silences.is_whole:
        return Response.text(503, NOT_READ)
    if kept is None:
        return Response.text(404, f"there is no silence {printable(which.id, 40)}")
    silence, stored = kept
    return done(silence, wall, stored=stored)


def done(silence: Silence, wall: float, **more: bool) -> Response:
    """Answer with a silence that was made or ended."""
    return Response.json({"version": __version__, "now": wall, "silence": document(silence, wall), **more})


def document(silence: Silence, wall: float) -> dict[str, Any]:
    """Return a silence as plain data."""
    found: dict[str, Any] = msgspec.to_builtins(silence)
    return {**found, "of": str(silence), "state": silence.state(wall)}


def checked(wish: Wish, naming: Naming, host: str, view: View) -> list[Matcher]:
    """Return the matchers of a silence that can be made; raises AskedError."""
    if not 0 < wish.seconds <= LONGEST:
        raise AskedError(f"seconds: expected more than 0 and at most {LONGEST:.0f} ({LONGEST / DAY:.0f} days)")
    if len(wish.comment) > COMMENT_LENGTH:
        raise AskedError(f"comment: expected at most {COMMENT_LENGTH} characters, it has {len(wish.comment)}")
    if len(wish.matchers) > MATCHERS:
        raise AskedError(f"matchers: expected at most {MATCHERS}")
    for condition in wish.matchers:
        if not LABEL.fullmatch(condition.name):
            raise AskedError(f'matchers: "{printable(condition.name, 40)}" is not the name of a label')
        if not 0 < len(condition.value) <= VALUE_LENGTH:
            raise AskedError(f"matchers: expected a value of 1 to {VALUE_LENGTH} characters for {condition.name}")
    matchers = [Matcher(name=one.name, value=one.value, is_equal=one.is_equal) for one in wish.matchers]
    if found := naming.mistake(matchers):
        raise AskedError(f"matchers: {printable(found.words, 400)}")
    for one in matchers:
        if problem := never(one, {**naming.fixed, "host": host}):
            raise AskedError(f"matchers: {problem}")
    return [matcher(one, view) for one in matchers]


def never(one: Matcher, fixed: Mapping[str, str]) -> str:
    """Say why no alert of this host is ever meant, "" where one can be: all of them have the labels of the host."""
    name, value = one.name, printable(one.value, 80)
    if name not in fixed or (fixed[name] == one.value) is one.is_equal:
        return ""
    if one.is_equal:
        return f"this host {'is called ' if name == 'host' else f'has {name}='}{fixed[name]}, not {value}"
    return f"every alert of this host has {name}={value}: none would be silenced"


def matcher(one: Matcher, view: View) -> Matcher:
    """Return a matcher; a GPU that is named by UUID or address becomes its `uuid`, since the label `gpu` is the index.

    Raises AskedError for a GPU that is not there, nor is remembered to have been: what is misspelt would silence nothing.
    """
    cards = [entry.target for entry in view.of(GPU)]
    if one.name not in {"gpu", "uuid"} or not cards:
        return one
    found = meant(one.value, cards)
    if not found:
        indexes = ", ".join(card.labels.get("gpu", card.key) for card in cards)
        raise AskedError(f"matchers: no GPU is called {printable(one.value, 80)}; known are {indexes}")
    card = next(card for card in cards if card.key == found[0])
    if card.labels.get(one.name) == one.value:
        return one
    return Matcher(name="uuid", value=card.labels.get("uuid", card.key), is_equal=one.is_equal)
