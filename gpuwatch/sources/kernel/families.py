"""Which family of patterns a message belongs to. Nearly all lines of a log belong to none, and that must cost little."""

import re

from gpuwatch.sources.kernel import gpu, host, pcie, programs, storage
from gpuwatch.sources.kernel.record import Found, Known, Record

STARTS = re.compile(
    r"(?P<pcie>pcieport |pci |NVRM: This PCI)"
    r"|(?P<gpu>NVRM: |nvidia-nvswitch|nvidia: |nouveau |NovaCore )"
    r"|(?P<storage>nvme |block |blk_|print_req|[Bb]uffer[ _][Ii]|I/O error|critical |timeout error|device offline|protection err"
    r"|recoverable tr|EXT[234]-fs|JBD2|Aborting j|XFS |BTRFS|btrfs_dev|F2FS|md/|nfs|NFS|fs:|WARNING: (?:Pool|MMP) |zio pool=)"
    r"|(?P<host>Out of mem|Memory cgroup out|oom-kill:|Task in |INFO: |rcu: |watchdog: |NMI watchdog|BUG: |Unable to h|Oops"
    r"|Panic#|general prot|kernel BUG|invalid opcode|Kernel panic|sysrq: |VFS: file-max|mce: |CPU\d|EDAC |thermal t|traps: "
    r"|\[Hardware|\{\d+\}\[Hard)"
)


def family(text: str) -> str:
    """Return the name of the family, "" for a message that none knows."""
    if " AER: " in text or ": PCIe Bus Error" in text or ": DPC: " in text or ": BAR " in text:
        return "pcie"
    found = STARTS.match(text)
    if found is not None:
        return found.lastgroup or ""
    return "host" if ": segfault at " in text or ": unhandled exception: " in text else ""


def find(message: Record, learned: Known) -> list[Found]:
    """Return what a whole message says, as far as its writer is to be believed."""
    text = message.text
    if not message.is_kernel:
        found = programs.find(text, message.program)
    else:
        match family(text):
            case "pcie":
                return pcie.find(text, learned)
            case "gpu":
                found = gpu.find(text, learned)
            case "storage":
                found = storage.find(text, learned)
            case "host":
                found = host.find(text, learned)
            case _:
                found = None
    return [found] if found else []
