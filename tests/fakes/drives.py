"""Invented drives as smartctl 7.3 shows them: the JSON object of `-i -H -A`, and the text of the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HEAD = ("smartctl 7.3 2022-02-28 r5338 [x86_64-linux] (local build)", "Copyright (C) 2002-22, nobody", "")


@dataclass(frozen=True)
class Drive:
    """One answer of smartctl in both forms."""

    tree: dict[str, Any]
    text: str

    @property
    def lines(self) -> list[str]:
        """The text as lines."""
        return self.text.splitlines()


@dataclass(frozen=True)
class Row:
    """One row of an attribute table."""

    id: int
    name: str
    raw: str
    value: int = 100
    threshold: int = 0
    failed: str = ""
    prefailure: bool = False


def start(protocol: str, kind: str, status: int) -> dict[str, Any]:
    """Return what every answer begins with."""
    return {
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "argv": ["smartctl"], "exit_status": status},
        "device": {"name": "/dev/x", "info_name": "/dev/x", "type": kind, "protocol": protocol},
    }


def nvme(
    health: Mapping[str, int] | None = None, *, passed: bool = True, status: int = 0, temperature: int | None = 41, **changes: int
) -> Drive:
    """Return an NVMe drive; `health` and `changes` change its log."""
    log = {
        "critical_warning": 0,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "percentage_used": 12,
        "data_units_read": 2_000_000,
        "data_units_written": 3_000_000,
        "host_reads": 10,
        "host_writes": 20,
        "controller_busy_time": 5,
        "power_cycles": 7,
        "power_on_hours": 1000,
        "unsafe_shutdowns": 3,
        "media_errors": 0,
        "num_err_log_entries": 8_000,
        "warning_temp_time": 0,
        "critical_comp_time": 0,
        **(health or {}),
        **changes,
    }
    degrees = {} if temperature is None else {"temperature": {"current": temperature}}
    tree = {
        **start("NVMe", "nvme", status),
        "model_name": "Invented NV1",
        "serial_number": "NV0001",
        "firmware_version": "1.0",
        "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": passed, "nvme": {"value": log["critical_warning"]}},
        "nvme_smart_health_information_log": log,
        **degrees,
        "power_on_time": {"hours": log["power_on_hours"]},
    }
    shown = {
        "Critical Warning": f"0x{log['critical_warning']:02x}",
        **({} if temperature is None else {"Temperature": f"{temperature} Celsius"}),
        "Available Spare": f"{log['available_spare']}%",
        "Available Spare Threshold": f"{log['available_spare_threshold']}%",
        "Percentage Used": f"{log['percentage_used']}%",
        "Data Units Read": f"{log['data_units_read']:,} [1.02 TB]",
        "Data Units Written": f"{log['data_units_written']:,} [1.53 TB]",
        "Host Read Commands": f"{log['host_reads']:,}",
        "Host Write Commands": f"{log['host_writes']:,}",
        "Controller Busy Time": f"{log['controller_busy_time']:,}",
        "Power Cycles": f"{log['power_cycles']:,}",
        "Power On Hours": f"{log['power_on_hours']:,}",
        "Unsafe Shutdowns": f"{log['unsafe_shutdowns']:,}",
        "Media and Data Integrity Errors": f"{log['media_errors']:,}",
        "Error Information Log Entries": f"{log['num_err_log_entries']:,}",
        "Warning  Comp. Temperature Time": f"{log['warning_temp_time']:,}",
        "Critical Comp. Temperature Time": f"{log['critical_comp_time']:,}",
    }
    lines = [
        *HEAD,
        "=== START OF INFORMATION SECTION ===",
        f"{'Model Number:':36}Invented NV1",
        f"{'Serial Number:':36}NV0001",
        f"{'Firmware Version:':36}1.0",
        f"{'NVMe Version:':36}1.4",
        "",
        "=== START OF SMART DATA SECTION ===",
        f"SMART overall-health self-assessment test result: {'PASSED' if passed else 'FAILED!'}",
        "",
        "SMART/Health Information (NVMe Log 0x02)",
        *(f"{name + ':':36}{value}" for name, value in shown.items()),
        "",
    ]
    return Drive(tree, "\n".join(lines) + "\n")


def ata(
    rows: Sequence[Row] = (),
    *,
    passed: bool | None = True,
    status: int = 0,
    family: str = "",
    rotation: int = 7200,
    temperature: int = 30,
    hours: int = 500,
    **keys: Any,
) -> Drive:
    """Return a SATA drive with these attributes; a family puts it into smartctl's database."""
    table = [
        {
            "id": row.id,
            "name": row.name,
            "value": row.value,
            "worst": row.value,
            "thresh": row.threshold,
            "when_failed": row.failed,
            "flags": {"value": 3 if row.prefailure else 2, "prefailure": row.prefailure},
            "raw": {"value": 0, "string": row.raw},
        }
        for row in rows
    ]
    tree = {
        **start("ATA", "sat", status),
        **({"model_family": family} if family else {}),
        "model_name": "Invented SA1",
        "serial_number": "SA0001",
        "firmware_version": "2.0",
        "rotation_rate": rotation,
        "in_smartctl_database": bool(family),
        "smart_support": {"available": True, "enabled": True},
        **({} if passed is None else {"smart_status": {"passed": passed}}),
        "ata_smart_attributes": {"revision": 16, "table": table},
        "power_on_time": {"hours": hours},
        "temperature": {"current": temperature},
        **keys,
    }
    when = {"": "-", "now": "FAILING_NOW", "past": "In_the_past"}
    lines = [
        *HEAD,
        "=== START OF INFORMATION SECTION ===",
        *([f"Model Family:     {family}"] if family else []),
        "Device Model:     Invented SA1",
        "Serial Number:    SA0001",
        "Firmware Version: 2.0",
        f"Rotation Rate:    {f'{rotation} rpm' if rotation else 'Solid State Device'}",
        f"Device is:        {'In' if family else 'Not in'} smartctl database 7.3/5319",
        "ATA Version is:   ACS-3 T13/2161-D revision 5",
        "SMART support is: Available - device has SMART capability.",
        "SMART support is: Enabled",
        "",
        "=== START OF READ SMART DATA SECTION ===",
        *([] if passed is None else [f"SMART overall-health self-assessment test result: {'PASSED' if passed else 'FAILED!'}"]),
        "",
        "Vendor Specific SMART Attributes with Thresholds:",
        "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE",
        *(
            f"{row.id:3} {row.name:<24}0x0032   {row.value:03}   {row.value:03}   {row.threshold:03}    "
            f"{'Pre-fail' if row.prefailure else 'Old_age':<10}Always   {when[row.failed]:>11}       {row.raw}"
            for row in rows
        ),
        "",
    ]
    return Drive(tree, "\n".join(lines) + "\n")


