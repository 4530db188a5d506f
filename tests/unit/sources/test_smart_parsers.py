"""Both parsers: what they read, what they leave out, and how they become one."""

import json
import logging
import os
import subprocess
import sys

import pytest

from gpuwatch.sources.smart import document, pysmart, wear
from gpuwatch.sources.smart.document import Document
from gpuwatch.sources.smart.facts import Attribute, Facts, merge
from gpuwatch.sources.smart.verdict import judge
from tests.fakes.drives import Drive, Row, ata, nvme, sas
from tests.fakes.until import PATIENCE

SATA = [
    Row(5, "Reallocated_Sector_Ct", "8", threshold=10, prefailure=True),
    Row(9, "Power_On_Hours", "500"),
    Row(188, "Command_Timeout", "1 1 6"),
    Row(194, "Temperature_Celsius", "30 (Min/Max 20/47)"),
    Row(197, "Current_Pending_Sector", "2"),
    Row(199, "UDMA_CRC_Error_Count", "12", failed="past"),
]


def read(drive: Drive) -> Facts:
    """Read the JSON of a drive."""
    return document.facts(Document(drive.tree), drive.tree["smartctl"]["exit_status"])


@pytest.mark.parametrize("drive", [nvme(), ata(SATA), sas(grown=5, uncorrected=3)], ids=["nvme", "ata", "sas"])
def test_pysmart_and_json_agree(drive: Drive) -> None:
    facts = read(drive)
    merged, differ = merge(facts, pysmart.facts(drive.lines, 0, facts.protocol))
    assert differ == ()
    assert judge(facts) == judge(merged) == judge(pysmart.facts(drive.lines, 0))


def test_numbers_are_taken_over_from_the_parser_that_has_them() -> None:
    drive = nvme(unsafe_shutdowns=3)
    del drive.tree["nvme_smart_health_information_log"]["unsafe_shutdowns"]
    merged, _ = merge(read(drive), pysmart.facts(drive.lines, 0, "NVMe"))
    assert merged.unsafe_shutdowns == 3


def test_a_verdict_is_never_filled_from_the_text() -> None:
    drive = nvme()
    del drive.tree["smart_status"], drive.tree["nvme_smart_health_information_log"]["critical_warning"]
    merged, _ = merge(read(drive), pysmart.facts(drive.lines, 0, "NVMe"))
    assert (merged.passed, merged.critical_warning, judge(merged).state) == (None, None, "unknown")


def test_where_both_differ_json_counts_and_the_difference_is_named() -> None:
    merged, differ = merge(read(nvme(media_errors=7)), pysmart.facts(nvme(media_errors=6).lines, 0, "NVMe"))
    assert (merged.media_errors, differ) == (7, ("media_errors",))
    merged, differ = merge(read(ata([SATA[0]])), pysmart.facts(ata([Row(5, "Reallocated_Sector_Ct", "9")]).lines, 0, "ATA"))
    assert (merged.count(5), differ) == (8, ("Reallocated_Sector_Ct",))


@pytest.mark.parametrize("ahead", ["", "  Pending defect count:0 Pending Defects\n", "warning: {odd}\n\n"])
def test_text_ahead_of_the_json_is_skipped(ahead: str) -> None:
    assert document.document(ahead + json.dumps(nvme().tree)) is not None


@pytest.mark.parametrize("output", ["", "no json", "[1]", "{", '{"a": 1} and more', '{"a": ' * 100_000, "{}x"])
def test_what_is_no_whole_object_is_refused(output: str) -> None:
    assert document.document(output) is None


def test_every_cut_of_an_answer_is_refused() -> None:
    whole = json.dumps(nvme().tree)
    assert [end for end in range(len(whole)) if document.document(whole[:end]) is not None] == []


def replaced(tree: object, value: object) -> list[object]:
    """Return all trees that have one node of `tree` replaced by `value`."""
    found: list[object] = []
    if isinstance(tree, dict):
        for key, node in tree.items():
            found += [{**tree, key: other} for other in (value, *replaced(node, value))]
    elif isinstance(tree, list):
        for index, node in enumerate(tree):
            found += [[*tree[:index], other, *tree[index + 1 :]] for other in (value, *replaced(node, value))]
    return found


@pytest.mark.parametrize("value", [None, "x", -1, 1e300, True, [], {}, [None], 2**128], ids=repr)
@pytest.mark.parametrize("drive", [nvme(), ata(SATA), sas()], ids=["nvme", "ata", "sas"])
def test_a_value_of_another_type_costs_itself_alone(drive: Drive, value: object) -> None:
    trees = replaced(drive.tree, value)
    assert len(trees) > 30
    states = {judge(document.facts(Document(tree), 0)).state for tree in trees if isinstance(tree, dict)}
    assert states <= {"ok", "warn", "fail", "unknown"}


