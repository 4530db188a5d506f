"""What the facts of one disk mean: ok, warn, fail, unknown, standby or unsupported, with reasons for people. Pure.

Absence of the drive's own verdict is never "ok". CRC errors (a cable), entries in the error log (refused commands) and exit
bits 2 and 6 mean nothing by themselves: they are common on healthy drives.
"""

import re

import msgspec

from gpuwatch.model.reading import Fault
from gpuwatch.sources.smart.facts import OFFLINE_UNCORRECTABLE, PENDING, REALLOCATED, REPORTED_UNCORRECTABLE, Facts

COMMAND_LINE_BIT, OPEN_BIT = 1 << 0, 1 << 1
SPARE, TEMPERATURE, RELIABILITY, READ_ONLY, BACKUP, PERSISTENT = (1 << bit for bit in range(6))
BITS = {
    SPARE: "spare blocks are below the drive's limit",
    TEMPERATURE: "temperature outside the drive's limits",
    RELIABILITY: "reliability degraded",
    READ_ONLY: "media read-only",
    BACKUP: "volatile-memory backup failed",
    PERSISTENT: "persistent memory unreliable",
}
MANY = 100  # unreadable sectors or uncorrected errors at which a drive that still says PASSED counts as failing
WORN = 100  # percent of the rated endurance
VIRTUAL = re.compile(r"\braid\b|volume|logical|virtual|vbox|vmware|\bmr\d{4}", re.IGNORECASE)
CAPABILITIES = "needs root, or group disk (or CAP_DAC_OVERRIDE) with CAP_SYS_RAWIO for SATA and CAP_SYS_ADMIN for NVMe"


class Verdict(msgspec.Struct, frozen=True):
    """One state of the catalogue's VERDICT, why, and what kept us from reading the drive where the state is unknown."""

    state: str
    reasons: tuple[str, ...] = ()
    fault: Fault | None = None


def judge(facts: Facts) -> Verdict:
    """Judge one look at one disk."""
    if facts.asleep:
        return Verdict("standby", (f"left asleep ({facts.asleep})",))
    if fault := unread(facts):
        return Verdict("unknown", (fault.words,), fault)
    if facts.passed is None:
        return without_status(facts)
    failing, warning = critical(facts)
    failing += failures(facts)
    warning += warnings(facts)
    if failing:
        return Verdict("fail", (*failing, *warning))
    return Verdict("warn", tuple(warning)) if warning else Verdict("ok")


def unread(facts: Facts) -> Fault | None:
    """Return why the drive could not be read at all, None where it was. Exit 2 alone tells nothing: the message does."""
    said = "; ".join(message for message in facts.messages if message)
    if re.search(r"Permission denied|Operation not permitted", said) and facts.passed is None:
        return Fault("denied", f"{said}: {CAPABILITIES}", facts.exit_status)
    if facts.exit_status & COMMAND_LINE_BIT:
        return Fault("options", said or "smartctl did not understand its command line", facts.exit_status)
    if facts.exit_status & OPEN_BIT:
        if re.search(r"No such (device|file)", said):
            return Fault("gone", said, facts.exit_status)
        if said:
            return Fault("failed", said, facts.exit_status)
        words = f"the drive did not identify itself; a SATA disk without CAP_SYS_RAWIO looks the same ({CAPABILITIES})"
        return Fault("no_answer", words, facts.exit_status)
    return None


