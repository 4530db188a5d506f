"""What the kernel counts of the host's CPU and memory in sysfs: throttling for heat, memory errors. No device is asked."""

import re
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.catalogue.host import CPU_THROTTLES, MEMORY_ERRORS
from gpuwatch.model.metric import Metric
from gpuwatch.sources import sysfs

CPU = re.compile(r"cpu\d+")
CONTROLLER = re.compile(r"mc\d+")


def throttles(sys: Path) -> dict[Metric, float]:
    """Return how often the CPU slowed itself down, for cores and for packages; raises OSError where nothing counts that.

    Every logical CPU has both files. The threads of a core tell of the same heat, and all CPUs of a package of that of
    the package, so that each core and each package counts once, with the highest number that one of its CPUs gives.
    """
    folder = sys / "devices/system/cpu"
    cores: dict[str, int] = {}
    packages: dict[str, int] = {}
    denied: OSError | None = None
    for cpu in filter(CPU.fullmatch, sysfs.names(folder)):
        topology, counts = folder / cpu / "topology", folder / cpu / "thermal_throttle"
        package = sysfs.trait(topology / "physical_package_id")
        core = f"{package}:{sysfs.trait(topology / 'core_id') or cpu}"
        try:
            cores[core] = max(cores.get(core, 0), sysfs.number(counts / "core_throttle_count"))
            packages[package] = max(packages.get(package, 0), sysfs.number(counts / "package_throttle_count"))
        except FileNotFoundError:
            continue  # AMD, virtual machines, a CPU that is offline
        except OSError as error:
            denied = error
    if denied is not None:
        raise denied
    return {CPU_THROTTLES[scope]: float(sum(of.values())) for scope, of in (("core", cores), ("package", packages)) if of}


def memory_errors(sys: Path) -> dict[Metric, float]:
    """Return the errors of the host's memory over all its controllers (EDAC); raises OSError where nothing counts them."""
    folder = sys / "devices/system/edac/mc"
    controllers = [folder / name for name in filter(CONTROLLER.fullmatch, sysfs.names(folder))]
    if not controllers:  # the module is loaded and found no controller
        return {}
    return {
        MEMORY_ERRORS["corrected"]: summed(controller / "ce_count" for controller in controllers),
        MEMORY_ERRORS["uncorrected"]: summed(controller / "ue_count" for controller in controllers),
    }


def summed(files: Iterable[Path]) -> float:
    """Return the sum of all files: a sum with a part missing would step back."""
    return float(sum(sysfs.number(file) for file in files))
