"""What is known of one disk after one look: the same record from both parsers, and how the two become one."""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

# Attribute numbers that nearly all vendors use alike.
REALLOCATED, REPORTED_UNCORRECTABLE, PENDING, OFFLINE_UNCORRECTABLE = 5, 187, 197, 198


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """One row of an ATA drive's attribute table. `failed` is "now", "past" or ""; `raw` is what smartctl prints."""

    id: int
    name: str
    value: int
    worst: int
    threshold: int | None
    failed: str
    prefailure: bool
    raw: str

    @property
    def count(self) -> int | None:
        """The leading number of the raw text: the decoded 48 bits may hold several packed numbers, the text does not."""
        found = re.match(r"\d+", self.raw)
        return int(found[0]) if found else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one disk. None means: not said. Percent are as the drive says them, minutes and hours too."""

    source: str  # "json" or "text"
    exit_status: int = 0
    messages: tuple[str, ...] = ()
    protocol: str = ""  # NVMe, ATA, SCSI
    model: str = ""
    serial: str = ""
    firmware: str = ""
    family: str = ""
    in_database: bool | None = None
    rotation_rate: int | None = None  # 0: solid state
    capacity: int | None = None
    asleep: str = ""  # STANDBY or SLEEP
    available: bool | None = None
    enabled: bool | None = None
    passed: bool | None = None
    temperature: float | None = None
    power_on_hours: float | None = None
    percent_used: float | None = None
    spare: float | None = None
    spare_threshold: float | None = None
    critical_warning: int | None = None
    media_errors: int | None = None
    unsafe_shutdowns: int | None = None
    error_log_entries: int | None = None
    bytes_read: float | None = None
    bytes_written: float | None = None
    warning_minutes: int | None = None
    critical_minutes: int | None = None
    attributes: tuple[Attribute, ...] = ()
    grown_defects: int | None = None
    pending_defects: int | None = None
    uncorrected: int | None = None
    self_test_failed: bool | None = None

    def count(self, identifier: int) -> int | None:
        """Return the raw count of an attribute, None where the drive has none."""
        return next((one.count for one in self.attributes if one.id == identifier), None)


OF_THE_RUN = {"source", "exit_status", "messages", "attributes", "temperature"}  # smartctl has several sources of temperature
JUDGED = {"asleep", "available", "enabled", "passed", "critical_warning"}


def merge(judge: Facts, parsed: Facts) -> tuple[Facts, tuple[str, ...]]:
    """Fill what `judge` (JSON) lacks from `parsed` (pySMART), and name what both have and differ in; there JSON counts.

    What a verdict hangs on is never filled: where JSON is silent, the drive said nothing. Attributes are merged row by row.
    """
    filled: dict[str, object] = {}
    differ: list[str] = []
    for name in Facts.__struct_fields__:
        ours, theirs = getattr(judge, name), getattr(parsed, name)
        if name in OF_THE_RUN or theirs in (None, ""):
            continue
        if ours in (None, ""):
            if name not in JUDGED:
                filled[name] = theirs
        elif ours != theirs and not (name == "model" and str(ours).endswith(str(theirs))):  # SCSI: pySMART leaves the vendor out
            differ.append(name)
    attributes, rows = merge_attributes(judge.attributes, parsed.attributes)
    return replace(judge, attributes=attributes, **filled), (*differ, *rows)


def merge_attributes(ours: Iterable[Attribute], theirs: Iterable[Attribute]) -> tuple[tuple[Attribute, ...], tuple[str, ...]]:
    """Return all rows by number, ours where both have one, and the names of rows that differ."""
    rows = {one.id: one for one in theirs}
    differ = []
    for one in ours:
        other = rows.get(one.id)
        if other is not None and other != one:
            differ.append(one.name)
        rows[one.id] = one
    return tuple(rows[number] for number in sorted(rows)), tuple(differ)
