"""One daemon a store: two that write the same files would undo each other's work. The lock ends with its process."""

import contextlib
import fcntl
import os
from pathlib import Path

from gpuwatch.store.private import FILE, make_file, make_folder


class LockedError(Exception):
    """Another daemon uses this store: which lock, and whose it is."""


def lock(path: Path) -> int | None:
    """Take the store for this process; returns the descriptor that holds it, None where the folder takes no file.

    Raises LockedError where another process has it. A folder that takes no file is the store's to tell.
    """
    try:
        make_folder(path.parent)
        make_file(path)
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(held, 20).decode(errors="replace").strip()
        os.close(held)
        raise LockedError(
            f"{path.parent} is in use by another gpuwatch{f' (process {owner})' if owner.isdigit() else ''}"
        ) from None
    with contextlib.suppress(OSError):
        os.ftruncate(held, 0)
        os.write(held, f"{os.getpid()}\n".encode())
    return held
