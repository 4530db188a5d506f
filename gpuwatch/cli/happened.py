"""How commands write a time, and what happened at it."""

from datetime import datetime

from gpuwatch.export.events import Told
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WHILE_RELEASED

WORDS = 120  # characters of the raw line that a line of ours shows


def line(one: Told, at: str = "") -> str:
    """Return one event as a line; `at` is its time in words, where that is none of a calendar."""
    where = f"GPU {one.gpu}" if one.gpu else f"{one.subject} {one.key}".strip()
    what = f"Xid {one.code}" if one.kind == "xid" else f"SXid {one.code}" if one.kind == "sxid" else one.kind
    times = f" x{one.count}" if one.count > 1 else ""
    name = f"{one.name} (while the GPUs were released)" if WHILE_RELEASED in one.facts else one.name
    return printable(f"{at or when(one.at)}  {one.severity:8}  {where}  {what}{times}: {name} | {one.words[:WORDS]}", 400)


def when(at: float) -> str:
    """Write a time in the host's time zone; one that no calendar has, as a number."""
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"
