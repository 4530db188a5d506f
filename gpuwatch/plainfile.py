"""Reading a small file that somebody named: it never waits for a writer and never reads without end.

A name in a configuration, or a path of the kernel's under another root, may lead to a FIFO, a terminal, a device or a file
of many GB. Each of them would hold up a start; here it is refused, or read only up to a limit.
"""

import errno
import os
import stat
from pathlib import Path

PIECE = 1 << 16
LIMIT = 1 << 20  # bytes of a file that people write


class UnreadableError(Exception):
    """The file cannot be used; the words follow its name. `cause` is the system's error, where it is one."""

    def __init__(self, problem: str, cause: OSError | None = None) -> None:
        super().__init__(problem)
        self.problem, self.cause = problem, cause


def raw(path: Path | str, limit: int) -> bytes:
    """Return at most so many bytes of a regular file; raises OSError, for what is no regular file too.

    Files of the kernel are regular ones; they say no size, and end at the first empty read.
    """
    try:
        # Not blocking: the opening of a FIFO would wait for somebody who writes. A terminal must not become ours.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, "the name holds a NUL character") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENOTSUP, "it is not a regular file")
        whole = os.read(descriptor, min(PIECE, limit))
        while whole and len(whole) < limit and (piece := os.read(descriptor, min(PIECE, limit - len(whole)))):
            whole += piece
    finally:
        os.close(descriptor)
    return whole


def text(path: Path | str) -> str:
    """Return what a file says that people write; raises UnreadableError."""
    try:
        found = raw(path, LIMIT + 1)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", error) from None
    if len(found) > LIMIT:
        raise UnreadableError(f"is larger than {LIMIT >> 20} MiB")
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 text (byte {error.start})") from None
