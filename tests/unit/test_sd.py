"""systemd hears what it must hear, in its own form."""

import logging
import os
import socket
from pathlib import Path

from gpuwatch import sd
from tests.fakes.until import PATIENCE


def test_a_service_manager_that_listens_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        sd.notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(100) == b"READY=1"


def test_an_abstract_socket_is_told_too() -> None:
    name = f"gpuwatch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(PATIENCE)
        sd.notify("WATCHDOG=1", {"NOTIFY_SOCKET": f"@{name}"})
        assert manager.recv(100) == b"WATCHDOG=1"


def test_nobody_who_listens_is_no_error(tmp_path: Path) -> None:
    sd.notify("READY=1", {})
    sd.notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "none")})


def test_the_watchdog_counts_only_for_this_process() -> None:
    assert sd.watchdog_period({"WATCHDOG_USEC": "60000000"}) == 60
    assert sd.watchdog_period({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}) == 60
    assert sd.watchdog_period({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}) is None
    for junk in ("", "0", "soon", "-5"):
        assert sd.watchdog_period({"WATCHDOG_USEC": junk}) is None
    assert sd.watchdog_period({}) is None


def record(level: int, message: str, error: Exception | None = None) -> logging.LogRecord:
    """Return a record as a logger makes it."""
    return logging.LogRecord("x", level, "", 0, "%s", (message,), (type(error), error, None) if error else None)


def test_every_line_for_the_journal_has_its_priority(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as stream:
        seen = os.fstat(stream.fileno())
        journal = sd.lines("gpuwatch-nvml", {"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino}"}, stream.fileno())
        assert journal.format(record(logging.WARNING, "one")) == "<4>gpuwatch-nvml: one"
        assert journal.format(record(logging.INFO, "one")).startswith("<6>")
        failed = journal.format(record(logging.ERROR, "one", ValueError("two")))
        assert failed == "<3>gpuwatch-nvml: one\n<3>ValueError: two"


def test_how_grave_an_alarm_is_stands_once_in_its_line(tmp_path: Path) -> None:
    """The journal shows no priority, so there it is a word of the line; a terminal has it as the level."""
    alarm = logging.LogRecord(sd.ALARMS, logging.CRITICAL, "", 0, "gpu_dropped: GPU 2", (), None)
    over = logging.LogRecord(sd.ALARMS, logging.INFO, "", 0, "gpu_dropped is over", (), None)
    with (tmp_path / "journal").open("w") as stream:
        seen = os.fstat(stream.fileno())
        journal = sd.lines("", {"JOURNAL_STREAM": f"{seen.st_dev}:{seen.st_ino}"}, stream.fileno())
        assert [journal.format(alarm), journal.format(over)] == ["<2>critical gpu_dropped: GPU 2", "<6>gpu_dropped is over"]
    assert sd.lines("", {}).format(alarm).partition(" CRITICAL ")[2] == "gpu_dropped: GPU 2"


def test_a_terminal_that_a_service_opened_is_not_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w") as stream:
        for environ in ({}, {"JOURNAL_STREAM": "8:1"}):
            found = sd.lines("gpuwatch-nvml", environ, stream.fileno()).format(record(logging.WARNING, "one"))
            assert found.endswith("WARNING gpuwatch-nvml: one")
            assert found.startswith("20")


def test_what_a_log_line_quotes_can_neither_end_it_nor_command_the_terminal() -> None:
    quoted = "GPU\n<0>all is well\x1b[2J\u202e\udc80 显卡"
    error = ValueError(quoted.replace("\n", " "))
    found = sd.lines("", {}).format(record(logging.ERROR, quoted, error)).split("\n")
    assert found[0].endswith(r"ERROR GPU\n<0>all is well\x1b[2J\u202e\udc80 显卡")
    assert found[1:] == [r"ValueError: GPU <0>all is well\x1b[2J\u202e\udc80 显卡"]
