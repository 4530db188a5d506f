"""What a saved output of nvidia-smi says, as facts by path: of -q -x (schemas v6 to v13) and of -q. Nothing is judged here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

INDENT = 4  # spaces of a level in the text form
HEAD = re.compile(r"^GPU ([0-9A-Fa-f:.]+)\s*$")
LONG = ("supported_clocks", "Supported Clocks")  # lists of hundreds that are never asked for


@dataclass(frozen=True)
class Part:
    """One MIG device of a card."""

    gpu_instance: int
    compute_instance: int
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Seen:
    """One card: its facts by path (`temperature/gpu_temp`, in the text form `Temperature/GPU Current Temp`)."""

    bus_id: str
    facts: Mapping[str, str]
    parts: list[Part] = field(default_factory=list)
    processes: list[tuple[int, str]] = field(default_factory=list)  # pid, used memory

    def first(self, *paths: str) -> str:
        """Return the first of these that is there, "" where none is."""
        return next((self.facts[path] for path in paths if path in self.facts), "")


@dataclass(frozen=True)
class Capture:
    """One look of nvidia-smi at a machine."""

    driver: str
    cards: list[Seen]


def captures(path: Path) -> list[Capture]:
    """Return what is in a file: one capture in XML, any number in text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".xml":
        return [from_xml(text)]
    return [from_text(part) for part in re.split(r"=+NVSMI LOG=+", text)[1:] if "GPU 0" in part] or [from_text(text)]


def from_xml(text: str) -> Capture:
    """Read -q -x."""
    root = ET.fromstring(text)
    return Capture((root.findtext("driver_version") or "").strip(), [card(one) for one in root.findall("gpu")])


def card(element: ET.Element) -> Seen:
    """Read one card."""
    parts = [
        Part(number(one, "gpu_instance_id"), number(one, "compute_instance_id"), dict(leaves(one)))
        for one in element.findall("mig_devices/mig_device")
    ]
    processes = [
        (number(one, "pid"), (one.findtext("used_memory") or "").strip()) for one in element.findall("processes/process_info")
    ]
    return Seen(element.get("id") or "", dict(leaves(element)), parts, processes)


def number(element: ET.Element, name: str) -> int:
    """Return a number that is always there."""
    return int(element.findtext(name) or "-1")


def leaves(element: ET.Element, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield what an element says, by path; of a list the first."""
    seen = set[str]()
    for child in element:
        if child.tag in LONG or child.tag in seen:
            continue
        seen.add(child.tag)
        if len(child):
            yield from leaves(child, f"{path}{child.tag}/")
        else:
            yield f"{path}{child.tag}", (child.text or "").strip()


def from_text(text: str) -> Capture:
    """Read -q, whole or in part: a tree by indentation."""
    driver = re.search(r"^Driver Version\s*: (\S+)", text, re.MULTILINE)
    cards: list[Seen] = []
    facts: dict[str, str] = {}
    above: list[str] = []
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            facts = {}
            above = []
            cards.append(Seen(head[1], facts))
        elif not line.startswith(" " * INDENT) and line.strip():
            facts = {}  # what follows the last card
        elif line.strip():
            depth = (len(line) - len(line.lstrip())) // INDENT - 1
            key, colon, value = line.strip().partition(" : ")
            above[depth:] = [key.strip().removesuffix(":").strip()]
            if colon:
                facts.setdefault("/".join(above), value.strip())
    return Capture(driver[1] if driver else "", cards)
