"""What the driver leaves in the file system: its version, its nodes, its list of GPUs. Read without touching NVML."""

import os
import re
from pathlib import Path

import msgspec

from gpuwatch.config import Paths
from gpuwatch.model.clock import Clock
from gpuwatch.model.pci import Address, address_of
from gpuwatch.sources import sysfs
from gpuwatch.sources.nvml.verdicts import Traces

VERSION = re.compile(r"NVRM version: NVIDIA UNIX (?P<open>Open )?.*?(?P<version>\d{3,}\.\d+(?:\.\d+)?)")
UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
NODE = re.compile(r"nvidia\d+")
CONTAINER = (".dockerenv", "run/.containerenv")
LIBRARY = "libnvidia-ml.so.1"


def module(paths: Paths) -> tuple[str, str]:
    """Return version and kind ("open", "proprietary") of the loaded kernel module, ("", "") while none is loaded."""
    found = VERSION.search(sysfs.fact(Path(paths.proc) / "driver/nvidia/version"))
    if found is None:
        return "", ""
    return found["version"], "open" if found["open"] else "proprietary"


def collect(paths: Paths) -> Traces:
    """Look at all that bears on why NVML does not start."""
    names = sysfs.entries(paths.dev)
    root = Path(paths.root)
    return Traces(
        module=module(paths)[0] or None,
        nodes="nvidiactl" in names and any(NODE.fullmatch(name) for name in names),
        nouveau=(Path(paths.sys) / "module/nouveau").exists(),
        container=any((root / mark).exists() for mark in CONTAINER),
    )


class Watch:
    """Looks again and again, and so knows for how long the nodes have been missing in a row. Used from all threads.

    Nodes that it finds missing from the start have been missing since the module was loaded, as far as the kernel tells:
    a worker that is replaced does not wait for them anew.
    """

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        self._since: float | None = None
        self._has_looked = False

    def look(self) -> Traces:
        """Look at all that bears on why NVML does not start; a module that is not loaded lacks no nodes."""
        found = collect(self._paths)
        now = self._clock.mono()
        since = None
        if found.lacks_nodes:
            since = self._since
            if since is None:
                since = now if self._has_looked else now - loaded_for(self._paths, self._clock.wall())
        self._since, self._has_looked = since, True
        return found if since is None else msgspec.structs.replace(found, nodeless=now - since)


def loaded_for(paths: Paths, wall: float) -> float:
    """Return for how many seconds the module has been loaded at least, 0 where that cannot be told.

    The folder of a module is stamped when it is first looked up, which loading it does, and anew where the kernel had to forget
    it to save memory (fs/kernfs/inode.c). Not longer than the host has been up, in case the clock was set since.
    """
    try:
        stamp = os.stat(Path(paths.sys) / "module/nvidia").st_mtime  # noqa: PTH116 - Path.stat does the same
        uptime = float(sysfs.text(Path(paths.proc) / "uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, min(wall - stamp, uptime))


def listed(paths: Paths) -> dict[Address, str]:
    """Return the GPUs in the driver's own list, in PCI order, with the UUID where the driver knows it ("" else).

    The list is there for dead GPUs too; a UUID that was never read shows as question marks (nvml.md 1.2).
    """
    folder = Path(paths.proc) / "driver/nvidia/gpus"
    found: dict[Address, str] = {}
    for name in sysfs.entries(folder):
        where = address_of(name)
        if where is not None:
            uuid = UUID.search(sysfs.fact(folder / name / "information"))
            found[where] = uuid[0] if uuid else ""
    return dict(sorted(found.items()))


def numa_node(paths: Paths, bus_id: str) -> str:
    """Return the NUMA node next to a GPU, "" where the kernel names none (-1)."""
    node = sysfs.fact(Path(paths.sys) / "bus/pci/devices" / bus_id / "numa_node")
    return node if node.isdigit() else ""


def replaced(maps: Path = Path("/proc/self/maps")) -> bool:
    """Return whether the library that this process has mapped is no longer the one on disk.

    pynvml keeps the first file it mapped for the life of the process; only a new process gets the new one.
    """
    for line in sysfs.read(maps).decode("utf-8", "replace").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and "/libnvidia-ml.so" in parts[5]:
            mapped = parts[5]
            if mapped.endswith(" (deleted)"):
                return True
            link = Path(mapped).parent / LIBRARY
            return link.exists() and os.path.realpath(link) != mapped
    return False
