"""Every recorded kernel log gives the verdict of its index: log -> events -> stories (severity, thing, cause, how often)."""

import csv
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuwatch.detectors.stories import Story, retold
from gpuwatch.model.event import Event
from gpuwatch.sources.kernel import lines, replay

NOW = 1_764_500_000.0
CRITICAL, WARNING, INFO = "critical", "warning", "info"


class Told(NamedTuple):
    """A story as the table has it; `also` is what else it holds."""

    severity: str
    thing: str
    cause: str
    times: int
    also: str = ""


HALT = Told(CRITICAL, "gpu 0000:03:00.0", "Xid 62", 1)
# Errors that programs cause (Xid 13, 31, 32, 43, 68, 69) are information here: for them the index names no verdict of its own,
# and the table of defaults (operator.md 3) overrides every other page. What the index wants raised, Xid 62 and 109, is.
STORIES: dict[str, list[Told]] = {
    "aer-correctable-gpu-path.log": [Told(WARNING, "pci 0000:00:03.1", "aer_corrected", 90)],
    "aer-corrected-old-format.log": [Told(INFO, "pci 0000:00:1c.5", "aer_corrected", 2)],
    "aer-gpu-is-agent.log": [
        Told(INFO, "pci 0000:01:00.0", "aer_corrected", 1),
        Told(CRITICAL, "pci 0000:01:00.0", "aer_fatal", 1),
    ],
    "api-mismatch-dmesg.log": [Told(WARNING, "driver api_mismatch", "api_mismatch", 1)],
    "api-mismatch-syslog-octal.log": [Told(WARNING, "driver api_mismatch", "api_mismatch", 2)],
    "cpu-thermal-throttle.log": [Told(INFO, "host cpu_throttle", "cpu_throttle", 3)],
    "devkmsg-healthy-h100.log": [],
    "devkmsg-raw-records.log": [
        Told(CRITICAL, "gpu 0000:18:00.0", "Xid 79", 1, "off_bus x1"),
        Told(WARNING, "disk nvme1", "nvme_timeout", 1),  # the index is silent about this line
    ],
    "dkms-module-missing.log": [Told(CRITICAL, "driver no_driver", "no_driver", 2)],
    "fabricmanager.log": [Told(INFO, "nvswitch 0000:86:00.0", "SXid 12028 link 61", 1)],
    "gsp-heartbeat-no-xid.log": [Told(WARNING, "gpu number 6 of the driver", "gsp", 2)],
    "hung-task-after-xid45.log": [
        Told(INFO, "gpu 0000:61:00.0", "Xid 45", 2),
        Told(CRITICAL, "driver hung", "hung_task", 1),
    ],
    "hung-task-docker.log": [Told(WARNING, "host hung_task", "hung_task", 1)],
    "hung-task-gdscheck.log": [Told(CRITICAL, "driver hung", "hung_task", 1)],
    "hung-task-nvc-old-kernel.log": [Told(WARNING, "driver hung", "hung_task", 1)],
    "journald-2080ti-chinese-locale.log": [
        HALT._replace(also="Xid 13 x193"),
        Told(INFO, "gpu 0000:03:00.0", "Xid 32", 6, "Xid 31 x1"),
        HALT._replace(also="Xid 13 x4"),
        Told(INFO, "gpu 0000:03:00.0", "Xid 32", 1),
    ],
    "journald-json-export.jsonl": [Told(CRITICAL, "gpu 0000:b3:00.0", "Xid 119", 1, "Xid 154 x1")],
    "kernel-oops.log": [Told(WARNING, "host kernel_oops", "kernel_oops", 1)],
    "md-raid-no-path.log": [
        Told(CRITICAL, "disk nvme0", "raid_failure", 1, "no_path x10, fs_readonly x1")
    ],  # of paths 1 and its 9 repeats
    "nccl-segfault-iso.log": [Told(WARNING, "host segfault", "segfault", 2)],
    "negative-not-an-xid.log": [Told(WARNING, "gpu 0000:05:00.0", "Xid 99999", 1)],
    "negative-sshd-noise-syslog.log": [],
    "negative-thunderbird-cluster.log": [],
    "nouveau-normal-boot.log": [Told(INFO, "driver nouveau", "nouveau", 1)],
    "nouveau-owns-device.log": [Told(CRITICAL, "driver no_driver", "no_driver", 1)],
    "nvme-admin-timeout-chain.log": [
        Told(CRITICAL, "disk nvme4", "nvme_disabled", 1, "nvme_timeout x1, io_error x2, fs_error x1, fs_readonly x1")
    ],
    "nvme-csts-dead.log": [Told(CRITICAL, "disk nvme0", "nvme_disabled", 1, "nvme_timeout x1, fs_error x1, fs_readonly x1")],
    "oom-global-python.log": [Told(CRITICAL, "host oom_kill 90188", "oom_kill", 1)],
    "oom-memcg-container.log": [Told(WARNING, "host oom_kill 22017", "oom_kill", 1)],
    "pstore-erst-panic.txt": [Told(INFO, "host crash", "crash", 1)],
    "soft-lockup-cuda.log": [Told(WARNING, "host soft_lockup", "soft_lockup", 2)],
    "sxid-syslog-priority.log": [
        Told(WARNING, "nvswitch 0000:06:00.0", "SXid 20009 link 4", 1),
        Told(INFO, "nvswitch 0005:00:00.0", "SXid 28002 link 29", 1),
    ],
    "syslog-2080ti-xid13-31-32.log": [
        HALT._replace(also="Xid 13 x164, Xid 45 x29"),
        HALT._replace(also="Xid 13 x4"),
        HALT._replace(also="Xid 13 x193"),
        Told(INFO, "gpu 0000:03:00.0", "Xid 32", 6, "Xid 31 x1"),
    ],
    "vfs-file-max-iso.log": [Told(WARNING, "host file_limit", "file_limit", 2)],
    "xid-legacy-short.log": [Told(WARNING, "gpu 0000:03:00.0", "Xid 8", 1, "Xid 14 x1")],
    "xid119-storm-nvidia-smi.log": [Told(CRITICAL, "gpu 0000:61:00.0", "Xid 119", 36)],
    "xid13-43-109-app.log": [Told(CRITICAL, "gpu 0000:cb:00.0", "Xid 109", 1, "Xid 13 x3, Xid 43 x1")],
    "xid154-malformed.log": [Told(WARNING, "gpu 0000:05:00.0", "Xid 154", 3)],
    "xid38-109-polish-locale.log": [Told(CRITICAL, "gpu 0000:07:00.0", "Xid 109", 3, "Xid 38 x1")],
    "xid48-63-94-a100.log": [Told(WARNING, "gpu 0000:52:00.0", "Xid 48", 1, "Xid 63 x1, Xid 94 x1")],
    "xid62-45-119-154-desktop.log": [
        Told(CRITICAL, "gpu 0000:01:00.0", "Xid 62", 1, "Xid 45 x2, Xid 119 x1, Xid 154 x1"),
    ],
    "xid63-syslog-aws.log": [
        Told(WARNING, "gpu 0000:10:1c.0", "Xid 63", 1),
        Told(CRITICAL, "gpu 0000:90:1c.0", "Xid 64", 1),
    ],
    "xid64-94-remap-failure.log": [Told(CRITICAL, "gpu 0000:0f:00.0", "Xid 64", 1, "Xid 94 x1")],
    "xid79-dmesg-T.log": [Told(CRITICAL, "gpu 0000:65:00.0", "Xid 79", 1, "off_bus x1, Xid 154 x1")],
    "xid79-multiline-journald.log": [Told(CRITICAL, "gpu 0000:19:00.0", "off_bus", 1)],
    "xid79-multiline-no-xid-boot.log": [Told(CRITICAL, "gpu 0000:b1:00.0", "off_bus", 1)],
    "xid94-63-wrapped.log": [Told(WARNING, "gpu 0000:65:00.0", "Xid 94", 1, "Xid 63 x1")],
    "xid95-flood.log": [Told(CRITICAL, "gpu 0000:4e:00.0", "Xid 95", 2900)],
}


