"""The NVML library that the next program will load: found as the dynamic linker does, its version read from its name.

Not the linker's cache is read but the folders that it is made of (ld.so(8), ldconfig(8)): those of ld.so.conf in their order,
then its own. A program may look elsewhere first (LD_LIBRARY_PATH); that is its own affair.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.sources import sysfs
from gpuwatch.sources.nextboot import rooted

NAME = "libnvidia-ml.so.1"
VERSIONED = re.compile(r"libnvidia-ml\.so\.([0-9]{3,}(?:\.[0-9]+)+)")
CONFIGURATION = "etc/ld.so.conf"
USUAL = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
)
ELF64 = b"\x7fELF\x02"  # ELF specification, e_ident: the libraries of 32-bit programs lie beside it
DEPTH = 4  # files that include files


def version(root: Path) -> str:
    """Return the version of the library, "" where there is none or its name does not say it."""
    for folder in folders(root):
        try:
            file = rooted.follow(root, folder / NAME)
            if sysfs.read(file, len(ELF64)) != ELF64:
                continue
        except OSError:
            continue
        found = VERSIONED.fullmatch(file.name)
        return found[1] if found else ""
    return ""


def folders(root: Path) -> Iterator[Path]:
    """Yield the folders in which the linker looks, in its order."""
    yield from (root / place.lstrip("/") for place in named(root, root / CONFIGURATION, DEPTH))
    yield from (root / place for place in USUAL)


def named(root: Path, file: Path, depth: int) -> Iterator[str]:
    """Yield the folders that a file of the linker names, and those of the files that it includes."""
    try:
        lines = sysfs.read(file).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:] if depth else ():
                for found in matches(root, file, pattern):
                    yield from named(root, found, depth - 1)
        elif len(words) == 1 and words[0].startswith("/"):
            yield words[0]


def matches(root: Path, file: Path, pattern: str) -> list[Path]:
    """Return the files that an include names, in order; a relative one begins beside the file."""
    base = root if pattern.startswith("/") else file.parent
    try:
        return sorted(base.glob(pattern.lstrip("/")))
    except (OSError, ValueError, NotImplementedError):  # what is no pattern
        return []
