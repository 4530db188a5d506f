"""What events add up to: Xids by GPU and code, SXids, falls from the bus, kernel events. They survive restarts.

What would be too many different codes is counted together, so that no event is in no number.
"""

from collections.abc import Collection, Iterator

import msgspec

from gpuwatch.catalogue import events
from gpuwatch.catalogue.own import OWN
from gpuwatch.catalogue.xids import BEGIN_AT_0, RECOVERY_CHANGED, xid
from gpuwatch.detectors import causes
from gpuwatch.detectors.places import Places
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target

REFRESH = 60.0  # seconds between two tellings of what has not changed
TELL = 5.0  # seconds between two tellings of what has: each is also written, so that no counter falls after a kill
LIMIT = 512  # codes by GPU, and of switches; junk must not grow without end
KERNEL = Target(subject=events.KERNEL, key="")
OURS = Target(subject=OWN, key="")
ALL = frozenset({events.XID.name, events.KERNEL.name})


class Total(msgspec.Struct, array_like=True):
    """How often a code was told, and when last."""

    count: int = 0
    last: float | None = None


class Fall(msgspec.Struct, array_like=True):
    """How often a GPU fell off the bus; `since` while it has not come back, the wall time of the last sign of it."""

    count: int = 0
    since: float | None = None


class Counters(msgspec.Struct):
    """All counters. Keys: `gpu|code`, `switch|code|fatal`, a GPU, a kind of event."""

    xids: dict[str, Total] = {}
    sxids: dict[str, int] = {}
    falls: dict[str, Fall] = {}
    kernel: dict[str, int] = {}
    lost: int = 0
    uncounted: int = 0
    told_at: float | None = None  # the detector's own clock
    told_of: dict[str, dict[str, str]] = {}  # the GPUs with their labels, as they were then
    news: set[str] = set()  # the subjects whose counters have grown since they were told
    news_at: float | None = None  # when such were told last
    fallen: bool = False  # a GPU was counted to have fallen since what was counted was last written

    def add(self, event: Event, count: int) -> None:
        """Count an event, where it is of a kind that is counted here."""
        subject = self.counted(event, count) if count else None
        if subject is not None:
            self.news.add(subject.name)

    def counted(self, event: Event, count: int) -> Subject | None:
        """Count an event; return whose counters have grown, None where it is of no kind that is counted here."""
        if event.kind == "log_lost":
            self.lost += count
        elif event.kind == "events_lost":
            self.uncounted += count
        elif event.kind == "sxid":
            name = f"{event.key}|{event.code}|{event.facts.get('fatal') or 'no'}"
            if name in self.sxids or len(self.sxids) < LIMIT:
                self.sxids[name] = self.sxids.get(name, 0) + count
            else:
                self.uncounted += count
            return events.XID
        elif causes.is_recovery(event) or event.kind == "xid":
            self.add_xid(event.key, event.code or RECOVERY_CHANGED, count, event.at)
            return events.XID
        elif event.kind in events.KINDS and events.KINDS[event.kind].counted:
            self.kernel[event.kind] = self.kernel.get(event.kind, 0) + count
        else:
            return None
        return events.KERNEL

    def add_xid(self, key: str, code: int, count: int, at: float) -> None:
        """Count an Xid."""
        name = f"{key}|{code}"
        if name in self.xids or len(self.xids) < LIMIT:
            total = self.xids.setdefault(name, Total())
            total.count += count
            total.last = at if total.last is None else max(total.last, at)
        else:
            self.uncounted += count

    def fall(self, key: str, at: float) -> None:
        """Take a sign that a GPU has fallen off the bus; several signs of one fall count once."""
        fall = self.falls.setdefault(key, Fall())
        self.fallen = self.fallen or fall.since is None
        fall.count += fall.since is None
        fall.since = at if fall.since is None else max(fall.since, at)

    def works(self, key: str, at: float, grace: float) -> None:
        """Take note that a GPU answered; its next fall is another one."""
        fall = self.falls.get(key)
        if fall is not None and fall.since is not None and at > fall.since + grace:
            fall.since = None

    def forget(self, keys: Collection[str]) -> None:
        """Drop what is counted of GPUs that are no more."""
        if not keys:
            return
        self.xids = {name: total for name, total in self.xids.items() if name.partition("|")[0] not in keys}
        self.falls = {name: fall for name, fall in self.falls.items() if name not in keys}

    def rename(self, old: str, new: str) -> None:
        """Move what was counted under an address to the GPU that has turned out to be there."""
        for name in [name for name in self.xids if name.partition("|")[0] == old]:
            moved = self.xids.pop(name)
            total = self.xids.setdefault(f"{new}|{name.partition('|')[2]}", Total())
            total.count += moved.count
            total.last = max(filter(None, (total.last, moved.last)), default=None)
        fallen = self.falls.pop(old, None)
        if fallen is not None:
            fall = self.falls.setdefault(new, Fall())
            fall.count, fall.since = fall.count + fallen.count, fallen.since or fall.since

    def due(self, places: Places, clock: float, *, shows: bool) -> tuple[Collection[str], bool]:
        """Return the subjects whose counters are to be told, and whether any has grown: then what is told has to be written.

        All are told after a while, where there are other GPUs or the board does not show them; else those that have grown.
        """
        present = {key: card.labels for key, card in places.cards.items()}
        is_time = self.told_at is None or clock - self.told_at >= REFRESH or present != self.told_of or not shows
        if is_time:
            self.told_at, self.told_of = clock, present
        told: Collection[str] = ()
        if is_time or (self.news and (self.news_at is None or clock - self.news_at >= TELL)):
            told = ALL if is_time else self.news
        grown = self.fallen or bool(told and self.news)
        if told and self.news:
            self.news, self.news_at = set(), clock
        self.fallen = False
        return told, grown

    def codes(self, places: Places, wall: float) -> Iterator[Reading]:
        """Yield the counts by code: slow, since they hardly ever change and there are many."""
        for key in places.cards:
            for code in BEGIN_AT_0:
                self.xids.setdefault(f"{key}|{code}", Total())
        for name, total in self.xids.items():
            key, _, number = name.partition("|")
            target = places.target(key)
            labels = {**target.labels, "xid": number, "severity": xid(int(number)).severity.value}
            values: dict[Metric, float] = {events.XID_ERRORS: float(total.count)}
            if total.last is not None:
                values[events.XID_LAST] = total.last
            yield slow(Target(subject=events.XID, key=name, labels=labels), values, wall)
        for name, count in self.sxids.items():
            switch, number, fatal = name.split("|")
            labels = {"nvswitch": switch, "sxid": number, "fatal": fatal}
            yield slow(Target(subject=events.SXID, key=name, labels=labels), {events.SXID_ERRORS: float(count)}, wall)

    def others(self, wall: float) -> Iterator[Reading]:
        """Yield what else is counted."""
        kernel = {metric: float(self.kernel.get(kind, 0)) for kind, metric in events.KERNEL_EVENTS.items()}
        yield slow(KERNEL, {**kernel, events.KERNEL_LOG_LOST: float(self.lost)}, wall)
        yield slow(OURS, {events.EVENTS_UNCOUNTED: float(self.uncounted)}, wall)


def slow(target: Target, values: dict[Metric, float], wall: float) -> Reading:
    """Return a reading that counts for minutes."""
    return Reading(source="derived", tier=Tier.SLOW, target=target, at=wall, took=0.0, values=values)