@pytest.mark.parametrize(
    ("drive", "expected"),
    [(nvme(temperature=0), 0.0), (nvme(temperature=-5), -5.0), (nvme(temperature=None), None), (ata(temperature=0), 0.0)],
)
def test_a_temperature_is_what_the_drive_says(drive: Drive, expected: float | None) -> None:
    assert expected == read(drive).temperature


def test_0_degrees_of_a_device_without_smart_is_no_reading() -> None:
    assert read(ata(passed=None, temperature=0)).temperature is None


def test_power_on_time_has_minutes_and_attribute_9_is_not_taken_for_it() -> None:
    drive = ata([Row(9, "Power_On_Hours_and_Msec", "1335h+35m+19.580s")], power_on_time={"hours": 1335, "minutes": 30})
    assert read(drive).power_on_hours == 1335.5
    assert pysmart.facts(drive.lines, 0).power_on_hours is None


def test_bytes_come_from_data_units_and_0_is_not_reported() -> None:
    facts = read(nvme(data_units_read=3, data_units_written=0))
    assert (facts.bytes_read, facts.bytes_written) == (3 * 512_000.0, None)


def test_a_sas_drive_says_gigabytes_as_text() -> None:
    facts = read(sas())
    assert (facts.bytes_read, facts.bytes_written, facts.power_on_hours) == (1000.5e9, 1000.5e9, 200.5)


WEAR = [
    ("Samsung based SSDs", Row(177, "Wear_Leveling_Count", "278", 81), 19),
    ("Intel S4510/S4610/S4500/S4600 Series SSDs", Row(233, "Media_Wearout_Indicator", "0", 55), 45),
    ("Dell Certified Intel S4x00/D3-S4x10 Series SSDs", Row(245, "Percent_Life_Remaining", "97", 97), 3),
    ("Dell Certified Intel S4x00/D3-S4x10 Series SSDs", Row(233, "Total_LBAs_Written", "46482", 100), None),
    ("Micron 5100 Pro / 52x0 / 5300 SSDs", Row(202, "Percent_Lifetime_Remain", "1", 99), 1),
    ("Micron 5100 Pro / 52x0 / 5300 SSDs", Row(202, "Percent_Lifetime_Remain", "432", 100), None),
    ("Samsung based SSDs", Row(202, "Exception_Mode_Status", "0", 100), None),
    ("Phison Driven SSDs", Row(231, "SSD_Life_Left", "98", 100), 2),
    ("SandForce Driven SSDs", Row(231, "SSD_Life_Left", "0", 90), 10),
    ("SandForce Driven SSDs", Row(177, "Wear_Range_Delta", "1", 0), None),
    ("Silicon Motion based SSDs", Row(169, "Remaining_Lifetime_Perc", "96"), 4),
    ("Silicon Motion based SSDs", Row(177, "Wear_Leveling_Count", "401"), None),
    ("Seagate Barracuda", Row(202, "Data_Address_Mark_Errs", "0"), None),
]


@pytest.mark.parametrize(("family", "row", "used"), WEAR, ids=[f"{row.name}-{family.split()[0]}" for family, row, _ in WEAR])
def test_wear_is_read_by_name_and_family(family: str, row: Row, used: float | None) -> None:
    assert used == read(ata([row], family=family, rotation=0)).percent_used
    assert used == pysmart.facts(ata([row], family=family, rotation=0).lines, 0).percent_used


def test_a_drive_outside_the_database_has_no_wear_and_no_bytes() -> None:
    rows = [Row(177, "Wear_Leveling_Count", "278", 81), Row(241, "Total_LBAs_Written", "1000")]
    drive = ata(rows, family="Samsung based SSDs", rotation=0)
    assert (read(drive).percent_used, read(drive).bytes_written) == (19, 512_000.0)
    drive.tree["in_smartctl_database"] = False
    assert (read(drive).percent_used, read(drive).bytes_written) == (None, None)


def test_device_statistics_beat_the_attribute() -> None:
    row = {"name": "Percentage Used Endurance Indicator", "value": 7, "flags": {"valid": True}}
    drive = ata(
        [Row(177, "Wear_Leveling_Count", "278", 81)],
        family="Samsung based SSDs",
        ata_device_statistics={"pages": [{"number": 7, "table": [row]}]},
    )
    assert read(drive).percent_used == 7


