"""What the next boot, and the next CUDA program, will find on disk: an nvidia module for its kernel, a library that fits.

Only on a host that has GPUs and their module loaded now: it has something to lose. Nothing is said of a container, whose files
are not those of the host. In the probe worker: a dead disk holds these reads up.
"""

from pathlib import Path

from gpuwatch.catalogue.gpu import DRIVER_LIBRARY, DRIVER_LIBRARY_CHANGED, NEXT_BOOT, NEXT_BOOT_DRIVER_MISSING
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import installers, sysfs
from gpuwatch.sources.look import Look
from gpuwatch.sources.nextboot import grub, kernels, library
from gpuwatch.sources.pci import is_gpu
from gpuwatch.sources.source import Answer, Source

SOURCE = "nextboot"
KERNELS, LIBRARY = "kernels", "driver library"  # what may hang
CONTAINER = (".dockerenv", "run/.containerenv")
BUILDING = 900.0  # seconds in which DKMS has a module for a kernel that is new (operator.md S2)


class NextBoot:
    """The kernel that boots next, and the library on disk."""

    def __init__(self, config: Config, clock: Clock) -> None:
        paths = config.paths
        self._proc, self._sys, self._root = Path(paths.proc), Path(paths.sys), Path(paths.root)
        self._clock = clock

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Look at both, once a slow round."""
        if tier is Tier.SLOW and self._has_driver():
            if KERNELS in skip:
                answer.reading(self._late(Target(subject=NEXT_BOOT, key=""), NEXT_BOOT_DRIVER_MISSING))
            else:
                answer.working(KERNELS)
                answer.reading(self._kernel())
            if LIBRARY in skip:
                answer.reading(self._late(Target(subject=DRIVER_LIBRARY, key=""), DRIVER_LIBRARY_CHANGED))
            else:
                answer.working(LIBRARY)
                answer.reading(self._library())
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _has_driver(self) -> bool:
        """Say whether this is a host with GPUs of NVIDIA whose module is loaded."""
        if any(sysfs.exists(self._root / mark) for mark in CONTAINER) or not sysfs.exists(self._sys / "module/nvidia/version"):
            return False
        devices = self._sys / "bus/pci/devices"
        try:
            return any(is_gpu(devices / name) for name in sysfs.names(devices))
        except OSError:
            return False

    def _late(self, target: Target, metric: Metric) -> Reading:
        """Return what is to be said while an earlier look does not return."""
        look = Look(SOURCE, Tier.SLOW, target, self._clock)
        look.lack([metric], Absence.LATE)
        return look.reading()

    def _kernel(self) -> Reading:
        """Return whether the next kernel has the module, and which one it is."""
        modules = kernels.modules(self._root)
        installed = kernels.installed(self._root / "boot", modules)
        told = grub.default(self._root, installed)
        release = told or max(installed, key=kernels.order, default="")
        info = {
            "running_kernel": sysfs.fact(self._proc / "sys/kernel/osrelease"),
            "next_kernel": release,
            "chosen_by": "grub" if told else "newest",
        }
        look = Look(SOURCE, Tier.SLOW, Target(subject=NEXT_BOOT, key="", info=info if release else {}), self._clock)
        if release:
            look.take(NEXT_BOOT_DRIVER_MISSING, lambda: self._lacks(modules / release, installed[release]))
        else:  # kernels of this host are not where anybody else has them
            look.lack([NEXT_BOOT_DRIVER_MISSING], Absence.UNSUPPORTED)
        return look.reading()

    def _lacks(self, folder: Path, since: float) -> float | None:
        """Return whether a kernel has no module; None while one may be on its way. Raises OSError."""
        if kernels.has_driver(self._root, folder):
            return 0.0
        is_new = 0 <= self._clock.wall() - since < BUILDING
        if (is_new and kernels.are_built_for(self._root)) or installers.at_work(self._proc, self._root):
            return None
        return 1.0

    def _library(self) -> Reading:
        """Return whether the library on disk and the loaded module differ, and their versions."""
        found, loaded = library.version(self._root), sysfs.fact(self._sys / "module/nvidia/version")
        info = {"library_version": found, "module_version": loaded} if found and loaded else {}
        look = Look(SOURCE, Tier.SLOW, Target(subject=DRIVER_LIBRARY, key="", info=info), self._clock)
        if info:
            look.take(DRIVER_LIBRARY_CHANGED, lambda: self._differs(found, loaded))
        else:
            look.lack([DRIVER_LIBRARY_CHANGED], Absence.UNSUPPORTED)
        return look.reading()

    def _differs(self, found: str, loaded: str) -> float | None:
        """Return whether a library does not fit the loaded module; None while the driver is being installed."""
        if found == loaded:
            return 0.0
        return None if installers.at_work(self._proc, self._root) else 1.0


def source(config: Config, clock: Clock) -> Source:
    """Return the next boot as a source."""
    return NextBoot(config, clock)
