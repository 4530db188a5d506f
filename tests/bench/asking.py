"""A worker asked directly, tier by tier: its readings, its calls of NVML, and what a round costs it."""

import os
import time
from collections.abc import Mapping, Sequence

from gpuwatch.config import Config
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling import child
from gpuwatch.sampling.crew import setup
from gpuwatch.sources import wire
from tests.bench.processes import cpu


class Asked:
    """One worker process with these sources."""

    def __init__(self, names: Sequence[str], config: Config, environ: Mapping[str, str]) -> None:
        os.environ.update(environ)
        self._process = child.worker(f"gpuwatch-{names[0]}")
        self._process.send(wire.pack(setup(config, tuple(names))))
        self._frames = wire.frames(self._process.output)
        self._number = 0

    def ask(self, tier: Tier) -> list[Reading]:
        """Return what one round of this tier gives."""
        self._number += 1
        self._process.send(wire.pack(wire.Ask(self._number, tier)))
        found = []
        for body in self._frames:
            frame = wire.from_worker(body)
            if isinstance(frame, wire.Got):
                found.append(wire.reading(frame))
            elif isinstance(frame, wire.Done) and frame.number == self._number:
                return found
        raise RuntimeError("the worker ended")

    def cpu(self) -> float:
        """Return the CPU seconds that the worker has used."""
        return cpu(self._process.pid)

    def close(self) -> None:
        """End it."""
        self._process.dismiss()
        end = time.monotonic() + 3
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        self._process.kill()
        self._process.output.close()
