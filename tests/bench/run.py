"""Measures gpuwatch on 8 fake GPUs beside nvitop-exporter, and prints one table. Not a test: nothing fails here.

What the fake library costs is taken off: it sleeps 0.3 ms in each call (nanosleep), so that its wall time is that of a driver
and its CPU time is small; only the CPU time is taken off, as both exporters' threads used it inside the library.
"""

import argparse
import logging
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from gpuwatch.model.reading import Tier
from tests.bench import environments, keeping, scene, stages
from tests.bench.processes import Watch, alone, cpu, pss, reaped, threads, waited, written
from tests.bench.scrapes import Prometheus, quantile, timed
from tests.bench.subject import SHORT, Subject, free_port
from tests.bench.table import Table, percent
from tests.bench.workload import CALL, GPUS, Busy
from tests.fakes.nvml import FakeNvml

WARM = 10.0  # seconds after the start before CPU is counted
SLICE = 10.0  # seconds
SCRAPE_EVERY = 15.0
MARKS = (20.0, 60.0, 120.0)  # seconds after the start at which memory is looked at, at the end of the span then running
STARTS = 5
BATCHES = 5  # parts of the scrapes, so that a burst of other programs can be told from us


class Rival:
    """nvitop-exporter on a fake of its own, as its users run it: one sample a second."""

    def __init__(self, fake: FakeNvml, port: int, log: Path) -> None:
        self.fake, self.port = fake, port
        programs = environments.nvitop()
        self.version = environments.version(programs / "python", "nvitop-exporter")
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [programs / "nvitop-exporter", "--interval", "1", "--bind-address", "127.0.0.1", "--port", str(port)],
                env={**os.environ, **fake.environment},
                stdout=out,
                stderr=out,
            )

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


def starts(folder: Path, fake: FakeNvml, python: Path, table: Table) -> None:
    """Measure the start, some times over."""
    walls, spent, waits = [], [], []
    for number in range(STARTS):
        subject = Subject(folder / f"start-{number}", fake, python)
        try:
            wall, used, waiting = subject.start()
        finally:
            subject.running.stop()
        walls.append(wall)
        spent.append(used)
        waits.append(waiting)
    table.section(f"Start to the first page with all {GPUS} GPUs, of {STARTS}")
    middle = statistics.median(walls)
    table.line("wall, median", f"{middle:.2f} s ({min(walls):.2f} to {max(walls):.2f})", middle, 1.0, "s")
    table.line("CPU of all processes, median", f"{statistics.median(spent):.2f} s")
    table.line("the daemon's wait for a core, median", f"{statistics.median(waits):.2f} s")


def live(subject: Subject, rival: Rival | None, seconds: float, table: Table) -> None:
    """Measure both while they run and are scraped every 15 s."""
    processes = subject.resident()
    watch = subject.watch
    assert watch is not None
    prometheus = Prometheus((subject.port, *((rival.port,) if rival else ())), SCRAPE_EVERY)
    began = time.monotonic()
    marks = iter([second for second in MARKS if second <= seconds + WARM])
    mark = next(marks)
    memory: list[tuple[float, float, float]] = []
    time.sleep(WARM)
    wrote = subject.write_seconds()
    before = Sample(subject, processes, rival)
    slices = [before]
    while len(slices) <= round(seconds / SLICE):
        time.sleep(max(0.0, began + WARM + SLICE * len(slices) - time.monotonic()))
        slices.append(Sample(subject, processes, rival))
        if time.monotonic() - began >= mark:
            memory.append((mark, pss(processes.values()), alone(processes.values())))
            mark = next(marks, float("inf"))
    after = slices[-1]
    prometheus.stop()
    watch.stop()
    tell_cpu(before, after, slices, watch, table)
    tell_memory(memory, watch, table)
    tell_store(before, after, subject.write_seconds() - wrote, table)
    if rival is not None:
        table.section(f"nvitop-exporter {rival.version}, same library, same interval, same scrapes")
        passed = after.at - before.at
        own = after.rival - before.rival - after.rival_inside + before.rival_inside
        ours = after.net - before.net
        table.line("CPU beside the library", percent(own, passed))
        table.line("inside the library", percent(after.rival_inside - before.rival_inside, passed))
        table.line("gpuwatch / nvitop-exporter, CPU", f"{ours / own:.2f}")
        held = pss([rival.process.pid])
        table.line("PSS (alone on a machine)", f"{held:.1f} MB ({alone([rival.process.pid]):.1f})")
        table.line("gpuwatch / nvitop-exporter, PSS", f"{memory[-1][1] / held:.2f}")
        table.line("NVML calls a second", f"{(after.rival_calls - before.rival_calls) / passed:.0f}")


