"""A TOML file as a table that is safe to walk: no deeper than anybody writes, no number beyond 64 bits, no NUL in a text.

Every such value would break something later, each in its own place: recursion, `str()` of 5,000 digits, a system call.
"""

import sys
from pathlib import Path
from typing import Any

from gpuwatch.plainfile import UnreadableError, text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEPTH = 16  # tables in tables; ours need 4
LINE, DOTS = 1_024, 32  # characters of a line, and dots in it, in a file of a user: no storage.conf has half as many
DIGITS = "cannot be used: a number in it is too large"


class TableError(Exception):
    """The file or a value in it cannot be used. The words show no value."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key, self.problem = key, problem


def read(path: Path) -> dict[str, Any]:
    """Return the table in a file; raises TableError."""
    try:
        return parsed(text(path))
    except UnreadableError as error:
        raise TableError("", error.problem) from None


def modest(content: bytes) -> dict[str, Any]:
    """Return the table in what any user may have written, refused where it could take long to read; raises TableError.

    The parser walks every part of a key anew for each of its parts, and those of a heading for each line below it.
    """
    if any(len(line) > LINE or line.count(b".") > DOTS for line in content.splitlines()):
        raise TableError("", "has a line that is too long")
    try:
        return parsed(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TableError("", f"is not UTF-8 text (byte {error.start})") from None


def parsed(content: str) -> dict[str, Any]:
    """Return the table in a text; raises TableError."""
    if content.startswith("\ufeff"):  # some editors write one; TOML 1.0 has no place for it
        raise TableError("", "begins with a byte order mark (BOM): save it as UTF-8 without one")
    try:
        table: dict[str, Any] = tomllib.loads(content)
    except RecursionError:
        raise TableError("", "is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise TableError("", f"is not valid TOML: {error}") from None
    except ValueError:  # int() of thousands of digits
        raise TableError("", DIGITS) from None
    check(table)
    return table


def check(table: dict[str, Any]) -> None:
    """Refuse what nobody means and what not every part could take; raises TableError."""
    left: list[tuple[str, object, int]] = [("", table, 0)]  # a list, not recursion: this is what finds the depth
    while left:
        name, value, depth = left.pop()
        if depth > DEPTH:
            raise TableError(name, "is nested too deeply")
        if isinstance(value, dict):
            left += [(f"{name}.{key}" if name else key, item, depth + 1) for key, item in value.items()]
        elif isinstance(value, list):
            left += [(f"{name}[{index}]", item, depth + 1) for index, item in enumerate(value)]
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise TableError(name, "expected a number of at most 64 bits")
        elif isinstance(value, str) and "\0" in value:
            raise TableError(name, "expected text without NUL characters")
