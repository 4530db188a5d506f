"""The Xid codes of NVIDIA's driver: name, category, severity, what to do. The table is `xid.csv` beside this file.

It follows NVIDIA's Xid catalogue and, where that is silent, what fleet operators do; where the log line itself says more (154
by its number, 144 to 150 by their Fatal or Nonfatal), the line counts.
"""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec

from gpuwatch.model.alert import Severity

NVLINK5 = range(144, 151)  # their severity is in the line: Fatal or Nonfatal
RECOVERY_CHANGED = 154  # its meaning is the number of the action that the driver wants
# Critical codes whose counters begin at 0 for every GPU, so that `increase()` sees the first one: those that public reports have.
# All 32 would be 160 series more on 8 GPUs, a tenth of the page's 1,600, and the 20 that are left out hardly ever happen or never
# come alone: 171 and 172 say which memory a 48 was in; 149, 150, 155, 166 and 173 take a fabric that most hosts have not; 54, 57,
# 58, 59, 61, 110, 136, 151, 156, 158, 167, 169 and 175 are rare. The first of them is seen in gpuwatch_gpu_errors_open, which is
# there at 0 from the start, and our own rule looks at that.
BEGIN_AT_0 = (46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143)


class Xid(msgspec.Struct, frozen=True):
    """One code. `category` is driver, application, memory, hardware, nvlink, ... as the table has it."""

    code: int
    name: str
    category: str
    severity: Severity
    action: str
    gpu_lost: bool


@cache
def xids() -> Mapping[int, Xid]:
    """Return the whole table by code."""
    text = Path(__file__).with_name("xid.csv").read_text("utf-8")
    return MappingProxyType({found.code: found for found in map(row, csv.DictReader(text.splitlines()))})


def row(fields: Mapping[str, str]) -> Xid:
    """Read one line of the table."""
    return Xid(
        code=int(fields["xid"]),
        name=fields["name"],
        category=fields["category"],
        severity=Severity(fields["severity"]),
        action=fields["suggested_action"],
        gpu_lost=fields["gpu_lost"] == "1",
    )


def xid(code: int) -> Xid:
    """Return one code; one that the table lacks is a warning, with its number for a name (new codes keep appearing)."""
    return xids().get(code) or Xid(code, f"unknown code {code}", "unknown", Severity.WARNING, "look at the raw line", False)
