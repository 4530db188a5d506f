"""pySMART as a second parser: it gets the text lines of the one run that was made, and starts nothing itself.

Known errors of pySMART 1.4 that are worked round here: a verdict outlives its drive (a new Device each time); an unreadable
status and a failing old-age attribute become FAIL alike (the line decides); temperature is that of attribute 190 (the case)
before 194, or of a sensor; bytes come from a rounded text; minutes over the warning temperature are never found; counters
above smartctl's unit limit raise IndexError.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gpuwatch.sources.smart import wear
from gpuwatch.sources.smart.document import DATA_UNIT
from gpuwatch.sources.smart.facts import Attribute, Facts

# Importing pySMART replaces the logger class of the whole process and sets LANG; both are put back.
LOGGER_CLASS, LANG = logging.getLoggerClass(), os.environ.get("LANG")
import pySMART  # noqa: E402
from pySMART.interface.nvme import NvmeAttributes  # noqa: E402
from pySMART.smartctl import Smartctl  # noqa: E402

logging.setLoggerClass(LOGGER_CLASS)
if LANG is None:
    os.environ.pop("LANG", None)
else:
    os.environ["LANG"] = LANG

TABLE = "Vendor Specific SMART Attributes with Thresholds:"
FAILED_ROWS = ("Please note the following marginal Attributes:", "Failed Attributes:")
HEALTH = re.compile(r"(?:self-assessment test result|SMART Health Status)\s*: *(\S+)")
ASLEEP = re.compile(r"Device is in ((?:STANDBY|SLEEP)\w*).* mode")
NO_SMART = re.compile(r"device lacks SMART capability|does not support SMART|SMART support is: *Unavailable")
COMPLAINT = re.compile(r"failed: |UNRECOGNIZED OPTION|Unknown USB bridge|Permission denied|Probable ATA device")
WARNING_MINUTES = re.compile(r"Warning +Comp\. Temperature Time: +([\d,.]+)")
CASE, CHIP = 190, 194  # attributes that hold temperatures
FAILED = {"FAILING_NOW": "now", "In_the_past": "past"}
INTERFACES = {"NVMe": "nvme", "SCSI": "scsi"}


class Replay(Smartctl):  # type: ignore[misc]  # pySMART has no types
    """A Smartctl that knows one answer: `--all` gets the lines at hand, everything else nothing, and no program is started."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(smartctl_path="smartctl", options=[])
        self._lines = list(lines)

    def _exec(self, cmd: list[str]) -> tuple[list[str], int]:
        return (list(self._lines), 0) if "--all" in cmd else ([], 1)


def facts(lines: Sequence[str], status: int, protocol: str = "") -> Facts:
    """Return what pySMART reads in these lines. It may raise nearly anything (StopIteration, IndexError): the caller's to catch.

    `protocol` is that of the JSON beside it; without JSON it is told from the lines.
    """
    protocol = protocol or told(lines)
    # A table at the very end makes pySMART run off it; the blank line ends it.
    device: Any = pySMART.Device("/dev/disk", interface=INTERFACES.get(protocol, "sat"), smartctl=Replay([*known(lines), ""]))
    attributes = tuple(rows(device.attributes))
    family = string(device.family) if any("In smartctl database" in line for line in lines) else ""
    asleep = next((found[1] for line in lines if (found := ASLEEP.match(line))), "")
    log: Any = device.if_attributes if protocol == "NVMe" else None
    scsi: Any = device.diagnostics if protocol == "SCSI" else None
    used = whole(log and log.percentageUsed)
    if used is None and scsi is not None and whole(scsi.Life_Left) is not None:
        used = 100 - scsi.Life_Left
    read, written = wear.host_bytes(family, attributes)
    health = passed(device.assessment, lines)
    return Facts(
        source="text",
        exit_status=status,
        messages=tuple(line.strip() for line in lines if COMPLAINT.search(line)),
        protocol=protocol,
        model="" if string(device.model).startswith("DELL(tm)") else string(device.model),  # a product line, not the model
        serial=string(device.serial),
        firmware=string(device.firmware),
        family=family,
        rotation_rate=0 if device.is_ssd and protocol != "NVMe" else whole(device.rotation_rate),
        asleep=asleep,
        available=False if any(NO_SMART.search(line) for line in lines) else None,
        passed=health,
        temperature=temperature(device, attributes, health),
        power_on_hours=hours(log, scsi, attributes),
        percent_used=float(used) if used is not None else wear.percent_used(family, attributes),
        spare=real(log and log.availableSpare),
        spare_threshold=real(log and log.availableSpareThreshold),
        critical_warning=whole(log and log.criticalWarning),
        media_errors=whole(log and log.integrityErrors),
        unsafe_shutdowns=whole(log and log.unsafeShutdowns),
        error_log_entries=whole(log and log.errorEntries),
        bytes_read=units(log and log.dataUnitsRead) or read,
        bytes_written=units(log and log.dataUnitsWritten) or written,
        warning_minutes=next((number(found[1]) for line in lines if (found := WARNING_MINUTES.match(line))), None),
        critical_minutes=whole(log and log.criticalTemperatureTime),
        attributes=attributes,
        grown_defects=whole(scsi and scsi.Reallocated_Sector_Ct),
        uncorrected=total(scsi and (scsi.Uncorrected_Reads, scsi.Uncorrected_Writes, scsi.Uncorrected_Verifies)),
    )


