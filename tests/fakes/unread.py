"""A pipe whose other end nobody reads, for log lines to end in."""

import contextlib
import fcntl
import os
import select
from typing import final

from tests.fakes.until import PATIENCE


@final
class Unread:
    """`end` is what is written to; `fill` leaves no room in it, and `read` takes all that is there."""

    def __init__(self) -> None:
        self._reads, self.end = os.pipe()
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, 4096)
        self.filled = 0  # bytes that were put in to fill it

    def __enter__(self) -> "Unread":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self) -> None:
        """Fill it, in a way that leaves the writer's own descriptor blocking."""
        filler = os.open(f"/proc/self/fd/{self.end}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            for size in (4096, 1):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self.filled += os.write(filler, b"." * size)
        finally:
            os.close(filler)

    def read(self) -> str:
        """Return what can be read without waiting; there is room again."""
        os.set_blocking(self._reads, False)
        found = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._reads, 65536):
                found += chunk
        return found.decode()

    def wait(self) -> str:
        """Return what is there once there is something."""
        ready, _, _ = select.select([self._reads], [], [], PATIENCE)
        assert ready, "nothing was written"
        return self.read()

    def close(self) -> None:
        """Close both ends."""
        for descriptor in (self._reads, self.end):
            with contextlib.suppress(OSError):
                os.close(descriptor)
