"""Which cards the indexes are that NVML counts but does not open: by the driver's own list, else by the PCI bus."""

from collections.abc import Collection, Sequence
from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.model.pci import Address, address_of, spelled
from gpuwatch.sources import pci, sysfs
from gpuwatch.sources.nvml import traces
from gpuwatch.sources.nvml.identity import Identity, placed


def nameless(config: Config, taken: Collection[Address | None], indexes: Sequence[int]) -> dict[int, Identity]:
    """Return who these indexes are, none of them where the lists leave a doubt.

    NVML numbers GPUs in the order of their PCI addresses: the addresses that no open GPU has belong to the indexes that
    are not open, if there are as many of them.
    """
    for cards in (traces.listed(config.paths), on_bus(config)):
        left = [address for address in cards if address not in taken]
        if left and len(left) == len(indexes):
            return {
                index: Identity(key=cards[address] or spelled(address), address=address, info=placed(address, config))
                for index, address in zip(indexes, left, strict=True)
            }
    return {}


def on_bus(config: Config) -> dict[Address, str]:
    """Return the addresses of NVIDIA's GPUs on the PCI bus, in order; the bus knows no UUIDs."""
    folder = Path(config.paths.sys) / "bus/pci/devices"
    found = {address_of(name) for name in sysfs.entries(folder) if pci.is_gpu(folder / name)}
    return dict.fromkeys(sorted(address for address in found if address is not None), "")
