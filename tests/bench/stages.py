"""One beat of the daemon, stage by stage, with the real objects and readings that real workers gave."""

import gzip
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from gpuwatch import config as configuration
from gpuwatch.config import Config
from gpuwatch.daemon import Daemon
from gpuwatch.daemon.building import PROBED
from gpuwatch.detectors import Runner, build
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.view import View
from gpuwatch.places import Places
from gpuwatch.sources import host, wire
from tests.bench.asking import Asked
from tests.bench.workload import Busy
from tests.fakes.clock import FakeClock
from tests.fakes.nvml import FakeNvml

BEATS = 300
ROUNDS = 60  # fast rounds of the worker that are timed
PERIODS = {Tier.FAST: 1, Tier.NORMAL: 10, Tier.SLOW: 60}  # beats
JUDGED = ("view for detectors", "detectors", "findings onto the board", "view for rules", "rules", "incidents", "alert states")
T = TypeVar("T")


class Gathered:
    """The Answer that a source gets here."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def reading(self, reading: Reading) -> None:
        """Keep a reading."""
        self.readings.append(reading)

    def event(self, event: Event) -> None:
        """Nothing happens here."""

    def working(self, item: str) -> None:
        """Nothing hangs here."""

    def restart(self, reason: str) -> None:
        """Nothing is replaced here."""

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """The round is over."""


class Stopwatch:
    """CPU time of this thread, by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def time(self, stage: str, act: Callable[[], T]) -> T:
        """Do it and note what it cost."""
        began = time.thread_time_ns()
        done = act()
        self.spent.setdefault(stage, []).append((time.thread_time_ns() - began) / 1e6)
        return done


def worker(
    fake: FakeNvml, busy: Busy, config: Config
) -> tuple[dict[Tier, int], dict[Tier, float], dict[Tier, list[list[Reading]]]]:
    """Return calls and CPU (ms, without the fake's own) of a round of the NVML worker by tier, and readings of some rounds."""
    calls, spent, readings = dict[Tier, int](), dict[Tier, float](), dict[Tier, list[list[Reading]]]()
    with closing(Asked(["nvml"], config, fake.environment)) as asked:
        for tier in (Tier.SLOW, Tier.NORMAL, Tier.FAST):
            asked.ask(tier)  # it learns what this card has
            asked.ask(tier)
        for tier in Tier:
            rounds = ROUNDS if tier is Tier.FAST else 10
            before, began, inside = fake.calls(), asked.cpu(), fake.inside()[1]
            readings[tier] = []
            for _ in range(rounds):
                busy.turn()
                readings[tier].append(asked.ask(tier))
            calls[tier] = round((fake.calls() - before) / rounds)
            spent[tier] = 1e3 * (asked.cpu() - began - fake.inside()[1] + inside) / rounds
    return calls, spent, readings


class Beats:
    """A daemon that is built but not started; its beats are made here, one stage after another."""

    def __init__(self, config: Config) -> None:
        self.clock = FakeClock()
        self.watch = Stopwatch()
        self.daemon = Daemon(config, [], WebConfig(), self.clock)
        self.daemon.store.start()
        self.runner = Runner(build(config, None))
        self.host = host.source(config, SystemClock())
        self.view: View = self.daemon.view()

    def beat(self, number: int, frames: Sequence[bytes]) -> None:
        """Make one beat of what the workers sent."""
        watch, daemon, wall = self.watch, self.daemon, self.clock.wall()
        decoded = watch.time("frames of gpuwatch-nvml decoded", lambda: [decode(frame) for frame in frames])
        gathered = Gathered()
        watch.time("host read", lambda: self.read_host(number, gathered))
        arrived = [replace(reading, at=wall) for reading in (*decoded, *gathered.readings)]
        watch.time("readings onto the board", lambda: self.post(arrived))
        if number % 10 == 0:
            watch.time("own numbers (each 10th beat)", lambda: self.post(daemon.report(wall)))
        first = watch.time("view for detectors", daemon.view)
        found = watch.time("detectors", lambda: self.runner.run(first, wall))
        watch.time("findings onto the board", lambda: self.post(found.readings))
        self.view = watch.time("view for rules", daemon.view)
        moved = watch.time("rules", lambda: daemon.engine.beat(self.view, self.clock.mono(), found.evidence))
        watch.time("incidents", lambda: daemon.incidents.apply(moved))
        watch.time("alert states", lambda: self.post(daemon.engine.readings(wall)))
        watch.time("store.observe", lambda: daemon.store.observe(self.view))
        daemon.page.turn()
        page = watch.time("page, where it is scraped", lambda: daemon.page.get(openmetrics=True))
        watch.time("page compressed", lambda: gzip.compress(page, compresslevel=1))
        self.clock.forward(1.0)

    def read_host(self, number: int, answer: Gathered) -> None:
        """Read what this host has in a beat."""
        for tier in due(number):
            self.host.ask(tier, frozenset(), answer)

    def post(self, readings: Iterable[Reading]) -> None:
        """Put readings onto the board."""
        for reading in readings:
            self.daemon.post(reading)


def due(number: int) -> list[Tier]:
    """Return the tiers that are read in a beat."""
    return [tier for tier, beats in PERIODS.items() if number % beats == 0]


def decode(frame: bytes) -> Reading:
    """Return the reading in a frame."""
    got = wire.from_worker(frame)
    assert isinstance(got, wire.Got)
    return wire.reading(got)


def beats(config: Config, readings: Mapping[Tier, list[list[Reading]]], probed: Sequence[Reading]) -> Beats:
    """Make BEATS beats; the first of them, in which everything is new, are not counted."""
    made = Beats(config)
    for reading in probed:
        made.daemon.post(replace(reading, at=made.clock.wall()))
    for number in range(BEATS + 20):
        if number == 20:
            made.watch = Stopwatch()
        rounds = [readings[tier][number % len(readings[tier])] for tier in due(number)]
        frames = [wire.pack(wire.got(reading))[wire.LENGTH.size :] for round_ in rounds for reading in round_]
        made.beat(number, frames)
    made.daemon.store.stop(5)
    return made


def probed(config: Config) -> list[Reading]:
    """Return what the probe reads of this machine."""
    with closing(Asked(PROBED, config, {})) as asked:
        return asked.ask(Tier.SLOW)


def table(spent: Mapping[str, list[float]]) -> list[tuple[str, float, float]]:
    """Return for each stage its median and its mean in ms a beat; a stage of some beats only counts for all."""
    return [(name, statistics.median(times), sum(times) / BEATS) for name, times in spent.items()]


def values(view: View) -> int:
    """Return how many values a view has that are exported."""
    return sum(exported(metric) for entry in view.entries.values() for metric in entry.values)


def exported(metric: Metric) -> bool:
    """Whether a metric is on the page."""
    return not metric.internal


def config_for(folder: Path) -> Config:
    """Return a configuration of defaults whose files lie in a folder."""
    where = Places(folder, folder, folder)
    return configuration.load(None, where)
