"""When to try again: full-jitter back-off, the receiver's own wish, and when to give up. Pure; the dice are an argument."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from gpuwatch.model.alert import Severity

BASE, FACTOR, CAP = 2.0, 2.0, 600.0  # seconds (alerting.md 1.4 point 5)
WISH_CAP = 3600.0  # a receiver cannot hold a message for longer than this
GIVE_UP = {Severity.INFO: 24 * 3600.0, Severity.WARNING: 24 * 3600.0, Severity.CRITICAL: 72 * 3600.0}
BREAKER_FAILURES = 5  # permanent or auth failures in a row that open the breaker
PROBE = 300.0  # seconds between tries while it is open


def pause(attempt: int, after: float | None, dice: float) -> float:
    """Return how long to wait after failed attempt number `attempt` (from 1); `dice` is uniform in [0, 1).

    The receiver's wish counts as it is, with 0-10 % on top so that many hosts do not come back at one moment.
    """
    if after is not None:
        return min(max(after, 1.0), WISH_CAP) * (1 + dice / 10)
    return dice * min(BASE * FACTOR ** min(attempt - 1, 32), CAP)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, None where there is none or it makes no sense.

    The date form is measured against the answer's own Date where there is one: our clock may be wrong.
    """
    text = headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdecimal():
        seconds = float(text)
        return seconds if math.isfinite(seconds) else None
    until = http_date(text)
    if until is None:
        return None
    sent = http_date(headers.get("date", ""))
    return max(0.0, until - (now if sent is None else sent))


def http_date(text: str) -> float | None:
    """Return an HTTP date as seconds since 1970, None where it is none."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):  # TypeError: Python 3.9 and older raise it for text that is no date
        return None
