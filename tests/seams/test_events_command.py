"""`gpuwatch events`: what a daemon has stored, and what a saved log tells."""

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.cli import main
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.moment import HERE
from gpuwatch.model.past import UnreadableError
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from tests.fakes import page_view
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, serving

HOSTILE = "A40\x1b[2J\x9b31m\u202e"
LOG = """\
[    1.000000] Linux version 6.8.0
[Tue Mar 11 04:22:09 2025] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[Tue Mar 11 04:22:09 2025] NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.
[Tue Mar 11 04:22:10 2025] NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)
"""


def happened(at: float, **facts: object) -> Event:
    """Return an Xid of GPU 3."""
    fields: dict[str, object] = {
        "source": "kernel",
        "kind": "xid",
        "severity": Severity.CRITICAL,
        "at": at,
        "words": "NVRM: Xid ...: 79",
        "subject": "gpu",
        "key": f"3/{page_view.uuid(3)}",
        "code": 79,
    }
    return Event(**(fields | facts))  # type: ignore[arg-type] # fields go through as they are


@pytest.fixture
def answers() -> Answers:
    """A daemon that has stored three events."""
    found, now = Answers(), time.time()
    found.happened = [
        happened(now - 90_000, count=4),
        happened(now - 60, key=f"2/{page_view.uuid(2)}", code=31, words=HOSTILE),
        happened(now - 30, kind="oom_kill", subject="host", key="", code=None),
    ]
    return found


def test_a_daemon_is_asked_and_each_event_is_a_line(tmp_path: Path, answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, answers=answers) as served:
        assert main(["events", "--socket", str(served.path)]) == 0
        first, second, third = capsys.readouterr().out.splitlines()
        assert "critical  GPU 3  Xid 79 x4: GPU fell off the PCIe bus | NVRM: Xid ...: 79" in first
        assert "GPU 2  Xid 31: GPU memory page fault (MMU fault) | A40\\x1b[2J\\x9b31m\\u202e" in second
        assert "host  oom_kill: The kernel killed a process for memory" in third
        assert main(["events", "--socket", str(served.path), "--since", "24h", "--json"]) == 0
        assert [one["kind"] for one in json.loads(capsys.readouterr().out)] == ["xid", "oom_kill"]
        assert main(["events", "--socket", str(served.path), "--gpu", "3", "--limit", "1"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
        assert main(["events", "--socket", str(served.path), "--gpu", "5"]) == 0
        assert capsys.readouterr().out == "no events\n"


def test_events_are_asked_for_by_the_times_that_the_history_takes(
    tmp_path: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    def codes(*words: str) -> list[int | None]:
        assert main(["events", "--socket", str(served.path), "--json", *words]) == 0
        return [one["code"] for one in json.loads(capsys.readouterr().out)]

    def date(ago: float, zone: timezone | None = None) -> str:
        return datetime.fromtimestamp(time.time() - ago, zone).isoformat(" ", "seconds")

    with serving(tmp_path, answers=answers) as served:
        assert codes("--since", "24h") == [31, None]
        assert codes("--since", "26h", "--until", "24h") == [79]
        assert codes("--until", date(86_400)) == [79]
        assert codes("--since", date(93_600), "--until", date(45, timezone.utc)) == [79, 31]
        assert codes("--since", f"{time.time() - 45:.0f}") == [None]


class Unreadable(Answers):
    """A daemon that cannot read what has happened."""

    def events(self, since: float, until: float, limit: int, keys: Collection[str] | None) -> list[Event]:
        """Say why."""
        raise UnreadableError("the history cannot be read: disk I/O error")


def test_that_the_daemon_cannot_read_them_is_said_in_its_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, answers=Unreadable()) as served:
        assert main(["events", "--socket", str(served.path)]) == 3
    assert capsys.readouterr() == ("", "gpuwatch events: the history cannot be read: disk I/O error\n")


class Here(Answers):
    """A daemon with one GPU that has an address on the bus."""

    def view(self) -> View:
        """Return it."""
        info = {"pci_bus_id": "0000:5d:00.0"}
        card = Target(subject=GPU, key="GPU-A", labels={"gpu": "3", "uuid": "GPU-A"}, info=info)
        return page_view.view([page_view.entry(card, {})])


@pytest.mark.parametrize("called", ["3", "GPU-A", "0000:5d:00.0", "00000000:5D:00.0", "5d:00.0"])
def test_a_gpu_is_found_by_index_uuid_and_address_in_any_spelling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], called: str
) -> None:
    answers = Here()
    answers.happened = [happened(time.time() - 60, key="GPU-A"), happened(time.time() - 50, key="GPU-B")]
    with serving(tmp_path, answers=answers) as served:
        assert main(["events", "--socket", str(served.path), "--gpu", called]) == 0
        assert [line.split("  ")[2] for line in capsys.readouterr().out.splitlines()] == ["GPU 3"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--gpu", "99"],
            2,
            "gpuwatch events: --gpu: no GPU is called '99'; known are 0, 1, 2, 3, 4, 5, 6, 7\n",
        ),
        (
            ["--since", "yesterday"],
            2,
            f"gpuwatch events: --since: {HERE}, got 'yesterday'\n",
        ),
        (["--until", "-1h"], 2, f"gpuwatch events: --until: {HERE}, got '-1h'\n"),
        (["--since", "1h", "--until", "2h"], 2, "gpuwatch events: --until: expected a time after since\n"),
        (["--limit", "0"], 2, "gpuwatch events: --limit: expected a number from 1 to 10000, got 0\n"),
        (
            ["--file", "x", "--gpu", "1"],
            2,
            "gpuwatch events: --file: a saved log is read whole: --gpu is for a daemon\n",
        ),
        (
            ["--file", "x", "--password-file", "y"],
            2,
            "gpuwatch events: --file: a saved log is read whole: --password-file is for a daemon\n",
        ),
        (["--file", "/no/such/log"], 2, "gpuwatch events: --file: /no/such/log: No such file or directory\n"),
    ],
)
def test_what_cannot_be_asked_is_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    with serving(tmp_path) as served:
        where = [] if "--file" in words else ["--socket", str(served.path)]
        assert main(["events", *where, *words]) == code
    assert capsys.readouterr().err == said


