"""The kernels that are installed, and whether one of them has NVIDIA's module.

A kernel is installed where its image lies in /boot. Where only root may list that, or it has none (systemd-boot, ostree), it is
where /lib/modules has the list of what is built in, which comes with the package and goes with it: what DKMS leaves behind of a
kernel that was removed is no kernel.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuwatch.sources import sysfs
from gpuwatch.sources.nextboot import rooted

IMAGE = re.compile(r"(?:vmlinuz|Image)-([0-9][^/]*)")
NO_IMAGE = re.compile(r"0-rescue-.*|.*\.(?:old|bak|hmac|sig|signed|gz|xz|dpkg-\w+|rpm\w+)")  # beside an image, or of no boot
BUILTIN = "modules.builtin"
# Debian's DKMS packages call it nvidia-current.ko, nvidia-tesla-470.ko, nvidia-legacy-390xx.ko and so on.
MODULE = re.compile(r"nvidia(?:-(?:current|tesla|legacy)(?:-[0-9]+(?:xx)?)?(?:-open)?)?\.ko(?:\.(?:gz|xz|zst))?")
PLACES = ("lib/modules", "usr/lib/modules")
DKMS, AKMODS = "var/lib/dkms", "usr/src/akmods"


def modules(root: Path) -> Path:
    """Return the folder with the modules of all kernels, which need not be there."""
    return next((root / place for place in PLACES if sysfs.exists(root / place)), root / PLACES[0])


def installed(boot: Path, modules: Path) -> Mapping[str, float]:
    """Return the release of each kernel, and when it was put there (wall clock).

    By the time of the inode's change: packages bring the time at which they were built along.
    """
    images = {found[1]: boot / name for name in sysfs.entries(boot) if (found := IMAGE.fullmatch(name))}
    lists = {name: modules / name / BUILTIN for name in sysfs.entries(modules) if name[:1].isdecimal()}
    return dict(dated(images)) or dict(dated(lists))


def dated(files: Mapping[str, Path]) -> Iterator[tuple[str, float]]:
    """Yield the kernels whose file is there, with its time."""
    for release, file in files.items():
        try:
            if not NO_IMAGE.fullmatch(release):
                yield release, os.stat(file).st_ctime  # noqa: PTH116 - Path.stat does the same
        except OSError:
            continue


def order(release: str) -> list[tuple[int, str]]:
    """Return what orders releases as `sort -V` does, by which GRUB finds the newest: -139 after -99."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", release)]


def has_driver(root: Path, folder: Path) -> bool:
    """Say whether NVIDIA's module lies anywhere in the modules of one kernel; raises OSError where that cannot be seen.

    `modules.dep` says where, as depmod found it: then one look is enough. It is not trusted further: the file may be gone, and
    a module that has just been built is in the tree before it is in the list.
    """
    if not sysfs.exists(folder):
        return False
    listed = (line.partition(b":")[0].decode("utf-8", "replace") for line in lines(folder / "modules.dep") if b"nvidia" in line)
    # paths are relative to the folder; those of depmod before 3.7 are whole ones
    if any(rooted.exists(root, folder / name) for name in listed if is_driver(name) and not name.startswith("/")):
        return True
    return any(rooted.exists(root, file) for file in walk(folder))


def is_driver(name: str) -> bool:
    """Say whether a file is NVIDIA's module itself, and none of those beside it (nvidia-uvm, nvidiafb)."""
    return MODULE.fullmatch(name.rpartition("/")[2]) is not None


def lines(file: Path) -> list[bytes]:
    """Return the lines of a list of modules, none where it cannot be read."""
    try:
        return sysfs.read(file).splitlines()
    except OSError:
        return []


def walk(folder: Path) -> Iterator[Path]:
    """Yield what has the module's name; raises OSError after the last one where a folder could not be listed."""
    refused: list[OSError] = []
    for place, _, names in os.walk(folder, onerror=refused.append):
        yield from (Path(place) / name for name in names if is_driver(name))
    for error in refused:
        if not isinstance(error, FileNotFoundError):
            raise error


def are_built_for(root: Path) -> bool:
    """Say whether DKMS or akmods builds NVIDIA's module for a kernel that is new, which takes a while."""
    return any(name.startswith("nvidia") for folder in (DKMS, AKMODS) for name in sysfs.entries(root / folder))
