"""The schedule on real clocks: its own thread, and a wall clock that jumps under it (libfaketime)."""

import contextlib
import itertools
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.clock import SystemClock
from gpuwatch.sampling.schedule import Schedule
from tests.fakes.scripted import ROOT
from tests.fakes.until import PATIENCE, SLOWER, until

FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
YEARS = 5 * 365 * 86400


@contextlib.contextmanager
def running(schedule: Schedule) -> Iterator[None]:
    """Run a schedule."""
    schedule.start()
    try:
        yield
    finally:
        schedule.stop()


def test_every_job_ticks_at_once_one_after_the_other_and_then_at_its_pace() -> None:
    ticks: list[tuple[str, float]] = []
    schedule = Schedule(SystemClock())
    for name, every in (("quick", 0.5), ("slow", 60.0), ("second", 0.5)):
        schedule.every(every, name, lambda name=name: ticks.append((name, time.monotonic())))  # type: ignore[misc]  # default

    def at_pace() -> bool:
        quick = [at for name, at in ticks if name == "quick"]
        return any(abs(second - first - 1.0) < 0.2 for first, second in zip(quick, quick[2:], strict=False))

    with running(schedule):
        until(at_pace)
    assert [name for name, _ in ticks[:3]] == ["quick", "slow", "second"]
    assert len([name for name, _ in ticks if name == "slow"]) == 1


def test_a_tick_that_raises_is_said_once_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ticks: list[str] = []
    is_broken = True

    def broken() -> None:
        ticks.append("broken")
        if is_broken:
            raise ValueError("x")

    schedule = Schedule(SystemClock())
    schedule.every(0.02, "broken", broken)
    schedule.every(0.02, "well", lambda: ticks.append("well"))
    with running(schedule):
        until(lambda: ticks.count("broken") > 3 and ticks.count("well") > 3)
        is_broken = False
        until(lambda: len(caplog.messages) >= 2)
    assert caplog.messages[0] == "job broken failed; it is tried again at its pace"
    assert caplog.messages[1].startswith("job broken works again after ")


def test_ticks_of_one_job_come_together_and_one_that_raises_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ticks: list[tuple[str, float]] = []

    def broken() -> None:
        raise ValueError("x")

    schedule = Schedule(SystemClock())
    names = ("first", "second")
    first, second = (lambda name=name: ticks.append((name, time.monotonic())) for name in names)
    schedule.every(0.2, "both", first, broken, second)

    def together() -> bool:
        pairs = list(zip(ticks[::2], ticks[1::2], strict=False))
        return len(pairs) >= 3 and any(later - at < 0.01 for (_, at), (_, later) in pairs)

    with running(schedule):
        until(
            lambda: (
                len(ticks) >= 6 and any(later - at < 0.01 for (_, at), (_, later) in zip(ticks[::2], ticks[1::2], strict=False))
            )
        )
    assert [name for name, _ in ticks[:6]] == ["first", "second"] * 3
    assert caplog.messages == ["job both failed; it is tried again at its pace"]


def test_progress_is_seen_without_any_job_being_due() -> None:
    schedule = Schedule(SystemClock())
    schedule.every(3600, "slow", lambda: None)
    with running(schedule):
        seen = schedule.progress()
        until(lambda: schedule.progress() > seen + 0.5)


def test_a_tick_that_blocks_does_not_hold_up_the_stop() -> None:
    gate, is_ticking = threading.Event(), threading.Event()

    def block() -> None:
        is_ticking.set()
        gate.wait(PATIENCE)

    schedule = Schedule(SystemClock())
    schedule.every(60, "stuck", block)
    with running(schedule):
        assert is_ticking.wait(PATIENCE)
        started = time.monotonic()
    assert time.monotonic() - started < SLOWER
    gate.set()
    until(lambda: not schedule._scheduler._thread.is_alive())


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (Debian package libfaketime)")
def test_a_wall_clock_that_jumps_neither_stalls_nor_bursts(tmp_path: Path) -> None:
    """+5 years and back (agronholm/apscheduler#526), and an hour back, under a running schedule."""
    offset, out = tmp_path / "offset", tmp_path / "ticks"
    offset.write_text("+0")
    code = f"""
        import resource, threading, time
        from gpuwatch.model.clock import SystemClock
        from gpuwatch.sampling.schedule import Schedule
        out = open({str(out)!r}, "w", buffering=1)
        schedule = Schedule(SystemClock())
        def tick(name):
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(name, time.monotonic(), time.time(), memory, file=out)
        schedule.every(0.1, "quick", lambda: tick("quick"))
        schedule.every(3600, "slow", lambda: tick("slow"))
        schedule.start()
        threading.Event().wait()
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "0",
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, env=environment)
    try:
        real = time.time()

        def rows() -> list[tuple[str, float, float, float]]:
            if not out.exists():
                return []
            parts = [line.split() for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
            return [(name, float(mono), float(wall), float(memory)) for name, mono, wall, memory in parts]

        for step in (0, YEARS, 0, -3600, 0):
            new = tmp_path / "new"
            new.write_text(f"{step:+d}")
            new.rename(offset)
            before = len(rows())
            until(lambda before=before: len(rows()) >= before + 8)  # type: ignore[misc]  # default of a lambda
            assert rows()[-1][2] - real == pytest.approx(step, abs=60)  # the clock did jump
    finally:
        child.kill()
        child.wait(PATIENCE)
    ticks = rows()
    quick = [mono for name, mono, _, _ in ticks if name == "quick"]
    gaps = [after - before for before, after in itertools.pairwise(quick)]
    assert max(gaps) < 2 + SLOWER  # a look at the clocks comes at least once a second
    assert len(quick) <= (quick[-1] - quick[0]) / 0.1 + 2 + 4  # one early tick a jump at most
    assert len([name for name, _, _, _ in ticks if name == "slow"]) == 1
    assert ticks[-1][3] - ticks[0][3] < 8 * 1024  # KiB