class Sample:
    """What had been used at one moment."""

    def __init__(self, subject: Subject, processes: dict[str, int], rival: Rival | None) -> None:
        self.at = time.monotonic()
        self.processes = {name: cpu(pid) for name, pid in processes.items()}
        self.living = sum(sum(threads(pid).values()) for pid in processes.values())
        self.inside = subject.fake.inside()[1]
        self.calls = subject.fake.calls()
        self.children = reaped(subject.running.pid)
        self.wrote = written(subject.running.pid)
        self.history = keeping.size(subject.running.database)
        self.rival = cpu(rival.process.pid) if rival else 0.0
        self.rival_inside = rival.fake.inside()[1] if rival else 0.0
        self.rival_calls = rival.fake.calls() if rival else 0

    @property
    def net(self) -> float:
        """Return the CPU seconds of the resident processes beside the fake library."""
        return sum(self.processes.values()) - self.inside


def tell_cpu(before: Sample, after: Sample, slices: Sequence[Sample], watch: Watch, table: Table) -> None:
    """Say what the CPU did."""
    passed = after.at - before.at
    table.section(f"CPU of one core, over {passed:.0f} s, scraped every {SCRAPE_EVERY:.0f} s")
    for name in before.processes:
        spent = after.processes[name] - before.processes[name] - (after.inside - before.inside) * (name == "gpuwatch-nvml")
        table.line(f"{name}{' beside the library' if name == 'gpuwatch-nvml' else ''}", percent(spent, passed))
    table.line("inside the library (taken off)", percent(after.inside - before.inside, passed))
    resident = 100 * (after.net - before.net) / passed
    table.line("resident processes together", f"{resident:.2f} %", resident, 1.0, "%")
    each = [100 * (two.net - one.net) / (two.at - one.at) for one, two in pairwise(slices)]
    table.line(
        f"... of {len(each)} spans of {SLICE:.0f} s", f"median {statistics.median(each):.2f}, {min(each):.2f} to {max(each):.2f}"
    )
    lived = sum(after.processes.values()) - sum(before.processes.values()) - after.living + before.living
    table.line("... of it in threads that have ended", percent(lived, passed))
    short = 100 * (after.children - before.children) / passed
    table.line("short-lived workers in these seconds", f"{short:.2f} %")
    for name, period in SHORT.items():
        if rounds := watch.cost.get(name, []):
            cost = statistics.median(rounds)
            table.line(f"... {name}, a round every {period:.0f} s", f"{cost * 1e3:.0f} ms = {100 * cost / period:.2f} %")
    if passed < SHORT["gpuwatch-smart"]:  # its rounds fall outside of these seconds, but for the first
        short += 100 * statistics.median(watch.cost["gpuwatch-smart"]) / SHORT["gpuwatch-smart"]
    table.line("all together, SMART by its share", f"{resident + short:.2f} %", resident + short, 1.0, "%")


def tell_memory(memory: Sequence[tuple[float, float, float]], watch: Watch, table: Table) -> None:
    """Say what was held."""
    table.section("Memory of the daemon and gpuwatch-nvml: PSS, and what it would be if no other program shared our files")
    for second, held, by_itself in memory:
        table.line(f"PSS after {second:.0f} s", f"{held:.1f} MB", held, 75.0, "MB")
        table.line(f"sharing with nobody, after {second:.0f} s", f"{by_itself:.1f} MB", by_itself, 75.0, "MB")
    table.line("grown from the first to the last", f"{memory[-1][1] - memory[0][1]:+.2f} MB")
    if watch.highest:
        table.line("highest PSS while a short-lived worker ran", f"{watch.highest:.1f} MB", watch.highest, 95.0, "MB")


def tell_store(before: Sample, after: Sample, writing: float, table: Table) -> None:
    """Say what NVML and the disk were asked for."""
    passed = after.at - before.at
    table.section("Calls and disk while it ran")
    table.line("NVML calls a beat, all tiers", f"{(after.calls - before.calls) / passed:.1f}")
    table.line("history and alert memory, writing in a period of 10 s", f"{1e3 * writing / passed * 10:.1f} ms (wall)")
    rows, grown = after.history[0] - before.history[0], after.history[1] - before.history[1]
    table.line("history rows a period of 10 s", f"{rows / passed * 10:.1f}")
    table.line(
        "history grown, a GPU and day", f"{grown / passed * 86400 / GPUS / 1e6:.1f} MB (all subjects, over {passed:.0f} s)"
    )
    table.line("sent to the disk, a day", f"{(after.wrote - before.wrote) / passed * 86400 / 1e6:.0f} MB")


