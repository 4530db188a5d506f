"""Files of the runtimes that a user of this host may have written, and may have made anything he likes.

A name in his home may be a link to a device whose mere opening does something (a watchdog, a GPU), to /proc/kmsg, which is a
regular file and is emptied by reading, or to a FIFO. What it is is looked at before it is opened, and that very file is read.
"""

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuwatch import plainfile

LIMIT = 1 << 20  # bytes of a state file
SETTINGS = 1 << 16  # bytes of a configuration: the storage.conf that distributions ship has 10 KB
LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")


def raw(path: Path, uid: str, limit: int = LIMIT) -> bytes:
    """Return the bytes of a file of this user, root's where `uid` is ""; raises OSError, for a longer one too.

    A user's must be no link, a regular file, and his own or root's.
    """
    found = plainfile.raw(path, limit + 1) if not uid else of_user(path, int(uid), limit + 1)
    if len(found) > limit:
        raise OSError(errno.EFBIG, "it is larger than any that a runtime writes")
    return found


def of_user(path: Path, uid: int, limit: int) -> bytes:
    """Return at most so many bytes of a file below a user's home; raises OSError."""
    try:
        looked = os.open(path, LOOK)  # opens nothing: it names the file for the calls that follow
    except ValueError:  # a NUL or half a character in the name
        raise OSError(errno.EINVAL, "no file has such a name") from None
    try:
        known = os.fstat(looked)
        if not stat.S_ISREG(known.st_mode):
            raise OSError(errno.ENOTSUP, "it is not a regular file")
        if known.st_uid not in {0, uid}:
            raise OSError(errno.ENOTSUP, "it belongs to another user")
        return plainfile.raw(f"/proc/self/fd/{looked}", limit)
    finally:
        os.close(looked)


def document(path: Path, uid: str, kind: type[T], limit: int = LIMIT) -> T:
    """Return what a JSON file says; raises OSError, for one that makes no sense too, however deep it is."""
    try:
        return msgspec.json.decode(raw(path, uid, limit), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise OSError(errno.EBADMSG, "it makes no sense") from None
