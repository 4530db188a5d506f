"""S10 (operator.md section 5): the host comes back from a reboot that nobody asked for, and from one that somebody did."""

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.fakes.daemon import Page
from tests.fakes.gpu_server import GpuServer
from tests.fakes.until import until

STAMP = "gpuwatch_host_unexpected_reboot_timestamp_seconds"
BOOT = "gpuwatch_host_boot_timestamp_seconds"


def stored(server: GpuServer) -> bool:
    """Return whether the history holds a row with the power of a GPU."""
    with closing(sqlite3.connect(f"{server.daemon.database.as_uri()}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("SELECT count(*) FROM raw_gpu WHERE power_watts > 0").fetchone()[0])


def test_a_host_that_was_not_shut_down_tells_what_it_last_knew(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    with server:
        server.wait_up(2)
        until(lambda: stored(server), 15)
        server.daemon.kill()
        server.reboot()
        statistics = server.host.proc / "stat"
        statistics.write_text(re.sub(r"(?m)^btime \d+$", f"btime {time.time():.0f}", statistics.read_text()))
        server.daemon.start()
        page = server.daemon.wait_ready()
        page = server.daemon.until(lambda page: page.value(STAMP) is not None)
        assert page.value(STAMP) == page.value(BOOT)
        until(lambda: server.daemon.status()["alerts"])
        [alert] = server.daemon.status()["alerts"]
        assert (alert["rule"], alert["severity"], alert["state"]) == ("host_rebooted_unexpectedly", "warning", "firing")
        said = r"vision-07 rebooted without a shutdown, down [-0-9: ]+; last stored sample: \d+ W, GPU max \d+ C\. .*"
        assert re.fullmatch(said, alert["summary"]), alert["summary"]


def test_a_host_that_was_shut_down_has_nothing_to_tell(tmp_path: Path) -> None:
    server = GpuServer(tmp_path, gpus=2)
    with server:
        server.wait_up(2)
        assert server.daemon.stop() == 0
        server.reboot()
        began = time.time()
        server.daemon.start()
        server.wait_up(2)

        def judged(page: Page) -> bool:
            found = page.value("gpuwatch_collector_last_success_timestamp_seconds", collector="host")
            return page.value(BOOT) is not None and found is not None and found > began

        page = server.daemon.until(judged, 15)
        assert page.value(STAMP) is None
        assert server.daemon.status()["alerts"] == []
