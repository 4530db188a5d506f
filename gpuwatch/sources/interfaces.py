"""Which network interfaces count, and what identifies one: for `host` (counters) and `network` (speed, link) alike.

Counted are those with a device behind them (Ethernet, InfiniBand, virtio, virtual functions) and bonds; the loopback, and
what containers, bridges, tunnels and VLANs add, would count the same bytes again or come and go by the hundred. Where no
interface has a device (in a container), all but the loopback count. At most LIMIT of them, in the order of their names.
"""

from pathlib import Path

from gpuwatch.catalogue.host import NETWORK
from gpuwatch.model.escape import printable
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs

LIMIT = 64


def counted(sys: Path, names: list[str] | None = None) -> list[str]:
    """Return the interfaces that count, out of `names` (default: those that sysfs shows); no file is opened for it."""
    folder = sys / "class/net"
    known = sorted(sysfs.entries(folder) if names is None else names)
    real = [name for name in known if any(sysfs.exists(folder / name / mark) for mark in ("device", "bonding"))]
    return (real or [name for name in known if name not in {"lo", "bonding_masters"}])[:LIMIT]


def target(name: str) -> Target:
    """Return an interface as the target of its readings."""
    shown = printable(name)
    return Target(subject=NETWORK, key=shown, labels={"interface": shown})
