"""What was attached when all of it had last told of itself, over restarts: what a release compares with that comes too early.

Right after a start, or while the driver does not answer, nobody knows what there was; a new driver would go unnoticed.
"""

import logging

import msgspec

from gpuwatch.daemon import attached
from gpuwatch.daemon.attached import Snapshot
from gpuwatch.daemon.kept import Store
from gpuwatch.model.view import View

STATE, VERSION = "attached", 1
EVERY = 60.0  # seconds between two looks

log = logging.getLogger("gpuwatch")


class Seen:
    """It, as far as it is known. The caller sees to it that one thread asks at a time."""

    def __init__(self, store: Store) -> None:
        self._store, self._last = store, Snapshot()
        self._recalled = False  # until then nothing is kept: it would stand in place of what an earlier run has seen
        self._next = 0.0  # monotonic

    def recall(self) -> None:
        """Take up what an earlier run has seen; called once the memory can be read."""
        self._recalled = True
        version, blob = self._store.load_state(STATE) or (VERSION, b"")
        try:
            if blob and version == VERSION:
                self._last = msgspec.msgpack.decode(blob, type=Snapshot)
        except msgspec.MsgspecError:
            log.warning("what was attached before cannot be read: what has changed since is not told")

    def is_due(self, mono: float) -> bool:
        """Say whether it is time for a look."""
        return self._recalled and mono >= self._next

    def note(self, view: View, mono: float) -> None:
        """Look, and keep it where it is another than before; what has not told all of itself yet is left for the next look."""
        self._next = mono + EVERY
        if self._recalled and attached.is_whole(view, Snapshot()) and (now := attached.snapshot(view)) != self._last:
            self._last = now
            self._store.save_state(STATE, VERSION, msgspec.msgpack.encode(now))

    @property
    def last(self) -> Snapshot:
        """What was seen last, of any run; empty where that is not known."""
        return self._last

    def before(self, view: View) -> Snapshot:
        """Return what there is now, or was last where that has not told all of itself yet; another driver makes that void."""
        now = attached.snapshot(view)
        is_known = bool(self._last.driver) and now.driver in ("", self._last.driver)
        return self._last if is_known and not attached.is_whole(view, Snapshot()) else now
