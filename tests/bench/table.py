"""The table that is printed: sections of lines, each with what was measured, and its budget where there is one."""

from dataclasses import dataclass, field


@dataclass
class Table:
    """Lines of (name, measured, budget); a budget is a number and is kept when the measured number is below it."""

    lines: list[tuple[str, str, str]] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Begin a section."""
        self.lines.append((title, "", "#"))

    def line(self, name: str, measured: str, value: float | None = None, budget: float | None = None, unit: str = "") -> None:
        """Add a line; with `value` and `budget` it says whether the budget is kept."""
        verdict = ""
        if value is not None and budget is not None:
            verdict = f"under {budget:g}{unit and ' '}{unit}: {'kept' if value < budget else 'MISSED'}"
        self.lines.append((name, measured, verdict))

    def text(self) -> str:
        """Return it."""
        names = max(len(name) for name, _, _ in self.lines) + 2
        measured = max(len(words) for _, words, _ in self.lines) + 2
        found = []
        for name, words, verdict in self.lines:
            found.append(f"\n{name}" if verdict == "#" else f"  {name:{names}}{words:{measured}}{verdict}".rstrip())
        return "\n".join(found).strip("\n")


def percent(seconds: float, of: float) -> str:
    """Return a share of one core."""
    return f"{100 * seconds / of:.2f} %"
