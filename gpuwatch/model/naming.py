"""What alerts of this host can be called by: what routes and silences may ask for, checked where they are made."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import Severity
from gpuwatch.model.nearest import advice, hint
from gpuwatch.model.silence import Matcher

ALWAYS = ("rule", "severity", "host")  # labels of every alert
SEVERITIES = tuple(severity.value for severity in Severity)
STAGES = {"rule": 0, "severity": 2}  # a refusal says of which rules it speaks, so these come first; other labels between
NAMED = 4  # rules that a refusal names; of more it says how many


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule can fire: its severities, and the labels that its targets have beside those of the host."""

    rule: str
    severities: tuple[Severity, ...]
    labels: tuple[str, ...]


class Mistake(NamedTuple):
    """Why no alert can ever be meant, and which label says so; "" where the least severity does."""

    label: str
    words: str


class Naming(msgspec.Struct, frozen=True):
    """What all rules can fire, those that are `off` included, and the labels of the host with their values (`fixed`).

    Every alert of this host has those values; hosts that share a file of routes have others.
    """

    firings: tuple[Firing, ...]
    fixed: Mapping[str, str] = {}
    off: frozenset[str] = frozenset()

    def mistake(self, matchers: Sequence[Matcher], *, least: Severity = Severity.INFO, with_off: bool = False) -> Mistake | None:
        """Say why no alert of at least this severity can ever meet all matchers, None where one can.

        Rules that are off count only where that is said: who shares a file of routes may have switched one off.
        """
        return next((found for one in matchers if (found := self.unknown(one))), None) or (
            clash(matchers) or self.impossible(matchers, least, with_off=with_off)
        )

    def unknown(self, one: Matcher) -> Mistake | None:
        """Say that there is no such label, rule or severity."""
        rules = [firing.rule for firing in self.firings]
        known = self.labels(self.firings)
        if one.name not in known:
            return Mistake(one.name, f'"{one.name}" is not a label of any alert; known are {", ".join(sorted(known))}')
        if one.name == "rule" and one.value not in rules:
            return Mistake(one.name, f'"{one.value}" is not a rule{advice(one.value, rules, 3)}')
        if one.name == "severity" and one.value not in SEVERITIES:
            return Mistake(one.name, no_severity(one.value))
        return None

    def impossible(self, matchers: Sequence[Matcher], least: Severity, *, with_off: bool) -> Mistake | None:
        """Say at which matcher no rule is left that can fire what they mean, and what those that were left by then have."""
        left = every = [firing for firing in self.firings if with_off or firing.rule not in self.off]
        for name in sorted({one.name for one in matchers}, key=lambda name: (STAGES.get(name, 1), name)):
            wanted = [one for one in matchers if one.name == name]
            kept = [narrowed for firing in left if (narrowed := self.narrowed(firing, name, wanted))]
            if not kept:
                return Mistake(name, self.why(name, wanted, left, none_of(left, every)))
            left = kept
        if left and not any(severity.rank >= least.rank for firing in left for severity in firing.severities):
            return Mistake("", f"no alert that is meant is {least.value} or worse; there is {severities(left)}")
        return None

    def narrowed(self, firing: Firing, name: str, wanted: Sequence[Matcher]) -> Firing | None:
        """Return what of this rule the matchers of one label can mean, None where that is nothing."""
        if name == "rule":
            return firing if all(one.matches({name: firing.rule}) for one in wanted) else None
        if name == "severity":
            meant = tuple(each for each in firing.severities if all(one.matches({name: each.value}) for one in wanted))
            return replace(firing, severities=meant) if meant else None
        return firing if name in self.labels([firing]) or not any(one.is_equal for one in wanted) else None

    def why(self, name: str, wanted: Sequence[Matcher], left: Sequence[Firing], none: str) -> str:
        """Say why none of these rules is meant by the matchers of one label, and what they do have."""
        if name == "rule" and (off := [one.value for one in wanted if one.is_equal and one.value in self.off]):
            return f"rule {off[0]} is switched off"
        if name in STAGES:
            there = severities(left) if name == "severity" else ", ".join(firing.rule for firing in left)
            return f"{none} has {' and '.join(map(str, wanted))}; there is {there}"
        return f"{none} has a label {name}; they have {', '.join(sorted(self.labels(left)))}"

    def labels(self, firings: Iterable[Firing]) -> set[str]:
        """Return the labels that alerts of these rules have."""
        return {*ALWAYS, *self.fixed, *(label for firing in firings for label in firing.labels)}


def none_of(left: Sequence[Firing], every: Sequence[Firing]) -> str:
    """Return the beginning of a refusal: none of which alerts."""
    rules = [firing.rule for firing in left]
    if len(left) == len(every):
        return "no alert of this host"
    return f"no alert of {' or '.join(rules) if len(rules) <= NAMED else f'these {len(rules)} rules'}"


def clash(matchers: Sequence[Matcher]) -> Mistake | None:
    """Say which two matchers want one label to be two things."""
    for one in matchers:
        for other in matchers:
            if one.is_equal and other.name == one.name and not other.matches({one.name: one.value}):
                return Mistake(one.name, f"no alert has {one} and {other} at once")
    return None


def severities(firings: Iterable[Firing]) -> str:
    """Return the severities that these rules have, the mildest first."""
    found = {severity for firing in firings for severity in firing.severities}
    return ", ".join(severity.value for severity in sorted(found, key=lambda severity: severity.rank))


def no_severity(found: str) -> str:
    """Say that this is no severity, and which there are."""
    return f'expected one of {", ".join(SEVERITIES)}, found "{found}"{hint(found, SEVERITIES)}'
