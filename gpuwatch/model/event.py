"""Something that happened once: an Xid, an OOM kill, a changed MIG layout; as one source told it, or merged from several."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from gpuwatch.model.alert import Severity

WORDS_LIMIT = 400  # characters of `words`
WHILE_RELEASED = "released"  # the fact that marks what a release of the GPUs explains


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. What it may mean beside others is for the detectors to say.

    `kind` is a name of `catalogue.events.KINDS`. `key` names the thing as the source knows it: a GPU by UUID, else by PCI
    address (`0000:65:00.0`, lower case, 4-digit domain where it fits, function 0 where the driver leaves it out); a disk, file
    system, port or interface by its kernel name; "" is the subject as a whole. `facts` hold what was read beside it (`pid`,
    `name`, `link`, `recovery`, ...), never an argument or an environment of a process.
    """

    source: str  # nvml, kernel, jobs, derived, ...
    kind: str
    severity: Severity  # what this event alone would mean
    at: float  # wall clock, seconds: when it happened, as far as the source can tell
    words: str  # one printable line, at most WORDS_LIMIT characters
    subject: str = "host"  # Subject.name
    key: str = ""
    code: int | None = None  # Xid or SXid
    facts: Mapping[str, str] = {}
    count: int = 1  # equal events that this one stands for
    mark: str = ""  # `boot id:sequence` of a kernel record, so that it is never told twice; "" where there is none.
    # One that stands for several has `boot id:first-last`.


Likeness = tuple[str, str, str, str, int | None]


def like(event: Event) -> Likeness:
    """Return what events have in common that may be told as one in a flood: everything but time, words and facts."""
    return event.source, event.kind, event.subject, event.key, event.code


def together(event: Event, more: int, mark: str) -> Event:
    """Return an event that also stands for `more` later ones like it, the last of which has this mark."""
    boot, _, first = event.mark.rpartition(":")
    last_boot, _, last = mark.rpartition(":")
    is_one_boot = boot and boot == last_boot
    span = f"{boot}:{first.partition('-')[0]}-{last.rpartition('-')[2]}"
    return replace(event, count=event.count + more, mark=span if is_one_boot else event.mark)
