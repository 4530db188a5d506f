"""Durations and sizes, as people write them: a number with its unit."""

import re

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB|TiB)")
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
LONGEST = 3650 * 86400.0  # seconds; nothing here is meant for longer, and calendars and timers end not far beyond
LARGEST = 1 << 60  # bytes


class Duration(float):
    """Seconds; written in TOML as a string with a unit: "500ms", "10s", "2m", "4h", "7d"."""


class Size(int):
    """Bytes; written in TOML as a string with a unit: "512MiB", "2GiB"."""


def duration(text: str) -> Duration:
    """Convert "10s" and the like; raises ValueError saying what is expected."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise ValueError('expected a duration with a unit, such as "500ms", "10s", "2m", "4h" or "7d"')
    seconds = float(found[1]) * SECONDS[found[2]]
    if seconds > LONGEST:
        raise ValueError("expected a duration of at most 3650d")
    return Duration(seconds)


def in_units(value: float) -> str:
    """Write a duration or a size as TOML has it, in the largest unit of which it is a whole number: "2m", "512MiB"."""
    units = BYTES if isinstance(value, Size) else SECONDS
    found = [(unit, length) for unit, length in units.items() if value >= length and value % length == 0]
    unit, length = found[-1] if found else next(iter(units.items())) if isinstance(value, Size) else ("s", 1.0)
    if isinstance(value, Size):
        return f"{value // int(length)}{unit}"
    digits = f"{value / length:.9f}".rstrip("0").rstrip(".")  # "g" would round, and write what no file may have: 3.15e+08
    return f"{digits}{unit}"


def size(text: str) -> Size:
    """Convert "2GiB" and the like; raises ValueError saying what is expected."""
    found = SIZE.fullmatch(text)
    if found is None:
        raise ValueError('expected a size with a unit, such as "512MiB" or "2GiB"')
    count = float(found[1]) * BYTES[found[2]]
    if count > LARGEST:
        raise ValueError("expected a size of at most 1048576TiB")
    return Size(count)
