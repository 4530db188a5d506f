"""Equal events of one second become one with a count; a flood stays bounded.

The second is that of the log's own clock, so that reading a log again gives the same events with the same marks.
"""

from gpuwatch.catalogue.events import KINDS
from gpuwatch.model.alert import Severity
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.sources.kernel.record import Dating, Found, Record

SOURCE = "kernel"
LOST = "log_lost"
TELLING = ("pid", "name", "link", "cpu", "scope", "cgroup", "index", "recovery")  # facts by which two events are not equal
FINE = 256  # events of one second that are told apart by these; further ones only by kind, thing, code and severity
LAG = 0.1  # seconds after the end of a second in which its records have arrived
COARSE = 1024  # events of one second; what does not fit is counted as lost

Likeness = tuple[str, str, int | None, Severity, tuple[str | None, ...]]


class Together:
    """What stands for all equal ones."""

    __slots__ = ("count", "first", "found", "last", "record")

    def __init__(self, record: Record, found: Found) -> None:
        self.record, self.found = record, found
        self.first, self.last, self.count = record.first, record.seq, record.times * found.times


class Fold:
    """The events of one log, second by second; `boot` is the boot that its sequence numbers belong to."""

    def __init__(self, boot: str = "") -> None:
        self.boot = boot
        self._second: int | None = None
        self._open: dict[Likeness, Together] = {}
        self._lost: Together | None = None
        self._ready: list[tuple[Event, Dating]] = []

    def add(self, record: Record, found: Found) -> None:
        """Take what a message says."""
        second = int(record.stamp)
        # Two CPUs may swap the order of records that are microseconds apart.
        if self._second is None or second not in {self._second, self._second - 1}:
            self.close()
            self._second = second
        facts = found.facts
        telling = tuple(facts.get(name) for name in TELLING) if facts else ()
        likeness = (found.kind, found.key, found.code, found.severity, telling)
        same = self._open.get(likeness)
        if same is None and len(self._open) >= FINE:
            likeness = (*likeness[:4], ())
            same = self._open.get(likeness)
        if same is None and len(self._open) >= COARSE:
            found = Found(LOST, Severity.INFO, words="more kinds of events in one second than can be told apart")
        if found.kind == LOST:
            same = self._lost
        if same is not None:
            same.count += record.times * found.times
            same.last = record.seq
        elif found.kind == LOST:
            self._lost = Together(record, found)
        else:
            self._open[likeness] = Together(record, found)

    def settle(self, now: float) -> None:
        """End the second, if it is over `now` on the log's own clock."""
        if self._second is not None and now >= self._second + 1 + LAG:
            self.close()

    def close(self) -> None:
        """End the second: its events are ready, in the order of their last records' numbers, else of their first times."""
        groups = list(self._open.values())
        if self._lost is not None:
            groups.append(self._lost)
        groups.sort(key=lambda one: one.record.stamp if one.last is None else one.last)
        self._ready += [(self._event(one), one.record.dating) for one in groups]
        self._open, self._lost, self._second = {}, None, None

    def first(self) -> int | None:
        """Return the lowest number of the second that is not over, None where there is none."""
        groups = [*self._open.values(), *([] if self._lost is None else [self._lost])]
        return min((one.first for one in groups if one.first is not None), default=None)

    def take(self) -> list[tuple[Event, Dating]]:
        """Return the events that are ready, each with what its time counts from."""
        ready, self._ready = self._ready, []
        return ready

    def _event(self, one: Together) -> Event:
        found = one.found
        words = found.words or " ".join(one.record.text[: 2 * WORDS_LIMIT].split())
        mark = ""
        if self.boot and one.last is not None:
            mark = f"{self.boot}:{one.last}" if one.first in {None, one.last} else f"{self.boot}:{one.first}-{one.last}"
        return Event(
            source=SOURCE,
            kind=found.kind,
            severity=found.severity,
            at=one.record.at,
            words=printable(words[: WORDS_LIMIT + 1], WORDS_LIMIT),
            subject=KINDS[found.kind].subject,
            key=printable(found.key[:129], 128),
            code=found.code,
            facts={name: printable(text[:201]) for name, text in found.facts.items()},
            count=one.count,
            mark=mark,
        )
