"""systemd hears what it must hear, in its own form."""

import logging
import os
import socket
from pathlib import Path

from gpuwatch import sd


def test_a_service_manager_that_listens_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(2)
        sd.notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(100) == b"READY=1"


def test_an_abstract_socket_is_told_too() -> None:
    name = f"gpuwatch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(2)
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


def test_every_line_for_the_journal_has_its_priority() -> None:
    def line(level: int, environ: dict[str, str]) -> str:
        return sd.lines("gpuwatch-nvml", environ).format(logging.LogRecord("x", level, "", 0, "one\ntwo", None, None))

    journal = {"JOURNAL_STREAM": "8:1"}
    assert line(logging.WARNING, journal) == "<4>gpuwatch-nvml: one\n<4>two"
    assert line(logging.ERROR, journal).startswith("<3>")
    assert line(logging.INFO, journal).startswith("<6>")
    assert "WARNING gpuwatch-nvml: one" in line(logging.WARNING, {})
