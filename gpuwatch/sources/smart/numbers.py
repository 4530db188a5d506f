"""Facts and verdict as metrics of the catalogue, in base units; what a drive does not say is absent with the reason."""

from gpuwatch.catalogue import disk
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.smart.facts import OFFLINE_UNCORRECTABLE, PENDING, REALLOCATED, Facts
from gpuwatch.sources.smart.verdict import Verdict

HOUR = 3600.0
BITS = ("spare", "temperature", "reliability", "read_only", "backup", "persistent_memory")  # bit 0 to 5
READINGS: tuple[Metric, ...] = (
    disk.SMART_LAST_SUCCESS,
    disk.SMART_HEALTHY,
    disk.TEMPERATURE,
    disk.POWER_ON,
    disk.WEAR_USED,
    disk.SPARE_AVAILABLE,
    disk.SPARE_THRESHOLD,
    *disk.CRITICAL_WARNING.values(),
    disk.MEDIA_ERRORS,
    disk.UNSAFE_SHUTDOWNS,
    disk.ERROR_LOG_ENTRIES,
    *disk.LIFETIME_BYTES.values(),
    *disk.SECTORS.values(),
)
"""All that SMART gives beside the verdict."""

WHY = {"denied": Absence.DENIED, "timeout": Absence.LATE, "stuck": Absence.LATE, "gone": Absence.LOST}
"""Why nothing is there, by the kind of the fault; FAILED for every other."""


def absence(verdict: Verdict) -> Absence:
    """Return why a drive that gave no values gave none."""
    if verdict.fault:
        return WHY.get(verdict.fault.kind, Absence.FAILED)
    return Absence.EMPTY if verdict.state == "standby" else Absence.UNSUPPORTED


def numbers(verdict: Verdict, facts: Facts | None, at: float) -> tuple[dict[Metric, float], dict[Metric, Absence]]:
    """Return values and absences of one disk. Without a whole look (unknown, standby, unsupported) only the verdict is there."""
    values = disk.VERDICT.at(verdict.state)
    if facts is not None and verdict.state in ("ok", "warn", "fail"):
        said = {metric: value for metric, value in read(facts).items() if value is not None}
        values |= said
        values[disk.SMART_LAST_SUCCESS] = at
    why = absence(verdict)
    return values, {metric: why for metric in READINGS if metric not in values}


def read(facts: Facts) -> dict[Metric, float | None]:
    """Return every number the facts may hold, None where the drive does not say it."""
    scsi = facts.protocol == "SCSI"
    bits = facts.critical_warning
    return {
        disk.SMART_HEALTHY: None if facts.passed is None else float(facts.passed),
        disk.TEMPERATURE: within(facts.temperature, -60, 200),
        disk.POWER_ON: times(facts.power_on_hours, HOUR),
        disk.WEAR_USED: times(within(facts.percent_used, 0, 255), 0.01),
        disk.SPARE_AVAILABLE: times(within(facts.spare, 0, 100), 0.01),
        disk.SPARE_THRESHOLD: times(within(facts.spare_threshold, 0, 100), 0.01),
        **{disk.CRITICAL_WARNING[name]: None if bits is None else float(bits >> bit & 1) for bit, name in enumerate(BITS)},
        disk.MEDIA_ERRORS: times(facts.uncorrected if scsi else facts.media_errors),
        disk.UNSAFE_SHUTDOWNS: times(facts.unsafe_shutdowns),
        disk.ERROR_LOG_ENTRIES: times(facts.error_log_entries),
        disk.LIFETIME_BYTES["read"]: facts.bytes_read,
        disk.LIFETIME_BYTES["write"]: facts.bytes_written,
        disk.SECTORS["reallocated"]: times(facts.grown_defects if scsi else facts.count(REALLOCATED)),
        disk.SECTORS["pending"]: times(facts.pending_defects if scsi else facts.count(PENDING)),
        disk.SECTORS["uncorrectable"]: times(facts.count(OFFLINE_UNCORRECTABLE)),
    }


def times(value: float | None, factor: float = 1.0) -> float | None:
    """Return `value` in base units, None for None."""
    return None if value is None else value * factor


def within(value: float | None, low: float, high: float) -> float | None:
    """Return `value` where it can be true, None where it cannot."""
    return value if value is not None and low <= value <= high else None
