"""A host that comes back from a reboot which nobody asked for says so once, with what was last known (operator.md S10).

Boots are told apart by the boot id of a fake /proc; all stories are told at the same time.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.fakes import badfs
from tests.fakes.badfs import BadFiles
from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until
from tests.fakes.wall import WrongClock, build

RULE = "host_rebooted_unexpectedly"
PANIC = "Kernel panic - not syncing: Fatal exception"
DAY = 86400


def boot(server: GpuServer, at: float) -> None:
    """Have the kernel say that this host came up anew at this time."""
    server.reboot()
    stat = server.host.proc / "stat"
    lines = [f"btime {int(at)}" if line.startswith("btime") else line for line in stat.read_text().splitlines()]
    server.host.write(stat, "\n".join(lines) + "\n")


def until_row(database: Path, statement: str) -> float:
    """Wait until a database has a row for this, and return its first column."""
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while True:
        with closing(sqlite3.connect(database, timeout=PATIENCE)) as connection:
            found = connection.execute(statement).fetchone()
        if found is not None and found[0] is not None:
            return float(found[0])
        assert time.monotonic() < end, statement
        pause.wait(0.1)


def settle(server: GpuServer) -> None:
    """Wait until this boot is judged and marked on the disk."""
    server.wait_up(2)
    until_row(server.daemon.database.with_name("state.db"), "SELECT 1 FROM state WHERE name = 'run'")


def until_told(server: GpuServer) -> dict[str, str]:
    """Wait for the alert and return it."""
    server.daemon.until(lambda page: page.all("gpuwatch_alert_state", rule=RULE, state="firing"))
    (alert,) = server.daemon.status()["alerts"]
    assert (alert["rule"], alert["severity"]) == (RULE, "warning")
    found: dict[str, str] = alert
    return found


def crashes(server: GpuServer) -> list[str]:
    """Return the crashes among the stored events, once the page counts one and it is on the disk."""
    server.daemon.until(lambda page: page.value("gpuwatch_kernel_events_total", event="crash") == 1)
    found: list[str] = []

    def written() -> bool:
        events = json.loads(server.daemon.get("/api/v1/events")[1])["events"]
        found[:] = [event["words"] for event in events if event["kind"] == "crash"]
        return bool(found)

    until(written)
    return found


def is_quiet(server: GpuServer) -> None:
    """Fail if the reboot is called unexpected, once this run has judged the boot and marked it."""
    server.wait_up(2)
    started = server.daemon.status()["started"]
    judged = server.daemon.database.with_name("state.db")
    until_row(judged, f"SELECT 1 FROM state WHERE name = 'run' AND json_extract(data, '$.at') > {started}")
    assert server.daemon.status()["alerts"] == []
    assert server.daemon.page().all("gpuwatch_host_unexpected_reboot_timestamp_seconds") == []


def clock_time(at: float) -> str:
    """Return a time of day as the daemon writes it."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def unexpected(server: GpuServer, receiver: Receiver, clock: WrongClock) -> None:
    """The power fails; the host comes back; gpuwatch is restarted; a day passes."""
    with server:
        settle(server)
        last = until_row(server.daemon.database, "SELECT max(at) / 1000.0 FROM round")
        page = server.daemon.page()
        watts = sum(value for _, value in page.all("gpuwatch_gpu_power_watts"))
        hottest = max(value for _, value in page.all("gpuwatch_gpu_temperature_celsius", sensor="core"))
        server.daemon.kill()
        left = server.host.sys / "fs/pstore/dmesg-erst-1"
        server.host.write(left, f"Panic#1 Part1\n<3>[8.1] NVRM: Xid (PCI:0000:65:00): 79, x\n<0>[9.2] {PANIC}\n")
        up = time.time()
        boot(server, up)
        server.daemon.start()
        server.wait_up(2)
        alert = until_told(server)
        assert f"last stored sample: {watts:.0f} W, GPU max {hottest:.0f} C" in alert["summary"]
        assert any(f"{clock_time(at)}-" in alert["summary"] for at in range(int(last), int(up) + 1))
        assert f"{clock_time(int(up))}; last stored" in alert["summary"]
        assert f"Xid 79 (0000:65:00.0), no MCE, in pstore: {PANIC} -> that GPU and its power first" in alert["summary"]
        assert crashes(server) == [f"before this boot: {PANIC}"]
        assert server.daemon.stop() == 0
        server.daemon.start()
        (message,) = (got.json for got in receiver.wait(1))
        assert (message["kind"], message["alerts"][0]["incident_id"]) == ("firing", alert["id"])
        server.wait_up(2)
        assert until_told(server)["id"] == alert["id"]
        assert crashes(server) == [f"before this boot: {PANIC}"]
        assert server.daemon.stop() == 0
        clock.by(DAY + 60)
        server.daemon.start()
        server.wait_up(2)
        server.daemon.until(lambda page: not page.all("gpuwatch_alert_state", rule=RULE))
        assert server.daemon.status()["alerts"] == []
        assert server.daemon.stop() == 0
    assert [got.json["kind"] for got in receiver.requests] in (["firing"], ["firing", "resolved"])


