"""From records to events: joined, read, folded. One log; its records in their order.

What is whole waits for the groups that began before it, so that events come in the order in which they ended. A group is open
for a second at most, whatever else opens meanwhile; so is the wait.
"""

import heapq
import math
from collections.abc import Iterable

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel.families import family, find
from gpuwatch.sources.kernel.fold import LAG, LOST, Fold
from gpuwatch.sources.kernel.join import Join
from gpuwatch.sources.kernel.record import Dating, Found, Known, Record

OVERWRITTEN = "messages of the kernel were overwritten before they could be read"


class Stream:
    """The state of reading one log."""

    def __init__(self, boot: str = "", *, is_private: bool = False) -> None:
        self._join, self._fold, self._known = Join(), Fold(boot), Known(is_private=is_private)
        self._order = 0
        # What is whole, behind the start of an open group: a heap by place, number, and which came first.
        self._waiting: list[tuple[int, int, int, Record, Found | None]] = []
        self._pushed = 0
        self._seq: int | None = None

    def feed(self, record: Record) -> None:
        """Take the next record."""
        if record.seq is not None:
            self._follow(record)
        if not record.is_kernel:
            if record.program:
                self._read([(self._order, record)])
            return
        if not self._join.groups and not family(record.text):
            return
        self._order += 1
        self._read(self._join.feed(record, self._order))

    def settle(self, now: float) -> None:
        """End what is over `now`, on the log's own clock, where nothing more has come until then."""
        self._read(self._join.old(now))
        stamps = [group.records[-1].stamp for group in self._join.groups] + [one[3].stamp for one in self._waiting]
        self._fold.settle(min([now, *(stamp + LAG for stamp in stamps)]))  # a second to which these may yet add is not over

    def end(self) -> None:
        """End what is open: the log is over."""
        self._read(self._join.end())
        self._fold.close()

    def take(self) -> list[tuple[Event, Dating]]:
        """Return the events of the seconds that are over, each with what its time counts from."""
        return self._fold.take()

    def told(self) -> int | None:
        """Return the number of the last record up to which all has been told, None where no numbered one was read."""
        if self._seq is None:
            return None
        pending = [group.records[0].first for group in self._join.groups] + [one[3].first for one in self._waiting]
        return min((first - 1 for first in (*pending, self._fold.first()) if first is not None), default=self._seq)

    def _follow(self, record: Record) -> None:
        """Look whether numbers are missing: these records were overwritten before they could be read.

        A boot begins with 0. What an earlier run has read of what is missing before our first record, the detector knows.
        """
        first = record.first if record.first is not None else record.seq
        before = -1 if self._seq is None and self._fold.boot else self._seq
        if before is not None and first is not None and first > before + 1:
            gap = record._replace(seq=first - 1, first=before + 1, times=first - before - 1)
            self._wait(self._order, gap, Found(LOST, Severity.INFO, words=OVERWRITTEN))
        self._seq = record.seq

    def _wait(self, order: int, message: Record, known: Found | None = None) -> None:
        self._pushed += 1
        heapq.heappush(self._waiting, (order, message.seq or 0, self._pushed, message, known))

    def _read(self, whole: Iterable[tuple[int, Record]]) -> None:
        """Read whole messages in the order in which they ended, up to the start of the first group that is open."""
        for order, message in whole:
            self._wait(order, message)
        began = min((group.began for group in self._join.groups), default=math.inf)
        while self._waiting and self._waiting[0][0] < began:
            *_, message, known = heapq.heappop(self._waiting)
            for found in [known] if known else find(message, self._known):
                self._fold.add(message, found)
