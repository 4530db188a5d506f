"""A Reading while it is put together: a value, or the reason why there is none."""

import math
from collections.abc import Callable, Iterable

from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs


class Look:
    """One look at one target, begun now."""

    def __init__(self, source: str, tier: Tier, target: Target, clock: Clock) -> None:
        self._source, self._tier, self._target, self._clock = source, tier, target, clock
        self._at, self._started = clock.wall(), clock.mono()
        self.values: dict[Metric, float] = {}
        self.absent: dict[Metric, Absence] = {}

    def take(self, metric: Metric, read: Callable[[], float | None]) -> None:
        """Add what `read` returns; None means that there is nothing now. It may raise OSError, and ValueError for garbage."""
        try:
            value = read()
            if value is None:
                self.absent[metric] = Absence.EMPTY
            else:
                self.values[metric] = finite(value)
        except OSError as error:
            self.absent[metric] = sysfs.why(error)
        except (ValueError, OverflowError):
            self.absent[metric] = Absence.FAILED

    def take_all(self, metrics: Iterable[Metric], read: Callable[[], dict[Metric, float]]) -> None:
        """Add what one `read` returns for several metrics; one that it does not return is unsupported. May raise as in `take`."""
        try:
            found, why = {metric: finite(value) for metric, value in read().items()}, Absence.UNSUPPORTED
        except OSError as error:
            found, why = {}, sysfs.why(error)
        except (ValueError, OverflowError):
            found, why = {}, Absence.FAILED
        self.values |= found
        self.absent |= {metric: why for metric in metrics if metric not in found}

    def lack(self, metrics: Iterable[Metric], why: Absence) -> None:
        """Say why these are not there."""
        self.absent |= dict.fromkeys(metrics, why)

    def reading(self, fault: Fault | None = None) -> Reading:
        """Return what was found, with the time that it took."""
        return Reading(
            source=self._source,
            tier=self._tier,
            target=self._target,
            at=self._at,
            took=self._clock.mono() - self._started,
            values=self.values,
            absent=self.absent,
            fault=fault,
        )


def finite(value: float) -> float:
    """Return the value; raises ValueError for NaN and infinity, which `float` takes from text."""
    if not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)
