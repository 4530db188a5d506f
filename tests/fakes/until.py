"""Waiting for something that another thread or process does."""

import threading
import time
from collections.abc import Callable

# Seconds after which a test gives up on what must come. A wait costs no more than the thing takes, so only a test that fails
# waits so long; a machine under load is several times slower than a quiet one. Shorter waits are for claims about time.
PATIENCE = 60.0
SHORTEST, LONGEST = 0.002, 0.05  # seconds between two looks: what takes long is looked at less often, since looking costs, too
SLOWER = 10.0  # seconds that a loaded machine may add to what is timed: what must not be waited for has to take longer than this


def until(
    is_true: Callable[[], object], seconds: float = PATIENCE, said: Callable[[], object] = str, pause: float = SHORTEST
) -> None:
    """Return once `is_true`; fail the test when it is not within `seconds`, with what was `said` by then.

    `pause` is that before the second look; where a look is dear it is longer, and grows to no more than twice.
    """
    end, never, longest = time.monotonic() + seconds, threading.Event(), max(LONGEST, 2 * pause)
    while not is_true():
        assert time.monotonic() < end, f"not within {seconds} s {said()}"
        never.wait(pause)
        pause = min(pause * 1.5, longest)
