"""Which cards the indexes are that NVML counts but does not open: by the driver's own list, else by the PCI bus."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.model.pci import Address, address_of, spelled
from gpuwatch.sources import pci, sysfs
from gpuwatch.sources.nvml import traces
from gpuwatch.sources.nvml.identity import Identity, placed


def nameless(config: Config, places: Mapping[int, Address], indexes: Sequence[int], count: int) -> dict[int, Identity]:
    """Return who these indexes are, without those of which the lists leave a doubt. `places` has the addresses that are known.

    NVML numbers GPUs in the order of their PCI addresses: the addresses that no other index has belong to these, if there are
    as many of them; where there are more (a container sees some of the cards), those between two known neighbours may be.
    """
    names = traces.listed(config.paths)
    found = {index: places[index] for index in indexes if index in places}
    for cards in (names, on_bus(config)):
        left = [address for address in cards if address not in places.values() and address not in found.values()]
        open_ = [index for index in indexes if index not in found]
        if left and len(left) == len(open_):
            found |= zip(open_, left, strict=True)
        elif ascending(places):
            for run in runs(open_):
                found |= between(run, left, places, count)
    return {
        index: Identity(key=names.get(address) or spelled(address), address=address, info=placed(address, config))
        for index, address in found.items()
    }


def ascending(places: Mapping[int, Address]) -> bool:
    """Return whether NVML's order is that of the addresses, as it should be."""
    known = [places[index] for index in sorted(places)]
    return known == sorted(known)


def runs(indexes: Sequence[int]) -> list[list[int]]:
    """Return the indexes in groups that follow one another without a gap."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and found[-1][-1] == index - 1:
            found[-1].append(index)
        else:
            found.append([index])
    return found


def between(run: Sequence[int], left: Sequence[Address], places: Mapping[int, Address], count: int) -> dict[int, Address]:
    """Return the addresses of a run of indexes, if as many are left between its neighbours as it has indexes."""
    first, last = run[0], run[-1]
    if (first > 0 and first - 1 not in places) or (last + 1 < count and last + 1 not in places):
        return {}
    low, high = places.get(first - 1), places.get(last + 1)
    fitting = [address for address in left if (low is None or low < address) and (high is None or address < high)]
    return dict(zip(run, fitting, strict=True)) if len(fitting) == len(run) else {}


def on_bus(config: Config) -> dict[Address, str]:
    """Return the addresses of NVIDIA's GPUs on the PCI bus, in order; the bus knows no UUIDs."""
    folder = Path(config.paths.sys) / "bus/pci/devices"
    found = {address_of(name) for name in sysfs.entries(folder) if pci.is_gpu(folder / name)}
    return dict.fromkeys(sorted(address for address in found if address is not None), "")
