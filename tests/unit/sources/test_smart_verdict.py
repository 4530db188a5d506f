"""What the facts of one disk mean, by hand-made facts and drives."""

import pytest

from gpuwatch.sources.smart import document
from gpuwatch.sources.smart.document import Document
from gpuwatch.sources.smart.facts import Attribute, Facts
from gpuwatch.sources.smart.verdict import Verdict, judge
from tests.fakes.drives import Drive, Row, ata, nvme, sas


def verdict(drive: Drive) -> Verdict:
    """Judge a drive by its JSON."""
    return judge(document.facts(Document(drive.tree), drive.tree["smartctl"]["exit_status"]))


def row(identifier: int, count: int, *, failed: str = "", prefailure: bool = False) -> Attribute:
    """Return an attribute that counts something."""
    return Attribute(
        id=identifier, name="Some_Count", value=100, worst=1, threshold=5, failed=failed, prefailure=prefailure, raw=str(count)
    )


def facts(*attributes: Attribute, passed: bool | None = True, status: int = 0, messages: tuple[str, ...] = ()) -> Facts:
    """Return the facts of a spinning SATA disk."""
    return Facts(
        source="json",
        protocol="ATA",
        model="Invented SA1",
        rotation_rate=7200,
        passed=passed,
        exit_status=status,
        messages=messages,
        attributes=attributes,
    )


@pytest.mark.parametrize("drive", [nvme(), ata(), sas()], ids=["nvme", "ata", "sas"])
def test_a_healthy_drive_is_ok_without_reasons(drive: Drive) -> None:
    assert Verdict("ok") == verdict(drive)


@pytest.mark.parametrize("passed", [True, False, None])
def test_without_the_drives_own_verdict_nothing_is_ok(passed: bool | None) -> None:
    assert (judge(facts(passed=passed)).state == "ok") is (passed is True)


def test_a_json_without_smart_status_is_unknown_not_failed() -> None:
    """smartctl_exporter issue 229."""
    drive = nvme()
    del drive.tree["smart_status"]
    found = verdict(drive)
    assert (found.state, found.fault and found.fault.kind) == ("unknown", "no_status")


@pytest.mark.parametrize("status", [4, 64, 4 | 64])
def test_exit_bits_2_and_6_alone_mean_nothing(status: int) -> None:
    assert judge(facts(status=status)).state == "ok"


def test_crc_errors_and_error_log_entries_alone_mean_nothing() -> None:
    assert judge(facts(row(199, 3_118_119))).state == "ok"
    assert verdict(nvme(num_err_log_entries=218_352)).state == "ok"


@pytest.mark.parametrize(
    ("bits", "state"),
    [
        (0x01, "fail"),
        (0x02, "warn"),
        (0x04, "fail"),
        (0x08, "fail"),
        (0x10, "fail"),
        (0x20, "fail"),
        (0x40, "fail"),
        (0x0A, "fail"),
    ],
)
def test_each_bit_of_the_critical_warning_fails_but_heat(bits: int, state: str) -> None:
    found = verdict(nvme(passed=False, status=8, critical_warning=bits))
    assert (state, True) == (found.state, bool(found.reasons))


@pytest.mark.parametrize(
    ("health", "state"),
    [
        ({"percentage_used": 100}, "warn"),
        ({"percentage_used": 255}, "warn"),
        ({"percentage_used": 100, "media_errors": 1}, "fail"),
        ({"percentage_used": 99}, "fail"),
        ({"percentage_used": 100, "available_spare": 5, "critical_warning": 5}, "fail"),
    ],
)
def test_degraded_reliability_is_mild_only_when_it_is_spent_endurance(health: dict[str, int], state: str) -> None:
    assert state == verdict(nvme({"critical_warning": 4} | health, passed=False, status=8)).state


@pytest.mark.parametrize(
    ("health", "state"),
    [
        ({"percentage_used": 99}, "ok"),
        ({"percentage_used": 100}, "warn"),
        ({"available_spare": 11, "available_spare_threshold": 10}, "ok"),
        ({"available_spare": 10, "available_spare_threshold": 10}, "warn"),
        ({"available_spare": 0, "available_spare_threshold": 0}, "ok"),
        ({"media_errors": 1}, "warn"),
        ({"warning_temp_time": 1}, "warn"),
        ({"critical_comp_time": 1}, "warn"),
        ({"unsafe_shutdowns": 5_000}, "ok"),
    ],
)
def test_an_nvme_that_passes_is_judged_by_its_log(health: dict[str, int], state: str) -> None:
    assert state == verdict(nvme(health)).state


@pytest.mark.parametrize("identifier", [5, 187, 197, 198])
def test_one_bad_sector_is_a_warning(identifier: int) -> None:
    assert (judge(facts(row(identifier, 0))).state, judge(facts(row(identifier, 1))).state) == ("ok", "warn")


@pytest.mark.parametrize(("count", "state"), [(99, "warn"), (100, "fail")])
@pytest.mark.parametrize("identifier", [197, 198])
def test_many_unreadable_sectors_fail_although_the_drive_passes(identifier: int, count: int, state: str) -> None:
    assert state == judge(facts(row(identifier, count))).state


