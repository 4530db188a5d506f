"""The records of /dev/kmsg: `prio,seq,usec,flags[,key=value];text`, after which lines of ` KEY=value` may come.

From the kernel's page on it (Documentation/ABI/testing/dev-kmsg): what cannot be printed is `\\xHH`, and the priority is 8
times the facility (0: the kernel itself) plus the level.
"""

import re
from typing import NamedTuple

RAW = re.compile(r"(\d{1,5}),(\d{1,20}),(\d{1,20}),([^,;]{0,8})(?:,[^;]*)?;(.*)", re.DOTALL)
ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Raw(NamedTuple):
    """One record as it stands."""

    is_kernel: bool
    seq: int
    stamp: float  # seconds on the kernel's clock
    continues: bool  # the text goes on where the record before ended
    text: str


def parse(line: str) -> Raw | None:
    """Return the record in a line, None for what is none."""
    found = RAW.match(line)
    if found is None:
        return None
    priority, seq, microseconds, flags, text = found.groups()
    if "\\x" in text:
        text = unescaped(text)
    return Raw(int(priority) < 8, int(seq), int(microseconds) / 1e6, flags[:1] == "+", text)


def unescaped(text: str) -> str:
    """Return the text with its `\\xHH` as the bytes that they stand for."""
    raw = ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")
