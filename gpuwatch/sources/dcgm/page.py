"""What stands on the page of a dcgm-exporter (Prometheus text), GPU by GPU; a broken line costs itself and nothing else.

Written by hand since Prometheus' own parser refuses a page as a whole for one bad line. A row counts for a card when its labels
name one and nothing else: rows of MIG instances, links, switches and CPUs are told apart and never mixed into a card's.
"""

import re
from dataclasses import dataclass, field

from gpuwatch.model.escape import printable
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.sources.dcgm.fields import HEADS, Field, find

CARDS = 64  # on one host; a page with more is that of a cluster
LINE = 16 << 10  # characters; one row with the labels of a pod has some hundred
LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\Z)')
LABELS = 64  # of one row
VALUE = re.compile(r"\s*(\S+)(?:\s+-?[0-9]+)?\s*\Z")  # and perhaps a time
BARE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMMENTS = tuple(f"# {kind} {head}" for kind in ("HELP", "TYPE") for head in HEADS)
PARTS = ("GPU_I_ID", "GPU_I_PROFILE", "nvlink", "nvswitch", "cpu", "cpucore", "vgpu")  # labels of what is no whole card


@dataclass(slots=True)
class Card:
    """One GPU as the page names it, and the numbers that it has of it: as text, by name of the field."""

    key: str
    index: str  # DCGM's own number, "" where the page has none
    info: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)

    def fields(self) -> list[tuple[Field, str]]:
        """Return what is understood of them."""
        return [(found, text) for name, text in self.texts.items() if (found := find(name, text)) is not None]


@dataclass(slots=True)
class Page:
    """A page that was understood, as far as that goes."""

    cards: dict[str, Card] = field(default_factory=dict)
    divided: dict[str, str] = field(default_factory=dict)  # GPUs that have rows of MIG instances: key -> index
    is_dcgm: bool = False
    is_cut: bool = False  # it does not end with the end of a line: what came last is not trusted
    is_foreign: bool = False  # too many cards for one host
    broken: int = 0  # lines with a name of DCGM that are no rows


def parse(text: str) -> Page:
    """Read a page; never raises, whatever it is."""
    page = Page(is_cut=bool(text) and not text.endswith("\n"))
    *lines, rest = text.split("\n")  # after the last line end there is nothing, or the beginning of a row
    for line in (*lines, rest):
        page.is_dcgm = page.is_dcgm or line.startswith(HEADS) or line.startswith(COMMENTS)
    for line in lines:
        if line.startswith(HEADS) and not take(page, line):
            page.broken += 1
    return page


def take(page: Page, line: str) -> bool:
    """Put one row into the page; False for what is no row."""
    name, brace, rest = line[:LINE].partition("{")
    end = rest.rfind("}")
    if not brace:
        return len(line.split()) in (2, 3)  # a row without labels: it is of no card
    found = VALUE.match(rest, end + 1) if end >= 0 else None
    labels = labelled(rest[:end])
    if found is None or labels is None:
        return False
    key, place = named(labels)
    index = labels.get("gpu", "")
    index = index if index.isdecimal() and len(index) < 5 else ""
    if labels.get("GPU_I_ID") or labels.get("UUID", "").startswith("MIG-"):
        if key and len(page.divided) < CARDS:
            page.divided[key] = index
    elif key and not any(labels.get(part) for part in PARTS):
        info = {"name": printable(labels.get("modelName", "")), "pci_bus_id": place}
        take_number(page, Card(key, index, {what: said for what, said in info.items() if said}), name.strip(), found[1])
    return True


def take_number(page: Page, card: Card, name: str, text: str) -> None:
    """Add one number to its card."""
    if card.key not in page.cards and len(page.cards) >= CARDS:
        page.is_foreign = True
        return
    page.cards.setdefault(card.key, card).texts.setdefault(name, text)  # a shared GPU has a row for each pod, with one value


def labelled(text: str) -> dict[str, str] | None:
    """Return the labels between the braces, None where they are not whole."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text) and len(labels) <= LABELS:
        found = LABEL.match(text, at)
        if found is None:
            return None
        labels[found[1]] = found[2]
        at = found.end()
    return labels


def named(labels: dict[str, str]) -> tuple[str, str]:
    """Return the key of the GPU that a row is of, "" where it names none, and its place on the bus."""
    address = address_of(labels.get("pci_bus_id", ""))
    place = "" if address is None else spelled(address)
    return unique(labels.get("UUID") or labels.get("uuid", "")) or place, place


def unique(text: str) -> str:
    """Return a UUID as NVML writes it, "" for what is none; other exporters leave out the "GPU-"."""
    bare = text.strip().lower().removeprefix("gpu-")
    return f"GPU-{bare}" if BARE.fullmatch(bare) else ""
