"""What this host is: its name, kernel, operating system, labels and boot id, as text."""

import platform
from pathlib import Path

from gpuwatch.catalogue.host import HOST
from gpuwatch.config import Config
from gpuwatch.model.escape import printable
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs


def target(config: Config) -> Target:
    """Return this host as the target of its readings; `boot_id` is for detectors and is not exported.

    Call it once: os-release lies on the root disk, which may hang later, and none of this changes while we run.
    """
    kernel = Path(config.paths.proc) / "sys/kernel"
    facts = {
        "name": printable(config.host.name),
        "machine": platform.machine(),
        "kernel": sysfs.fact(kernel / "osrelease"),
        "os": release(Path(config.paths.root)),
        "labels": printable(",".join(f"{key}={value}" for key, value in sorted(config.host.labels.items())), 1000),
        "boot_id": sysfs.fact(kernel / "random/boot_id"),
    }
    return Target(subject=HOST, key="", info={name: value for name, value in facts.items() if value})


def release(root: Path) -> str:
    """Return the name of the operating system as os-release(5) gives it for people, "" where there is none."""
    for file in (root / "etc/os-release", root / "usr/lib/os-release"):
        try:
            lines = sysfs.read(file).decode("utf-8", "backslashreplace").splitlines()
        except OSError:
            continue
        found = dict(line.partition("=")[::2] for line in lines)
        return printable(bare(found.get("PRETTY_NAME") or found.get("NAME") or ""))
    return ""


def bare(value: str) -> str:
    """Return a shell assignment's value without its quotes."""
    text = value.strip()
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1].replace("\\", "") if quoted else text
