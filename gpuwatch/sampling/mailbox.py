"""A bounded queue that never blocks the one who puts: when it is full the oldest goes, and is counted."""

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Things for one thread, from any thread."""

    def __init__(self, limit: int) -> None:
        self._things: deque[T] = deque()
        self._limit = limit
        self._filled = threading.Condition()
        self._dropped = 0

    def put(self, thing: T) -> None:
        """Add a thing; the oldest is dropped when there is no room."""
        with self._filled:
            if len(self._things) >= self._limit:
                self._things.popleft()
                self._dropped += 1
            self._things.append(thing)
            self._filled.notify()

    def get(self, seconds: float) -> T | None:
        """Return the oldest thing, or None when none came within that time."""
        with self._filled:
            if not self._filled.wait_for(lambda: self._things, seconds):
                return None
            return self._things.popleft()

    @property
    def dropped(self) -> int:
        """How many were dropped so far."""
        return self._dropped
