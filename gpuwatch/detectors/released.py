"""What is told while the GPUs are released: somebody resets them or loads another driver, and nothing is wrong. Pure.

Such events are counted, kept and marked, but no trouble of a GPU comes of them. What is told of the time before a release or
after it means what it always means, however late it comes: the time of the event decides. So does what no reset and no driver
makes: a fault of memory or power is there when the work is done.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.catalogue.gpu import DRIVER, RELEASED_BEFORE_SINCE, RELEASED_BEFORE_UNTIL, RELEASED_SINCE, RELEASED_UNTIL
from gpuwatch.catalogue.xids import xid
from gpuwatch.detectors import causes
from gpuwatch.model.event import WHILE_RELEASED, Event
from gpuwatch.model.view import View

# What people work at meanwhile; disks and memory fail all the same.
SUBJECTS = frozenset({"gpu", "driver", "nvswitch", "pci", "pcie_port"})
LASTING_KINDS = frozenset({"ecc", "bar_unassigned"})
LASTING = frozenset({54, 156})  # a power cable that is not plugged in; a part of the chip that was retired


class Span(NamedTuple):
    """When the GPUs were released (wall clock)."""

    since: float
    until: float


def spans(view: View) -> tuple[Span, ...]:
    """Return the present release, or the last one, and the one just before it; one that is not over has no end yet."""
    found = []
    for entry in view.of(DRIVER):
        for begin, end in ((RELEASED_SINCE, RELEASED_UNTIL), (RELEASED_BEFORE_SINCE, RELEASED_BEFORE_UNTIL)):
            if begin in entry.values:
                found.append(Span(entry.values[begin], entry.values.get(end, inf)))
    return tuple(found)


def marked(event: Event, releases: Iterable[Span]) -> Event:
    """Return the event, marked where a release explains it."""
    is_within = any(release.since <= event.at <= release.until for release in releases)
    if not is_within or event.subject not in SUBJECTS or event.kind in causes.SILENT:
        return event
    if event.kind in LASTING_KINDS or (event.kind == "xid" and is_lasting(event.code)):
        return event
    return replace(event, facts={**event.facts, WHILE_RELEASED: "yes"})


def is_lasting(code: int | None) -> bool:
    """Say whether an Xid is of something that neither a reset nor a new driver brings about."""
    return code is not None and (code in LASTING or xid(code).category == "memory")


def is_explained(event: Event) -> bool:
    """Say whether nothing comes of an event. That the driver wants nothing done any more is true whoever made it so."""
    return WHILE_RELEASED in event.facts and not causes.is_end(event)
