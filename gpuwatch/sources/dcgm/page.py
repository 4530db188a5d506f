"""What stands on the page of a dcgm-exporter (Prometheus text), GPU by GPU; a broken line costs itself and nothing else.

Written by hand since Prometheus' own parser refuses a page as a whole for one bad line. A row counts for a card when its labels
name one and nothing else: rows of MIG instances, links, switches and CPUs are told apart and never mixed into a card's.
"""

import re
from collections.abc import Mapping

import msgspec

from gpuwatch.model.escape import printable
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.sources.dcgm.fields import FIELDS, HEADS, PERCENT_OR_RATIO, Field, find

CARDS = 64  # on one host; a page with more is that of a cluster
INSTANCES = CARDS * 7
LINES = 65_536  # of a page; 8 GPUs with 7 instances each and 300 fields have 17,000
LINE = 16 << 10  # characters; one row with the labels of a pod has some hundred
LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\Z)')
LABELS = 64  # of one row
VALUE = re.compile(r"\s*(\S+)(?:\s+-?[0-9]+)?\s*\Z")  # and perhaps a time
BARE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NAMES = FIELDS.keys() | PERCENT_OR_RATIO.keys()
MARKS = (*HEADS, *(f"# {kind} {head}" for kind in ("HELP", "TYPE") for head in HEADS))
PARTS = ("GPU_I_ID", "GPU_I_PROFILE", "nvlink", "nvswitch", "cpu", "cpucore", "vgpu")  # labels of what is no whole card


class Card(msgspec.Struct):
    """One GPU as the page names it, and the numbers that it has of it: as text, by name of the field."""

    key: str
    index: str  # DCGM's own number, "" where the page has none
    info: dict[str, str]
    texts: dict[str, str] = {}


class Instance(msgspec.Struct):
    """A GPU instance of MIG: the GPU that it is a part of, and its number there ("" where the page has none)."""

    key: str
    index: str
    number: str
    profile: str
    texts: dict[str, str] = {}


class Other(msgspec.Struct, frozen=True):
    """What is no GPU of ours: a switch, a link, a CPU, or a GPU without a name."""


Owner = Card | Instance | Other | None


class Page(msgspec.Struct):
    """A page that was understood, as far as that goes."""

    cards: dict[str, Card] = {}
    divided: dict[str, str] = {}  # GPUs that have rows of MIG instances: key -> index
    instances: dict[tuple[str, str], Instance] = {}  # by key of the GPU and number
    is_dcgm: bool = False
    is_cut: bool = False  # it does not end with the end of a line: what came last is not trusted
    is_foreign: bool = False  # too many cards or lines for one host
    broken: int = 0  # lines with a name of DCGM that are no rows


def understood(texts: Mapping[str, str]) -> list[tuple[Field, str]]:
    """Return the numbers of a card or an instance with what they mean."""
    return [(found, text) for name, text in texts.items() if (found := find(name, text)) is not None]


def parse(text: str) -> Page:
    """Read a page; never raises, whatever it is."""
    if text.count("\n") > LINES:
        return Page(is_foreign=True)
    page = Page(is_cut=bool(text) and not text.endswith("\n"))
    *lines, rest = text.split("\n")  # after the last line end there is nothing, or the beginning of a row
    page.is_dcgm = rest.startswith(MARKS) or any(line.startswith(MARKS) for line in lines)
    owners: dict[str, Owner] = {}  # all rows of a GPU have the same labels, so they are taken apart once
    for line in lines:
        if line.startswith(HEADS) and not take(page, line, owners):
            page.broken += 1
    return page


def take(page: Page, line: str, owners: dict[str, Owner]) -> bool:
    """Put one row into the page; False for what is no row."""
    name, brace, rest = line[:LINE].partition("{")
    name = name.strip()
    if name not in NAMES:
        return True  # of no use, so what is wrong with it does not matter
    end = rest.rfind("}")
    found = VALUE.match(rest, end + 1) if brace and end >= 0 else None
    if found is None:
        return False
    owner = owners.get(rest[:end])
    if owner is None:
        owner = owners[rest[:end]] = owner_of(rest[:end])
    match owner:
        case None:
            return False
        case Card():
            if owner.key not in page.cards and len(page.cards) >= CARDS:
                page.is_foreign = True
            else:  # a GPU that is shared has a row for each pod, with one value: the first counts
                page.cards.setdefault(owner.key, owner).texts.setdefault(name, found[1])
        case Instance():
            page.divided.setdefault(owner.key, owner.index)
            if owner.number and len(page.instances) < INSTANCES:
                page.instances.setdefault((owner.key, owner.number), owner).texts.setdefault(name, found[1])
        case Other():
            pass
    return True


def owner_of(text: str) -> Owner:
    """Return of what the rows with these labels are, None where the labels are not whole."""
    labels = labelled(text)
    if labels is None:
        return None
    address = address_of(labels.get("pci_bus_id", ""))
    place = "" if address is None else spelled(address)
    key = unique(labels.get("UUID") or labels.get("uuid", "")) or place
    index = labels.get("gpu", "")
    index = index if index.isdecimal() and len(index) < 5 else ""
    if key and (labels.get("GPU_I_ID") or labels.get("UUID", "").startswith("MIG-")):
        number = labels.get("GPU_I_ID", "")
        number = str(int(number)) if number.isdecimal() and len(number) < 5 else ""
        return Instance(key, index, number, printable(labels.get("GPU_I_PROFILE", "")))
    if not key or any(labels.get(part) for part in PARTS):
        return Other()
    info = {"name": printable(labels.get("modelName", "")), "pci_bus_id": place}
    return Card(key, index, {what: said for what, said in info.items() if said})


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


def unique(text: str) -> str:
    """Return a UUID as NVML writes it, "" for what is none; other exporters leave out the "GPU-"."""
    bare = text.strip().lower().removeprefix("gpu-")
    return f"GPU-{bare}" if BARE.fullmatch(bare) else ""