def test_without_a_daemon_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--socket", str(tmp_path / "none")]) == 3
    assert capsys.readouterr().err.startswith("gpuwatch events: ")


def test_a_saved_log_needs_no_daemon_and_is_told_as_a_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "dmesg"
    log.write_text(LOG)
    assert main(["events", "--file", str(log)]) == 1
    said = capsys.readouterr().out
    assert "CRITICAL  gpu 0000:65:00.0: Xid 79 GPU fell off the PCIe bus\n" in said
    assert "  with it: off_bus x1, Xid 154 x1\n  the driver asks for: reboot; drain; reboot node (power cycle)" in said
    assert main(["events", "--file", str(log), "--json", "--limit", "1"]) == 1
    page = json.loads(capsys.readouterr().out)
    assert [event["code"] for event in page["events"]] == [154]
    (story,) = page["stories"]
    assert (story["cause"], story["severity"], story["also"], story["recovery"]) == (
        "Xid 79",
        "critical",
        {"off_bus": 1, "Xid 154": 1},
        "2",
    )


def test_a_log_comes_through_a_pipe_and_junk_in_it_is_no_event() -> None:
    command = [sys.executable, "-m", "gpuwatch", "events", "--file", "-"]
    junk = b"\xff\xfe\x00\n" + b"x" * 2_000_000 + b"\n[    5.0] all is well\n"
    done = subprocess.run(command, input=junk, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"this log tells of nothing that gpuwatch knows\n"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_a_packed_log_is_read_as_it_is_and_through_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes]
) -> None:
    log = tmp_path / "kern.log.2"
    log.write_bytes(pack(LOG.encode()))
    assert main(["events", "--file", str(log)]) == 1
    assert "CRITICAL  gpu 0000:65:00.0: Xid 79" in (said := capsys.readouterr().out)
    command = [sys.executable, "-m", "gpuwatch", "events", "--file", "-"]
    done = subprocess.run(command, input=log.read_bytes(), capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (1, said, b"")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
@pytest.mark.parametrize("damage", ["cut", "turned"])
def test_a_packed_log_that_is_damaged_is_a_wrong_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes], damage: str
) -> None:
    whole = pack(LOG.encode())
    log = tmp_path / "kern.log.2"
    middle = len(whole) // 2
    log.write_bytes(whole[:middle] if damage == "cut" else whole[:middle] + bytes(255 - one for one in whole[middle:]))
    assert main(["events", "--file", str(log)]) == 2
    assert capsys.readouterr().err.startswith(f"gpuwatch events: --file: {log}: ")


def test_empty_standard_input_is_no_quiet_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`dmesg` that is not allowed prints nothing, too."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["events", "--file", "-"]) == 2
    assert "no line of a kernel log was recognised" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\x28\xb5\x2f\xfd", "packed by zstd, which is not read here: zstdcat FILE | gpuwatch events --file -"),
        (b"\x1f\x9d\x90", "packed by compress, which is not read here: zcat FILE | gpuwatch events --file -"),
        (b"LPKSHHRH", "a journal of systemd, which is not read here: journalctl --file FILE | gpuwatch events --file -"),
        (b"PK\x03\x04", "a ZIP archive, which is not read here: unzip -p FILE | gpuwatch events --file -"),
    ],
)
def test_what_another_program_reads_is_refused_with_what_it_is_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: bytes, said: str
) -> None:
    log = tmp_path / "kern.log.zst"
    log.write_bytes(start + bytes(range(256)))
    assert main(["events", "--file", str(log)]) == 2
    assert capsys.readouterr() == ("", f"gpuwatch events: --file: {log}: it is {said}\n")


