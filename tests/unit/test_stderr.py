"""Log lines on stderr: in their order, and nobody waits for whoever does not read them."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.stderr import LIMIT, MOMENT, Stderr
from tests.fakes.unread import Unread
from tests.fakes.until import PATIENCE, until

LONG = 20 * MOMENT


def line(text: str) -> logging.LogRecord:
    """Return a record."""
    return logging.makeLogRecord({"msg": text, "levelno": logging.INFO, "levelname": "INFO"})


def test_a_line_is_written_when_the_call_returns(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        handler = Stderr(file.fileno())
        for number in range(100):
            handler.emit(line(f"line {number} \udc80"))
            assert (tmp_path / "log").read_text().splitlines()[-1] == f"line {number} \\udc80"


def test_a_pipe_that_is_full_holds_nobody_up_and_gets_all_lines_in_their_order_later() -> None:
    with Unread() as unread:
        handler = Stderr(unread.end)
        handler.emit(line("before"))
        unread.fill()
        began = time.monotonic()
        for number in range(LIMIT):
            handler.emit(line(f"line {number}"))
        handler.flush()
        assert time.monotonic() - began < LONG
        found = ""
        end = time.monotonic() + PATIENCE
        while f"line {LIMIT - 1}\n" not in found and time.monotonic() < end:
            found += unread.read()
        assert found.replace(".", "").splitlines() == ["before", *(f"line {number}" for number in range(LIMIT))]


def test_lines_that_could_not_be_written_are_counted_where_they_are_missing() -> None:
    with Unread() as unread:
        handler = Stderr(unread.end)
        unread.fill()
        for number in range(LIMIT + 7):
            handler.emit(line(f"line {number}"))
        found = ""

        def arrives(text: str) -> bool:
            nonlocal found
            found += unread.read()
            return text in found

        until(lambda: arrives("7 log lines are missing here"))
        handler.emit(line("after"))
        until(lambda: arrives("after\n"))
    lines = found.replace(".", "").splitlines()
    assert lines[-3:] == [f"line {LIMIT - 1}", "7 log lines are missing here: they could not be written", "after"]


@pytest.mark.parametrize("lost", [1, 3])
def test_a_disk_that_is_full_costs_the_lines_and_says_so_once_there_is_room(tmp_path: Path, lost: int) -> None:
    target = os.open("/dev/full", os.O_WRONLY)
    handler = Stderr(target)
    for _ in range(lost):
        handler.emit(line("gone"))
    with (tmp_path / "log").open("wb") as file:
        os.dup2(file.fileno(), target)
    handler.emit(line("first"))
    handler.emit(line("second"))
    os.close(target)
    words = {
        1: "1 log line is missing here: it could not be written",
        3: "3 log lines are missing here: they could not be written",
    }
    assert (tmp_path / "log").read_text().splitlines() == [words[lost], "first", "second"]


def test_a_pipe_that_somebody_made_nonblocking_loses_nothing() -> None:
    with Unread() as unread:
        os.set_blocking(unread.end, False)
        handler = Stderr(unread.end)
        unread.fill()
        handler.emit(line("waits"))
        found = ""

        def arrives() -> bool:
            nonlocal found
            found += unread.read()
            return found.endswith("waits\n")

        until(arrives)


def test_a_reader_that_has_gone_is_no_error() -> None:
    unread = Unread()
    target = os.dup(unread.end)
    unread.close()
    handler = Stderr(target)
    handler.emit(line("nobody"))
    handler.flush()
    os.close(target)
    assert handler._lost == 1


class Unprintable:
    """What raises when it is written."""

    def __repr__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(("text", "arguments"), [("bad %d", ("x",)), ("worse %s", (Unprintable(),)), ("fewer %s %s", (1,))])
def test_a_line_that_cannot_be_made_is_said_and_raises_nothing(tmp_path: Path, text: str, arguments: tuple[object, ...]) -> None:
    record = logging.makeLogRecord({"msg": text, "args": arguments, "levelno": logging.INFO, "levelname": "INFO"})
    with (tmp_path / "log").open("wb") as file:
        Stderr(file.fileno()).handle(record)
    assert (tmp_path / "log").read_text() == f"a log line that cannot be written: '{text}'\n"


def test_a_line_whose_very_message_raises_is_said_by_its_kind(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        Stderr(file.fileno()).handle(logging.makeLogRecord({"msg": Unprintable()}))
    assert (tmp_path / "log").read_text() == "a log line that cannot be written: a Unprintable\n"


def test_a_system_without_a_thread_to_spare_costs_the_lines_until_it_has_one(tmp_path: Path) -> None:
    script = f"""
import logging, resource, sys, threading
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from gpuwatch.stderr import Stderr
handler = Stderr()
start, threading.Thread.start = threading.Thread.start, None
def fails(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = fails
handler.handle(logging.makeLogRecord({{"msg": "lost"}}))
threading.Thread.start = start
handler.handle(logging.makeLogRecord({{"msg": "written"}}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr.splitlines() == ["1 log line is missing here: it could not be written", "written"]
