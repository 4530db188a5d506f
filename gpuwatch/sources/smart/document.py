"""smartctl's JSON read into Facts. Whatever is missing or of another type than documented is not said, and costs nothing else."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch.sources.smart import wear
from gpuwatch.sources.smart.facts import Attribute, Facts

DATA_UNIT = 512_000  # bytes: 1000 x 512, whatever the block size of the drive
GIGABYTE = 10**9  # of the SCSI error counter log
NVME_SELF_TEST_FAILED = {5, 6, 7}  # fatal error, failed segment unknown, failed segment known; 1-4, 8, 9 are aborts
NVME_SELF_TEST_DONE = NVME_SELF_TEST_FAILED | {0}
SELF_TEST_BIT = 1 << 7
START = re.compile(r"^\{", re.MULTILINE)


class Document:
    """A JSON object with typed look-ups that answer None instead of raising."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._tree = tree

    def _find(self, *path: str) -> object:
        node: object = self._tree
        for name in path:
            if not isinstance(node, Mapping):
                return None
            node = node.get(name)
        return node

    def integer(self, *path: str) -> int | None:
        """Return a whole number; above 2^53 it is exact here, unlike in most readers of this JSON."""
        value = self._find(*path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, *path: str) -> float | None:
        """Return a number; the SCSI error counter log writes its gigabytes as text."""
        value = self._find(*path)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def boolean(self, *path: str) -> bool | None:
        """Return true or false."""
        value = self._find(*path)
        return value if isinstance(value, bool) else None

    def text(self, *path: str) -> str:
        """Return a text without spaces around it, "" where there is none."""
        value = self._find(*path)
        return value.strip() if isinstance(value, str) else ""

    def rows(self, *path: str) -> "Iterator[Document]":
        """Yield the objects of an array, skipping holes."""
        value = self._find(*path)
        if isinstance(value, list):
            yield from (Document(row) for row in value if isinstance(row, Mapping))

    def lines(self, *path: str) -> list[str] | None:
        """Return an array of texts, None where there is none."""
        value = self._find(*path)
        return [str(line) for line in value] if isinstance(value, list) else None

    def has(self, name: str) -> bool:
        """Say whether the object has this key."""
        return name in self._tree


def document(output: str) -> Document | None:
    """Return the JSON object in smartctl's output, None where there is none that is whole.

    smartctl before 7.3 prints a line of text ahead of it for some SAS drives.
    """
    start = START.search(output)
    if start is None:
        return None
    try:
        tree = json.loads(output[start.start() :])
    except (ValueError, RecursionError):  # cut, or brackets without end
        return None
    return Document(tree) if isinstance(tree, dict) else None


def facts(doc: Document, status: int) -> Facts:
    """Read one document; `status` is the exit status of the process."""
    protocol = doc.text("device", "protocol")
    family = doc.text("model_family")
    in_database = doc.boolean("in_smartctl_database")
    attributes = tuple(rows(doc))
    read, written = lifetime_bytes(doc, family if in_database else "", attributes)
    health = "nvme_smart_health_information_log"
    return Facts(
        source="json",
        exit_status=status,
        messages=tuple(row.text("string") for row in doc.rows("smartctl", "messages")),
        protocol=protocol,
        # SCSI identity changed its name twice (7.3, 7.5).
        model=doc.text("model_name") or doc.text("scsi_model_name") or doc.text("scsi_product") or doc.text("product"),
        serial=doc.text("serial_number"),
        firmware=doc.text("firmware_version") or doc.text("scsi_revision") or doc.text("revision"),
        family=family,
        in_database=in_database,
        rotation_rate=doc.integer("rotation_rate"),
        capacity=doc.integer("user_capacity", "bytes"),
        asleep=asleep(doc),
        available=doc.boolean("smart_support", "available"),
        enabled=doc.boolean("smart_support", "enabled"),
        passed=doc.boolean("smart_status", "passed"),
        temperature=temperature(doc),
        power_on_hours=hours(doc),
        percent_used=percent_used(doc, family if in_database else "", attributes),
        spare=doc.number(health, "available_spare"),
        spare_threshold=doc.number(health, "available_spare_threshold"),
        critical_warning=doc.integer(health, "critical_warning"),
        media_errors=doc.integer(health, "media_errors"),
        unsafe_shutdowns=doc.integer(health, "unsafe_shutdowns"),
        error_log_entries=doc.integer(health, "num_err_log_entries"),
        bytes_read=read,
        bytes_written=written,
        warning_minutes=doc.integer(health, "warning_temp_time"),
        critical_minutes=doc.integer(health, "critical_comp_time"),
        attributes=attributes,
        grown_defects=doc.integer("scsi_grown_defect_list"),
        pending_defects=doc.integer("scsi_pending_defects", "count"),
        uncorrected=uncorrected(doc),
        self_test_failed=self_test_failed(doc, status),
    )


