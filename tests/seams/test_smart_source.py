"""The source with a real (fake) smartctl: a Reading for every disk, whatever becomes of its call."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from gpuwatch.catalogue import disk
from gpuwatch.config import Config, Paths, Smart, Sources, plain
from gpuwatch.model.quantity import Duration
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import wire
from gpuwatch.sources.program import Runner
from gpuwatch.sources.smart.numbers import READINGS
from gpuwatch.sources.smart.source import Smart as SmartSource
from tests.fakes.clock import FakeClock
from tests.fakes.drives import Drive, Row, ata, nvme, sas
from tests.fakes.smart_host import SHORT, Host
from tests.fakes.smartctl import (
    Answer,
    denied,
    failing,
    fake_disk,
    garbage,
    gone,
    half,
    hang,
    replay,
    silent,
    standby,
)
from tests.fakes.until import PATIENCE, SLOWER


@pytest.fixture
def host(tmp_path: Path, clock: FakeClock) -> Host:
    """A host without disks."""
    return Host(tmp_path, clock)


@pytest.fixture
def three(host: Host) -> Host:
    """A host with a spinning SATA disk, a SAS disk and an NVMe drive, all well."""
    for name in ("sda", "sdb"):
        fake_disk(host.sys, name, vendor="ATA" if name == "sda" else "INVENTED", rotational=True)
    fake_disk(host.sys, "nvme0n1")
    host.smartctl.answers("sda", host.drive("sda", ata([Row(5, "Reallocated_Sector_Ct", "0")])))
    host.smartctl.answers("sdb", host.drive("sdb", sas(status=4)))
    host.smartctl.answers("nvme0n1", host.drive("nvme0n1", nvme()))
    return host


def test_each_disk_is_announced_read_with_one_call_and_the_round_ends(three: Host) -> None:
    three.round()
    assert [
        *("working nvme0n1", "reading nvme0n1", "working sda", "reading sda", "working sdb", "reading sdb"),
        "done",
    ] == three.happened
    assert [three.state(name) for name in three.readings] == ["ok", "ok", "ok"]
    assert len(three.smartctl.calls()) == 3
    assert three.busy == []


def test_smartctl_is_asked_for_health_and_attributes_alone_and_never_wakes_a_disk(three: Host) -> None:
    """-a and -x read logs, which costs a disk more, and some NVMe drives count each poll as an error."""
    three.round()
    asked = {call.name: call.argv for call in three.smartctl.calls()}
    dev = three.dev
    assert ["-i", "-H", "-A", "--json=o", "-n", "standby", f"{dev}/sda"] == asked["sda"]
    assert ["-i", "-H", "-A", "--json=o", "-n", "standby", f"{dev}/sdb"] == asked["sdb"]
    assert ["-d", "nvme", "-i", "-H", "-A", "--json=o", f"{dev}/nvme0n1"] == asked["nvme0n1"]


def test_a_reading_says_what_was_read_and_by_whom(three: Host) -> None:
    three.round()
    reading = three.readings["nvme0n1"]
    assert ("smart", Tier.SLOW, three.clock.wall(), None) == (reading.source, reading.tier, reading.at, reading.fault)
    assert three.clock.wall() == reading.values[disk.SMART_LAST_SUCCESS]
    assert {"model": "Invented NV1", "serial": "NV0001", "firmware": "1.0", "parser": "json and pySMART"}.items() <= dict(
        reading.target.info
    ).items()
    assert reading.target.info["protocol"] == "nvme"


def test_only_the_slow_tier_has_something_here(three: Host) -> None:
    three.happened = []
    three.source().ask(Tier.FAST, frozenset(), three)
    assert (three.happened, three.smartctl.calls()) == (["done"], [])


def test_sticks_and_virtual_disks_are_not_asked(three: Host) -> None:
    for name in ("vda", "loop0", "dm-0", "md0"):
        fake_disk(three.sys, name)
    fake_disk(three.sys, "sdc", removable=True)
    three.round()
    assert {"nvme0n1", "sda", "sdb"} == set(three.readings) == {call.name for call in three.smartctl.calls()}


def test_a_host_without_disks_ends_its_round(host: Host) -> None:
    host.round()
    assert host.happened == ["done"]


def test_a_controller_that_may_be_opened_is_asked_itself(three: Host) -> None:
    (three.dev / "nvme0").write_text("")
    three.round()
    (call,) = three.smartctl.calls("nvme0n1")
    assert f"{three.dev}/nvme0" == call.node


BAD: dict[str, tuple[Answer, str, Absence]] = {
    "denied": (denied(), "denied", Absence.DENIED),
    "without CAP_SYS_RAWIO": (silent(), "denied", Absence.DENIED),
    "gone": (gone(), "gone", Absence.LOST),
    "no message": (failing("", 2), "no_answer", Absence.FAILED),
    "not ready": (failing("Smartctl open device: {node} failed: Resource temporarily unavailable", 2), "failed", Absence.FAILED),
    "USB bridge": (failing("{node}: Unknown USB bridge [0x0:0x0 (0x100)]", 1), "options", Absence.FAILED),
    "log refused": (failing("Read NVMe SMART/Health Information failed: NVMe Status 0x4002", 4), "no_status", Absence.FAILED),
    "garbage": (garbage(), "garbage", Absence.FAILED),
    "nothing": (garbage(b""), "garbage", Absence.FAILED),
    "brackets": (garbage(b'{"a":', times=50_000), "garbage", Absence.FAILED),
    "a flood": (garbage(b"x" * 1000, times=4_000), "garbage", Absence.FAILED),
    "an array": (garbage(b"[]"), "garbage", Absence.FAILED),
    "empty object": (garbage(b"{}"), "no_status", Absence.FAILED),
}


@pytest.mark.parametrize(("what", "name"), list(zip(BAD, itertools.cycle(["nvme0n1", "sda", "sdb"]), strict=False)))
def test_what_fails_for_one_disk_is_unknown_and_costs_no_other(three: Host, what: str, name: str) -> None:
    answer, kind, why = BAD[what]
    good = json.loads((three.smartctl.program.parent / "devices" / f"{name}.json").read_text())
    three.smartctl.answers(name, *good, answer, *good)
    three.round()
    before = three.readings[name]
    three.round()
    reading = three.readings[name]
    assert ("unknown", kind) == (three.state(name), three.fault(name))
    assert reading.fault is not None
    assert reading.fault.words
    assert set(disk.VERDICT.values()) == set(reading.values)  # nothing is left of the verdict before
    assert dict.fromkeys(READINGS, why) == reading.absent
    assert before.target == reading.target
    assert [three.state(other) for other in three.readings if other != name] == ["ok", "ok"]
    three.round()
    assert ("ok", before.values) == (three.state(name), three.readings[name].values)


def test_a_capture_cut_by_a_kill_is_unknown(three: Host) -> None:
    three.smartctl.answers("sda", half(three.smartctl.program.parent / "sda.json"))
    three.round()
    assert (three.state("sda"), three.fault("sda")) == ("unknown", "garbage")


@pytest.mark.parametrize("name", ["nvme0n1", "sdb"])  # the first and the last
def test_a_disk_that_hangs_costs_its_own_time_and_no_other_disk(three: Host, name: str) -> None:
    three.smartctl.answers(name, hang(child=True))
    started = time.monotonic()
    three.round(deadline=SHORT)
    assert time.monotonic() - started < 2 * SHORT + SLOWER
    assert (three.state(name), three.fault(name)) == ("unknown", "timeout")
    assert Absence.LATE is three.readings[name].absent[disk.TEMPERATURE]
    assert three.busy == []  # the call is over: it was killed
    three.until_ok(*[other for other in three.readings if other != name])


def survived(pid: int, number: int) -> None:
    """Kill nothing: a process in uninterruptible sleep looks the same."""


def test_a_disk_whose_call_survives_sigkill_costs_no_other_disk(three: Host) -> None:
    three.smartctl.answers("sda", hang())
    config = Config(
        sources=Sources(smart=Smart(smartctl=str(three.smartctl.program), deadline=Duration(5.0))),
        paths=Paths(sys=str(three.sys), dev=str(three.dev), proc=str(three.proc)),
    )
    runner = Runner(kill=survived)
    SmartSource(config, three.clock, runner).ask(Tier.SLOW, frozenset(), three)
    pid = three.smartctl.calls("sda")[0].pid
    os.kill(pid, signal.SIGKILL)
    ends = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
        runner.run(["/bin/true"], 10)  # reaps it
    assert (three.state("sda"), three.fault("sda")) == ("unknown", "stuck")
    assert [three.state(name) for name in ("nvme0n1", "sdb")] == ["ok", "ok"]
    assert [three.readings["sda"].target.key] == three.busy


def test_the_worker_sends_a_reading_of_every_disk(three: Host) -> None:
    three.smartctl.answers("sda", denied())
    smart = Smart(smartctl=str(three.smartctl.program))
    config = Config(sources=Sources(smart=smart), paths=Paths(sys=str(three.sys), dev=str(three.dev), proc=str(three.proc)))
    command = [sys.executable, "-m", "gpuwatch.sources.worker", "gpuwatch-smart"]
    got: dict[str, str] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(wire.pack(wire.Setup(["smart"], plain(config))) + wire.pack(wire.Ask(1, Tier.SLOW)))
        worker.stdin.flush()
        for body in wire.frames(cast("BinaryIO", worker.stdout)):
            frame = wire.from_worker(body)
            if isinstance(frame, wire.Got):
                reading = wire.reading(frame)
                got[reading.target.labels["device"]] = next(
                    state for state, metric in disk.VERDICT.items() if reading.values[metric]
                )
            elif isinstance(frame, wire.Done):
                break
        worker.stdin.close()
    assert got == {"nvme0n1": "ok", "sda": "unknown", "sdb": "ok"}


def test_a_disk_that_is_skipped_is_not_touched_and_says_so(three: Host) -> None:
    three.round(skip=["sda"])
    assert (three.state("sda"), three.fault("sda")) == ("unknown", "timeout")
    assert three.smartctl.calls("sda") == []
    assert "working sda" not in three.happened
    assert [three.readings["sda"].target.key] == three.busy
    assert [three.state(name) for name in ("nvme0n1", "sdb")] == ["ok", "ok"]


def test_a_disk_at_which_an_old_smartctl_still_hangs_gets_no_second_one(three: Host) -> None:
    folder = three.proc / "77"
    folder.mkdir()
    (three.proc / "uptime").write_text("1000.00 1.00\n")
    (folder / "comm").write_text("smartctl\n")
    (folder / "stat").write_text("77 (smartctl) D " + "0 " * 18 + f"{100 * os.sysconf('SC_CLK_TCK')} 0\n")
    (folder / "status").write_text(f"Uid:\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\n")
    (folder / "cmdline").write_bytes(f"smartctl\0-H\0{three.dev}/sdb\0".encode())
    three.round()
    assert (three.state("sdb"), three.fault("sdb"), three.state("sda")) == ("unknown", "timeout", "ok")
    assert three.smartctl.calls("sdb") == []


def test_a_sleeping_disk_is_standby_and_stays_asleep(three: Host) -> None:
    awake = json.loads((three.smartctl.program.parent / "devices/sda.json").read_text())[0]
    three.smartctl.answers("sda", standby(awake))
    three.round()
    assert (three.state("sda"), three.fault("sda")) == ("standby", "")
    assert dict.fromkeys(READINGS, Absence.EMPTY) == three.readings["sda"].absent
    three.round(sleep=False)
    assert three.state("sda") == "ok"


def test_without_smartctl_every_disk_is_unknown_and_the_package_is_named(three: Host) -> None:
    three.round("smartctl-that-nobody-installed")
    assert {three.fault(name) for name in three.readings} == {"no_smartctl"}
    assert {three.state(name) for name in three.readings} == {"unknown"}
    fault = three.readings["sda"].fault
    assert fault is not None
    assert "smartmontools" in fault.words


def test_a_smartctl_that_is_not_there_or_no_program_is_named(three: Host, tmp_path: Path) -> None:
    bad = tmp_path / "broken"
    bad.write_text("\x00")
    bad.chmod(0o755)
    for program in (tmp_path / "none", bad):
        three.round(str(program))
        fault = three.readings["sda"].fault
        assert fault is not None
        assert (fault.kind, str(program) in fault.words) == ("no_smartctl", True)


@pytest.mark.parametrize("drive", [nvme(), ata([Row(197, "Current_Pending_Sector", "1")]), sas()], ids=["nvme", "ata", "sas"])
def test_a_smartctl_before_7_0_is_judged_by_its_text(host: Host, drive: Drive, tmp_path: Path) -> None:
    fake_disk(host.sys, "sda")
    text = tmp_path / "old.txt"
    text.write_text(drive.text)
    host.smartctl.answers("sda", replay(text))
    host.round()
    assert ("warn" if drive.tree["device"]["protocol"] == "ATA" else "ok", "") == (host.state("sda"), host.fault("sda"))
    assert host.readings["sda"].target.info["parser"] == "text"
    assert ["--json=o" in call.argv for call in host.smartctl.calls()] == [True, False]


def test_a_smartctl_before_7_0_that_hangs_on_its_second_call_is_killed_too(three: Host, tmp_path: Path) -> None:
    text = tmp_path / "old.txt"
    text.write_text(ata().text)
    three.smartctl.answers("sda", replay(text), hang())
    three.round(deadline=SHORT)
    assert (three.state("sda"), three.fault("sda")) == ("unknown", "timeout")
    three.until_ok("sdb")


def test_a_text_that_pysmart_cannot_parse_costs_its_numbers_and_not_the_verdict(three: Host) -> None:
    """Counters above smartctl's unit limit have no "[1.23 PB]" behind them, and pySMART raises IndexError."""
    drive = nvme(data_units_read=2**100)
    text = drive.text.replace(" [1.02 TB]", "")
    three.smartctl.answers("nvme0n1", three.smartctl.document("nvme0n1", drive.tree, text))
    three.round()
    info = three.readings["nvme0n1"].target.info
    assert (three.state("nvme0n1"), info["parser"], info["odd"]) == ("ok", "json", "pySMART fails on the text (IndexError)")
    assert float(2**100) * 512_000 == three.readings["nvme0n1"].values[disk.LIFETIME_BYTES["read"]]


