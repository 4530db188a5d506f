"""What the kernel left behind when it died: the end of its log, in pstore (ERST, EFI variables, ramoops).

systemd-pstore moves the files to its own folder at the start, so both places are looked at. They are root's: without a
permission the reason is told, since "nothing was left" would send people to the power supply; so is that a kernel has nowhere to
leave anything. Files of older crashes stay for years where nobody takes them away: only those since the given time count.
"""

import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch import plainfile
from gpuwatch.catalogue.events import KINDS
from gpuwatch.model.event import Event
from gpuwatch.sources import sysfs
from gpuwatch.sources.kernel.replay import replay

PLACES = ("fs/pstore", "var/lib/systemd/pstore")  # below /sys; below /
FILES = 64  # of a place, the newest; EFI variables hold 1 KiB each
ENTRIES = 256  # of a folder
LIMIT = 1 << 20  # bytes of a file
BYTES = 4 << 20  # of all: half a second of work
DUMP = re.compile(r"(?:dmesg|console)-.*|dmesg\.txt")
BACKEND = "module/pstore/parameters/backend"  # below /sys
NO_BACKEND = frozenset({"(null)", "(none)"})  # as the kernel writes a text parameter that is not set
PACKED = (".enc.z", ".z")  # which kernel wrote them and how is not known any more; that one died is
PART = re.compile(r"(?:Panic|Oops)#\d+ Part\d+")
PANIC = "Kernel panic - not syncing"
HEAD = "before this boot: "
SAID = 3  # errors of GPUs that are named
GPU_ERRORS = frozenset({"xid", "sxid", "off_bus", "gsp"})


class Dump(msgspec.Struct, frozen=True):
    """What was left. `problem` says why there may be more than could be read, "" where all was.

    Without `has_place` this kernel can leave nothing: that nothing was found says nothing.
    """

    crash: str = ""  # what ended the boot, in the kernel's words
    errors: tuple[str, ...] = ()  # what GPUs had before that: `Xid 79 (0000:65:00.0)`
    has_machine_check: bool = False
    problem: str = ""
    has_place: bool = True


def left(sys: Path, root: Path, since: float) -> Iterator[Dump]:
    """Yield what was left since then (wall clock): first what is known by then, whenever a file adds to it, and all at the end.

    The disk of the second place may hang. The kernel's dumps are small, so the small files are read first.
    """
    all_events: list[Event] = []
    problems: list[str] = []
    packed: list[Path] = []
    has_any, budget = False, BYTES
    for folder in (sys / PLACES[0], root / PLACES[1]):
        found: list[File] = []
        try:
            found.extend(dumps(folder, since))
        except FileNotFoundError:
            pass  # this kernel, or this systemd, has none
        except OSError as error:
            problems.append(why(folder, error))
        found.sort(reverse=True)
        has_any = has_any or bool(found)
        packed += [file.path for file in found[:FILES] if file.path.name.endswith(PACKED)]
        events: dict[Path, list[Event]] = {file.path: [] for file in found[:FILES] if file.path not in packed}
        unread = max(0, len(found) - FILES)
        for file in sorted(found[:FILES], key=lambda file: file.size):
            if file.path in packed:
                continue
            limit = min(LIMIT, budget)
            try:
                text = plainfile.raw(file.path, limit + 1)
            except OSError as error:
                problems.append(why(file.path, error))
                continue
            unread += len(text) > limit
            budget -= len(text[:limit])
            events[file.path] = list(replay(text[:limit].decode("utf-8", "replace").splitlines(), file.at))
            if events[file.path]:
                yield told([*all_events, *chain.from_iterable(events.values())], problems)
        all_events += chain.from_iterable(events.values())
        if unread:
            problems.append(f"{folder} holds more than is read ({unread} files are too many or too large)")
    dump = told(all_events, problems)
    if packed and not dump.crash:
        dump = replace(dump, crash=f"a dump that is packed and cannot be read ({packed[0]})")
    yield dump if has_any or has_place(sys) else replace(dump, has_place=False)


def has_place(sys: Path) -> bool:
    """Say whether this kernel has pstore, and as far as is known something that keeps it over a reboot."""
    return sysfs.exists(sys / PLACES[0]) and sysfs.fact(sys / BACKEND) not in NO_BACKEND


class File(NamedTuple):
    """A file that may hold a dump."""

    at: float
    path: Path
    size: int


def dumps(folder: Path, since: float, depth: int = 2) -> Iterator[File]:
    """Yield the dumps in a folder since then; raises OSError where the folder cannot be read.

    systemd-pstore has one folder a crash, with one more a part in some versions, and puts the parts together in dmesg.txt.
    """
    names = sysfs.names(folder)
    for name in ["dmesg.txt"] if "dmesg.txt" in names else names[-ENTRIES:]:
        path = folder / name
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # systemd has taken it away
        if stat.S_ISDIR(status.st_mode) and depth:
            yield from dumps(path, since, depth - 1)
        elif status.st_mtime >= since and DUMP.fullmatch(name):
            yield File(status.st_mtime, path, status.st_size)


def why(path: Path, error: OSError) -> str:
    """Say why it cannot be read."""
    if isinstance(error, PermissionError):
        return f"{path} may be read by root only (or with CAP_DAC_READ_SEARCH)"
    return f"{path} cannot be read: {error.strerror}"


def told(events: Iterable[Event], problems: Sequence[str]) -> Dump:
    """Return what the events of a dump say together."""
    crashes: list[str] = []
    errors: dict[str, None] = {}
    is_machine_check = False
    for event in events:
        if event.kind == "crash":
            crashes.append(event.words.removeprefix(HEAD))
        elif event.kind == "mce":
            is_machine_check = True
        elif event.kind in GPU_ERRORS:
            name = {"xid": f"Xid {event.code}", "sxid": f"SXid {event.code}"}.get(event.kind, KINDS[event.kind].help.rstrip("."))
            errors[f"{name} ({event.key})" if event.key else name] = None
    # The panic says most; the head of a part of a dump says that there was one.
    crash = max(crashes, key=lambda words: (PANIC in words, not PART.fullmatch(words)), default="")
    return Dump(crash, tuple(errors)[:SAID], is_machine_check, problems[0] if problems else "")