def without_status(facts: Facts) -> Verdict:
    """Judge a drive that gave no overall status: it has none, or we may not see it, or it could not be read this time."""
    if facts.available is False:
        return Verdict("unsupported", ("the device has no SMART",))
    if VIRTUAL.search(facts.model):
        return Verdict("unsupported", ("a RAID or virtual volume without SMART",))
    if facts.enabled is False:
        words = "SMART is switched off in the drive (smartctl -s on switches it on)"
        return Verdict("unknown", (words,), Fault("disabled", words, facts.exit_status))
    if facts.protocol == "SCSI" and not facts.model:
        # Exit 0, type scsi and nothing else: how a SATA disk looks to a process that may open it but not pass commands through.
        words = f"no data and no message, as without CAP_SYS_RAWIO: {CAPABILITIES}"
        return Verdict("unknown", (words,), Fault("denied", words, facts.exit_status))
    said = "; ".join(message for message in facts.messages if message)
    words = f"no overall health status{f': {said}' if said else ''}"
    return Verdict("unknown", (words,), Fault("no_status", words, facts.exit_status))


def critical(facts: Facts) -> tuple[list[str], list[str]]:
    """Return what NVMe's critical warning and the drive's own verdict say: failing, and worth a warning.

    For NVMe "failed" is nothing but a critical warning that is not 0, so the bits decide. A hot drive is not a dying drive. And
    reliability degraded with the endurance used up, no media errors and spare left is a Samsung data-centre drive at 100 %.
    """
    bits = facts.critical_warning or 0
    if not bits:
        return (["the drive itself says it is failing"], []) if facts.passed is False else ([], [])
    mild = TEMPERATURE
    if (facts.percent_used or 0) >= WORN and not facts.media_errors and not bits & SPARE:
        mild |= RELIABILITY
    failing = [words for bit, words in BITS.items() if bits & bit & ~mild]
    if bits >= 1 << len(BITS):
        failing.append(f"critical warning 0x{bits:02x}")
    return failing, [words for bit, words in BITS.items() if bits & bit & mild]


def failures(facts: Facts) -> list[str]:
    """Return what makes a drive failing although it may still say it passes: vendors' thresholds are lax."""
    found = [
        f"{one.name} is failing now (value {one.value}, threshold {one.threshold})"
        for one in facts.attributes
        if one.failed == "now" and one.prefailure
    ]
    unreadable = max(facts.count(PENDING) or 0, facts.count(OFFLINE_UNCORRECTABLE) or 0, facts.pending_defects or 0)
    if unreadable >= MANY:
        found.append(f"{unreadable} unreadable sectors")
    if (facts.uncorrected or 0) >= MANY:
        found.append(f"{facts.uncorrected} uncorrected errors")
    return found


def warnings(facts: Facts) -> list[str]:
    """Return what is worth a look: it does not end the drive, and may be old."""
    found = [
        f"{one.name} is at its threshold now (value {one.value}, threshold {one.threshold})"
        if one.failed == "now"
        else f"{one.name} was below its threshold in the past"
        for one in facts.attributes
        if one.failed == "past" or (one.failed == "now" and not one.prefailure)
    ]
    counts = [
        # Solid state drives retire blocks as part of their work; on a spinning disk each one is a defect.
        (0 if facts.rotation_rate == 0 else facts.count(REALLOCATED), "reallocated sectors"),
        (facts.count(REPORTED_UNCORRECTABLE), "reported uncorrectable errors"),
        (facts.count(PENDING), "pending sectors"),
        (facts.count(OFFLINE_UNCORRECTABLE), "offline uncorrectable sectors"),
        (facts.media_errors, "media errors"),
        (facts.grown_defects, "grown defects"),
        (facts.pending_defects, "pending defects"),
        (facts.uncorrected, "uncorrected errors"),
    ]
    found += [f"{count} {what}" for count, what in counts if count]
    if facts.self_test_failed:
        found.append("a self-test failed")
    if (facts.percent_used or 0) >= WORN:
        found.append(f"{facts.percent_used:.0f} % of the rated endurance used")
    if facts.spare is not None and facts.spare_threshold and facts.spare <= facts.spare_threshold:
        found.append(f"spare {facts.spare:.0f} % at or below its limit {facts.spare_threshold:.0f} %")
    if throttled := (facts.warning_minutes or 0) + (facts.critical_minutes or 0):
        found.append(f"{throttled} minutes over its temperature limit")
    return found
