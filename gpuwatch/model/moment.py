"""A moment, as people and programs write it: so long ago, seconds since 1970, or a date with its time zone (RFC 3339)."""

import math
import re
from datetime import datetime, timedelta, timezone

from gpuwatch.model.quantity import DURATION, duration

EVER = 2.0**40  # seconds since 1970
# RFC 3339, 5.6; a space for the T (a note there allows it), and one for the plus of the zone, which it means in a query.
STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(?:(:\d\d)(?:\.(\d+))?)?([Zz]|[+\- ]\d\d:\d\d)?", re.ASCII)
EXPECTED = "expected a time ago such as 6h or 7d, seconds since 1970, or a time such as 2024-05-01T14:00:00Z"
HERE = f'{EXPECTED} or, in this host\'s time zone, "2024-05-01 14:00"'


def moment(text: str, now: float, *, is_local: bool = False) -> float:
    """Return the wall time that `text` means; raises ValueError in words.

    A date without its time zone is of this host's where `is_local`, else refused: who asks may be elsewhere. Of an hour that
    comes twice there, when the clocks are set back, it is the first.
    """
    if DURATION.fullmatch(text):
        return now - duration(text)
    found = STAMP.fullmatch(text)
    if found is not None:
        return dated(found, text, is_local=is_local)
    try:
        seconds = float(text) if text.isascii() and "_" not in text else math.nan  # 1_0 is Python
    except ValueError:
        seconds = math.nan
    if not -EVER <= seconds <= EVER:
        raise ValueError(f"{HERE if is_local else EXPECTED}, got {text[:40]!r}")
    return seconds


def dated(found: re.Match[str], text: str, *, is_local: bool) -> float:
    """Return the wall time of a date; raises ValueError in words."""
    day, minute, second, fraction, zone = found.groups()
    if zone is None and not is_local:
        raise ValueError(f"expected a time with its zone, such as {text[:40]}Z, got {text[:40]!r}")
    try:
        naive = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}")
        at = naive.replace(tzinfo=offset(zone)).timestamp() if zone else naive.timestamp()
        is_there = zone is not None or datetime.fromtimestamp(at) == naive  # noqa: DTZ006 - this host's zone is meant
    except (ValueError, OverflowError, OSError):  # the last two: no calendar of this host goes so far
        raise ValueError(f"{HERE if is_local else EXPECTED}, got {text[:40]!r}") from None
    if not is_there:
        raise ValueError(
            f"there was no {text[:40]} here: the clocks were set forward over it; give it with its zone, such as {text[:40]}Z"
        )
    return at + float(f"0.{fraction or 0}")


def stamp(at: float, *, is_local: bool = True) -> str:
    """Write a time in the host's time zone; one that no calendar has, as a number.

    Where `is_local` its reader is on this host, and only an hour that comes twice has its offset. Else it has the zone, by name
    or, where the host knows none, by its offset.
    """
    try:
        here = datetime.fromtimestamp(at)  # noqa: DTZ006 - the host's zone is meant
        if not is_local:
            there = here.astimezone()
            return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname() or format(there, '%z')}"
        is_twice = here.replace(fold=0).timestamp() != here.replace(fold=1).timestamp()
        return (here.astimezone() if is_twice else here).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def offset(zone: str) -> timezone:
    """Return a time zone that is written as RFC 3339 does; raises ValueError for one of a day or more."""
    if zone in "Zz":
        return timezone.utc
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    return timezone(-ahead if zone[0] == "-" else ahead)
