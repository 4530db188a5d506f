"""Times as logs write them: months in many languages, years left out, seconds since boot.

A time that cannot be read is that of the line before: the order of arrival is what remains.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

DAY = 86400.0

# Abbreviated months as glibc's locales have them, January first; by their first letters, dots left out. Where two languages
# disagree (Czech and Croatian `srp`) the commoner one on servers is meant. Chinese, Japanese and Korean write the number.
LANGUAGES = (
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "jan feb mär apr mai jun jul aug sep okt nov dez",
    "janv févr mars avr mai juin juil août sept oct nov déc",
    "ene feb mar abr may jun jul ago sep oct nov dic",
    "gen feb mar apr mag giu lug ago set ott nov dic",
    "jan fev mar abr mai jun jul ago set out nov dez",
    "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "sty lut mar kwi maj cze lip sie wrz paź lis gru",
    "янв фев мар апр май июн июл авг сен окт ноя дек",
    "янв фев мар апр мая июн июл авг сен окт ноя дек",
    "січ лют бер кві тра чер лип сер вер жов лис гру",
    "led úno bře dub kvě čen čec srp zář říj lis pro",
    "jan feb mars april maj juni juli aug sept okt nov dec",
    "tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",
    "oca şub mar nis may haz tem ağu eyl eki kas ara",
    "jan febr márc ápr máj jún júl aug szept okt nov dec",
    "ian feb mar apr mai iun iul aug sep oct noi dec",
)
MONTHS: dict[str, int] = {}
for _language in LANGUAGES:
    for _number, _name in enumerate(_language.split(), 1):
        MONTHS.setdefault(_name, _number)

NUMBERED = re.compile(r"(\d{1,2})(?:月|월)")
ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\d* ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?")


def month_of(text: str) -> int | None:
    """Return the month that an abbreviation stands for in any of the languages, None for what is none."""
    numbered = NUMBERED.fullmatch(text)
    if numbered:
        number = int(numbered[1])
        return number if 1 <= number <= 12 else None
    return MONTHS.get(text.rstrip(".").lower())


def fraction(digits: str | None) -> float:
    """Return the part of a second behind its point."""
    return float(f"0.{digits}") if digits else 0.0


class Stamps:
    """Reads the times of one log, which ends `now`."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._key: tuple[str, str, str, str] = ("", "", "", "")
        self._at = now
        self._sure: float | None = None  # the last time whose year the log itself said

    def knows(self, at: float) -> None:
        """Take note of a time of this log of which the year is certain."""
        self._sure = at

    def dated(self, month: str, day: str, clock: str, year: str = "") -> float | None:
        """Return the wall time of a local date.

        One without a year is the nearest to what another line said with one, else the latest that is not in the future.
        """
        key = (month, day, clock, year)
        if key == self._key:  # most lines have the second of the line before
            return self._at
        number = month_of(month)
        if number is None:
            return None
        hour, minute, second = (int(part) for part in clock.split(":"))

        def within(*years: int) -> list[float]:
            """Return this date in those of the years that have it and do not lie in the future."""
            found: list[float] = []
            for one in years:
                try:
                    # A second of 60 is a leap second.
                    at = datetime(one, number, int(day), hour, minute, min(second, 59)).astimezone().timestamp()
                except (ValueError, OverflowError, OSError):
                    continue
                if year or at <= self._now + DAY:
                    found.append(at)
            return found

        if year:
            found = within(int(year))
            self._sure = found[0] if found else self._sure
        else:
            found = self._nearest(within) or self._latest(within)
        if not found:
            return None
        self._key, self._at = key, found[0]
        return self._at

    def _nearest(self, within: Callable[..., list[float]]) -> list[float]:
        """Return the time nearest to the last that is certain, nothing where there is none."""
        sure = self._sure
        if sure is None:
            return []
        year = datetime.fromtimestamp(sure).astimezone().year
        return sorted(within(year - 1, year, year + 1), key=lambda at: abs(at - sure))[:1]

    def _latest(self, within: Callable[..., list[float]]) -> list[float]:
        """Return the latest time that is not in the future."""
        this = datetime.fromtimestamp(self._now).astimezone().year
        # From the next year on, for a clock that runs ahead over New Year; 29 February comes every four.
        return next((found for year in range(this + 1, this - 5, -1) if (found := within(year))), [])


def iso(found: re.Match[str]) -> float | None:
    """Return the wall time of a match of ISO; without a zone it is local."""
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    zone = found[8]
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone_of(zone) if zone else None)
        whole = moment.timestamp() if zone else moment.astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return whole + fraction(found[7])


def zone_of(text: str) -> timezone:
    """Return the zone that `Z`, `UTC`, `+02:00` or `+0200` names."""
    if not text[1:2].isdigit():
        return timezone.utc
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))
