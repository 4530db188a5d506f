"""What `dcgmi` prints: the rows of `dmon`, and which GPU has which number in `discovery -l`. Neither is made for programs.

dmon prints a head (`#Entity   SMACT   ...`, before 3.0 `# Entity ...`) that comes again every 14 rows, a line of units that
begins with ID, and a row an entity. What it does not know is N/A, and a value wider than its column is cut with dots
(DeviceMonitor.cpp): both are no values.
"""

from gpuwatch.model.escape import printable
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.sources.dcgm.fields import PROFILING, Field
from gpuwatch.sources.dcgm.page import CARDS, Card, unique

HEADINGS = {heading: field for heading, _, field in PROFILING.values()}
CUT = "..."
ROWS = 10_000
Row = list[tuple[Field, str]]


def rows(text: str) -> dict[str, Row]:
    """Return the values of each whole GPU by its number, the last row that has any; MIG instances (GPU-I) are left out."""
    columns: list[Field | None] = []
    found: dict[str, Row] = {}
    for line in whole(text):
        words = line.replace("#", " ", 1).split() if line.lstrip().startswith("#") else line.split()
        if not words:
            continue
        if words[0] == "Entity":
            columns = [HEADINGS.get(word) for word in words[1:]]
        elif words[0] == "GPU" and len(words) == len(columns) + 2 and words[1].isdecimal():  # a row that is shifted is none
            row = [(field, value) for field, value in zip(columns, words[2:], strict=True) if field and not value.endswith(CUT)]
            is_blank = all(value == "N/A" for _, value in row)
            if (not is_blank or words[1] not in found) and (words[1] in found or len(found) < CARDS):
                found[words[1]] = row
    return found


def cards(text: str) -> dict[str, Card]:
    """Return the GPUs that `discovery -l` lists, by number; one without UUID and PCI address cannot be told apart."""
    found: dict[str, Card] = {}
    facts: dict[str, str] = {}
    index = ""
    for line in whole(text):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("+") or len(cells) != 2:
            card = made(index, facts)
            if card is not None and len(found) < CARDS:
                found[index] = card
            index, facts = "", {}
            continue
        if cells[0].isdecimal():
            index, facts = cells[0], {}
        what, _, said = cells[1].partition(":")
        facts[what.strip()] = said.strip()
    return found


def whole(text: str) -> list[str]:
    """Return the lines that have an end: a value that is cut looks like a smaller one."""
    return text.split("\n")[:-1][:ROWS]


def made(index: str, facts: dict[str, str]) -> Card | None:
    """Return a GPU of the list, None where it has no name that others know."""
    address = address_of(facts.get("PCI Bus ID", ""))
    place = "" if address is None else spelled(address)
    key = unique(facts.get("Device UUID", "")) or place
    if not index or not key:
        return None
    info = {"name": printable(facts.get("Name", "")), "pci_bus_id": place}
    return Card(key, index, {what: said for what, said in info.items() if said})
