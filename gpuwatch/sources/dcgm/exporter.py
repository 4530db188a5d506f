"""The page of a dcgm-exporter: one GET with a deadline for the whole of it, and what changed since the last one.

An exporter collects every 30 s by default and repeats its values in between, for ever when what it asks is gone
(gpu-monitoring-tools#188). So a Reading keeps the time at which its values first stood on the page, and where the energy of a
GPU, which never rests, has not moved for STALE seconds, its values are not given any more.

What answers may once be the exporter of another host (a proxy, an address that moved). So a GPU that turns up beside known ones
has to stand on two pages in a row, and only one that stood there for SETTLED seconds is missed.
"""

import msgspec

from gpuwatch.catalogue.gpu import ENERGY
from gpuwatch.client import Client, Unreachable
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources.dcgm import told
from gpuwatch.sources.dcgm.fields import read_all
from gpuwatch.sources.dcgm.page import CARDS, LINES, Card, Page, parse, understood
from gpuwatch.sources.source import Answer

LIMIT = 4 << 20  # bytes; 8 GPUs with 7 instances each and 93 fields have 1.3 MB
STALE = 120.0  # seconds: four times the interval at which an exporter collects
SETTLED = 60.0  # seconds on the page after which a GPU is one of this host's
FORGET = 3600.0  # seconds after which a GPU that is gone from the page is not missed any more
OK = 200
PAGE = "page"  # what is touched, in the words of the supervisor


class Seen(msgspec.Struct):
    """A GPU as it last stood on the page."""

    reading: Reading
    texts: dict[str, str]
    moved: float  # monotonic: when its energy last changed
    first: float  # monotonic: when it first stood there
    last: float  # monotonic: when it last stood there


class Exporter:
    """The page of one exporter."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._url, self._seconds = config.sources.dcgm.url, float(config.sources.dcgm.deadline)
        self._clock = clock
        self._seen: dict[str, Seen] = {}
        self._strange: frozenset[str] = frozenset()  # keys of the GPUs that stood on the last page for the first time

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read the page, once a normal round."""
        if tier is told.TIER and PAGE in skip:
            at = self._clock.wall()
            answer.reading(told.state(at, 0.0, fault=Fault("timeout", "reading the exporter's page does not return")))
        elif tier is told.TIER:
            answer.working(PAGE)
            for reading in self._read():
                answer.reading(reading)
        answer.done()

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _read(self) -> list[Reading]:
        """Return what the page says now."""
        at, started = self._clock.wall(), self._clock.mono()
        found = fetch(self._url, self._seconds)
        took = self._clock.mono() - started
        if isinstance(found, Fault):
            return [told.state(at, took, fault=found)]
        page = parse(found)
        fault = wrong(page)
        if fault is not None and (page.is_foreign or not page.cards):
            return [told.state(at, took, fault=fault)]
        strange = page.cards.keys() - self._seen.keys() - self._strange if self._seen else frozenset()
        readings = [self._card(card, at, took) for card in page.cards.values() if card.key not in strange]
        self._strange = frozenset(strange)
        gone = [] if page.is_cut else self._gone(page, at)
        parts = [told.part(one, at, took, *read_all(understood(one.texts))) for one in page.instances.values()]
        if fault is None and readings and all(Absence.LATE in reading.absent.values() for reading in readings):
            fault = Fault("stale", f"the exporter has repeated the same values for {STALE:.0f} s or more; they are not used")
        lost = {one.target.labels["gpu"] or one.target.key for one in gone}
        lost |= set() if page.is_cut else gaps(page)
        return [told.state(at, took, seen=len(readings), missing=lost, fault=fault), *readings, *gone, *parts]

    def _card(self, card: Card, at: float, took: float) -> Reading:
        """Return the reading of one GPU: the time of its values is when they came, and what is too old is not given."""
        now = self._clock.mono()
        before = self._seen.get(card.key)
        if before is not None and before.texts == card.texts:
            at = before.reading.at
        values, absent = read_all(understood(card.texts))
        is_same = before is not None and ENERGY in values and before.reading.values.get(ENERGY) == values[ENERGY]
        moved = before.moved if before is not None and is_same else now
        target = told.card(card.key, card.index, card.info)
        reading = told.numbers(target, at, took, values, absent)
        self._seen[card.key] = Seen(reading, card.texts, moved, now if before is None else before.first, now)
        if now - moved < STALE:
            return reading
        return told.numbers(target, at, took, {}, absent | dict.fromkeys(values, Absence.LATE))

    def _gone(self, page: Page, at: float) -> list[Reading]:
        """Return the GPUs that stood on the page before and do not now: all that was known of them is lost."""
        now = self._clock.mono()
        gone: list[Reading] = []
        for key, seen in list(self._seen.items()):
            if key in page.cards:
                continue
            is_over = seen.last - seen.first < SETTLED or now - seen.last > FORGET
            if is_over or key in page.divided:  # what is divided has no card-wide rows, but is there
                del self._seen[key]
                continue
            absent = dict(seen.reading.absent) | dict.fromkeys(seen.reading.values, Absence.LOST)
            gone.append(told.numbers(seen.reading.target, at, 0.0, {}, absent))
        return gone


def fetch(url: str, seconds: float) -> str | Fault:
    """Return the page, or why there is none; takes at most `seconds`, and no more than LIMIT bytes."""
    try:
        client = Client(url, who="dcgm-exporter")
        reply = client.get("" if client.place.prefix else "/metrics", seconds, LIMIT)
    except ValueError as error:
        return Fault("unreachable", f"[sources.dcgm] url: {error}")
    except Unreachable as error:
        return Fault("unreachable", str(error))
    if reply.status != OK:
        return Fault("refused", f"the exporter answers with status {reply.status} instead of a page", reply.status)
    return reply.body.decode("utf-8", "replace")


def wrong(page: Page) -> Fault | None:
    """Return what is wrong with a page as a whole."""
    if page.is_foreign:
        return Fault("foreign", f"the page has over {CARDS} GPUs or {LINES} lines: it is not that of one host")
    if not page.is_dcgm:
        return Fault("not_dcgm", "what answers is not a dcgm-exporter: its page has no number of DCGM")
    if page.is_cut:
        return Fault("cut", "the page ends in the middle of a line")
    if not page.cards and not page.divided:
        return Fault("empty", "the page has no number that is taken, of a GPU with UUID or PCI address")
    if page.broken:
        return Fault("broken", f"{page.broken} lines of the page are no rows of numbers; the others are used")
    return None


def gaps(page: Page) -> set[str]:
    """Return the numbers that DCGM leaves out: it counts from 0, and a GPU that is lost leaves its place empty."""
    there = {int(index) for index in (*(card.index for card in page.cards.values()), *page.divided.values()) if index}
    return {str(index) for index in range(max(there, default=0)) if index not in there}
