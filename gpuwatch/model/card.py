"""Which GPU a person means: by its index, its UUID, or its PCI address in any spelling. Every command and page finds it here."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from gpuwatch.model.pci import address_of


class Card(Protocol):
    """A GPU, of now or of the history."""

    @property
    def key(self) -> str:
        """What its events and rows are kept under."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Its index and UUID."""
        ...

    @property
    def info(self) -> Mapping[str, str]:
        """Its address on the bus, among others."""
        ...


def meant(text: str, cards: Iterable[Card]) -> list[str]:
    """Return the keys of those GPUs that are called so; several where one took the place of another."""
    address, name = address_of(text), text.strip().lower()
    return [
        card.key
        for card in cards
        if name in {card.key.lower(), card.labels.get("gpu", "").lower(), card.labels.get("uuid", "").lower()}
        or (address is not None and address in {address_of(card.info.get("pci_bus_id", "")), address_of(card.key)})
    ]
