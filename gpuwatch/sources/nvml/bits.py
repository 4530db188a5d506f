"""What the bits of NVML's event mask mean (nvml.h, nvmlEventType*), and the Event that each becomes. Pure.

P-state (0x4), clock (0x10), power source (0x80) and single-bit ECC (0x1) events are frequent, and polled numbers tell as much:
they are not asked for, and no kind of event stands for them.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from gpuwatch.catalogue.xids import xid
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import WORDS_LIMIT, Event

XID = 0x8
MIG_CHANGED = 0x100
RECOVERY_ACTION = 0x8000
UNKNOWN_XID = 999  # NVML's own number for an Xid that it cannot name
LAST_XID = 0xFFFF  # far beyond the table; what is larger is no Xid
NO_INSTANCE = 0xFFFFFFFF


class Meaning(msgspec.Struct, frozen=True):
    """What one bit tells of. A bit without a kind tells nothing by itself: what has changed is read, and told by its reader."""

    kind: str
    severity: Severity
    words: str


MEANINGS: Mapping[int, Meaning] = MappingProxyType(
    {
        0x2: Meaning("ecc", Severity.CRITICAL, "double-bit ECC error"),
        XID: Meaning("xid", Severity.WARNING, ""),  # the Xid says what it is
        MIG_CHANGED: Meaning("", Severity.INFO, ""),
        0x200: Meaning("ecc", Severity.WARNING, "storm of single-bit ECC errors"),
        0x400: Meaning("ecc", Severity.WARNING, "memory is being taken out of use after ECC errors"),
        0x800: Meaning("ecc", Severity.CRITICAL, "memory could not be taken out of use after ECC errors"),
        0x1000: Meaning("ecc", Severity.WARNING, "poisoned data, contained in one process"),
        0x2000: Meaning("ecc", Severity.CRITICAL, "poisoned data that could not be contained"),
        0x4000: Meaning("unavailable", Severity.CRITICAL, "the driver says that the GPU is unavailable"),
        RECOVERY_ACTION: Meaning("", Severity.INFO, ""),
    }
)
WANTED = sum(MEANINGS)
REREAD = WANTED & ~XID  # what these tell of is among the numbers of the slow tier


def event(key: str, bit: int, data: int, instance: tuple[int, int], at: float) -> Event | None:
    """Return the event of one bit; None for one that only says that something has to be read again, or was not asked for."""
    meaning = MEANINGS.get(bit)
    if meaning is None or not meaning.kind:
        return None
    gpu, compute = (str(number) if number != NO_INSTANCE else "" for number in instance)
    facts = {name: text for name, text in (("gpu_instance", gpu), ("compute_instance", compute)) if text}
    severity, words, code = meaning.severity, meaning.words, None
    if bit == XID:
        code = data if 0 < data <= LAST_XID else UNKNOWN_XID
        known = xid(code)
        severity = known.severity
        words = "an Xid that NVML gives no number of" if code == UNKNOWN_XID else f"Xid {code}: {known.name}"
    if gpu:
        words = f"{words} (GPU instance {gpu})"
    return Event(
        source="nvml",
        kind=meaning.kind,
        severity=severity,
        at=at,
        words=words[:WORDS_LIMIT],
        subject="gpu",
        key=key,
        code=code,
        facts=facts,
    )