def sas(*, passed: bool = True, status: int = 0, grown: int = 0, uncorrected: int = 0) -> Drive:
    """Return a SAS drive; smartctl answers 4 for many healthy ones."""
    counts: Mapping[str, Any] = {"gigabytes_processed": "1000.500", "total_uncorrected_errors": 0}
    tree = {
        **start("SCSI", "scsi", status),
        "scsi_vendor": "INVENTED",
        "scsi_product": "SS1",
        "scsi_model_name": "INVENTED SS1",
        "scsi_revision": "0003",
        "serial_number": "SS0001",
        "rotation_rate": 10000,
        "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": passed},
        "temperature": {"current": 35, "drive_trip": 65},
        "power_on_time": {"hours": 200, "minutes": 30},
        "scsi_grown_defect_list": grown,
        "scsi_error_counter_log": {
            "read": {**counts, "total_uncorrected_errors": uncorrected},
            "write": counts,
            "verify": counts,
        },
    }
    lines = [
        *HEAD,
        "=== START OF INFORMATION SECTION ===",
        "Vendor:               INVENTED",
        "Product:              SS1",
        "Revision:             0003",
        "Rotation Rate:        10000 rpm",
        "Serial number:        SS0001",
        "Transport protocol:   SAS (SPL-3)",
        "SMART support is:     Available - device has SMART capability.",
        "SMART support is:     Enabled",
        "",
        "=== START OF READ SMART DATA SECTION ===",
        f"SMART Health Status: {'OK' if passed else 'FAILURE PREDICTION THRESHOLD EXCEEDED [asc=5d, ascq=0]'}",
        "",
        "Current Drive Temperature:     35 C",
        "Drive Trip Temperature:        65 C",
        "",
        f"Elements in grown defect list: {grown}",
        "",
        "Error counter log:",
        f"read:          0        0         0         0          0       1000.500           {uncorrected}",
        "write:         0        0         0         0          0       1000.500           0",
        "verify:        0        0         0         0          0       1000.500           0",
        "",
    ]
    return Drive(tree, "\n".join(lines) + "\n")
