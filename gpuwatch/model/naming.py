"""What alerts of this host can be called by: what routes and silences may ask for, checked where they are made."""

from collections.abc import Iterable, Mapping

import msgspec

from gpuwatch.model.alert import Severity
from gpuwatch.model.nearest import hint, nearest

ALWAYS = ("rule", "severity", "host")  # labels of every alert
SEVERITIES = tuple(severity.value for severity in Severity)


class Naming(msgspec.Struct, frozen=True):
    """The rules that there are, on or off, and the labels that an alert can have: those of targets and of the host.

    `fixed` are those of the host with their values, which every alert of it has.
    """

    rules: frozenset[str]
    labels: frozenset[str]
    fixed: Mapping[str, str] = {}

    def mistake(self, label: str, value: str) -> str:
        """Say why no alert can ever have this label with this value, "" where one can."""
        known = self.labels | set(ALWAYS)
        if label not in known:
            return f'"{label}" is not a label of any alert; {near(label, known)}'
        if label == "rule" and value not in self.rules:
            return f'"{value}" is not a rule; {near(value, self.rules)}'
        if label == "severity" and value not in SEVERITIES:
            return no_severity(value)
        return ""


def no_severity(found: str) -> str:
    """Say that this is no severity, and which there are."""
    return f'expected one of {", ".join(SEVERITIES)}, found "{found}"{hint(found, SEVERITIES)}'


def near(found: str, known: Iterable[str]) -> str:
    """Return the nearest known names, or all of them."""
    names = sorted(known)
    close = nearest(found, names, 3)
    return f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(names)}"
