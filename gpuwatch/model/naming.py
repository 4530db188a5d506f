"""What alerts of this host can be called by: what routes and silences may ask for, checked where they are made."""

from collections.abc import Mapping

import msgspec

from gpuwatch.model.alert import Severity
from gpuwatch.model.nearest import advice, hint

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
            return f'"{label}" is not a label of any alert{advice(label, known, 3)}'
        if label == "rule" and value not in self.rules:
            return f'"{value}" is not a rule{advice(value, self.rules, 3)}'
        if label == "severity" and value not in SEVERITIES:
            return no_severity(value)
        return ""


def no_severity(found: str) -> str:
    """Say that this is no severity, and which there are."""
    return f'expected one of {", ".join(SEVERITIES)}, found "{found}"{hint(found, SEVERITIES)}'
