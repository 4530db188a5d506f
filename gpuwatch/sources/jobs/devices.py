"""Whether the device rules of a container name the GPUs that it uses (failure-modes.md 5.14), as seen from the host.

Where the NVIDIA runtime has written the rules behind systemd's back, the next `systemctl daemon-reload` (unattended upgrades do
one) takes the devices away, and every call in the container fails from then on while the host is well. cgroup v1 shows the
rules in force; those of v2 are a program in the kernel that nobody can read, but systemd's list of a scope says what it will set.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.home import SYSTEMD, UNIFIED, Home, own_group
from gpuwatch.sources.jobs.limits import Hierarchies

NVIDIA = "195"  # major number of /dev/nvidia* (Documentation/admin-guide/devices.txt)
RULE = re.compile(r"(?:a|c (?:\*|195):\S+) ", re.MULTILINE)  # `a *:* rwm` allows everything
ALLOWED = re.compile(r"^DeviceAllow=(?:/dev/char/195:(\d+)|/dev/nvidia\S*|char-nvidia\S*|char-\*)(?:\s|$)", re.MULTILINE)
AGAIN = re.compile(r"^DeviceAllow=[ \t]*$", re.MULTILINE)  # empties the list (systemd.resource-control(5))
STRICT = re.compile(r"^DevicePolicy=(?:strict|closed)[ \t]*$", re.MULTILINE)  # else `auto`: with an empty list all is allowed
TRANSIENT = "run/systemd/transient"


def missing(hierarchies: Hierarchies, root: Path, dev: Path, home: Home, paths: Mapping[str, str]) -> float | None:
    """Return 1 where the rules lack the GPUs, 0 where they have them, None where that cannot be told from here."""
    if not home.container:
        return None
    rules = ""
    if not hierarchies.is_unified:
        place = hierarchies.place(paths, "devices", home.marker)
        rules = text(place / "devices.list") if place is not None else ""
    if rules and not RULE.search(rules):
        return 1.0
    scope = own_group(paths.get(SYSTEMD) or paths.get(UNIFIED) or "", home.container).rpartition("/")[2]
    if not scope.endswith(".scope"):
        return 0.0 if rules else None
    listed, policy = (text(root / TRANSIENT / f"{scope}.d/50-{name}.conf") for name in ("DeviceAllow", "DevicePolicy"))
    if not listed and "=auto" not in policy:
        return 0.0 if rules else None
    listed = AGAIN.split(listed)[-1]
    if "DeviceAllow=" not in listed:  # what runc writes for a privileged container: an empty list allows all under `auto`
        return float(STRICT.search(policy) is not None)
    # systemd looks each number up in /dev/char: what has no link there is left out (NVIDIA/nvidia-container-toolkit#48).
    found = [number for number in ALLOWED.findall(listed) if not number or sysfs.exists(dev / f"char/{NVIDIA}:{number}")]
    return float(not found)


def text(path: Path) -> str:
    """Return a small file, "" where it cannot be read."""
    try:
        return sysfs.read(path, sysfs.LINE).decode("utf-8", "replace")
    except OSError:
        return ""