@pytest.mark.parametrize("start", [b"BZ", b"BZh0", b"\xfd7", b"\xfd7zXZ"])
def test_a_log_that_begins_like_a_packed_one_is_read_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: bytes
) -> None:
    log = tmp_path / "kern.log"
    log.write_bytes(start + b" of somebody\n" + LOG.encode())
    assert main(["events", "--file", str(log)]) == 1
    assert "CRITICAL  gpu 0000:65:00.0: Xid 79" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("\n", 2),
        ("all is well\n", 2),
        ('{"a": 1}\n[http]\nlisten = 3\n', 2),
        ("\x7fELF\x02\x01\x00\x00 \x00", 2),
        (gzip.compress(b""), 0),
        (gzip.compress(b"all is well"), 2),
    ],
    ids=["empty", "newline", "words", "toml", "binary", "packed-empty", "packed-words"],
)
def test_a_file_without_a_line_of_a_kernel_log_is_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, code: int
) -> None:
    log = tmp_path / "log"
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["events", "--file", str(log)]) == code
    assert capsys.readouterr() == ("", f"gpuwatch events: no line of a kernel log was recognised in {log}\n")


@pytest.mark.parametrize(
    "line",
    [
        "[    0.000000] Linux version 6.8.0",
        "6,1,0,-;Linux version 6.8.0",
        "Mar 11 04:22:09 gpu-host kernel: Linux version 6.8.0",
        "2025-03-11T04:22:09+00:00 gpu-host systemd[1]: Started.",
        '{"MESSAGE": "Linux version", "__REALTIME_TIMESTAMP": "1741666929000000"}',
        "pci 0000:00:02.0: [8086:1912] type 00",  # dmesg --notime
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ],
)
def test_a_quiet_log_in_any_form_is_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"= a heading of somebody =\n{line}\n")
    assert main(["events", "--file", str(log)]) == 0
    assert capsys.readouterr() == ("this log tells of nothing that gpuwatch knows\n", "")


@pytest.mark.parametrize(
    ("form", "out"),
    [
        ("node-3 | {}", ""),
        ("Mar 11 04:22:09 gpu-host app[812]: {}", ""),
        ("Mar 11 04:22:09 gpu-host app[812]: {}\n[    5.0] EXT4-fs (dm-0): Remounting filesystem read-only", "fs_readonly"),
    ],
)
def test_errors_of_the_driver_that_cannot_be_read_are_no_clean_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, out: str
) -> None:
    log = tmp_path / "log"
    log.write_text(f"all is well\n{form.format(XID)}\n")
    assert main(["events", "--file", str(log)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("gpuwatch events: line 2 has an error of the NVIDIA driver, but none could be read: ")
    assert (out in said.out, "nothing" in said.out) == (True, False)


@pytest.mark.parametrize("ending", ["Ctrl-C", "a writer"])
def test_a_fifo_is_waited_for_aloud_until_somebody_writes_or_has_enough(tmp_path: Path, ending: str) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # who runs the tests in the background has it ignored
    program = f"import signal, sys; from gpuwatch.cli import main; {heard}; sys.exit(main())"
    command = [sys.executable, "-c", program, "events", "--file", str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        assert asking.stderr.readline() == f"gpuwatch events: {fifo} is a FIFO: waiting for whoever writes to it\n"
        if ending == "Ctrl-C":
            asking.send_signal(signal.SIGINT)
        else:
            fifo.write_text(LOG)
        out, rest = asking.communicate(timeout=PATIENCE)
    assert (asking.returncode, rest, "CRITICAL" in out) == ((130, "", False) if ending == "Ctrl-C" else (1, "", True))


XID = "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("head", "uptime"), [("[ 7401.118204] ", 7401.118204), ("4,3903,7401118204,-;", 7401.118204), ("", None)]
)
def test_a_log_without_a_calendar_is_given_no_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str, uptime: float | None
) -> None:
    file = tmp_path / "log"
    file.write_text(f"{head}{XID}\n")
    assert main(["events", "--file", str(file)]) == 1
    event, _, _, story, *_ = capsys.readouterr().out.splitlines()
    said = "at an unknown time" if uptime is None else "7401.118204 s since boot"
    assert (event.split("  ")[0], story) == (said, f"  {said}")
    assert main(["events", "--file", str(file), "--json"]) == 1
    page = json.loads(capsys.readouterr().out)
    (event,), (story,) = page["events"], page["stories"]
    assert (event["at"], event.get("at_since_boot")) == (None, uptime)
    assert (story["began"], story.get("began_since_boot")) == (None, uptime)


def test_records_that_swapped_places_within_a_second_are_listed_by_their_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dmesg"
    file.write_text(f"[ 1.9] {XID}\n[ 1.1] {XID.replace('79', '48')}\n[ 2.5] {XID}\n")
    assert main(["events", "--file", str(file)]) == 1
    assert [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()[:3]] == ["1.100000", "1.900000", "2.500000"]