def test_parsers_that_differ_are_told_with_the_disk_and_not_logged_every_round(
    three: Host, caplog: pytest.LogCaptureFixture
) -> None:
    tree = nvme(media_errors=7).tree
    three.smartctl.answers("nvme0n1", three.smartctl.document("nvme0n1", tree, nvme(media_errors=6).text))
    caplog.set_level("DEBUG")
    three.round()
    info = three.readings["nvme0n1"].target.info
    assert (three.state("nvme0n1"), info["odd"]) == ("warn", "pySMART and JSON differ in media_errors; JSON counts")
    assert "differ" not in caplog.text


def test_invalid_utf_8_in_a_name_is_shown_harmlessly(three: Host, tmp_path: Path) -> None:
    capture = tmp_path / "odd.json"
    capture.write_bytes(
        json.dumps(nvme().tree).encode().replace(b"Invented NV1", b"Inv\xff\x1b\xe2\x80\xaented").replace(b"\x1b", b"\\u001b")
    )
    three.smartctl.answers("nvme0n1", replay(capture))
    three.round()
    assert three.state("nvme0n1") == "ok"
    assert three.readings["nvme0n1"].target.info["model"] == "Inv\ufffd\\x1b\\u202ented"


def test_a_failing_drive_says_why(three: Host) -> None:
    three.smartctl.answers("nvme0n1", three.drive("bad", nvme(passed=False, status=8, critical_warning=8)))
    three.round()
    reading = three.readings["nvme0n1"]
    assert (three.state("nvme0n1"), reading.target.info["reason"], reading.fault) == ("fail", "media read-only", None)
    assert reading.values[disk.SMART_HEALTHY] == 0.0


def test_close_ends_what_runs_and_may_be_called_at_any_time(three: Host) -> None:
    built = three.source()
    built.close()
    built.close()
