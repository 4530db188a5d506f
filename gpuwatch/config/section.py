"""What every table of the configuration is made of, and the mistake that one of them may hold."""

from typing import Annotated

import msgspec

from gpuwatch.model.quantity import Duration


class Least(msgspec.Struct, frozen=True):
    """The least that a duration or size may be, as people write it."""

    text: str


Kept = Annotated[Duration, Least("1s")]
Period = Annotated[Duration, Least("50ms")]  # faster than that this host would do little else


class ConfigError(Exception):
    """A mistake in the configuration: which file, which key, what was found, what was expected. Exit code 2."""

    def __init__(self, place: str, key: str, problem: str) -> None:
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")
        self.place, self.key, self.problem = place, key, problem


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration; unknown keys are refused."""
