"""A process at the collectors' seam that wrote its frames and was gone before anyone took them in."""

import io
import threading
from collections.abc import Sequence
from typing import BinaryIO

from gpuwatch.sources import wire
from tests.fakes.until import PATIENCE


class Output(io.BytesIO):
    """A pipe's end that says when it was read to its end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.over = threading.Event()

    def close(self) -> None:
        """Close it."""
        self.over.set()
        super().close()


class Written:
    """Its frames are there at once, and so is its exit status; no frame fits into its input before the last one is read."""

    def __init__(self, pid: int, frames: Sequence[wire.FromWorker]) -> None:
        self.pid = pid
        self._output = Output(b"".join(map(wire.pack, frames)))
        self.output: BinaryIO = self._output

    def send(self, data: bytes) -> bool:
        """Take nothing, as it has ended; return when all that it wrote is read."""
        self._output.over.wait(PATIENCE)
        return False

    def dismiss(self) -> None:
        """It has gone."""

    def kill(self) -> None:
        """It has gone."""

    def poll(self) -> int | None:
        """Return its exit status."""
        return 1
