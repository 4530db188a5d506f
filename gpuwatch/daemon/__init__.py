"""Builds every room from Config, starts and stops them in an order that one can read, and feeds systemd's watchdog.

This is the only place that knows all rooms; they know each other only through what is handed in here.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import asdict

from gpuwatch import __version__, detectors, notify, sd, shipped
from gpuwatch.config import UNPLACED, Config
from gpuwatch.daemon import answers, own
from gpuwatch.daemon.beat import Beat
from gpuwatch.daemon.building import HOLDING, JOBS, NVML, Asked, Collector, cadences, collectors, holding, machine
from gpuwatch.daemon.inbox import Inbox
from gpuwatch.daemon.releasing import Releasing
from gpuwatch.daemon.remembering import Remembering, boot_id
from gpuwatch.daemon.standing import standing
from gpuwatch.daemon.unmatched import unmatched
from gpuwatch.export import api
from gpuwatch.export.chosen import left_out
from gpuwatch.export.page import Page
from gpuwatch.export.server import Server
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.alert import Open
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.naming import Firing, Naming
from gpuwatch.model.past import Past, Question
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.view import View
from gpuwatch.notify.notifier import Notifier
from gpuwatch.notify.silences import Silences
from gpuwatch.rules import load as rules
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.incidents import Incidents
from gpuwatch.rules.rule import Rule
from gpuwatch.sampling.board import Board
from gpuwatch.sampling.schedule import Schedule
from gpuwatch.sources import installers
from gpuwatch.sources.kernel import pstore
from gpuwatch.store import Store

log = logging.getLogger("gpuwatch")

ENDING = (signal.SIGTERM, signal.SIGINT)
BEAT = 1.0  # seconds
CALM = 10.0  # seconds between two looks at that, or less where the watchdog is to be fed more often
WATCHED = 30.0  # seconds in which schedule, beat and HTTP must move, or the watchdog is not fed
EAGER = 5.0  # seconds after the start in which the first reading of anything brings a beat
STOP = 5.0  # seconds in which everything has stopped
READERS = 2.0  # of them for what reads, should all of it hang
SENDERS = 3.0  # of them for messages that are under way, where nothing before took longer than it should (rulings 7)


class Daemon:
    """One monitor of one host."""

    def __init__(self, config: Config, sockets: Sequence[socket.socket], web: WebConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        self.stopping = threading.Event()
        self.started = clock.wall()
        self.notes: list[str] = []
        loaded = rules.load(shipped.folder("alerts"), config.rules, UNPLACED)
        every = rules.load(shipped.folder("alerts"), {}, UNPLACED)
        off = frozenset(rule.name for rule in every) - {rule.name for rule in loaded}
        self.naming = Naming(tuple(map(firing, every)), config.host.labels, off)
        self.channels = notify.build(config, UNPLACED, self.naming)
        self.unheard = notify.unheard(self.channels, [firing(rule) for rule in loaded], config.host.name)
        self.store = Store(config.store, machine(config), clock)
        self.board = Board(cadences(config))
        self.inbox = Inbox()
        self.collectors = collectors(config, self.post, self.inbox.put, self.view, clock)
        self.engine = Engine(loaded)
        self.incidents = Incidents(config.host.name, self.store.ids)
        self.silences = Silences(self.store, clock, self.store.ids, config.host.labels)
        self.notifier = Notifier(self.channels, self.store, clock, config.host.name, self.store.ids, silences=self.silences)
        self.remembering = Remembering(
            lambda before: detectors.Runner(detectors.build(config, before)),
            boot=boot_id(config),
            left=partial(pstore.left, Path(config.paths.sys), Path(config.paths.root)),
            store=self.store,
            engine=self.engine,
            incidents=self.incidents,
            notifier=self.notifier,
        )
        self.releasing = Releasing(
            holding(self.collectors),
            board=self.board,
            engine=self.engine,
            silences=self.silences,
            store=self.store,
            clock=clock,
            happened=self.inbox.put,
            at_work=lambda: installers.at_work(Path(config.paths.proc), Path(config.paths.root)),
        )
        self.page = Page(self.view, clock, hidden=left_out(config))
        self.host = config.host.name
        self.server = Server(sockets, api.routes(self), web, clock)
        self.schedule = Schedule(clock)
        self.beat: Beat | None = None
        self.eager_until = 0.0  # monotonic

    def post(self, reading: Reading) -> None:
        """Put a reading on the board; from any thread. While all is new it is judged at once: a first page waits for no tick."""
        mono = self.clock.mono()
        is_first = self.board.post(reading, mono)
        if is_first and self.beat is not None and mono < self.eager_until:
            self.beat.tick()

    def start(self) -> None:
        """Start every room: the worker processes first, since they take longest, then HTTP, what remembers, the schedule last.

        Only the workers that open GPUs wait for the alert memory, which says whether these are released. HTTP waits for no disk.
        """
        for asked in self.collectors:
            if asked.collector.name not in HOLDING:
                asked.collector.start()
        self.server.start()
        self.notes += self.store.start(self.stopping.is_set)
        if self.stopping.is_set():
            return
        self.releasing.start()
        for asked in self.collectors:
            if asked.collector.name in HOLDING:
                asked.collector.start()
        for note in self.notes:
            log.warning("%s", note)
        self.remembering.recall(self.clock.mono(), self.clock.wall())
        if self.notifier.nobody:
            log.warning("nobody will be told: no receiver is configured ([[receivers]])")
        for words in self.unheard:
            log.warning("%s", words)
        self.beat = self.judge()
        self.eager_until = self.clock.mono() + EAGER
        self.notifier.start()
        self.beat.start()
        for (period, delay), ticks in ticking(self.collectors, self.beat.tick, self.notifier.tick).items():
            self.schedule.every(period, f"every {period:g} s, from {delay:g} s on", *ticks, delay=delay)
        self.schedule.start()

    def judge(self) -> Beat:
        """Build what judges once a beat."""
        return Beat(
            clock=self.clock,
            board=self.board,
            inbox=self.inbox,
            detectors=self.remembering,
            engine=self.engine,
            incidents=self.incidents,
            store=self.store,
            notifier=self.notifier,
            page=self.page,
            reports=(self.report,),
            turning=(self.silences.readings, self.releasing.readings),
        )

    def stop(self) -> None:
        """Stop within STOP seconds: what reads first, what remembers last. A worker that cannot be killed is left behind."""
        began = self.clock.mono()
        if self.beat is not None:  # else the start was not complete
            self.schedule.stop()
            self.beat.end()
            self.remembering.leave(self.clock.wall())
        self.releasing.stop()
        for asked in self.collectors:
            asked.collector.stop(max(0.1, min(0.5, READERS - (self.clock.mono() - began))))
        if self.beat is not None and self.beat.stop(1.0):
            self.remembering.save(self.clock.mono(), self.clock.wall())
        self.notifier.stop(max(0.2, min(SENDERS, STOP - 1.5 - (self.clock.mono() - began))))
        self.server.stop(0.3)
        if not self.store.stop(max(0.5, STOP - 1.5 - (self.clock.mono() - began))):
            log.error("the disk did not take everything: %s", self.store.problem())

    def progress(self) -> tuple[float, float, int]:
        """Return what grows while the daemon works: schedule, beats, HTTP loop."""
        finished = self.beat.finished if self.beat is not None else None
        return self.schedule.progress(), finished or 0.0, self.server.progress()

    def report(self, wall: float) -> list[Reading]:
        """Return what the rooms say of themselves."""
        processes: dict[str, Sequence[int]] = {"daemon": [os.getpid()]}
        found: list[Reading] = []
        for asked in self.collectors:
            found += asked.collector.readings(wall)
            if asked.collector.name == NVML:
                processes["nvml"] = asked.collector.pids()
        found += own.readings(__version__, self.started, processes, wall)
        found += self.board.readings(wall)
        found.append(self.inbox.reading(wall))
        found += self.store.readings(wall)
        found += self.notifier.readings(wall)
        return found

    def view(self) -> View:
        """Return what is known now."""
        return self.board.view(self.clock.wall(), self.clock.mono())

    def alerts(self) -> list[Open]:
        """Return the open incidents as they stand."""
        view = self.view()
        return [standing(incident, view, self.engine.rules) for incident in self.incidents.open()]

    def events(self, since: float, until: float, limit: int, keys: Collection[str] | None) -> Sequence[Event]:
        """Return the newest events of that time, the oldest of them first; raises UnreadableError."""
        return self.store.events(since, until, limit, keys=keys)

    def history(self, question: Question) -> Past:
        """Return what was; raises NoTargetError, TooMuchError and UnreadableError."""
        return self.store.past(question)

    @property
    def nobody(self) -> bool:
        """No receiver is configured: nobody will be told."""
        return self.notifier.nobody

    def ready(self) -> list[str]:
        """Return why there is nothing fresh to tell."""
        return answers.reasons(self.freshness())

    def troubles(self) -> list[str]:
        """Return what is wrong with single things."""
        return answers.troubles(self.freshness())

    def status(self) -> dict[str, Any]:
        """Return how everything is."""
        return answers.status(self.facts())

    def freshness(self) -> answers.Freshness:
        """Gather what says whether there is something fresh to tell."""
        finished = self.beat.finished if self.beat is not None else None
        return answers.Freshness(
            view=self.view(),
            beat_age=None if finished is None else self.clock.mono() - finished,
            beat_limit=10 * BEAT,
            wants_gpus=self.config.sources.nvml.enabled or self.config.sources.simulated.enabled,
            collectors={asked.collector.name: asked.collector.problem() for asked in self.collectors},
            seldom=[
                asked.collector.name
                for asked in self.collectors
                if Tier.FAST not in asked.periods or asked.collector.name == JOBS
            ],
        )

    def facts(self) -> answers.Facts:
        """Gather what the answers are made of."""
        incidents, wall, fresh = self.alerts(), self.clock.wall(), self.freshness()
        return answers.Facts(
            **asdict(fresh),
            version=__version__,
            name=self.config.host.name,
            started=self.started,
            incidents=incidents,
            silenced={one.incident.id: self.silences.silencing(one.incident, wall) for one in incidents},
            silences=self.silences.lasting(wall),
            release=self.releasing.state(),
            nobody=self.notifier.nobody,
            telling=self.notifier.problems(),
            store=self.store.problem(),
            judging=[words for words in (self.remembering.problem(), self.engine.problem()) if words],
            receivers=list(self.channels.by_name),
            unheard=self.unheard,
            notes=[*self.notes, *unmatched(fresh.view, self.config.gpus, self.engine.rules.values())],
        )

    def run(self) -> None:
        """Start, live until `stopping` is set, stop. The watchdog is fed while everything that must move does."""
        self.start()
        seen, since = self.progress(), self.clock.mono()
        told = False
        wanted = min(CALM, (sd.watchdog_period() or CALM) / 3)
        period = min(1.0, wanted)
        while not self.stopping.wait(period):
            now, moved = self.clock.mono(), self.progress()
            if all(new != old for new, old in zip(moved, seen, strict=True)):
                seen, since = moved, now
                if not told:
                    told, period = True, wanted
                    sd.notify("READY=1")
                    log.info("gpuwatch %s runs on %s", __version__, self.config.host.name)
            if now - since < WATCHED:
                sd.notify("WATCHDOG=1")
        sd.notify("STOPPING=1")
        log.info("stopping")
        self.stop()
        log.info("stopped")


def run(build: Callable[[], Daemon]) -> None:
    """Build the daemon and run it in this thread until SIGTERM or SIGINT.

    Raises LockedError where another one uses its store. The signals are heard before anything is built: what it reads may
    hang, and as the first process of a container we would not be ended by a signal that we do not handle.
    """
    signal.signal(signal.SIGHUP, lambda *_: log.warning("a changed configuration is taken up by a restart; SIGHUP does nothing"))
    for number in ENDING:
        signal.signal(number, leave)
    daemon = build()
    daemon.store.claim()
    for number in ENDING:
        signal.signal(number, lambda *_: daemon.stopping.set())
    daemon.run()


def leave(*_: object) -> NoReturn:
    """End a start: nothing runs yet that would have to be stopped."""
    log.info("stopped before the start was complete")
    raise SystemExit(0)


def firing(rule: Rule) -> Firing:
    """Return what a rule can fire, for the routes to be held against."""
    severities = tuple(step.severity for step in rule.steps)
    return Firing(rule=rule.name, severities=severities, labels=rule.subject.labels)


def ticking(collectors: Sequence[Asked], *each_beat: Callable[[], None]) -> dict[tuple[float, float], list[Callable[[], None]]]:
    """Return all ticks by period and delay: those that ask, the slow first (a first page needs them most), then the beat."""
    found: dict[tuple[float, float], list[Callable[[], None]]] = {}
    for tier in reversed(Tier):
        for asked in collectors:
            if tier in asked.periods:
                found.setdefault((asked.periods[tier], asked.delay), []).append(asker(asked.collector, tier))
    found.setdefault((BEAT, 0.0), []).extend(each_beat)
    return found


def asker(collector: Collector, tier: Tier) -> Callable[[], None]:
    """Return a tick that asks this collector for this tier."""
    return lambda: collector.ask(tier)
