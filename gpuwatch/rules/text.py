"""The texts of alerts: `{name}` and `{name:.0f}` filled in, nothing else; checked when a rule is loaded."""

import re
from collections.abc import Collection, Mapping
from string import Formatter

import msgspec

from gpuwatch.model.escape import printable
from gpuwatch.model.nearest import advice
from gpuwatch.model.target import Target

NAME = re.compile(r"[a-z][a-z0-9_]*")
SPEC = re.compile(r",?(?:\.\d)?[fg%]?")
RESOLVED = "{where}: over after {lasted}"  # of a rule that has no words of its own for it
UNKNOWN = "unknown"  # what a text says where there is no data
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Template(msgspec.Struct, frozen=True):
    """A text with fields; `parts` are its literals and, after each, a field name ("" for none) with its format."""

    text: str
    parts: tuple[tuple[str, str, str], ...]

    @property
    def fields(self) -> frozenset[str]:
        """The names that the text asks for."""
        return frozenset(name for _, name, _ in self.parts if name)

    def fill(self, numbers: Mapping[str, float], words: Mapping[str, str]) -> str:
        """Return the text; what is not known reads "unknown". Everything that came from the machine is made printable."""
        out: list[str] = []
        for literal, name, spec in self.parts:
            out.append(literal)
            if name in words:
                out.append(printable(words[name]))
            elif name in numbers:
                out.append(format(numbers[name], spec or "g"))
            elif name:
                out.append(UNKNOWN)
        return "".join(out)


def template(text: str, known: Collection[str]) -> Template:
    """Check a text and take it apart; raises ValueError for a field that no rule can fill."""
    parts: list[tuple[str, str, str]] = []
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"is not a text with {{fields}}: {error}") from None
    for literal, name, spec, conversion in pieces:
        if name is None:
            parts.append((literal, "", ""))
            continue
        if not NAME.fullmatch(name) or conversion or not SPEC.fullmatch(spec or ""):
            raise ValueError(f"{{{name}}}: a field is a name and at most a number's format, such as {{value:.0f}}")
        if name not in known:
            raise ValueError(f"{{{name}}} is not known here{advice(name, known)}")
        parts.append((literal, name, spec or ""))
    return Template(text, tuple(parts))


def where(target: Target) -> str:
    """Say which thing it is, so that somebody finds it: a GPU with slot label, PCI address, model and serial number."""
    info = target.info
    if target.subject.name == "host":
        return printable(info.get("name", "") or "this host")
    if target.subject.name != "gpu":
        return printable(str(target))
    serial = f"serial {info['serial']}" if info.get("serial") else ""
    name = target.labels.get("gpu") or target.key  # of one that NVML never opened its address: that is said once
    facts = [fact for fact in (info.get("label"), info.get("pci_bus_id"), info.get("name"), serial) if fact and fact != name]
    return printable(f"GPU {name} ({', '.join(facts)})" if facts else f"GPU {name}")


def lasted(seconds: float) -> str:
    """Write a length of time with its two largest units: 6 h 4 min."""
    rest = float(max(0, round(seconds)))
    parts: list[str] = []
    for length, unit in UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count:.0f} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"