@pytest.mark.parametrize(
    ("family", "name", "raw", "expected"),
    [
        ("Samsung based SSDs", "Total_LBAs_Written", "2", (None, 1024.0)),
        ("Samsung based SSDs", "Total_LBAs_Read", "2", (1024.0, None)),
        ("Intel S4510", "Host_Writes_32MiB", "2", (None, 2.0 * (32 << 20))),
        ("Phison Driven SSDs", "Lifetime_Writes_GiB", "2", (None, 2.0 * (1 << 30))),
        ("Phison Driven SSDs", "Flash_Writes_GiB", "2", (None, None)),
        ("Silicon Motion based SSDs", "TLC_Writes_32MiB", "2", (None, None)),
        ("Dell Certified Intel", "Total_LBAs_Written", "2", (None, None)),
    ],
)
def test_bytes_of_a_sata_drive_need_a_unit_that_is_known(
    family: str, name: str, raw: str, expected: tuple[float | None, float | None]
) -> None:
    row = Attribute(id=241, name=name, value=100, worst=100, threshold=0, failed="", prefailure=False, raw=raw)
    assert expected == wear.host_bytes(family, [row])


def test_pysmart_starts_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keys: object) -> None:
        raise AssertionError(f"a program was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("pySMART.smartctl.Popen", refuse)
    for drive in (nvme(), ata(SATA), sas()):
        assert pysmart.facts(drive.lines, 0).model


def test_a_failing_old_age_attribute_is_not_the_drives_own_verdict() -> None:
    parsed = pysmart.facts(ata([Row(184, "End-to-End_Error", "37", 63, 99, "now")]).lines, 0)
    assert (parsed.passed, judge(parsed).state) == (True, "warn")


def test_an_unreadable_status_is_not_a_failure() -> None:
    lines = [line.replace("PASSED", "UNKNOWN!") for line in ata(SATA).lines]
    assert pysmart.facts(lines, 0).passed is None


@pytest.mark.parametrize("drive", [nvme(passed=False), ata(SATA, passed=False), sas(passed=False)], ids=["nvme", "ata", "sas"])
def test_a_drive_that_calls_itself_failing_is_failing_in_its_text_too(drive: Drive) -> None:
    parsed = pysmart.facts(drive.lines, 8)
    assert (parsed.passed, judge(parsed).state) == (False, "fail")


@pytest.mark.parametrize("mode", ["STANDBY", "SLEEP", "STANDBY_Y", "STANDBY (OS)"])
def test_every_way_to_say_asleep_is_understood(mode: str) -> None:
    message = f"Device is in {mode} mode, exit(2)"
    tree = {"smartctl": {"messages": [{"string": message, "severity": "information"}]}}
    assert judge(document.facts(Document(tree), 2)).state == "standby"
    assert judge(pysmart.facts(["smartctl", "", "", "", message], 2)).state == "standby"
    assert judge(document.facts(Document({"power_mode": {"name": mode}}), 2)).state == "standby"


@pytest.mark.parametrize("mode", ["IDLE", "ACTIVE or IDLE", "IDLE_A"])
def test_an_idle_disk_is_awake(mode: str) -> None:
    drive = ata(SATA)
    drive.tree["power_mode"] = {"name": mode}
    assert read(drive).asleep == ""


def test_failing_rows_are_seen_where_only_health_was_asked_for() -> None:
    lines = [
        *nvme().lines[:3],
        "=== START OF READ SMART DATA SECTION ===",
        "SMART overall-health self-assessment test result: FAILED!",
        "Failed Attributes:",
        "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE",
        "  5 Reallocated_Sector_Ct   0x0033   009   009   010    Pre-fail  Always   FAILING_NOW 7461",
    ]
    parsed = pysmart.facts(lines, 0)
    assert (judge(parsed).state, parsed.count(5)) == ("fail", 7461)


def test_nothing_of_a_drive_is_left_in_the_next_one() -> None:
    """pySMART keeps the verdict of a drive that vanished, where its Device is used again."""
    assert pysmart.facts(nvme().lines, 0).passed is True
    parsed = pysmart.facts(["smartctl 7.3", "", "", "Smartctl open device: /dev/x failed: No such device"], 2)
    assert (parsed.passed, parsed.model, judge(parsed).state) == (None, "", "unknown")


def test_importing_pysmart_changes_neither_the_logger_class_nor_the_language() -> None:
    program = (
        "import logging, os; import gpuwatch.sources.smart.pysmart as p;"
        "from tests.fakes.drives import sas; p.facts(sas().lines, 0);"
        "print(logging.getLoggerClass() is logging.Logger, os.environ.get('LANG'))"
    )
    for language in ({}, {"LANG": "de_DE.UTF-8"}):
        environ = {name: value for name, value in os.environ.items() if name != "LANG"} | language
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert f"True {language.get('LANG')}\n" == done.stdout
    assert logging.getLoggerClass() is logging.Logger
