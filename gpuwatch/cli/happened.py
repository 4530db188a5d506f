"""How commands read and write a time, and what happened at it."""

import time

from gpuwatch.config import ConfigError
from gpuwatch.export.events import Told
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WHILE_RELEASED
from gpuwatch.model.moment import moment, stamp
from gpuwatch.model.quantity import DURATION, duration

WORDS = 120  # characters of the raw line that a line of ours shows


def line(one: Told, at: str = "") -> str:
    """Return one event as a line; `at` is its time in words, where that is none of a calendar."""
    where = f"GPU {one.gpu}" if one.gpu else f"{one.subject} {one.key}".strip()
    what = f"Xid {one.code}" if one.kind == "xid" else f"SXid {one.code}" if one.kind == "sxid" else one.kind
    times = f" x{one.count}" if one.count > 1 else ""
    name = f"{one.name} (while the GPUs were released)" if WHILE_RELEASED in one.facts else one.name
    is_new = one.words not in {"", one.name, f"{what}: {one.name}"}  # NVML has no line that it was told in
    more = f" | {one.words[:WORDS]}" if is_new else ""
    return printable(f"{at or stamp(one.at)}  {one.severity:8}  {where}  {what}{times}: {name}{more}", 400)


def instant(option: str, text: str) -> str:
    """Return a time as the daemon takes it, a date of our time zone by its seconds; raises ConfigError.

    How long ago it is counts from the daemon's now: its clock may go otherwise.
    """
    try:
        if DURATION.fullmatch(text):
            duration(text)
            return text
        return f"{moment(text, time.time(), is_local=True):.3f}"
    except ValueError as error:
        raise ConfigError(option, "", str(error)) from None
