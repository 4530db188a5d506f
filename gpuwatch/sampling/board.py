"""The board: the last reading of each (source, tier, target), and the View that it makes of them."""

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from gpuwatch.model.metric import Metric
from gpuwatch.model.order import Words, place_of
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.sampling import tally

TRUST = {"nvml": 0, "dcgm": 1, "pci": 2, "derived": 9}  # merged by metric in this order, all others between pci and derived
OTHERS = 5
FORGET = 3600.0  # seconds after the last of a target's readings went late
LIMIT = 20_000  # readings kept; a host of 8 GPUs has a few hundred


class Cadence(msgspec.Struct, frozen=True):
    """How often a tier of a source is read and how long that may take: how long its values count."""

    period: float
    deadline: float

    @property
    def life(self) -> float:
        """Seconds for which a value counts after it arrived."""
        return max(3 * self.period, self.deadline + self.period)


DEFAULT: Mapping[Tier, Cadence] = {
    Tier.FAST: Cadence(1, 5),
    Tier.NORMAL: Cadence(10, 5),
    Tier.SLOW: Cadence(60, 10),
}


class Kept(msgspec.Struct):
    """A reading, when it came and until when it counts (monotonic); `rank`: the lower, the more trusted, then the newer."""

    reading: Reading
    until: float
    rank: tuple[int, float]
    why: Absence = Absence.LATE  # why its values are absent after that


TRUSTED_FIRST = attrgetter("rank")  # the order in which readings of one target are merged


class Place(msgspec.Struct):
    """All that the board holds of one target, and the entry made of it."""

    kept: dict[tuple[str, Tier], Kept] = {}
    last: float = 0.0  # when the last of them goes late
    entry: Entry | None = None  # None: has to be made anew
    until: float = 0.0  # when the first reading in `entry` goes late
    labels: Mapping[str, str] | None = None  # those that `order` was made of
    order: tuple[str, tuple[Words, ...]] = ("", ())


class Board:
    """Readings come in from any thread; immutable Views go out. One lock, held for microseconds."""

    def __init__(self, cadences: Mapping[tuple[str, Tier], Cadence], limit: int = LIMIT) -> None:
        self._lives = {key: cadence.life for key, cadence in cadences.items()}
        self._limit = limit
        self._lock = threading.Lock()
        self._places: dict[Target, Place] = {}
        self._entries: dict[Target, Entry] = {}  # of the last view
        self._is_sorted = True  # `_entries`; a beat that brings no target and no other label sorts nothing
        self._count = 0
        self._dropped = 0
        self._withdrawn: frozenset[str] = frozenset()  # sources from which nothing is taken

    def post(self, reading: Reading, mono: float) -> bool:
        """Keep a reading in place of the last one of its source, tier and target, also when its wall time goes back.

        One of a brief subject that says nothing says that its target is over, which is forgotten at once.
        Returns whether it is the first of its kind.
        """
        key = (reading.source, reading.tier)
        life = self._lives.get(key)
        until = mono + (DEFAULT[reading.tier].life if life is None else life)
        is_over = reading.target.subject.brief and not (reading.values or reading.absent or reading.fault)
        with self._lock:
            if reading.source in self._withdrawn:
                return False
            place = self._places.get(reading.target)
            if is_over:
                if place is not None:
                    self._forget(reading.target)
                return False
            is_first = place is None or key not in place.kept
            if is_first:
                if self._count >= self._limit:
                    self._dropped += 1
                    return False
                self._count += 1
            if place is None:
                place = self._places[reading.target] = Place()
            place.kept[key] = Kept(reading, until, (TRUST.get(reading.source, OTHERS), -mono))
            place.last = max(place.last, until)
            place.entry = None
            return is_first

    def withdraw(self, sources: Collection[str], mono: float) -> None:
        """Take back all that these sources have said, as RELEASED, and take nothing from them until `admit`."""
        with self._lock:
            self._withdrawn = frozenset(sources)
            for target, place in list(self._places.items()):
                for key in [key for key in place.kept if key[0] in self._withdrawn]:
                    if target.subject.brief:
                        del place.kept[key]
                        self._count -= 1
                    else:
                        place.kept[key].until, place.kept[key].why = min(mono, place.kept[key].until), Absence.RELEASED
                    place.entry = None
                if not place.kept:
                    self._forget(target)

    def admit(self) -> None:
        """Take readings from every source again; what was taken back and is not said anew is LATE from now on."""
        with self._lock:
            self._withdrawn = frozenset()
            for place in self._places.values():
                for kept in place.kept.values():
                    if kept.why is Absence.RELEASED:
                        kept.why, place.entry = Absence.LATE, None

    def view(self, wall: float, mono: float) -> View:
        """Return what is known now. Entries that did not change are those of the last view: they are immutable.

        The keys stay the very same objects, so that nothing has to be compared to find them again. Whoever tells of targets
        goes by the order of this: by subject, then as people count.
        """
        gone: list[Target] = []
        with self._lock:
            for target, place in self._places.items():
                if mono > place.last + (0.0 if target.subject.brief else FORGET):
                    gone.append(target)
                elif place.entry is None or mono >= place.until:
                    place.entry, place.until = merge(place.kept.values(), mono)
                    self._entries[target] = place.entry
                    labels = place.entry.target.labels
                    if place.labels is not labels and place.labels != labels:
                        place.labels, place.order = labels, (target.subject.name, place_of(labels))
                        self._is_sorted = False
            for target in gone:
                self._forget(target)
            if not self._is_sorted:
                self._entries = dict(sorted(self._entries.items(), key=lambda item: self._places[item[0]].order))
                self._is_sorted = True
            return View(wall, MappingProxyType(self._entries.copy()), mono=mono)

    def _forget(self, target: Target) -> None:
        """Let go of all that is kept of a target."""
        self._count -= len(self._places.pop(target).kept)
        self._entries.pop(target, None)

    def readings(self, wall: float) -> list[Reading]:
        """Return the board's own number: readings that found it full."""
        with self._lock:
            dropped = self._dropped
        return [tally.dropped("board", dropped, wall)]


def merge(all_kept: Iterable[Kept], mono: float) -> tuple[Entry, float]:
    """Return the entry that these readings of one target make, and until when it holds.

    A value of any reading that counts wins over an absence; of two values, or two absences, that of the more trusted source,
    then the newer. What only a late reading knew is LATE; that a device will never have it stays true.
    """
    kept = sorted(all_kept, key=TRUSTED_FIRST)
    current = [one for one in kept if mono < one.until]
    late = [one for one in kept if mono >= one.until]
    values: dict[Metric, float] = {}
    absent: dict[Metric, Absence] = {}
    for one in reversed(late):
        absent.update(dict.fromkeys(one.reading.values, one.why))
        for metric, why in one.reading.absent.items():
            absent[metric] = why if why is Absence.UNSUPPORTED else one.why
    for one in reversed(current):
        values.update(one.reading.values)
        absent.update(one.reading.absent)
    for metric in absent.keys() & values.keys():
        del absent[metric]
    entry = Entry(
        identity([one.reading.target for one in (*current, *late)]),
        MappingProxyType(values),
        MappingProxyType(absent),
        tuple([one.reading for one in current]),
    )
    return entry, min([one.until for one in current], default=math.inf)


def identity(targets: Sequence[Target]) -> Target:
    """Return the first target, with text facts that only the others know."""
    first = targets[0]
    info: dict[str, str] = {}
    for target in reversed(targets):
        info.update(target.info)
    return first if info == first.info else replace(first, info=info)
