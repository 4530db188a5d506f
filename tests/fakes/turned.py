"""The worker of the GPUs on a clock that a test turns on: `python -m tests.fakes.turned NAME`, as `gpuwatch.sources.worker`.

The file that `TURNED_CLOCK` names has by how many seconds; `TurnedWorker` writes it.
"""

import os
import sys
import time
from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.sources import worker
from gpuwatch.sources.nvml.rounds import Nvml
from gpuwatch.sources.source import Source
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_worker import NvmlWorker


class TurnedClock(SystemClock):
    """A monotonic clock that is ahead of the machine's."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def mono(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + float(self._file.read_text() or 0)


def source(config: Config, _: Clock) -> Source:
    """Return the GPUs, on that clock."""
    return Nvml(config, TurnedClock(Path(os.environ["TURNED_CLOCK"])))


class TurnedWorker(NvmlWorker):
    """A worker for which time passes as a test says, besides passing by itself."""

    module = "tests.fakes.turned"

    def __init__(self, fake: FakeNvml, *, normal: float = 0.2) -> None:
        self._file = fake.path / "turned"
        self._file.write_text("0")
        super().__init__(fake, normal=normal, environment={"TURNED_CLOCK": str(self._file)})

    def forward(self, seconds: float) -> None:
        """Let so much time pass at once."""
        ahead = float(self._file.read_text()) + seconds
        whole = self._file.with_suffix(".new")  # the worker reads it at any time
        whole.write_text(str(ahead))
        whole.replace(self._file)


if __name__ == "__main__":
    worker.main(sys.argv[1:], {"nvml": "tests.fakes.turned:source"})
