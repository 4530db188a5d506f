"""PCIe throughput in samples of 20 ms, where the byte counters of a GPU cannot be trusted (`link.py`).

nvmlDeviceGetPcieThroughput blocks for 20 ms in each direction. It is called from a thread of its own, for busy GPUs only,
one GPU at a time, shortly before the round that sends its result: never on the path of another reading.
"""

import logging
import threading

from gpuwatch.catalogue.gpu import PCIE_THROUGHPUT
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.bounds import plausible
from gpuwatch.sources.nvml.gpu import Gpu
from gpuwatch.sources.nvml.lane import begin, raised
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library
from gpuwatch.sources.nvml.session import Session

UNIT = 1000.0  # the header says KB/s; whether that is 1000 or 1024 bytes is not documented (docs/hardware-notes.md)
DIRECTIONS = (("transmit", 0), ("receive", 1))
SAMPLE = 0.05  # seconds that one GPU takes, with some room
LEAD = 0.5  # seconds before the round at which the samples are ready

log = logging.getLogger(__name__)


class Throughput:
    """The thread that takes the samples. A call that never returns costs these samples and nothing else."""

    def __init__(self, session: Session, period: float, clock: Clock) -> None:
        self._session = session
        self._period = period
        self._clock = clock
        self._asked = threading.Event()
        self._stop = threading.Event()
        self.bug = ""  # what was raised by the last samples
        self._has_thread = False

    def asked(self) -> None:
        """A normal round has begun: the next samples are due shortly before the next one."""
        self._has_thread = self._has_thread or begin(self._run, "nvml-pcie")
        self._asked.set()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._asked.set()

    def _run(self) -> None:
        failing: float | None = None  # since when
        while not self._stop.is_set():
            if not self._asked.wait(60.0):
                continue
            self._asked.clear()
            self._stop.wait(max(0.0, self._period - LEAD - SAMPLE * len(self._wanted())))
            sampled = failed = False
            for gpu in self._wanted():
                if not self._stop.is_set() and gpu.wants_throughput:
                    try:
                        self._sample(gpu)
                        sampled = True
                    except BaseException as error:  # root of the thread: what pynvml raises, SystemExit too, must not end it
                        failed = True
                        self.bug = raised(error)
                        if failing is None:
                            failing = self._clock.mono()
                            log.exception("a bug in the PCIe samples, they are incomplete")
            if sampled and not failed and failing is not None:
                log.info("the PCIe samples are whole again after %.0f s", self._clock.mono() - failing)
                failing, self.bug = None, ""

    def _wanted(self) -> list[Gpu]:
        fleet = self._session.fleet
        return [] if fleet is None else [gpu for gpu in fleet.gpus() if gpu.wants_throughput]

    def _sample(self, gpu: Gpu) -> None:
        """Take both directions of one GPU; an error costs this sample."""
        found: dict[Metric, float | Absence] = {}
        library = self._session.library
        for name, direction in DIRECTIONS:
            handle = gpu.handle
            if handle is None or library is None:
                return
            metric = PCIE_THROUGHPUT[name]
            try:
                found[metric] = plausible(metric, self._rate(library, handle, direction))
            except GpuGoneError as error:
                gpu.lose(verdicts.gone(error.code))
                return
            except DriverGoneError as error:
                self._session.driver_gone(error.code)
                return
            except CallError as error:
                found[metric] = verdicts.absence(error.code)
        gpu.sampled(found)

    def _rate(self, library: Library, handle: object, direction: int) -> float | Absence:
        """Return bytes per second in one direction; blocks for 20 ms."""
        kilobytes = int(library.named("nvmlDeviceGetPcieThroughput", handle, direction))
        return Absence.UNSUPPORTED if kilobytes == 0xFFFFFFFF else kilobytes * UNIT
