"""The shape of a receiver kind: what it is configured with, what it is asked to send, and how it judges an answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gpuwatch.config import Section
from gpuwatch.model.alert import Severity
from gpuwatch.model.delivery import Delivery, Outcome
from gpuwatch.model.quantity import Duration


class Keys(Section, frozen=True):
    """The keys of `[[receivers]]` that every kind has. A kind adds its own in a subclass."""

    name: str
    kind: str
    min_severity: Severity = Severity.WARNING
    send_resolved: bool = True
    pace: Duration = Duration(0)  # shortest time between two messages

    def __repr__(self) -> str:  # url and secret may stand inline: they reach no log and no traceback
        return f"{type(self).__name__}({self.name})"


class Options(Protocol):
    """What a kind made of its keys: files are read, secrets are in it. Its repr must not show them."""

    @property
    def ca_file(self) -> str:
        """The file of certificate authorities to trust in place of the system's; "" for the system's."""
        ...


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try to send a delivery: things that differ from try to try."""

    at: float  # wall clock
    number: int  # 1 for the first
    host: str
    host_labels: Mapping[str, str] = {}
    late: float | None = None  # seconds since the message was owed, where that is worth telling
    stored: bool = True  # False: the disk has not taken it yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A POST to make. The address is a secret (notify.md 0.4), and so are headers and body: its repr shows none of them."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: header names in lower case, and as much of the body as we were ready to read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float  # wall clock at which it came


class HttpReceiver(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that is told by one POST. It does not send, sleep or retry; it is three functions and a struct.

    `configure` reads files and raises MistakeError for what the struct alone cannot see.
    """

    keys: type[Keys]
    configure: Callable[[Keys], Options]
    request: Callable[[Delivery, Options, Attempt], Request]
    judge: Callable[[Answer], Outcome]


class MistakeError(Exception):
    """A wrong key of a receiver, in words that hold no secret; `build` adds the place."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem
