"""Who was refused, in the log: one line a minute for each, with how many were refused without one."""

import logging
import threading

EVERY = 60.0  # seconds between two lines about the same
MOST = 1_000  # of whom it is remembered when the last line was: beyond that nobody gets one until others are forgotten

log = logging.getLogger(__name__)


class Refusals:
    """Counts refusals by who was refused what. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}  # when it was said (monotonic), and how many came since

    def note(self, what: str, mono: float) -> None:
        """Log this refusal, or count it for the next line about the same."""
        with self._lock:
            if len(self._said) >= MOST:
                self._said = {known: found for known, found in self._said.items() if mono - found[0] < EVERY}
            at, count = self._said.get(what, (mono - EVERY, 0))
            if mono - at < EVERY:
                self._said[what] = at, count + 1
                return
            if what not in self._said and len(self._said) >= MOST:
                return
            self._said[what] = mono, 0
        more = f" ({count} more times since the last line about it)" if count else ""
        log.warning("%s%s", what, more)