def test_blocks_that_a_solid_state_drive_retired_are_its_business() -> None:
    rows = [Row(5, "Reallocated_Sector_Ct", "4")]
    assert (verdict(ata(rows, rotation=0)).state, verdict(ata(rows, rotation=7200)).state) == ("ok", "warn")


@pytest.mark.parametrize(
    ("failed", "prefailure", "state"),
    [("now", True, "fail"), ("now", False, "warn"), ("past", True, "warn"), ("past", False, "warn")],
)
def test_an_attribute_below_its_threshold_counts_although_the_status_passes(failed: str, prefailure: bool, state: str) -> None:
    """smartctl answers 32, not 16, for a pre-fail attribute that fails now while the status register says passed."""
    assert state == judge(facts(row(1, 0, failed=failed, prefailure=prefailure), status=32)).state


@pytest.mark.parametrize(
    ("drive", "state"),
    [
        (sas(grown=5), "warn"),
        (sas(uncorrected=3), "warn"),
        (sas(uncorrected=100), "fail"),
        (sas(passed=False, status=8), "fail"),
        (sas(status=4), "ok"),
    ],
)
def test_a_sas_drive_is_judged_by_defects_and_uncorrected_errors(drive: Drive, state: str) -> None:
    assert state == verdict(drive).state


def test_exit_bit_7_is_a_failed_self_test() -> None:
    assert verdict(ata(status=128)).state == "warn"


@pytest.mark.parametrize(
    ("results", "state"), [((7, 0), "warn"), ((0, 7), "ok"), ((1, 7), "warn"), ((1, 0), "ok"), ((15,), "ok")]
)
def test_the_newest_finished_self_test_of_an_nvme_counts(results: tuple[int, ...], state: str) -> None:
    drive = nvme()
    drive.tree["nvme_self_test_log"] = {"table": [None, *({"self_test_result": {"value": value}} for value in results)]}
    assert state == verdict(drive).state


@pytest.mark.parametrize(
    ("messages", "status", "kind"),
    [
        (("Smartctl open device: /dev/x failed: Permission denied",), 2, "denied"),
        (("Read NVMe Identify Controller failed: NVME_IOCTL_ADMIN_CMD: Permission denied",), 2, "denied"),
        (("Read NVMe Identify Controller failed: NVME_IOCTL_ADMIN_CMD: Operation not permitted",), 4, "denied"),
        (("Smartctl open device: /dev/x failed: No such device",), 2, "gone"),
        (("Smartctl open device: /dev/x failed: No such device or address",), 2, "gone"),
        (("Smartctl open device: /dev/x failed: Resource temporarily unavailable",), 2, "failed"),
        (("/dev/x: Unknown USB bridge [0x0000:0x0000 (0x100)]",), 1, "options"),
        ((), 1, "options"),
        ((), 2, "no_answer"),
        (("Read NVMe SMART/Health Information failed: NVMe Status 0x4002",), 4, "no_status"),
    ],
)
def test_what_could_not_be_read_is_unknown_and_says_why(messages: tuple[str, ...], status: int, kind: str) -> None:
    found = judge(facts(passed=None, status=status, messages=messages))
    assert found.fault is not None
    assert ("unknown", kind, status) == (found.state, found.fault.kind, found.fault.code)
    assert found.fault.words


def test_a_denied_drive_names_the_capabilities_it_needs() -> None:
    found = judge(facts(passed=None, status=2, messages=("x failed: Permission denied",)))
    assert found.fault is not None
    assert "CAP_SYS_RAWIO" in found.fault.words
    assert "CAP_SYS_ADMIN" in found.fault.words


def test_a_sata_disk_that_answers_nothing_with_exit_0_is_denied() -> None:
    found = judge(Facts(source="json", protocol="SCSI", exit_status=0))
    assert found.fault is not None
    assert (found.state, found.fault.kind) == ("unknown", "denied")
    assert "CAP_SYS_RAWIO" in found.fault.words


@pytest.mark.parametrize("mode", ["STANDBY", "SLEEP"])
def test_a_sleeping_disk_is_standby_whatever_its_exit_status(mode: str) -> None:
    assert judge(Facts(source="json", exit_status=3, asleep=mode)).state == "standby"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"available": False}, "unsupported"),
        ({"model": "Intel Raid 1 Volume"}, "unsupported"),
        ({"model": "VBOX HARDDISK"}, "unsupported"),
        ({"model": "HP LOGICAL VOLUME"}, "unsupported"),
        ({"enabled": False, "available": True, "model": "Invented SA1"}, "unknown"),
    ],
)
def test_a_device_without_smart_is_unsupported_and_one_with_smart_off_unknown(changes: dict[str, str | bool], state: str) -> None:
    assert state == judge(Facts(source="json", protocol="SCSI", exit_status=4, **changes)).state  # type: ignore[arg-type]  # parametrised


def test_a_failing_drive_lists_every_reason() -> None:
    found = verdict(nvme(passed=False, status=8, critical_warning=0x0B, media_errors=7))
    assert found.reasons == (
        "spare blocks are below the drive's limit",
        "media read-only",
        "temperature outside the drive's limits",
        "7 media errors",
    )
