"""What the worker before has logged of a GPU, until it is known whether it goes on or is over."""

import threading

from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Fault

Said = tuple[str, float]  # the kind of a fault that was logged, and its age in seconds


class Inherited:
    """A fault that was said and is not over yet. Several threads find out how it goes on; it is taken once."""

    def __init__(self, clock: Clock, said: Said | None) -> None:
        self._lock = threading.Lock()
        self._left = None if said is None else (said[0], clock.mono() - said[1])

    def since(self, otherwise: float) -> float:
        """Return when it began (monotonic), `otherwise` where there is none."""
        left = self._left
        return otherwise if left is None else left[1]

    def take(self, fault: Fault) -> bool:
        """Take it over as the fault that there is now; return whether that is the same, so that it was said already."""
        with self._lock:
            left, self._left = self._left, None
        return left is not None and fault.kind in (left[0], "unknown_error")  # a lost GPU is reported as 15 or 999, in turns

    def end(self) -> float | None:
        """Take it as over; return when it began, None where there was none."""
        with self._lock:
            left, self._left = self._left, None
        return None if left is None else left[1]
