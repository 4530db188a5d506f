"""Folders and files that only the daemon's user and group may read, whatever the umask of whoever started it."""

import contextlib
import os
import pwd
import stat
from pathlib import Path

FOLDER, FILE, OTHERS = 0o750, 0o640, 0o007
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; what is there stays as it is. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir(FOLDER)
        except FileExistsError:
            continue
        except OSError:
            if folder.is_dir():  # such as / on a disk that takes no writes
                continue
            raise
        folder.chmod(FOLDER)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder")


def make_file(path: Path) -> bool:
    """Make an empty file where there is none, also where a link leads nowhere yet; say whether it was made. Raises OSError.

    One that is there is not opened: closing it again would end the locks that SQLite holds on it in this process.
    """
    try:
        made = os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
    except FileExistsError:
        return False
    try:
        os.fchmod(made, FILE)
    finally:
        os.close(made)
    return True


def tighten(path: Path) -> None:
    """Take a file that is ours from all others, if it is there; a file of somebody else stays as it is."""
    with contextlib.suppress(OSError):
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def odd(path: Path) -> str:
    """Return what is under a name that should be a file's, "" for a file or nothing."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return ""
    return "" if kind == stat.S_IFREG else KINDS.get(kind, "something else")


def closed(path: Path) -> str:
    """Return why a file that is there cannot be read and written by us, and what to do; "" where it can, or is not there.

    Of a file system that takes no writes SQLite says so itself.
    """
    try:
        owner = path.stat().st_uid
        if os.access(path, os.R_OK | os.W_OK, effective_ids=True) or os.statvfs(path).f_flag & os.ST_RDONLY:
            return ""
    except OSError:
        return ""
    me = os.geteuid()
    if owner == me:
        return f"{path} is closed to {name(me)}, whose it is: chmod u+rw {path}"
    return f"{path} is {name(owner)}'s, and {name(me)} may not read and write it: chown {name(me)} {path}"


def name(user: int) -> str:
    """Return a user's name, the number of one who has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OSError):
        return str(user)
