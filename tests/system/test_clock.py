"""A wall clock that is set by hours or years while the daemon runs moves stamps and nothing else.

The wall clock of the daemon and its workers is the test's, the monotonic clock is the machine's. All stories are told at the
same time.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until
from tests.fakes.wall import WrongClock, build

HOUR, YEARS = 3600, 5 * 365 * 86400
STEPS = [HOUR, -HOUR, YEARS, 0]  # seconds that the clock is wrong, one after another
GROWTH = 12 << 20  # bytes; APScheduler's own trigger would make millions of run times


def until_wrong(server: GpuServer, by: int) -> None:
    """Wait until the daemon's clock is wrong by so much."""
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while abs(server.daemon.status()["now"] - time.time() - by) > 5:
        assert time.monotonic() < end
        pause.wait(0.1)


def resident(pid: int) -> int:
    """Return the bytes that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def is_read(server: GpuServer) -> None:
    """Fail unless GPU 0 is read at about its pace (5 times a second): a schedule that lost its step waits for hours."""
    before = server.nvml.calls("nvmlDeviceGetTemperature", 0)
    until(lambda: server.nvml.calls("nvmlDeviceGetTemperature", 0) >= before + 5)


def rounds(server: GpuServer) -> list[int]:
    """Return the ids of the stored rounds."""
    with closing(sqlite3.connect(server.daemon.database)) as history:
        return [row[0] for row in history.execute("SELECT id FROM round ORDER BY id")]


def steps(folder: Path, receiver: Receiver, clock: WrongClock) -> None:
    """A lost GPU, one that is hot for a while, and a clock that is set again and again."""
    config = '[rules.gpu_overheating]\ncritical.for = "10m"'
    with GpuServer(folder, gpus=3, receiver=receiver, config=config, environ=clock.environ) as server:
        server.wait_up(3)
        held = resident(server.daemon.pid)
        server.nvml.set(2, temperature=101)  # ten minutes of it would be an alert
        server.nvml.lose(1)
        fired = server.daemon.until(lambda page: page.state("gpuwatch_alert_state", gpu="1") == "firing")
        (alert,) = server.daemon.status()["alerts"]
        for wrong in STEPS:
            clock.by(wrong)  # the first while the message waits for its group
            until_wrong(server, wrong)
            is_read(server)
            server.moves([0])
            page = server.answers_quickly()
            assert page.state("gpuwatch_alert_state", gpu="1") == "firing", wrong
            assert page.state("gpuwatch_alert_state", gpu="2", severity="critical") == "pending", wrong
        assert [found["id"] for found in server.daemon.status()["alerts"]] == [alert["id"]]
        assert fired.value("gpuwatch_gpu_up", gpu="0") == 1
        (message,) = (got.json for got in receiver.wait(1))
        assert (message["kind"], message["alerts"][0]["incident_id"], message["late_seconds"]) == ("firing", alert["id"], None)
        assert resident(server.daemon.pid) - held < GROWTH
        assert server.said("the wall clock stepped by") == len(STEPS)
        assert server.daemon.stop() == 0
        kept = rounds(server)
        assert kept[0] == 1
        assert kept == list(range(1, len(kept) + 1))
        assert len(receiver.requests) == 1


def future(folder: Path, receiver: Receiver, clock: WrongClock) -> None:
    """A lost GPU, and a restart at a wrong time: a host without a battery in its clock comes up with any time at all."""
    with GpuServer(folder, gpus=2, receiver=receiver, environ=clock.environ) as server:
        server.wait_up(2)
        server.nvml.lose(1)
        receiver.wait(1)
        (alert,) = server.daemon.status()["alerts"]
        assert server.daemon.stop() == 0
        before = rounds(server)
        clock.by(YEARS)
        server.daemon.start()
        server.daemon.wait_ready()
        server.moves([0])
        until_wrong(server, YEARS)
        (known,) = server.daemon.status()["alerts"]
        assert (known["id"], known["since"]) == (alert["id"], alert["since"])
        clock.by(0)
        until_wrong(server, 0)
        server.moves([0])
        assert server.daemon.stop() == 0
        after = rounds(server)
        assert after[: len(before)] == before != []
        assert [got.json["kind"] for got in receiver.requests] in (["firing"], ["firing", "repeat"])
        with closing(sqlite3.connect(server.daemon.database.with_name("state.db"))) as state:
            assert state.execute("SELECT count(*) FROM incident WHERE ended_at IS NULL").fetchone() == (1,)


def released(folder: Path, receiver: Receiver, clock: WrongClock) -> None:
    """A release while the clock is an hour ahead, and an error of a GPU once it is right again, in that time."""
    with GpuServer(folder, gpus=2, receiver=receiver, environ=clock.environ) as server:
        server.wait_up(2)
        assert server.daemon.client.post("/api/v1/release", b'{"seconds": 60}').status == 200
        clock.by(HOUR)
        until_wrong(server, HOUR)
        assert server.daemon.client.post("/api/v1/resume", b"{}").status == 200
        server.wait_up(2)
        clock.by(0)
        until(lambda: server.said("the clock was set back behind the end of the last release") == 1)
        server.nvml.xid(1, 119)
        (message,) = (got.json for got in receiver.wait(1, PATIENCE))
        assert [(alert["rule"], alert["labels"]["gpu"]) for alert in message["alerts"]] == [("gpu_errors", "1")]
        events = json.loads(server.daemon.get("/api/v1/events")[1])["events"]
        assert [event["facts"].get("released") for event in events if event["kind"] == "xid"] == [None]
        assert server.daemon.stop() == 0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell all stories."""

    library = build(tmp_path_factory.mktemp("library"))

    def tell(story: Callable[[Path, Receiver, WrongClock], None]) -> None:
        folder = tmp_path_factory.mktemp("clock")
        with Receiver() as receiver:
            story(folder, receiver, WrongClock(library, folder))

    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(tell, story) for story in (future, steps, released)}


def test_a_start_years_in_the_future_deletes_nothing_and_tells_at_most_one_repeat(told: dict[str, Future[None]]) -> None:
    told["future"].result()


def test_steps_of_hours_and_years_fire_clear_and_repeat_nothing_and_sampling_keeps_its_pace(
    told: dict[str, Future[None]],
) -> None:
    told["steps"].result()


def test_a_clock_that_is_set_back_after_a_release_silences_no_error(told: dict[str, Future[None]]) -> None:
    told["released"].result()
