"""What programs say in a saved log that the kernel does not: the fabric manager's errors, a module that is not there.

Only for logs that somebody hands to `gpuwatch events --file`: the running daemon believes the kernel alone.
"""

import re

from gpuwatch.model.alert import Severity
from gpuwatch.sources.kernel.addresses import PCI, gpu_address, known, plain
from gpuwatch.sources.kernel.record import Found

FABRIC = re.compile(
    rf"detected NVSwitch (non-fatal|fatal) error (\d{{1,9}}) on fid \d+ on NVSwitch pci bus id ({PCI})"
    r"(?: physical id \d+)?(?: port (\d+))?"
)
LOADERS = frozenset({"systemd-modules-load", "modprobe", "kmod"})
MISSING = re.compile(
    r"(?:modprobe: )?(?:FATAL: )?(?:Failed to find module 'nvidia'|Module nvidia not found)(?: in directory \S*?([^/\s]+)$)?"
)


def find(text: str, program: str) -> Found | None:
    """Return what this message of a program says."""
    if program == "fabricmanager":
        return of_fabric(text)
    missing = MISSING.match(text) if program in LOADERS else None
    return Found("no_driver", Severity.CRITICAL, facts={"why": "missing", **known(kernel=missing[1])}) if missing else None


def of_fabric(text: str) -> Found | None:
    """Read an error of a switch, as the fabric manager tells it."""
    found = FABRIC.match(text)
    address = gpu_address(found[3]) if found else None
    if found is None or address is None:
        return None
    is_fatal = found[1] == "fatal"
    facts = {"fatal": "yes" if is_fatal else "no", **known(link=plain(found[4]))}
    return Found("sxid", Severity.CRITICAL if is_fatal else Severity.INFO, address, int(found[2]), facts)
