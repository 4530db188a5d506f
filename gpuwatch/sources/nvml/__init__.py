"""NVIDIA GPUs through libnvidia-ml, by nvidia-ml-py (module pynvml). Runs in the worker process `gpuwatch-nvml` only.

The driver may hang, lose a GPU, or be replaced under us, so every thread that calls it may be lost: one for the session
(`session.py`), one a GPU (`gpu.py` on its `lane.py`) and one more that waits for its events (`watch.py`, tended by
`events.py`), one for PCIe samples (`pcie.py`). `rounds.py` asks them and never waits for long. Codes become verdicts in
`verdicts.py`; how each number is read stands in `readers.py`.
"""

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.sources.nvml.gpu import Standing
from gpuwatch.sources.nvml.rounds import Nvml
from gpuwatch.sources.source import Source


def source(config: Config, clock: Clock, standing: Standing | None = None) -> Source:
    """Return the GPUs as a source; initialising begins at once, on a thread of its own.

    `standing`: kind and age of the faults that the process before has logged, by key.
    """
    return Nvml(config, clock, standing)
