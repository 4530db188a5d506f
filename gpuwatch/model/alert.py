"""How a verdict lives: severity, state, one change of a rule's state, and the incident that people see."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from gpuwatch.model.target import Target


class Severity(str, Enum):
    """Operator's classes: info goes to the digest, warning is sent, critical ignores quiet hours."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for critical."""
        return RANKS[self]


RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class AlertState(str, Enum):
    """Where one (rule, target) is. Muted and acknowledged are kept beside it (they change who is told, not what is true)."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    STALE = "stale"  # was firing, and now there is no data: not resolved


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change that people may hear of: fired, raised or lowered in severity, gone stale, back from stale, resolved.

    `before` and `after` are states; RESOLVED is `after = INACTIVE`. `severity` is that after the change (of the incident
    that ends, when it resolves). `value` is the left side of the rule's condition. `summary` is the rule's text with its
    numbers filled in.
    """

    rule: str
    target: Target
    before: AlertState
    after: AlertState
    severity: Severity
    at: float  # wall clock
    since: float  # wall clock at which the condition began to hold
    value: float | None
    summary: str
    numbers: Mapping[str, float] = {}
    words: Mapping[str, str] = {}


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One story told to people: a rule on a target from its first firing to its end. Key is rule + target key.

    `severity` is the present one, `highest` the high-water mark. `state` is FIRING, STALE or INACTIVE (resolved).
    """

    id: str  # ULID
    rule: str
    subject: str  # Subject.name
    key: str  # Target.key
    labels: Mapping[str, str]  # `rule`, the target's labels, `host`: the alert's identity to the outside
    info: Mapping[str, str]  # the target's text facts at that time: model, serial, PCI address, slot label
    severity: Severity
    highest: Severity
    state: AlertState
    since: float
    fired_at: float
    changed_at: float
    ended_at: float | None
    value: float | None
    summary: str
    numbers: Mapping[str, float]
    words: Mapping[str, str]


class Now(msgspec.Struct, frozen=True):
    """The number that an alert's text tells, as it is at this moment."""

    metric: str  # its id
    value: float
    unit: str


class Open(msgspec.Struct, frozen=True):
    """An open incident as it stands at this moment: its `state` is that of the page, RECOVERING included."""

    incident: Incident
    now: Now | None = None
