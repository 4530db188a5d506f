"""PCI addresses and small facts as the kernel's lines spell them."""

from gpuwatch.model.pci import address_of, spelled

PCI = r"[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-9a-fA-F])?"


def gpu_address(text: str) -> str | None:
    """Return the address of a GPU or switch as the contract spells it (`0000:65:00.0`), None for what is no address."""
    found = address_of(text)
    return None if found is None else spelled(found)


def plain(number: str | None) -> str | None:
    """Return the number of a link or an instance without the zeros in front, as NVML has it; lines say `Link 04`, `GPU-I:05`."""
    return str(int(number)) if number else None


def known(**facts: str | None) -> dict[str, str]:
    """Return those facts that the line told; the driver writes `<unknown>` for a process that it cannot name."""
    return {name: text for name, text in facts.items() if text and text != "<unknown>"}
