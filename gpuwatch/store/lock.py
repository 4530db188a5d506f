"""One daemon a store: two that write the same files would undo each other's work. The lock ends with its process."""

import contextlib
import fcntl
import logging
import os
import threading
from pathlib import Path

from gpuwatch.store.private import FILE, make_file, make_folder

log = logging.getLogger(__name__)


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


class Claim:
    """The lock of one store, for as long as this process lives. It is on a file: one that is removed lets another daemon in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_wanted = False
        self._held: int | None = None

    def take(self) -> None:
        """Take the store for this process; raises LockedError where another daemon has it."""
        with self._lock:
            self._is_wanted = True
            self._held = lock(self._path)

    def keep(self) -> None:
        """Take it again where its file is not the one that we hold any more; raises LockedError where another daemon came first.

        Does nothing where it was never to be taken. What could not be locked so far is tried anew.
        """
        with self._lock:
            if not self._is_wanted or (self._held is not None and is_at(self._path, self._held)):
                return
            fresh = lock(self._path)
            if fresh is not None:
                if self._held is not None:
                    os.close(self._held)
                    log.warning("%s was removed or replaced: the store is locked anew", self._path)
                self._held = fresh


def is_at(path: Path, held: int) -> bool:
    """Whether an open file is the one under this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(held))
    except OSError:
        return False