def asleep(doc: Document) -> str:
    """Return STANDBY or SLEEP where the drive was left asleep: by `power_mode` (7.5 and later), else by the message."""
    mode = doc.text("power_mode", "name")
    if mode.startswith(("STANDBY", "SLEEP")):  # STANDBY_Y is one too
        return mode
    for row in doc.rows("smartctl", "messages"):
        if found := re.match(r"Device is in ((?:STANDBY|SLEEP)\w*).* mode", row.text("string")):
            return found[1]
    return ""


def temperature(doc: Document) -> float | None:
    """Return the drive's temperature; RAID volumes and virtual disks without SMART say 0, which is no reading."""
    value = doc.number("temperature", "current")
    if value == 0 and doc.boolean("smart_status", "passed") is None:
        return None
    return value


def hours(doc: Document) -> float | None:
    """Return the hours for which the drive was on; attribute 9 itself may hold minutes, packed fields or text."""
    whole = doc.number("power_on_time", "hours")
    if whole is None:
        return doc.number("nvme_smart_health_information_log", "power_on_hours")
    return whole + (doc.number("power_on_time", "minutes") or 0.0) / 60


def percent_used(doc: Document, family: str, attributes: tuple[Attribute, ...]) -> float | None:
    """Return the used endurance: plain for NVMe (may pass 100, sticks at 255) and SAS, for SATA by statistics or attributes.

    `endurance_used` of smartctl 7.5 is a guess for SATA and is not taken.
    """
    for path in (
        ("nvme_smart_health_information_log", "percentage_used"),
        ("scsi_percentage_used_endurance_indicator",),
    ):
        value = doc.number(*path)
        if value is not None:
            return value
    for page in doc.rows("ata_device_statistics", "pages"):
        for row in page.rows("table"):
            if row.text("name") == "Percentage Used Endurance Indicator" and row.boolean("flags", "valid"):
                return row.number("value")
    return wear.percent_used(family, attributes)


def lifetime_bytes(doc: Document, family: str, attributes: tuple[Attribute, ...]) -> tuple[float | None, float | None]:
    """Return bytes read and written over the drive's life."""
    log = "nvme_smart_health_information_log"
    if doc.has(log):
        read, written = (doc.integer(log, name) for name in ("data_units_read", "data_units_written"))
        return (float(read) * DATA_UNIT if read else None), (float(written) * DATA_UNIT if written else None)  # 0: not reported
    if doc.has("scsi_error_counter_log"):
        gigabytes = (doc.number("scsi_error_counter_log", what, "gigabytes_processed") for what in ("read", "write"))
        read_gb, written_gb = gigabytes
        return (
            None if read_gb is None else read_gb * GIGABYTE,
            None if written_gb is None else written_gb * GIGABYTE,
        )
    return wear.host_bytes(family, attributes)


def rows(doc: Document) -> Iterator[Attribute]:
    """Yield the rows of an ATA drive's attribute table; a row without number or value is no row."""
    for row in doc.rows("ata_smart_attributes", "table"):
        identifier, value = row.integer("id"), row.integer("value")
        if identifier is None or value is None:
            continue
        worst = row.integer("worst")
        yield Attribute(
            id=identifier,
            name=row.text("name"),
            value=value,
            worst=value if worst is None else worst,
            threshold=row.integer("thresh"),
            failed=row.text("when_failed"),
            prefailure=row.boolean("flags", "prefailure") is True,
            raw=row.text("raw", "string"),
        )


def uncorrected(doc: Document) -> int | None:
    """Return the uncorrected errors of a SCSI drive, over reads, writes and verifies."""
    counts = [doc.integer("scsi_error_counter_log", what, "total_uncorrected_errors") for what in ("read", "write", "verify")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def self_test_failed(doc: Document, status: int) -> bool | None:
    """Say whether the last self-test failed. We do not ask for the logs in a round; where they are there they count."""
    if status & SELF_TEST_BIT:
        return True
    for row in doc.rows("nvme_self_test_log", "table"):  # by hardware slot: the first is the newest, holes are possible
        result = row.integer("self_test_result", "value")
        if result in NVME_SELF_TEST_DONE:
            return result in NVME_SELF_TEST_FAILED
    return None
