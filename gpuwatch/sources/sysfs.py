"""Small files of the kernel (/proc, /sys): read whole, made safe to print, and why one could not be read."""

import errno
import os
from pathlib import Path

from gpuwatch import plainfile
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Absence

LIMIT = 1 << 22  # bytes; /proc/stat of 1,024 cores has 0.4 MB
LINE = 1 << 16  # bytes of a file that has one line; the kernel's have at most a page

ABSENCES = {
    errno.ENOENT: Absence.UNSUPPORTED,  # this kernel or device has no such file
    errno.ENOTDIR: Absence.UNSUPPORTED,
    errno.ENOSYS: Absence.UNSUPPORTED,
    errno.EOPNOTSUPP: Absence.UNSUPPORTED,  # /proc/pressure with psi=0
    errno.EACCES: Absence.DENIED,
    errno.EPERM: Absence.DENIED,
    errno.ENODEV: Absence.LOST,
    errno.ENXIO: Absence.LOST,
    errno.EINVAL: Absence.EMPTY,  # the speed of an interface that is down
    errno.ENODATA: Absence.EMPTY,  # a sensor that has nothing now
    errno.EAGAIN: Absence.EMPTY,
    errno.EBUSY: Absence.EMPTY,
}


def why(error: OSError) -> Absence:
    """Return the reason for absence that this error of open or read stands for."""
    return ABSENCES.get(error.errno or 0, Absence.FAILED)


def read(path: Path | str, limit: int = LIMIT) -> bytes:
    """Return the bytes of a file of the kernel; raises OSError, for what is no regular file too."""
    return plainfile.raw(path, limit)


def text(path: Path | str) -> str:
    """Return one line of a file, stripped, its runs of blanks made one, safe to print; raises OSError."""
    return clean(read(path, LINE))


def number(path: Path | str) -> int:
    """Return the whole number in a file; raises OSError, and ValueError for what is none (or has over 64 bits)."""
    raw = read(path, LINE).strip()
    if len(raw) > 20:
        raise ValueError("too long for a number of the kernel")
    return int(raw)


def clean(raw: bytes) -> str:
    """Return text of a device as it may be shown: padding of blanks and NULs gone, control characters escaped."""
    return printable(" ".join(raw.replace(b"\0", b" ").decode("utf-8", "backslashreplace").split()))


def trait(path: Path | str) -> str:
    """Return one line of a file, "" where this device has none; raises OSError where it may have one that failed to come.

    For what identifies a thing or decides how it is treated: too many open files must not give a disk another key.
    """
    try:
        return text(path)
    except OSError as error:
        if why(error) is Absence.FAILED:
            raise
        return ""


def fact(path: Path | str) -> str:
    """Return one line of a file, "" where it cannot be read: for what only adds to a description."""
    try:
        return text(path)
    except OSError:
        return ""


def exists(path: Path | str) -> bool:
    """Return whether there is such a file or folder; no error is raised, as Path.exists does for some."""
    return os.path.exists(path)  # noqa: PTH110


def is_link(path: Path | str) -> bool:
    """Return whether there is such a link; no error is raised, as Path.is_symlink does for some."""
    return os.path.islink(path)  # noqa: PTH114


def names(folder: Path | str) -> list[str]:
    """Return the names in a folder in order; raises OSError."""
    return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths


def entries(folder: Path | str) -> list[str]:
    """Return the names in a folder in order, none where it cannot be listed."""
    try:
        return names(folder)
    except OSError:
        return []
