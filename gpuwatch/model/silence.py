"""A silence: for whom, from when to when, by whom and why. The nouns are Alertmanager's."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

DAY = 86400.0  # seconds
LONGEST = 30 * DAY  # seconds that a silence may last: what is to be quiet for longer is a rule to switch off


class Matcher(msgspec.Struct, frozen=True, kw_only=True):
    """One condition on one label; a label that an alert lacks counts as empty."""

    name: str
    value: str
    is_equal: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are meant."""
        return (labels.get(self.name, "") == self.value) is self.is_equal

    def __str__(self) -> str:
        if not self.value:  # as the silence of a release has it
            return f"whatever has {'no' if self.is_equal else 'a'} {self.name}"
        return f"{self.name}{'=' if self.is_equal else '!='}{self.value}"


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which nobody is told of the alerts that all matchers match; without matchers it is the whole host.

    It begins when it is made. Times are wall clock. Whoever has it last longer becomes its author. Who ends it early stands in
    `ended_by`, and `ends_at` is then the time at which that was done.
    """

    id: str  # ULID
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    author: str
    comment: str
    ended_by: str = ""

    @property
    def is_whole_host(self) -> bool:
        """Whether it is for all alerts of the host."""
        return not self.matchers

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels is meant."""
        return all(matcher.matches(labels) for matcher in self.matchers)

    def is_over(self, wall: float) -> bool:
        """Whether it has ended. One that was ended by a person stays so, whatever the clock says later."""
        return bool(self.ended_by) or wall >= self.ends_at

    def state(self, wall: float) -> str:
        """Return where it stands, in Alertmanager's words."""
        return "expired" if self.is_over(wall) else "active"

    def __str__(self) -> str:
        return ", ".join(map(str, self.matchers)) or "the whole host"


class Made(NamedTuple):
    """What came of the wish for a silence: where there was an equal one `already`, it is that, with the later of both ends."""

    silence: Silence
    stored: bool  # it is on the disk
    already: bool
