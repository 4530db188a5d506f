"""The events that wait for their beat: a bounded queue that any thread may put into, and that never blocks.

While there is room every event is kept as it came. A flood fills it in an instant (a failing GPU writes a line for every channel
of every process), and what it would push out is its first line, which names the cause. So a full queue first adds what comes to
a like event that waits already; only what has none there pushes out the oldest, which is counted.
"""

import threading
from collections import deque

import msgspec

from gpuwatch.model.event import Event, Likeness, like, together
from gpuwatch.model.reading import Reading
from gpuwatch.sampling import tally

LIMIT = 4096  # events
NAME = "events"


class Waiting(msgspec.Struct):
    """An event, and how many like it came since the queue is full."""

    event: Event
    more: int = 0
    mark: str = ""  # of the last of them


class Inbox:
    """Events for the judge's thread."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._latest: dict[Likeness, Waiting] = {}
        self._dropped = 0

    def put(self, event: Event) -> None:
        """Add an event; never blocks."""
        kind = like(event)
        with self._lock:
            if len(self._waiting) >= self._limit:
                fellow = self._latest.get(kind)
                if fellow is not None:
                    fellow.more += event.count
                    fellow.mark = event.mark or fellow.mark
                    return
                self._drop()
            waiting = Waiting(event)
            self._waiting.append(waiting)
            self._latest[kind] = waiting

    def take(self) -> tuple[Event, ...]:
        """Return all that waits, in the order of arrival."""
        with self._lock:
            waiting = tuple(self._waiting)
            self._waiting.clear()
            self._latest.clear()
        return tuple(together(one.event, one.more, one.mark) if one.more else one.event for one in waiting)

    def reading(self, wall: float) -> Reading:
        """Say how many were dropped."""
        return tally.dropped(NAME, self._dropped, wall)

    def _drop(self) -> None:
        oldest = self._waiting.popleft()
        kind = like(oldest.event)
        if self._latest[kind] is oldest:
            del self._latest[kind]
        self._dropped += oldest.event.count + oldest.more
