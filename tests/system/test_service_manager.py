"""What systemd hears from a running daemon."""

import socket
import time
from pathlib import Path

from tests.fakes.daemon import Running
from tests.fakes.until import PATIENCE


def test_it_says_when_it_is_ready_that_it_lives_and_that_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        daemon = Running(tmp_path / "d", config="[sources.simulated]\nenabled = true")
        daemon.environ.update(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="9000000")
        with daemon:
            while (first := manager.recv(100)) == b"WATCHDOG=1":  # a machine that is slow to start it
                continue
            assert first == b"READY=1"
            assert daemon.get("/-/healthy")[0] == 200
            fed = []
            for _ in range(3):
                assert manager.recv(100) == b"WATCHDOG=1"
                fed.append(time.monotonic())
            assert max(fed[1] - fed[0], fed[2] - fed[1]) < 9.0  # WATCHDOG_USEC
            assert daemon.stop() == 0
        said: list[bytes] = []
        while said[-1:] in ([], [b"WATCHDOG=1"]):
            said.append(manager.recv(100))
        assert said[-1] == b"STOPPING=1"
