"""Who a GPU is: its key, its labels and its text facts, read when it is opened."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.config import Config
from gpuwatch.model.pci import Address, address_of, spelled
from gpuwatch.model.target import Target
from gpuwatch.sources.nvml import bindings, traces, verdicts
from gpuwatch.sources.nvml.library import CallError, Library

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
TEXTS = {
    "name": "nvmlDeviceGetName",
    "serial": "nvmlDeviceGetSerial",
    "part_number": "nvmlDeviceGetBoardPartNumber",
    "vbios_version": "nvmlDeviceGetVbiosVersion",
    "inforom_version": "nvmlDeviceGetInforomImageVersion",
}
INTEGRATED = ("nvgpu", "tegra", "jetson", "orin", "xavier", "thor", "gb10")  # parts that share the host's memory


class Identity(msgspec.Struct, frozen=True):
    """One GPU as NVML introduced it: key, PCI address (None for integrated parts), text facts."""

    key: str
    address: Address | None
    info: Mapping[str, str]

    def target(self, index: int) -> Target:
        """Return the target of this GPU's readings while it has this NVML index."""
        return target(self.key, index, self.info)

    @property
    def integrated(self) -> bool:
        """Whether this part is known to have no memory of its own."""
        name = self.info.get("name", "").lower()
        return any(word in name for word in INTEGRATED)


def target(key: str, index: int, info: Mapping[str, str]) -> Target:
    """Return a GPU as a target."""
    return Target(subject=GPU, key=key, labels={"gpu": str(index), "uuid": key}, info=info)


def identify(library: Library, handle: Any, index: int, config: Config, address: Address | None) -> Identity:
    """Ask a GPU who it is; raises CallError where it does not say. Other facts that it does not know are left out."""
    uuid = unique(library, handle)
    info = {name: text for name, function in TEXTS.items() if (text := library.text(function, handle)) not in ("", "N/A")}
    architecture = number(library, "nvmlDeviceGetArchitecture", handle)
    if architecture is not None:
        info["architecture"] = ARCHITECTURES.get(architecture, str(architecture))
    minor = number(library, "nvmlDeviceGetMinorNumber", handle)
    if minor is not None:
        info["minor"] = str(minor)
    try:
        info["compute_capability"] = "{}.{}".format(*library.named("nvmlDeviceGetCudaComputeCapability", handle))
    except CallError as error:
        reraise(error)
    info |= placed(address, config)
    return Identity(key=key(uuid, address, index), address=address, info=info)


def unique(library: Library, handle: Any) -> str:
    """Return the UUID, "" where this part has none; raises CallError where it did not answer now."""
    function = library.find("nvmlDeviceGetUUID")
    try:
        return str(library.call(bindings.text, function, handle))
    except CallError as error:
        if error.code in (*verdicts.PERMANENT, verdicts.CORRUPTED_INFOROM):
            return ""
        raise


def placed(address: Address | None, config: Config) -> dict[str, str]:
    """Return what follows from a GPU's place: address, NUMA node, and the operator's own name for the slot."""
    if address is None:
        return {}
    bus_id = spelled(address)
    facts = {"pci_bus_id": bus_id, "numa_node": traces.numa_node(config.paths, bus_id), "label": label(address, config)}
    return {name: text for name, text in facts.items() if text}


def key(uuid: str, address: Address | None, index: int) -> str:
    """Return the key: the UUID where it is one, else the PCI address; an integrated part may have neither."""
    if uuid.startswith(("GPU-", "MIG-")) and uuid.isascii() and uuid.replace("-", "").isalnum():
        return uuid
    return spelled(address) if address is not None else f"index-{index}"


def label(address: Address, config: Config) -> str:
    """Return the operator's name of the GPU at this address, in whatever spelling the configuration has it."""
    gpu = config.gpus.get(spelled(address))
    return gpu.label if gpu else ""


def pci_address(library: Library, handle: Any) -> Address | None:
    """Return where a GPU sits; an integrated part answers NOT_SUPPORTED or "N/A"."""
    try:
        pci = library.named("nvmlDeviceGetPciInfo", handle)
    except CallError as error:
        reraise(error)
        return None
    found = address_of(bindings.text(lambda: pci.busId))  # pynvml decodes it when it is looked at
    if found is None and (pci.bus or pci.device):  # the text is damaged, the numbers beside it may not be
        found = (int(pci.domain), int(pci.bus), int(pci.device))
    return found


def number(library: Library, function: str, handle: Any) -> int | None:
    """Return a number, None where the driver does not answer or does not know."""
    try:
        found = int(library.named(function, handle))
    except CallError as error:
        reraise(error)
        return None
    return None if found == 0xFFFFFFFF else found


def reraise(error: CallError) -> None:
    """Let through what ends the whole look, and swallow what ends one call."""
    if type(error) is not CallError:
        raise error
