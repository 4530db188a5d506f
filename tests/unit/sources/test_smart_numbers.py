"""Facts and verdict as metrics: base units, and what is not said is absent with the reason."""

import pytest

from gpuwatch import catalogue
from gpuwatch.catalogue import disk
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault
from gpuwatch.sources.smart import document
from gpuwatch.sources.smart.document import Document
from gpuwatch.sources.smart.facts import Facts
from gpuwatch.sources.smart.numbers import READINGS, numbers
from gpuwatch.sources.smart.verdict import Verdict, judge
from tests.fakes.drives import Drive, Row, ata, nvme, sas

AT = 1_700_000_000.0
HOST = {*disk.DISK_IO.values(), disk.DISK_IO_TIME}  # from /proc/diskstats, by the source host


def measured(drive: Drive) -> tuple[dict[Metric, float], dict[Metric, Absence]]:
    """Return values and absences of a drive by its JSON."""
    facts = document.facts(Document(drive.tree), drive.tree["smartctl"]["exit_status"])
    return numbers(judge(facts), facts, AT)


def test_every_metric_of_a_disk_is_there_or_absent() -> None:
    wanted = {metric for metric in catalogue.of(disk.DISK) if metric not in HOST}
    for drive in (nvme(), ata(), sas(), nvme(passed=False, critical_warning=4)):
        values, absent = measured(drive)
        assert wanted == {*values, *absent}
        assert set() == set(values) & set(absent)


def test_an_nvme_gives_its_log_in_base_units() -> None:
    values, absent = measured(nvme(critical_warning=0x06, percentage_used=130))
    expected = {
        **disk.VERDICT.at("fail"),
        disk.SMART_LAST_SUCCESS: AT,
        disk.SMART_HEALTHY: 1.0,
        disk.TEMPERATURE: 41.0,
        disk.POWER_ON: 3_600_000.0,
        disk.WEAR_USED: 1.3,
        disk.SPARE_AVAILABLE: 1.0,
        disk.SPARE_THRESHOLD: 0.1,
        disk.MEDIA_ERRORS: 0.0,
        disk.UNSAFE_SHUTDOWNS: 3.0,
        disk.ERROR_LOG_ENTRIES: 8000.0,
        disk.LIFETIME_BYTES["read"]: 1.024e12,
        disk.LIFETIME_BYTES["write"]: 1.536e12,
        **dict.fromkeys(disk.CRITICAL_WARNING.values(), 0.0),
        disk.CRITICAL_WARNING["temperature"]: 1.0,
        disk.CRITICAL_WARNING["reliability"]: 1.0,
    }
    expected |= disk.VERDICT.at("warn") if values[disk.VERDICT["warn"]] else {}
    assert pytest.approx(expected) == values
    assert dict.fromkeys(disk.SECTORS.values(), Absence.UNSUPPORTED) == absent


def test_a_sata_disk_gives_its_sectors() -> None:
    rows = [Row(5, "Reallocated_Sector_Ct", "8"), Row(197, "Current_Pending_Sector", "2"), Row(198, "Offline_Uncorrectable", "1")]
    values, absent = measured(ata(rows))
    assert tuple(values[disk.SECTORS[state]] for state in ("reallocated", "pending", "uncorrectable")) == (8.0, 2.0, 1.0)
    assert Absence.UNSUPPORTED is absent[disk.MEDIA_ERRORS] is absent[disk.CRITICAL_WARNING["spare"]] is absent[disk.WEAR_USED]


def test_a_sas_disk_gives_defects_as_reallocated_and_uncorrected_as_media_errors() -> None:
    values, _ = measured(sas(grown=5, uncorrected=3))
    assert (values[disk.SECTORS["reallocated"]], values[disk.MEDIA_ERRORS]) == (5.0, 3.0)


@pytest.mark.parametrize(
    ("health", "metric"), [({"percentage_used": 256}, disk.WEAR_USED), ({"available_spare": 101}, disk.SPARE_AVAILABLE)]
)
def test_what_cannot_be_true_is_left_out(health: dict[str, int], metric: Metric) -> None:
    values, absent = measured(nvme(health))
    assert metric not in values
    assert Absence.UNSUPPORTED is absent[metric]


def test_an_impossible_temperature_is_left_out() -> None:
    assert disk.TEMPERATURE not in measured(nvme(temperature=-273))[0]
    assert disk.TEMPERATURE not in measured(nvme(temperature=32_767))[0]


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (Verdict("unknown", ("x",), Fault("denied", "x")), Absence.DENIED),
        (Verdict("unknown", ("x",), Fault("timeout", "x")), Absence.LATE),
        (Verdict("unknown", ("x",), Fault("gone", "x")), Absence.LOST),
        (Verdict("unknown", ("x",), Fault("garbage", "x")), Absence.FAILED),
        (Verdict("unknown", ("x",), Fault("no_smartctl", "x")), Absence.FAILED),
        (Verdict("standby", ("x",)), Absence.EMPTY),
        (Verdict("unsupported", ("x",)), Absence.UNSUPPORTED),
    ],
)
def test_a_drive_that_was_not_read_has_a_verdict_and_nothing_else(verdict: Verdict, why: Absence) -> None:
    half = Facts(source="json", temperature=41.0, passed=True, percent_used=10.0)
    for facts in (None, half):
        assert (disk.VERDICT.at(verdict.state), dict.fromkeys(READINGS, why)) == numbers(verdict, facts, AT)
