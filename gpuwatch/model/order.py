"""The order in which things are told: as people count them, GPU 2 before GPU 10."""

import re
from collections.abc import Mapping

from gpuwatch.model.pci import address_of, spelled

NUMBER = re.compile(r"([0-9]{1,18})")  # Python refuses to read a number of thousands of digits
Words = tuple[str | int, ...]  # text and number in turn, text first


def natural(text: str) -> Words:
    """Return what to sort a text by: numbers in it count as numbers, but for those of a PCI address, which are hexadecimal."""
    address = address_of(text)
    if address is not None:
        return (spelled(address),)
    return tuple([int(part) if place % 2 else part for place, part in enumerate(NUMBER.split(text))])


def place_of(labels: Mapping[str, str]) -> tuple[Words, ...]:
    """Return what to sort the targets of one subject by: their labels as declared, of a GPU its index first."""
    return tuple([natural(value) for value in labels.values()])
