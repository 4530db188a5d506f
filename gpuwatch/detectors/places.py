"""Which GPU an event is of: NVML names it by UUID, the kernel by its PCI address, or by that of a port above it."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue.derived import EXPECTED
from gpuwatch.catalogue.events import PORT
from gpuwatch.catalogue.gpu import GPU, GPUS, VISIBLE
from gpuwatch.catalogue.host import PCI
from gpuwatch.detectors.detector import measured
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.model.order import natural
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

WAIT = 30.0  # seconds for which GPUs come one by one after NVML has begun to answer, and for which an event waits for its GPU
SOON = 3.0  # seconds for which one waits where all GPUs are there that can come: NVML counts them anew meanwhile
FORGET = 7200.0  # seconds after which a GPU that nobody lists any more is forgotten, with its counts
NUMBERED = " (the driver's own number, which need not be NVML's index)"
ON_THE_BUS = "aer_"  # kinds that are told of whichever device on the path had the error


class Card(msgspec.Struct):
    """One GPU, there or gone."""

    labels: dict[str, str]
    info: dict[str, str]
    seen: float  # the detector's own clock

    @property
    def pci(self) -> str:
        """Its address on the bus as sysfs writes it, "" where it is not known."""
        return self.info.get("pci_bus_id", "")


class Places(msgspec.Struct):
    """All GPUs by key, also those that are gone, and which of them lie below each port of the bus."""

    cards: dict[str, Card] = {}
    above: dict[str, str] = {}  # address of a GPU of this boot -> those of the ports above it, as sysfs has them
    below: dict[str, list[str]] = {}  # address of a port -> those of the GPUs below it: one, or below a switch several
    boot: str = ""
    answers_since: float | None = None  # the detector's own clock; None while NVML does not answer (a start, a release)
    is_whole: bool = False  # NVML lists every GPU that there should be, so that it numbers them as the driver did when it began

    def learn(self, view: View, clock: float, *, boot: str, answers: bool) -> list[str]:
        """Take in what a view shows; returns the GPUs that nobody has listed for long, which are forgotten."""
        for entry in view.of(GPU):
            target = entry.target
            if entry.readings and not target.key.startswith("missing-"):  # those are placeholders of the inventory
                self.cards[target.key] = Card(dict(target.labels), dict(target.info), clock)
        if boot and boot != self.boot:  # the numbers of a bus are given anew
            self.boot, self.above, self.below = boot, {}, {}
        seen = {entry.target.key: entry.target.info.get("ports", "") for entry in view.of(PCI)}
        if any(self.above.get(key) != ports for key, ports in seen.items()):
            self.above |= seen
            self.below = {}
            for key, ports in self.above.items():
                for port in ports.split():
                    self.below.setdefault(port, []).append(key)
        self.answers_since = None if not answers else clock if self.answers_since is None else self.answers_since
        self.is_whole = all_listed(view)
        gone = [key for key, card in self.cards.items() if clock - card.seen > FORGET]
        for key in gone:
            del self.cards[key]
        return gone

    def has_all(self, view: View, clock: float) -> bool:
        """Say whether every GPU is there that can come: not so at the start, during a release, while NVML opens one by one."""
        if self.answers_since is None:
            return False
        counted = next((entry.values.get(VISIBLE["nvml"]) for entry in view.of(GPUS)), None)
        shown = sum(bool(measured(entry)) for entry in view.of(GPU))
        return (counted is not None and counted <= shown and bool(self.above)) or clock - self.answers_since >= WAIT

    def target(self, key: str) -> Target:
        """Return the target of a GPU; one that NVML never opened goes by its address."""
        card = self.cards.get(key)
        if card is not None:
            return Target(subject=GPU, key=key, labels=card.labels, info=card.info)
        return Target(subject=GPU, key=key, labels={"gpu": key, "uuid": key}, info={"pci_bus_id": key} if ":" in key else {})

    def at(self, address: str) -> str:
        """Return the key of the GPU at an address, that of the one that was heard of last; "" where none is known."""
        found = [(card.seen, key) for key, card in self.cards.items() if card.pci == address]
        return max(found)[1] if found else ""

    def place(self, event: Event) -> Event | None:
        """Return the event with the key of its GPU; None where that GPU may yet turn out."""
        if event.kind.startswith(ON_THE_BUS):
            return self.on_the_bus(event)
        if event.subject != GPU.name or event.key in self.cards:
            return event
        uuid, index = event.facts.get("uuid", ""), event.facts.get("index", "")
        where = spelled_as_sysfs(event.key)
        key = uuid if uuid in self.cards else self.at(where)
        if not key and index and not event.key and self.is_whole:
            key = max(((card.seen, key) for key, card in self.cards.items() if card.labels.get("gpu") == index), default=(0, ""))[
                1
            ]
        return replace(event, key=key) if key else None

    def on_the_bus(self, event: Event) -> Event | None:
        """Return an error of the bus as one of the GPU on whose path it is, or of the port; None where it may yet turn out.

        A port above a switch has several GPUs below it: the error is that of none of them.
        """
        where = spelled_as_sysfs(event.key)
        port = event.key if event.key in self.below else where
        below = self.below.get(port, [])
        key = self.at(where) or (self.at(below[0]) if len(below) == 1 else "")
        if key:
            return replace(event, subject=GPU.name, key=key)
        if not self.above or len(below) == 1:
            return None
        return replace(event, subject=PORT.name, key=port) if below else event

    def path(self, port: str) -> str:
        """Return in words which GPUs lie below a port."""
        keys = {address: self.at(address) for address in self.below.get(port, ())}
        numbers = [self.cards[key].labels.get("gpu", key) if key else address for address, key in keys.items()]
        return f"GPUs {', '.join(sorted(numbers, key=natural))}"


def all_listed(view: View) -> bool:
    """Say whether NVML lists as many GPUs as the inventory and the bus have: after a drop its indexes are others' by one.

    Where it sees only some (a container, a GPU given to a virtual machine), the driver's numbers are not its indexes either.
    """
    for entry in view.of(GPUS):
        counts = [entry.values.get(metric) for metric in (VISIBLE["nvml"], VISIBLE["pci"], EXPECTED)]
        return None not in counts and len(set(counts)) == 1
    return False


def spelled_as_sysfs(address: str) -> str:
    """Return a PCI address of a GPU as its target has it; what is none stays as it is."""
    found = address_of(address)
    return address if found is None else spelled(found)


def settled(event: Event) -> Event:
    """Return an event whose GPU has not turned out, under the address or the number that it came with."""
    if event.subject != GPU.name:
        return event
    index = event.facts.get("index", "")
    if index and not event.key:
        words = f"{event.words[: WORDS_LIMIT - len(NUMBERED)]}{NUMBERED}"
        return replace(event, words=words)
    return replace(event, key=spelled_as_sysfs(event.key))


def renamed(keys: Iterable[str], places: Places) -> dict[str, str]:
    """Return the GPUs that were known by their address only and have a UUID now: old key -> new key."""
    found = {key: places.at(key) for key in keys if ":" in key and key not in places.cards}
    return {old: new for old, new in found.items() if new}
