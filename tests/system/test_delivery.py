"""What fired is delivered: through receivers that are dead for an hour, kills at any moment, and stops in the middle of a send.

The stories are told at the same time, each by a daemon of its own; the tests ask what was seen.
"""

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gpu_server import GpuServer
from tests.fakes.receiver import Answer, Receiver
from tests.fakes.until import PATIENCE, SLOWER, until

HOUR = 3600
WAIT, AGAIN = "receiver oncall: messages wait: ", "receiver oncall takes messages again after "
KILLS = 10


def query(server: GpuServer, statement: str) -> list[tuple[Any, ...]]:
    """Ask the alert memory of a daemon; it may be running."""
    with closing(sqlite3.connect(server.daemon.database.with_name("state.db"), timeout=PATIENCE)) as state, state:
        return state.execute(statement).fetchall()


def until_stored(server: GpuServer, statement: str, seconds: float = PATIENCE) -> None:
    """Wait until the alert memory has a row for this."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not query(server, statement):
        assert time.monotonic() < end, f"not within {seconds} s: {statement}\n{server.daemon.said()}"
        pause.wait(0.05)


def about(receiver: Receiver) -> set[str]:
    """Return the GPUs of which messages have come."""
    return {alert["labels"]["gpu"] for got in list(receiver.requests) for alert in got.json["alerts"]}


def age(server: GpuServer, seconds: float) -> None:
    """Let everything that the alert memory holds be so much older, while no daemon runs."""
    query(server, f"UPDATE incident SET data = json_set(data, '$.fired_at', json_extract(data, '$.fired_at') - {seconds})")
    moved = ", ".join(f"'$.{name}', json_extract(data, '$.{name}') - {seconds}" for name in ("created", "not_before"))
    columns = ", ".join(f"{name} = {name} - {seconds}" for name in ("created", "not_before"))
    query(server, f"UPDATE delivery SET data = json_set(data, {moved}), {columns}")


# --- dead for an hour ---------------------------------------------------------------------------------------------------


def dead(folder: Path) -> None:
    """A receiver that refuses, then hangs, then is overloaded, over a restart and a kill; back an hour later, then dead again."""
    with Receiver() as receiver, GpuServer(folder, gpus=4, receiver=receiver) as server:
        server.wait_up(4)
        receiver.down()
        server.nvml.lose(1)
        until_stored(server, "SELECT 1 FROM delivery WHERE attempt >= 2 AND state = 'queued' AND words = 'connection refused'")
        ((first,),) = query(server, "SELECT id FROM delivery")
        (problem,) = server.daemon.status()["telling"]["problems"]
        assert "1 message not delivered" in problem
        assert server.daemon.stop() == 0
        receiver.always = Answer(how="silent")
        receiver.up()
        server.daemon.start()
        receiver.wait(1)
        server.daemon.wait_ready()
        server.nvml.lose(2)
        server.until_dropped(2)
        server.daemon.kill()
        receiver.always = Answer(503)
        server.daemon.start()
        until_stored(server, f"SELECT 1 FROM delivery WHERE id > '{first}'")
        until_stored(server, f"SELECT 1 FROM delivery WHERE id = '{first}' AND words LIKE 'status 503%' AND attempt >= 3")
        server.daemon.kill()
        age(server, HOUR)
        refused = len(receiver.requests)
        receiver.always = Answer(200)
        server.daemon.start()
        receiver.wait(refused + 2)
        until_stored(server, "SELECT 1 WHERE (SELECT count(*) FROM delivery WHERE state = 'sent') = 2")
        assert server.daemon.status()["telling"]["problems"] == []
        got = receiver.requests[refused:]
        assert [alert["labels"]["gpu"] for one in got for alert in one.json["alerts"]] == ["1", "2"]
        assert [one.json["kind"] for one in got] == ["firing", "firing"]
        assert got[0].headers["webhook-id"] == first == receiver.requests[0].headers["webhook-id"]
        assert all(one.json["late_seconds"] >= HOUR for one in got)
        assert len({one.headers["webhook-id"] for one in receiver.requests}) == 2
        # a run says once that it met it dead, however often it tries; the run that met it well has nothing to say
        said = [server.said(WAIT + words) for words in ("connection refused", "status 503")]
        assert (said, server.said(WAIT), server.said(AGAIN)) == ([1, 1], 2, 0)
        receiver.down()  # dead once more, and back while the same run lasts: that has an end to say
        server.nvml.lose(3)
        until(lambda: server.said(WAIT) == 3)
        receiver.up()
        receiver.wait(refused + 3)
        until(lambda: server.said(AGAIN) == 1)
        assert server.daemon.stop() == 0
        assert (server.said(WAIT), server.said(AGAIN)) == (3, 1)


# --- killed -------------------------------------------------------------------------------------------------------------


def killed(folder: Path, seed: int = 1, kills: int = KILLS) -> None:
    """A daemon that is killed again and again: soon after another GPU was lost, and soon after the message about it came."""
    dice, lost, pause = random.Random(seed), 0, threading.Event()
    with Receiver() as receiver, GpuServer(folder, gpus=kills // 2 + 1, receiver=receiver) as server:
        receiver.always = Answer(200, delay=0.05)  # something lies between the send and the mark
        server.wait_up(kills // 2 + 1)
        for number in range(kills):
            if number % 2:
                until(lambda lost=lost: str(lost - 1) in about(receiver))  # type: ignore[misc] # its own; it waited long enough before
                pause.wait(dice.uniform(0, 0.12))
            else:
                server.nvml.lose(lost)
                lost += 1
                until_stored(server, f"SELECT 1 WHERE (SELECT count(*) FROM incident) = {lost}")
                pause.wait(dice.uniform(0, 0.5))
            server.daemon.kill()
            server.daemon.start()
        until_stored(server, f"SELECT 1 WHERE (SELECT count(*) FROM told) = {lost}")
        until_stored(server, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM delivery WHERE state != 'sent')")
        server.daemon.wait_ready()
        server.until_dropped(lost)
        assert server.daemon.stop() == 0
        told: dict[str, list[str]] = {}  # by id of the message: what it was about
        for got in receiver.requests:
            named = [f"{alert['labels']['gpu']} {alert['incident_id']}" for alert in got.json["alerts"]]
            assert told.setdefault(got.headers["webhook-id"], named) == named
            assert got.json["kind"] == "firing"
        once = Counter(one for about in told.values() for one in about)
        assert sorted(int(one.split()[0]) for one in once) == list(range(lost))  # each, and under one incident
        assert max(once.values()) == 1  # in one message
        assert len(receiver.requests) - len(told) <= kills
        incidents = {row[0] for row in query(server, "SELECT id FROM incident WHERE ended_at IS NULL")}
        marks = query(server, "SELECT incident, channel, state, severity FROM told")
        assert sorted(marks) == sorted((identity, "oncall", "firing", "critical") for identity in incidents)
        assert incidents == {one.split()[1] for one in once}


# --- stopped ------------------------------------------------------------------------------------------------------------


def stopped(folder: Path) -> None:
    """A daemon that is stopped while a receiver keeps it waiting for an answer."""
    with Receiver() as receiver, GpuServer(folder, gpus=2, receiver=receiver) as server:
        server.wait_up(2)
        receiver.always = Answer(how="silent")
        server.nvml.lose(1)
        (first,) = receiver.wait(1)
        assert server.daemon.stop(5.0 + SLOWER) == 0
        receiver.always = Answer(200)
        server.daemon.start()
        receiver.wait(2)
        until_stored(server, "SELECT 1 FROM delivery WHERE state = 'sent'")
        assert server.daemon.stop() == 0
        assert [got.headers["webhook-id"] for got in receiver.requests] == [first.headers["webhook-id"]] * 2


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Tell all stories."""
    stories: tuple[Callable[[Path], None], ...] = (stopped, dead, killed)
    with ThreadPoolExecutor() as pool:
        yield {story.__name__: pool.submit(story, tmp_path_factory.mktemp(story.__name__)) for story in stories}


def test_a_stop_in_the_middle_of_a_send_loses_nothing(told: dict[str, Future[None]]) -> None:
    told["stopped"].result()


def test_a_receiver_that_was_dead_for_an_hour_gets_each_message_once_in_order_and_marked_late(
    told: dict[str, Future[None]],
) -> None:
    told["dead"].result()


def test_after_ten_kills_each_incident_is_told_and_at_most_once_more_a_kill_under_the_same_id(
    told: dict[str, Future[None]],
) -> None:
    told["killed"].result()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_after_two_hundred_kills_each_incident_is_told_and_at_most_once_more_a_kill(tmp_path: Path) -> None:
    """Bound: 25 minutes."""
    for seed in range(20):
        (tmp_path / str(seed)).mkdir()
        killed(tmp_path / str(seed), seed=seed + 100)
