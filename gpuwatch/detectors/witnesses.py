"""NVML and the kernel log tell of the same Xid: each event counts once, and none twice after a restart.

NVML tells sooner and without words; what it tells is held back for a moment for the kernel's line, which is kept in its place.
A change of the recovery action may be told thrice: by the kernel's line, by NVML's event of Xid 154, which does not say what it
changed to, and by the action itself, which without an event of its own is only noticed when it is read the next time.
"""

import msgspec
from msgspec.structs import replace

from gpuwatch.detectors import causes
from gpuwatch.model.event import Event

SAME = 2.0  # seconds between the two tellings of one event (design.md 3)
NEAR = 0.5  # seconds between tellings by one source that are taken together
MEMORY = 60.0  # seconds for which the second telling may be late in coming
HOLD = 3.0  # seconds for which NVML's telling waits for the kernel's
POOL = 32  # tellings of one trouble that wait for their second
CHANGES = 16  # changes of the recovery action of one GPU that wait for their other tellings
TWICE = frozenset({"xid", "recovery_action"})  # kinds that two sources tell of


def trouble(event: Event) -> str:
    """Return what two tellings of one event have in common."""
    return f"{event.key}|{causes.label(event)}"


def number(event: Event) -> str:
    """Return the recovery action that an event says the driver wants now, "" where it says none."""
    return event.facts.get("recovery", "")


def agree(one: str, other: str) -> bool:
    """Say whether two tellings of a recovery action may be of the same change."""
    return not one or not other or one == other


class Lone(msgspec.Struct, array_like=True):
    """A telling whose second one has not come yet."""

    at: float
    source: str
    count: int
    heard: float  # the detector's own clock


class Change(msgspec.Struct, array_like=True):
    """A change of the recovery action, which came about between two times, and who has told of it."""

    since: float
    at: float
    number: str
    count: int
    tellers: list[str]
    heard: float  # the detector's own clock


class Held(msgspec.Struct, array_like=True):
    """An event of NVML that waits for the kernel's line."""

    event: Event
    until: float


class Witnesses(msgspec.Struct):
    """What was told so far. `high` is the last kernel record of this boot that was taken in, `read` the last that was read."""

    boot: str = ""
    high: int = -1
    read: int = -1
    lone: dict[str, list[Lone]] = {}
    changes: dict[str, list[Change]] = {}
    held: dict[str, list[Held]] = {}

    def fresh(self, events: tuple[Event, ...]) -> list[Event]:
        """Return the events that were not taken in before, by their marks.

        A flood is folded on its way, so marks of one beat lie across each other: all of them are held against those before it.
        """
        found: list[Event] = []
        high, read, boot = self.high, self.read, self.boot
        for event in events:
            event_boot, _, numbers = event.mark.rpartition(":")
            first, _, last = numbers.partition("-")
            if not event_boot or not first.isdecimal():
                found.append(event)
                continue
            # Most of what is read tells nothing: only what was not read is lost, though no event came of it.
            before = -1 if event_boot != boot else max(high, read) if event.kind == "log_lost" else high
            end = int(last) if last.isdecimal() else int(first)
            self.begin(event_boot)
            self.high = max(self.high, end)
            if end <= before:
                continue
            if int(first) <= before:  # begun before the restart: no more than the records since then can be new
                found.append(replace(event, count=max(1, min(event.count, end - before))))
            else:
                found.append(event)
        return found

    def begin(self, boot: str) -> None:
        """Begin with the numbers of another boot, if it is another."""
        if boot != self.boot:
            self.boot, self.high, self.read = boot, -1, -1

    def has_read(self, boot: str, last: int) -> None:
        """Take note up to which record of this boot all has been told."""
        if boot:
            self.begin(boot)
            self.read = max(self.read, last)

    def count(self, event: Event, clock: float, reread: float) -> int:
        """Return how many of these were not told by the other source; `reread`: in how many seconds all is read again."""
        if event.kind not in TWICE:
            return event.count
        if causes.is_recovery(event):
            return self.count_change(event, clock, reread)
        name = trouble(event)
        pool = [one for one in self.lone.get(name, ()) if clock - one.heard <= MEMORY]
        rest = event.count
        for one in pool:
            if one.source != event.source and abs(one.at - event.at) <= SAME:
                both = min(one.count, rest)
                one.count -= both
                rest -= both
        near = next((one for one in pool if one.source == event.source and abs(one.at - event.at) <= NEAR), None)
        if near is not None:
            near.count, near.heard = near.count + rest, clock
        elif rest:
            pool.append(Lone(event.at, event.source, rest, clock))
        self.lone[name] = [one for one in pool if one.count][-POOL:]
        return rest

    def count_change(self, event: Event, clock: float, reread: float) -> int:
        """Return how many of these changes of the recovery action were not told before."""
        teller, to = f"{event.source} {event.kind}", number(event)
        since = event.at - reread if event.kind == "recovery_action" else event.at
        pool = [one for one in self.changes.get(event.key, ()) if clock - one.heard <= MEMORY + reread]
        rest = event.count
        for one in tuple(pool):
            is_then = since <= one.at + SAME and one.since <= event.at + SAME
            if not rest or teller in one.tellers or not is_then or not agree(to, one.number):
                continue
            both = min(one.count, rest)
            if both < one.count:
                pool.append(replace(one, count=one.count - both, tellers=[*one.tellers]))
            one.since, one.at, one.number = max(one.since, since), min(one.at, event.at), one.number or to
            one.count, rest = both, rest - both
            one.tellers.append(teller)
        near = next((one for one in pool if (one.tellers, one.number) == ([teller], to) and abs(one.at - event.at) <= NEAR), None)
        if near is not None:
            near.count, near.heard = near.count + rest, clock
        elif rest:
            pool.append(Change(since, event.at, to, rest, [teller], clock))
        self.changes[event.key] = pool[-CHANGES:]
        return rest

    def keep(self, event: Event, count: int, clock: float) -> list[Event]:
        """Return what is to be kept of an event of which so many are new."""
        if event.kind not in TWICE:
            return [event]
        name = trouble(event)
        held = self.held.get(name, [])
        if event.source == "nvml":
            if count and held and abs(held[-1].event.at - event.at) <= NEAR and number(held[-1].event) == number(event):
                held[-1].event = replace(held[-1].event, count=held[-1].event.count + count)
            elif count:
                self.held[name] = [*held, Held(replace(event, count=count), clock + HOLD)]
            return []
        waiting = [one for one in held if abs(one.event.at - event.at) <= SAME and agree(number(one.event), number(event))]
        if waiting:
            self.held[name] = [one for one in held if all(one is not other for other in waiting)]
        total = count + sum(one.event.count for one in waiting)
        return [replace(event, count=total)] if total else []

    def due(self, clock: float, reread: float) -> list[Event]:
        """Return the events of NVML for which no line has come, and forget what is long past."""
        over = [one.event for held in self.held.values() for one in held if one.until <= clock]
        waiting = {name: [one for one in held if one.until > clock] for name, held in self.held.items()}
        self.held = {name: held for name, held in waiting.items() if held}
        self.lone = {name: pool for name, pool in self.lone.items() if pool and clock - pool[-1].heard <= MEMORY}
        self.changes = {key: pool for key, pool in self.changes.items() if pool and clock - pool[-1].heard <= MEMORY + reread}
        return over