def scrape(subject: Subject, count: int, table: Table) -> None:
    """Measure scrapes."""
    table.section(f"Scrapes, {count} each (OpenMetrics, gzip, over TCP)")
    for name, fresh in (("kept connection", False), ("a connection each", True)):
        pid = subject.running.pid
        before, waiting, began = cpu(pid), waited(pid), time.monotonic()
        times = timed(subject.port, count, fresh=fresh, pause=0.02)
        spent, waiting, passed = cpu(pid) - before, waited(pid) - waiting, time.monotonic() - began
        batch = max(1, count // BATCHES)
        quietest = min(quantile(times[start : start + batch], 0.99) for start in range(0, batch * BATCHES, batch))
        half, most = 1e3 * quantile(times, 0.5), 1e3 * quantile(times, 0.99)
        table.line(f"{name}, p50", f"{half:.2f} ms", half, 2.0, "ms")
        table.line(f"{name}, p99", f"{most:.2f} ms", most, 5.0, "ms")
        table.line(f"{name}, p99 of the quietest of {BATCHES} parts", f"{1e3 * quietest:.2f} ms")
        table.line(
            f"{name}, the daemon a second: CPU, waiting for a core", f"{percent(spent, passed)}, {percent(waiting, passed)}"
        )
    times = timed(subject.port, 60, fresh=False, pause=1.003)
    table.line("the first after a beat, p50 and highest of 60", f"{1e3 * quantile(times, 0.5):.2f} and {1e3 * max(times):.2f} ms")


def inside(folder: Path, fake: FakeNvml, busy: Busy, table: Table) -> None:
    """Measure the stages of a beat, and a filled history, in this process."""
    folder.mkdir()
    config = stages.config_for(folder)
    calls, spent, readings = stages.worker(fake, busy, config)
    table.section("NVML calls a round of 8 GPUs, and CPU of the worker beside the library")
    for tier, every in ((Tier.FAST, "1 s"), (Tier.NORMAL, "10 s"), (Tier.SLOW, "60 s")):
        table.line(
            f"{tier.value}, every {every}",
            f"{calls[tier]} calls, {spent[tier]:.2f} ms",
            spent[tier] if tier is Tier.FAST else None,
            3.0,
            "ms",
        )
    made = stages.beats(config, readings, stages.probed(config))
    found = stages.table(made.watch.spent)
    view = made.view
    table.section(f"One beat of the daemon by stage, CPU, median and mean of {stages.BEATS}")
    table.line("series, targets", f"{stages.values(view)}, {len(view.entries)}")
    for name, median, mean in found:
        table.line(name, f"{median:.3f} ms, mean {mean:.3f}")
    judged = sum(mean for name, _, mean in found if name in stages.JUDGED)
    table.line("detectors and rules, with their views", f"{judged:.2f} ms", judged, 3.0, "ms")
    table.line("all stages but the page", f"{sum(mean for name, _, mean in found if not name.startswith('page')):.2f} ms")
    kept = keeping.fill(folder, view)
    table.section(f"History, {keeping.HOURS} h filled through the store")
    table.line("a period of 10 s: gathering and writing, CPU", f"{1e3 * kept.cpu:.2f} ms")
    table.line("bytes a row", f"{kept.size / kept.rows:.0f} ({kept.rows} rows)")
    table.line("bytes a GPU and day, all subjects", f"{kept.size / kept.days / GPUS / 1e6:.2f} MB")
    table.line("7 days of 8 GPUs", f"{kept.size / kept.days * 7 / 1e6:.0f} MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long both run for CPU and memory, at least 10 (120)")
    parser.add_argument("--scrapes", type=int, default=1000, help="scrapes of each kind (1000)")
    parser.add_argument("--alone", action="store_true", help="without nvitop-exporter, which is installed from PyPI")
    args = parser.parse_args()
    logging.disable()  # the rooms that are driven by hand here complain of clocks and disks
    python, table = environments.gpuwatch(), Table()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-bench-") as name:
        folder = Path(name)
        (folder / "ours").mkdir()
        (folder / "theirs").mkdir()
        fake, other = FakeNvml(folder / "ours", GPUS, "A40"), FakeNvml(folder / "theirs", GPUS, "A40")
        busy = Busy(fake, other)
        busy.start()
        starts(folder, fake, python, table)
        subject = Subject(folder / "daemon", fake, python)
        rival = None if args.alone else Rival(other, free_port(), folder / "rival.log")
        try:
            subject.start(watched=True)
            live(subject, rival, args.seconds, table)
            scrape(subject, args.scrapes, table)
        finally:
            if rival is not None:
                rival.stop()
            if subject.running.process is not None:
                subject.running.stop()
        busy.stop()
        inside(folder / "inside", fake, busy, table)
        scene.measure(folder / "scene", python, table)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{GPUS} fake A40, {CALL * 1e3:.1f} ms a call (asleep), beat 1 s; {machine}")
    print(table.text())


if __name__ == "__main__":
    main()
