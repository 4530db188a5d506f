"""PCI addresses, which everybody spells in another way."""

import re

ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-9a-f])?", re.IGNORECASE)
Address = tuple[int, int, int]


def address_of(text: str) -> Address | None:
    """Return a PCI address in any of its spellings as (domain, bus, device), None for what is none.

    NVML writes `00000000:65:00.0`, sysfs `0000:65:00.0`, Xid lines `0000:65:00`, lspci `65:00.0`.
    """
    found = ADDRESS.fullmatch(text.strip())
    return None if found is None else (int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16))


def spelled(found: Address) -> str:
    """Return a PCI address as sysfs writes it."""
    domain, bus, device = found
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