def events(recorded: Path, name: str) -> list[Event]:
    """Return the events of one log."""
    with (recorded / "gpu/kmsg" / name).open("rb") as log:
        return list(replay(lines(log), NOW))


def stories(recorded: Path, name: str) -> list[Story]:
    """Return the stories of one log."""
    return retold(events(recorded, name))


def test_no_recorded_log_is_left_out(recorded: Path) -> None:
    with (recorded / "gpu/kmsg/index.csv").open() as index:
        assert {row["file"] for row in csv.DictReader(index)} == STORIES.keys()


@pytest.mark.parametrize("name", STORIES)
def test_a_recorded_log_gives_the_verdict_of_its_index(recorded: Path, name: str) -> None:
    found = [Told(one.severity.value, one.thing, one.label, one.count, one.also) for one in stories(recorded, name)]
    assert found == STORIES[name]


def test_what_is_to_be_done_follows_the_story(recorded: Path) -> None:
    lost, contained, unrepaired, locked = (
        stories(recorded, name)[0].action
        for name in (
            "xid79-dmesg-T.log",
            "xid48-63-94-a100.log",
            "xid64-94-remap-failure.log",
            "xid62-45-119-154-desktop.log",
        )
    )
    assert lost.startswith("the driver asks for: reboot; drain; reboot node (power cycle)")
    assert (contained.startswith("restart the affected app"), "RMA if it repeats" in contained) == (True, False)
    assert "RMA" in unrepaired
    assert locked.startswith("the driver asks for: GPU reset")


@pytest.mark.parametrize("name", ["syslog-2080ti-xid13-31-32.log", "journald-2080ti-chinese-locale.log"])
def test_a_controller_that_halts_again_is_the_card_or_its_power(recorded: Path, name: str) -> None:
    """Of two the later one, whichever boot the log tells first: the second file has the newest boot at its top."""
    halts = sorted((story for story in stories(recorded, name) if story.label == "Xid 62"), key=lambda story: story.began)
    suspected = [story.suspicion for story in halts]
    assert suspected[0] == ""
    assert ["suspect the card or its power" in words for words in suspected[1:]] == [True] * (len(suspected) - 1)


def test_lost_records_are_counted(recorded: Path) -> None:
    found = events(recorded, "devkmsg-raw-records.log")
    assert sum(event.count for event in found if event.kind == "log_lost") == 84


def test_one_incident_of_lines_with_and_without_a_year_is_one_story_of_the_array_that_was_lost(recorded: Path) -> None:
    with (recorded / "gpu/kmsg/md-raid-no-path.log").open("rb") as log:
        (story,) = retold(replay(lines(log), NOW + 365 * 86400.0))  # a year later it is the same incident
    assert (story.last - story.began, story.words) == (2.0, "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.")
    assert (story.thing, story.title) == ("disk nvme0", "RAID md0 lost nvme0n1p1")


@pytest.mark.parametrize(("name", "remedy"), [("dkms-module-missing.log", "headers"), ("nouveau-owns-device.log", "unload")])
def test_what_to_do_about_no_driver_follows_from_why_there_is_none(recorded: Path, name: str, remedy: str) -> None:
    assert [remedy in story.action for story in stories(recorded, name)] == [True]