def told(lines: Iterable[str]) -> str:
    """Tell the protocol from the text, where no JSON does."""
    text = "\n".join(lines)
    if "NVMe Version" in text or "(NVMe Log 0x" in text:
        return "NVMe"
    if re.search(r"Transport protocol|SMART Health Status|^Vendor:|Probable ATA device", text, re.MULTILINE):
        return "SCSI"
    return "ATA" if re.search(r"ATA Version|Vendor Specific SMART|ATTRIBUTE_NAME", text) else ""


def known(lines: Sequence[str]) -> list[str]:
    """Return the lines with a heading that pySMART knows: `-H` alone prints failing rows under another one."""
    if any(line.startswith(TABLE) for line in lines):
        return list(lines)
    return [TABLE if line.startswith(FAILED_ROWS) else line for line in lines]


def passed(assessment: object, lines: Iterable[str]) -> bool | None:
    """Return the drive's own verdict. FAIL may come from an unreadable status or from an attribute: there the line decides."""
    if assessment in ("PASS", "WARN"):
        return True
    if assessment is None:
        return None
    word = next((found[1] for line in lines if (found := HEALTH.search(line))), "")
    return {"PASSED": True, "OK": True, "UNKNOWN!": None, "": None}.get(word, False)


def temperature(device: Any, attributes: Sequence[Attribute], health: bool | None) -> float | None:
    """Return the temperature of the drive itself; 0 without SMART is no reading."""
    counts = {one.id: one.count for one in attributes}
    if attributes:
        found = counts[CHIP] if counts.get(CHIP) is not None else counts.get(CASE)
    elif isinstance(device.if_attributes, NvmeAttributes):
        found = device.if_attributes.temperature  # not the Device's, which falls back to a sensor
    else:
        found = device.temperature
    return None if not found and health is None else real(found)


def hours(log: Any, scsi: Any, attributes: Sequence[Attribute]) -> int | None:
    """Return the hours for which the drive was on; attribute 9 of ATA only where it is called hours and holds nothing else."""
    if log is not None or scsi is not None:
        return whole(log.powerOnHours if log is not None else scsi.Power_On_Hours)
    return next((one.count for one in attributes if one.name == "Power_On_Hours" and one.raw.isdigit()), None)


def number(text: str) -> int:
    """Return a number that may have thousands separators."""
    return int(re.sub(r"[,.]", "", text))


def rows(table: Iterable[Any]) -> Iterable[Attribute]:
    """Yield pySMART's attributes as ours."""
    for one in table:
        if one is not None:
            yield Attribute(
                id=int(one.num),
                name=str(one.name),
                value=int(one.value_int),
                worst=int(one.worst),
                threshold=whole(one.thresh),
                failed=FAILED.get(str(one.when_failed), ""),
                prefailure=str(one.type) == "Pre-fail",
                raw=str(one.raw).strip(),
            )


def string(value: object) -> str:
    """Return a text, "" for None."""
    return "" if value is None else str(value).strip()


def whole(value: object) -> int | None:
    """Return a whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: object) -> float | None:
    """Return a number as float, None for anything else."""
    number = whole(value)
    return None if number is None else float(number)


def units(value: object) -> float | None:
    """Return NVMe data units as bytes; 0 means not reported."""
    number = whole(value)
    return float(number) * DATA_UNIT if number else None


def total(counts: Iterable[object] | None) -> int | None:
    """Return the sum of the counts that are there, None where none is."""
    there = [count for count in map(whole, counts or ()) if count is not None]
    return sum(there) if there else None
