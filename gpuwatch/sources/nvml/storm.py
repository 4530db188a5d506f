"""Equal events that follow each other closely: the first is told at once, the others as one with their count. Pure."""

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event, Likeness, like, together

WINDOW = 1.0  # seconds
MOST = 32  # different events of one GPU in a window: more than any cause has been seen to make

TOO_MANY = "more different events in one second than can be told apart"


class Window(msgspec.Struct):
    """One kind of event that has just been told, and what came after it."""

    until: float  # monotonic
    more: Event | None = None


class Fold:
    """What one GPU has told of in the last second. What is too much even for that is told as one `events_lost`."""

    def __init__(self) -> None:
        self._open: dict[tuple[Likeness, str], Window] = {}

    @property
    def holds(self) -> bool:
        """Whether something may be due in a while."""
        return bool(self._open)

    def add(self, event: Event, now: float) -> list[Event]:
        """Take an event; return what is to be told now."""
        told = self.due(now)
        likeness = like(event), event.words
        window = self._open.get(likeness)
        if window is None and len(self._open) >= MOST:
            event = replace(event, kind="events_lost", severity=Severity.INFO, words=TOO_MANY, code=None, facts={})
            likeness = like(event), event.words
            window = self._open.get(likeness)
        if window is not None:
            window.more = together(window.more, event.count, event.mark) if window.more else event
        else:
            self._open[likeness] = Window(now + WINDOW)
            told.append(event)
        return told

    def due(self, now: float) -> list[Event]:
        """Return what has come together in the windows that are over; what goes on has its next one."""
        over = [(likeness, window) for likeness, window in self._open.items() if now >= window.until]
        for likeness, window in over:
            if window.more is None:
                del self._open[likeness]
            else:
                self._open[likeness] = Window(now + WINDOW)
        return [window.more for _, window in over if window.more is not None]

    def rest(self) -> list[Event]:
        """Return all that has not been told yet; the end."""
        told = [window.more for window in self._open.values() if window.more is not None]
        self._open.clear()
        return told