def soon_again(server: GpuServer, receiver: Receiver, clock: WrongClock) -> None:
    """The host comes back, and gpuwatch is killed as soon as it has said so."""
    with server:
        settle(server)
        server.daemon.kill()
        boot(server, time.time())
        server.daemon.start()
        server.wait_up(2)
        alert = until_told(server)
        server.daemon.kill()
        server.daemon.start()
        server.wait_up(2)
        receiver.wait(1)
        assert until_told(server)["id"] == alert["id"]
        page = server.daemon.page()
        assert page.value("gpuwatch_host_unexpected_reboot_timestamp_seconds") is not None
        assert server.daemon.stop() == 0
    assert [got.json["kind"] for got in receiver.requests] == ["firing"]


def hanging(server: GpuServer, receiver: Receiver, clock: WrongClock) -> None:
    """The host comes back, and whoever looks into its pstore never returns."""
    folder, left = server.daemon.folder, server.host.sys / "fs/pstore"
    files = BadFiles(badfs.build(folder), folder)
    server.daemon.environ["LD_PRELOAD"] = f"{files.environ['LD_PRELOAD']}:{server.daemon.environ['LD_PRELOAD']}"
    server.daemon.environ["BADFS"] = files.environ["BADFS"]
    left.mkdir(parents=True)
    with server:
        settle(server)
        server.daemon.kill()
        files.hang("list", left)
        boot(server, time.time())
        server.daemon.start()
        server.wait_up(2)
        alert = until_told(server)
        assert files.faults() == [f"list {left}"]
        assert "pstore unknown: it could not be read in time -> power supply or breaker first" in alert["summary"]
        assert server.said("the alert memory could be read") == 1  # so beats went on meanwhile
        (message,) = (got.json for got in receiver.wait(1))
        assert message["alerts"][0]["incident_id"] == alert["id"]
        assert server.daemon.stop() == 0


def orderly(server: GpuServer, receiver: Receiver, clock: WrongClock) -> None:
    """A reboot that somebody asked for."""
    with server:
        settle(server)
        assert server.daemon.stop() == 0
        boot(server, time.time())
        server.daemon.start()
        is_quiet(server)
        assert server.daemon.stop() == 0
    assert receiver.requests == []


def same_boot(server: GpuServer, receiver: Receiver, clock: WrongClock) -> None:
    """It is gpuwatch alone that is killed."""
    with server:
        settle(server)
        server.daemon.kill()
        server.daemon.start()
        is_quiet(server)
        assert server.daemon.stop() == 0
    assert receiver.requests == []


Story = Callable[[GpuServer, Receiver, WrongClock], None]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell all stories."""
    library = build(tmp_path_factory.mktemp("library"))

    def tell(story: Story) -> None:
        folder = tmp_path_factory.mktemp(story.__name__)
        clock = WrongClock(library, folder)
        with Receiver() as receiver:
            story(GpuServer(folder, gpus=2, receiver=receiver, environ=clock.environ), receiver, clock)

    stories: tuple[Story, ...] = (orderly, same_boot, soon_again, hanging, unexpected)
    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(tell, story) for story in stories}


def test_a_reboot_that_was_asked_for_is_nothing(told: dict[str, Future[None]]) -> None:
    told["orderly"].result()


def test_a_gpuwatch_that_was_killed_within_a_boot_is_nothing(told: dict[str, Future[None]]) -> None:
    told["same_boot"].result()


def test_a_kill_soon_after_the_reboot_was_told_neither_loses_it_nor_tells_it_again(told: dict[str, Future[None]]) -> None:
    told["soon_again"].result()


def test_a_pstore_that_hangs_holds_up_neither_beats_nor_page_and_is_said_to_be_unread(told: dict[str, Future[None]]) -> None:
    told["hanging"].result()


def test_an_unexpected_reboot_is_told_once_with_the_last_sample_and_is_over_after_a_day(told: dict[str, Future[None]]) -> None:
    told["unexpected"].result()
