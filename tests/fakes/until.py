"""Waiting for something that another thread or process does."""

import threading
import time
from collections.abc import Callable


def until(is_true: Callable[[], object], seconds: float = 10.0) -> None:
    """Return once `is_true`; fail the test when it is not within `seconds`."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not is_true():
        assert time.monotonic() < end, f"not within {seconds} s"
        pause.wait(0.005)
