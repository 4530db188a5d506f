"""Time as an argument: the wall clock stamps, the monotonic clock measures."""

import time
from typing import Protocol


class Clock(Protocol):
    """Both clocks; tests hand in their own."""

    def wall(self) -> float:
        """Return seconds since 1970; may step."""
        ...

    def mono(self) -> float:
        """Return seconds that never step, with no meaning across processes."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def mono(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()
