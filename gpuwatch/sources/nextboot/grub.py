"""Which kernel GRUB was told to boot: by name, in its saved entry or in /etc/default/grub.

An entry given by number ("0", "1>2") says nothing without grub.cfg, which only root may read; 0 is the newest kernel. Other
boot loaders are not asked. In both cases the newest kernel is taken for the next.
"""

import re
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from gpuwatch.sources import sysfs

BLOCKS = ("boot/grub/grubenv", "boot/grub2/grubenv")  # 1,024 bytes: name=value lines, filled up with #
DEFAULTS = "etc/default/grub"
ASSIGNED = re.compile(r"\s*(?:export\s+)?GRUB_DEFAULT=(.*)")


def default(root: Path, releases: Collection[str]) -> str:
    """Return the one of these kernels that GRUB was told to boot next, "" where it was told none of them."""
    saved = block(root)
    chosen = configured(root)
    once = saved.get("next_entry", "")  # `grub-reboot`: for one boot
    entry = once or (saved.get("saved_entry", "") if chosen in ("saved", "") else chosen)
    # gnulinux-5.15.0-122-generic-advanced-UUID, "Ubuntu, with Linux 5.15.0-122-generic", MACHINE-ID-6.8.5-301.fc40.x86_64
    named = [release for release in releases if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.+])", entry)]
    return max(named, key=len, default="")


def block(root: Path) -> dict[str, str]:
    """Return the variables that GRUB keeps."""
    for place in BLOCKS:
        try:
            text = sysfs.read(root / place).decode("utf-8", "replace")
        except OSError:
            continue
        found = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
        return {name: value for name, _, value in found}
    return {}


def configured(root: Path) -> str:
    """Return GRUB_DEFAULT, "" where it is not set or cannot be read; the files are shell scripts, the last assignment counts."""
    chosen = ""
    for file in files(root):
        try:
            text = sysfs.read(file).decode("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if found := ASSIGNED.fullmatch(line):
                try:
                    chosen = next(iter(shlex.split(found[1], comments=True)), "")
                except ValueError:  # a quote that is not closed
                    chosen = ""
    return chosen


def files(root: Path) -> Iterator[Path]:
    """Yield the files of grub-mkconfig in their order."""
    yield root / DEFAULTS
    folder = root / f"{DEFAULTS}.d"
    yield from (folder / name for name in sysfs.entries(folder) if name.endswith(".cfg"))
