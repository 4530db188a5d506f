"""The real load of a GPU by GPM (Hopper and later): what the hardware counted between the sample of the last look and a new one.

Nothing is waited for: each look takes one sample, compares it with the one before, and keeps it for the next (nvml.md 2.10).
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.mig import MIG_SM_ACTIVE, MIG_SM_OCCUPANCY, MIG_TENSOR_ACTIVE
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.answers import Given
from gpuwatch.sources.nvml.bounds import plausible
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library

APART = 0.1  # seconds that two samples must be apart (nvml.h)
PERCENT, MEBI = 0.01, 1024.0 * 1024.0
Numbers = Mapping[int, tuple[Metric, float]]  # nvmlGpmMetricId_t: metric, and the factor to its unit
CARD: Numbers = {
    1: (gpu.GRAPHICS_ACTIVE, PERCENT),
    2: (gpu.SM_ACTIVE, PERCENT),
    3: (gpu.SM_OCCUPANCY, PERCENT),
    4: (gpu.PIPE_ACTIVE["int"], PERCENT),
    5: (gpu.PIPE_ACTIVE["tensor"], PERCENT),
    10: (gpu.DRAM_ACTIVE, PERCENT),
    11: (gpu.PIPE_ACTIVE["fp64"], PERCENT),
    12: (gpu.PIPE_ACTIVE["fp32"], PERCENT),
    13: (gpu.PIPE_ACTIVE["fp16"], PERCENT),
    20: (gpu.PCIE_TRANSMIT_MEAN, MEBI),
    21: (gpu.PCIE_RECEIVE_MEAN, MEBI),
    60: (gpu.NVLINK_THROUGHPUT["receive"], MEBI),
    61: (gpu.NVLINK_THROUGHPUT["transmit"], MEBI),
}
PART: Numbers = {2: (MIG_SM_ACTIVE, PERCENT), 3: (MIG_SM_OCCUPANCY, PERCENT), 5: (MIG_TENSOR_ACTIVE, PERCENT)}


class Pair:
    """The last sample of one thing and room for the next. `take` fills a sample; `free` may be called from any thread."""

    def __init__(self, library: Library, clock: Clock, numbers: Numbers, take: Callable[[Any], object]) -> None:
        self._library = library
        self._clock = clock
        self._numbers = numbers
        self._take = take
        self._samples: list[Any] = []  # the older one first
        self._taken: float | None = None  # when the older one was
        self._asked: Any = None  # nvmlGpmMetricsGet_t
        self._using = threading.Lock()
        self._over = threading.Event()

    def look(self) -> Given:
        """Return what was counted since the last look; raises CallError."""
        try:
            with self._using:
                return self._look()
        finally:
            if self._over.is_set():
                self.free()

    def free(self, wait: float = 0.0) -> None:
        """Free the samples: now, after a look that ends within `wait` seconds, or at the end of the look that uses them."""
        self._over.set()
        if not self._using.acquire(timeout=wait):
            return
        try:
            while self._samples:
                try:
                    self._library.named("nvmlGpmSampleFree", self._samples.pop())
                except CallError:
                    continue  # NVML is gone, and what it had allocated with it
        finally:
            self._using.release()

    def _look(self) -> Given:
        if self._over.is_set():
            return self._nothing(Absence.EMPTY)
        while len(self._samples) < 2:
            self._samples.append(self._library.named("nvmlGpmSampleAlloc"))
        now = self._clock.mono()
        if self._taken is not None and now - self._taken < APART:
            return self._nothing(Absence.EMPTY)
        older, newer = self._samples
        self._take(newer)  # where it fails, the older one is compared with the next
        self._samples.reverse()
        before, self._taken = self._taken, now
        return self._nothing(Absence.EMPTY) if before is None else self._compared(older, newer)

    def _compared(self, older: Any, newer: Any) -> Given:
        if self._asked is None:
            asked = self._library.struct("c_nvmlGpmMetricsGet_t", "NVML_GPM_METRICS_GET_VERSION")
            asked.numMetrics = len(self._numbers)
            for place, number in enumerate(self._numbers):
                asked.metrics[place].metricId = number
            self._asked = asked
        self._asked.sample1, self._asked.sample2 = older, newer
        self._library.named("nvmlGpmMetricsGet", self._asked)
        answers = self._asked.metrics
        return {
            metric: self._value(metric, scale, answers[place]) for place, (metric, scale) in enumerate(self._numbers.values())
        }

    def _value(self, metric: Metric, scale: float, answer: Any) -> float | Absence:
        """Return one number; each has a code of its own."""
        if answer.nvmlReturn:
            error = self._library.classify(int(answer.nvmlReturn))
            if isinstance(error, (GpuGoneError, DriverGoneError)):
                raise error
            # a number that is newer than the driver is one that it has not
            return Absence.UNSUPPORTED if error.code == verdicts.INVALID_ARGUMENT else verdicts.absence(error.code)
        return plausible(metric, answer.value * scale)

    def _nothing(self, reason: Absence) -> Given:
        return dict.fromkeys((metric for metric, _ in self._numbers.values()), reason)


class Gpm:
    """GPM on one GPU and its GPU instances, from its opening until `free`. `look` and `part` run on its lane."""

    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self._never: set[str] = set()  # symbols that this GPU and driver do not answer
        self._supported = False  # it was asked, and said so
        self._card: Pair | None = None
        self._parts: dict[tuple[int, str], Pair] = {}
        self._over = threading.Event()

    def look(self, handle: Any) -> Given:
        """Return the load of the whole GPU; raises GpuGoneError and DriverGoneError."""
        pair = self._card = self._card or Pair(
            self._library, self._clock, CARD, lambda sample: self._library.named("nvmlGpmSampleGet", handle, sample)
        )
        return self._looked(handle, "nvmlGpmSampleGet", pair, CARD)

    def part(self, handle: Any, instance: int, name: str) -> Given:
        """Return the load of a GPU instance; one of another `name` is another one. Raises as `look`."""
        pair = self._parts.get((instance, name))
        if pair is None:
            pair = self._parts[instance, name] = Pair(
                self._library,
                self._clock,
                PART,
                lambda sample: self._library.named("nvmlGpmMigSampleGet", handle, instance, sample),
            )
        return self._looked(handle, "nvmlGpmMigSampleGet", pair, PART)

    def keep(self, parts: Collection[tuple[int, str]]) -> None:
        """Free the samples of all other GPU instances."""
        for key in [key for key in self._parts if key not in parts]:
            self._parts.pop(key).free()

    def free(self, wait: float = 0.0) -> None:
        """Free all samples: they must not outlive this initialisation of NVML. From any thread."""
        self._over.set()
        for pair in (self._card, *tuple(self._parts.values())):
            if pair is not None:
                pair.free(wait)

    def _looked(self, handle: Any, name: str, pair: Pair, numbers: Numbers) -> Given:
        metrics = [metric for metric, _ in numbers.values()]
        if name in self._never or self._over.is_set():
            return dict.fromkeys(metrics, Absence.UNSUPPORTED if name in self._never else Absence.EMPTY)
        try:
            self._ask_support(handle)
            return pair.look()
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            if error.code in verdicts.PERMANENT:
                self._never.add(name)
                pair.free()
            return dict.fromkeys(metrics, verdicts.absence(error.code))
        finally:
            if self._over.is_set():
                pair.free()

    def _ask_support(self, handle: Any) -> None:
        """Raise CallError where this GPU has no GPM; one that has is asked once."""
        if not self._supported:
            self._supported = bool(self._library.named("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice)
        if not self._supported:
            raise CallError(verdicts.NOT_SUPPORTED)
