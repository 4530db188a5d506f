"""Every recorded kernel log gives the events that the verdict of its index needs, and the quiet ones give none."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import lines, replay

NOW = 1_796_000_000.0
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

# kind, key, code, severity, and how often: what the lines of a file say, summed over its seconds and processes.
Line = tuple[str, str, int | None, Severity, int]
EXPECTED: dict[str, list[Line]] = {
    "aer-correctable-gpu-path.log": [("aer_corrected", "0000:00:03.1", None, INFO, 90)],
    "aer-corrected-old-format.log": [("aer_corrected", "0000:00:1c.5", None, INFO, 2)],
    "aer-gpu-is-agent.log": [("aer_corrected", "0000:01:00.0", None, INFO, 1), ("aer_fatal", "0000:01:00.0", None, CRITICAL, 1)],
    "api-mismatch-dmesg.log": [("api_mismatch", "", None, WARNING, 1)],
    "api-mismatch-syslog-octal.log": [("api_mismatch", "", None, WARNING, 2)],
    "cpu-thermal-throttle.log": [("cpu_throttle", "", None, INFO, 3)],
    "devkmsg-healthy-h100.log": [],
    "devkmsg-raw-records.log": [
        ("xid", "0000:18:00.0", 79, CRITICAL, 1),
        ("off_bus", "0000:18:00.0", None, CRITICAL, 1),
        ("log_lost", "", None, INFO, 84),
        ("nvme_timeout", "nvme1", None, WARNING, 1),
    ],
    "dkms-module-missing.log": [("no_driver", "", None, CRITICAL, 2)],
    "fabricmanager.log": [("sxid", "0000:86:00.0", 12028, INFO, 1)],
    "gsp-heartbeat-no-xid.log": [("gsp", "", None, WARNING, 2)],
    "hung-task-after-xid45.log": [("xid", "0000:61:00.0", 45, INFO, 2), ("hung_task", "", None, CRITICAL, 1)],
    "hung-task-docker.log": [("hung_task", "", None, WARNING, 1)],
    "hung-task-gdscheck.log": [("hung_task", "", None, CRITICAL, 1)],
    "hung-task-nvc-old-kernel.log": [("hung_task", "", None, WARNING, 1)],
    "journald-2080ti-chinese-locale.log": [
        ("xid", "0000:03:00.0", 13, WARNING, 197),
        ("xid", "0000:03:00.0", 31, WARNING, 1),
        ("xid", "0000:03:00.0", 32, WARNING, 7),
        ("xid", "0000:03:00.0", 62, CRITICAL, 2),
    ],
    "journald-json-export.jsonl": [("xid", "0000:b3:00.0", 119, CRITICAL, 1), ("xid", "0000:b3:00.0", 154, WARNING, 1)],
    "kernel-oops.log": [("kernel_oops", "", None, WARNING, 1)],
    "md-raid-no-path.log": [
        ("raid_failure", "nvme0n1", None, CRITICAL, 10),
        ("raid_failure", "md0", None, CRITICAL, 1),
        ("fs_readonly", "md0", None, CRITICAL, 1),
    ],
    "nccl-segfault-iso.log": [("segfault", "", None, WARNING, 2)],
    "negative-not-an-xid.log": [("xid", "0000:05:00.0", 99999, WARNING, 1)],
    "negative-sshd-noise-syslog.log": [],
    "negative-thunderbird-cluster.log": [],
    "nouveau-normal-boot.log": [("nouveau", "0000:01:00.0", None, INFO, 1)],
    "nouveau-owns-device.log": [("no_driver", "", None, CRITICAL, 1)],
    "nvme-admin-timeout-chain.log": [
        ("nvme_timeout", "nvme4", None, WARNING, 1),
        ("nvme_disabled", "nvme4", None, CRITICAL, 1),
        ("io_error", "nvme4n1", None, WARNING, 1),
        ("io_error", "dm-0", None, WARNING, 1),
        ("fs_error", "dm-0", None, WARNING, 1),
        ("fs_readonly", "dm-0", None, CRITICAL, 1),
    ],
    "nvme-csts-dead.log": [
        ("nvme_timeout", "nvme0", None, CRITICAL, 1),
        ("nvme_disabled", "nvme0", None, CRITICAL, 1),
        ("fs_error", "nvme0n1p2", None, WARNING, 1),
        ("fs_readonly", "nvme0n1p2", None, CRITICAL, 1),
    ],
    "oom-global-python.log": [("oom_kill", "", None, CRITICAL, 1)],
    "oom-memcg-container.log": [("oom_kill", "", None, WARNING, 1)],
    "pstore-erst-panic.txt": [("crash", "", None, INFO, 1)],
    "soft-lockup-cuda.log": [("soft_lockup", "", None, WARNING, 2)],
    "sxid-syslog-priority.log": [("sxid", "0000:06:00.0", 20009, WARNING, 1), ("sxid", "0005:00:00.0", 28002, INFO, 1)],
    "syslog-2080ti-xid13-31-32.log": [
        ("xid", "0000:03:00.0", 13, WARNING, 361),
        ("xid", "0000:03:00.0", 31, WARNING, 1),
        ("xid", "0000:03:00.0", 32, WARNING, 6),
        ("xid", "0000:03:00.0", 45, INFO, 29),
        ("xid", "0000:03:00.0", 62, CRITICAL, 3),
    ],
    "vfs-file-max-iso.log": [("file_limit", "", None, WARNING, 2)],
    "xid-legacy-short.log": [("xid", "0000:03:00.0", 14, INFO, 1), ("xid", "0000:03:00.0", 8, WARNING, 1)],
    "xid119-storm-nvidia-smi.log": [("xid", "0000:61:00.0", 119, CRITICAL, 36)],
    "xid13-43-109-app.log": [
        ("xid", "0000:cb:00.0", 13, WARNING, 3),
        ("xid", "0000:cb:00.0", 109, CRITICAL, 1),
        ("xid", "0000:cb:00.0", 43, INFO, 1),
    ],
    "xid154-malformed.log": [("xid", "0000:05:00.0", 154, WARNING, 3)],
    "xid38-109-polish-locale.log": [("xid", "0000:07:00.0", 38, WARNING, 1), ("xid", "0000:07:00.0", 109, CRITICAL, 3)],
    "xid48-63-94-a100.log": [
        ("xid", "0000:52:00.0", 48, CRITICAL, 1),
        ("xid", "0000:52:00.0", 63, WARNING, 1),
        ("xid", "0000:52:00.0", 94, WARNING, 1),
    ],
    "xid62-45-119-154-desktop.log": [
        ("xid", "0000:01:00.0", 62, CRITICAL, 1),
        ("xid", "0000:01:00.0", 45, INFO, 2),
        ("xid", "0000:01:00.0", 119, CRITICAL, 1),
        ("xid", "0000:01:00.0", 154, CRITICAL, 1),
    ],
    "xid63-syslog-aws.log": [("xid", "0000:10:1c.0", 63, WARNING, 1), ("xid", "0000:90:1c.0", 64, CRITICAL, 1)],
    "xid64-94-remap-failure.log": [("xid", "0000:0f:00.0", 64, CRITICAL, 1), ("xid", "0000:0f:00.0", 94, WARNING, 1)],
    "xid79-dmesg-T.log": [
        ("xid", "0000:65:00.0", 79, CRITICAL, 1),
        ("off_bus", "0000:65:00.0", None, CRITICAL, 1),
        ("xid", "0000:65:00.0", 154, CRITICAL, 1),
    ],
    "xid79-multiline-journald.log": [("off_bus", "0000:19:00.0", None, CRITICAL, 1)],
    "xid79-multiline-no-xid-boot.log": [("off_bus", "0000:b1:00.0", None, CRITICAL, 1)],
    "xid94-63-wrapped.log": [("xid", "0000:65:00.0", 94, WARNING, 1), ("xid", "0000:65:00.0", 63, WARNING, 1)],
    "xid95-flood.log": [("xid", "0000:4e:00.0", 95, CRITICAL, 2900)],
}


def read(folder: Path, name: str) -> list[Event]:
    """Return the events of one file."""
    with (folder / "gpu/kmsg" / name).open("rb") as file:
        return list(replay(lines(file), NOW))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_log_gives_what_its_verdict_needs(recorded: Path, name: str) -> None:
    told: Counter[tuple[str, str, int | None, Severity]] = Counter()
    for event in read(recorded, name):
        told[event.kind, event.key, event.code, event.severity] += event.count
    assert sorted(EXPECTED[name], key=str) == sorted(((*what, times) for what, times in told.items()), key=str)


def test_every_file_of_the_index_is_expected(recorded: Path) -> None:
    with (recorded / "gpu/kmsg/index.csv").open(newline="") as file:
        assert sorted(EXPECTED) == sorted(row["file"] for row in csv.DictReader(file))


def test_a_flood_is_few_events(recorded: Path) -> None:
    assert len(read(recorded, "xid95-flood.log")) <= 100


def test_what_the_verdicts_name_stands_in_the_facts(recorded: Path) -> None:
    def facts(name: str, kind: str) -> dict[str, str]:
        return dict(next(event for event in reversed(read(recorded, name)) if event.kind == kind).facts)

    assert facts("xid79-dmesg-T.log", "xid") == {"recovery": "2", "uuid": "GPU-5d2aca08-b6de-725c-d252-d050b4154c3b"}
    assert facts("oom-global-python.log", "oom_kill")["pid"] == "90188"
    assert facts("oom-memcg-container.log", "oom_kill")["constraint"] == "memcg"
    assert facts("hung-task-gdscheck.log", "hung_task")["nvidia"] == "yes"
    assert "nvidia" not in facts("hung-task-docker.log", "hung_task")
    assert facts("hung-task-nvc-old-kernel.log", "hung_task")["name"] == "nvc:[driver]"
    assert facts("nvme-csts-dead.log", "nvme_timeout") == {"gone": "yes"}
    assert facts("cpu-thermal-throttle.log", "cpu_throttle")["total"] == "184302"
    assert facts("gsp-heartbeat-no-xid.log", "gsp") == {"index": "6"}
    assert facts("api-mismatch-dmesg.log", "api_mismatch") == {"client": "550.107.02", "module": "550.90.07"}
    assert facts("nouveau-owns-device.log", "no_driver") == {"why": "held", "devices": "3"}
    assert facts("fabricmanager.log", "sxid") == {"fatal": "no", "link": "61"}
    assert facts("aer-gpu-is-agent.log", "aer_corrected") == {"port": "0000:00:01.1", "errors": "RxErr BadTLP BadDLLP"}
    assert facts("nccl-segfault-iso.log", "segfault")["library"] == "libnccl.so.2"
    assert "recovery" not in facts("xid154-malformed.log", "xid")


def test_incidents_of_one_gpu_keep_their_times(recorded: Path) -> None:
    halts = [event.at for event in read(recorded, "syslog-2080ti-xid13-31-32.log") if event.code == 62]
    assert [round(at - halts[0]) for at in halts] == [0, 4911, 57310]


def test_a_locale_that_writes_months_as_numbers_keeps_the_times_of_its_boots(recorded: Path) -> None:
    halts = [event.at for event in read(recorded, "journald-2080ti-chinese-locale.log") if event.code == 62]
    assert [round(at - halts[0]) for at in halts] == [0, -52399]  # newest boot first


def test_bursts_of_a_port_keep_their_pace(recorded: Path) -> None:
    bursts = [event.at for event in read(recorded, "aer-correctable-gpu-path.log")]
    assert (len(bursts), bursts[-1] - bursts[0]) == (90, 89.0)
