"""How a verdict travels: the message that is owed to a channel, and what came of an attempt."""

from enum import Enum

import msgspec

from gpuwatch.model.alert import AlertState, Incident, Severity


class DeliveryKind(str, Enum):
    """Why a message is sent."""

    FIRING = "firing"
    UPDATE = "update"  # a higher severity
    REPEAT = "repeat"
    RESOLVED = "resolved"
    STALE = "stale"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message owed to one channel, with its incidents as they were when it was decided. Retries keep the id."""

    id: str  # ULID
    channel: str
    kind: DeliveryKind
    created: float  # wall clock
    incidents: tuple[Incident, ...]
    attempt: int = 0  # attempts made so far
    not_before: float = 0.0  # wall clock


class Told(msgspec.Struct, frozen=True):
    """The last thing one channel was told about one incident."""

    incident: str
    channel: str
    state: AlertState
    severity: Severity
    at: float


class Result(str, Enum):
    """What one attempt came to."""

    SENT = "sent"
    RETRY = "retry"
    REFUSED = "refused"  # permanent: the payload or the address is wrong
    AUTH = "auth"  # permanent until somebody changes a secret
    GONE = "gone"  # permanent for the whole channel: the receiver wants no more messages
    SUPERSEDED = "superseded"  # never sent, and a newer message says it all: no attempt was made


class Outcome(msgspec.Struct, frozen=True):
    """What one attempt came to, in words that name no secret."""

    result: Result
    words: str = ""
    after: float | None = None  # seconds to wait, where the receiver said so

    @classmethod
    def sent(cls, words: str = "") -> "Outcome":
        """The receiver has it."""
        return cls(Result.SENT, words)

    @classmethod
    def retry(cls, words: str, after: float | None = None) -> "Outcome":
        """Not now; `after` is the receiver's own wish."""
        return cls(Result.RETRY, words, after)

    @classmethod
    def refused(cls, words: str) -> "Outcome":
        """Never, as it stands."""
        return cls(Result.REFUSED, words)

    @classmethod
    def auth(cls, words: str) -> "Outcome":
        """Not with this secret."""
        return cls(Result.AUTH, words)

    @classmethod
    def gone(cls, words: str) -> "Outcome":
        """Never again, nothing, to this receiver."""
        return cls(Result.GONE, words)
