"""The source: three rounds (fast, normal, slow) over the GPUs, each of which may be stuck in the driver.

`ask` returns at once. One thread a tier conducts its rounds: it hands each GPU's lane a job, waits for the answers and ends
the round, at the latest when patience runs out. No thread that may be stuck is ever waited for longer than that.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.events import Events
from gpuwatch.sources.nvml.fleet import Opening
from gpuwatch.sources.nvml.gpu import PATIENCE, Gpu, Standing
from gpuwatch.sources.nvml.lane import Lane, begin, raised
from gpuwatch.sources.nvml.library import DriverGoneError
from gpuwatch.sources.nvml.pcie import Throughput
from gpuwatch.sources.nvml.session import Session
from gpuwatch.sources.source import Answer

DRIVER_KEY = ""  # the session's place in a round; the driver's target has no key

log = logging.getLogger(__name__)


class Request(msgspec.Struct, frozen=True):
    """One ask, on its way to the thread of its tier."""

    skip: frozenset[str]
    answer: Answer


class Round:
    """Who has not answered yet. After `wait` has returned it is over, and what was not begun is not begun any more."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self.over = False
        self._failed = failed
        self._pending: set[str] = set()
        self._done = threading.Condition()

    def hand(self, lane: Lane, name: str, job: Callable[[], None]) -> None:
        """Have a lane do a job and expect it to end; a bug in it costs its part of the round, and is told."""

        def run() -> None:
            try:
                if not self.over:
                    job()
            except BaseException as error:  # what pynvml raises, SystemExit too; the lane logs it
                self._failed(raised(error))
                raise
            finally:
                self.finish(name)

        with self._done:
            self._pending.add(name)
        if not lane.submit(run):  # closed, as its GPU was given up or opened anew, or no thread to be had: the next round
            self.finish(name)

    def finish(self, name: str) -> None:
        """Count an answer."""
        with self._done:
            self._pending.discard(name)
            if not self._pending:
                self._done.notify()

    def wait(self, seconds: float) -> list[str]:
        """Wait for all answers; return who gave none in time."""
        with self._done:
            self._done.wait_for(lambda: not self._pending, seconds)
            self.over = True
            return sorted(self._pending)


class Nvml:
    """All GPUs of this host that libnvidia-ml shows, and the driver itself."""

    def __init__(self, config: Config, clock: Clock, standing: Standing | None = None) -> None:
        options = config.sources.nvml
        self._clock = clock
        self._deadline = float(options.deadline)
        self._overdue = 0.9 * self._deadline  # what a round began has had a moment less than the deadline when the round ends
        self._periods = {Tier.FAST: options.every, Tier.NORMAL: options.every_normal, Tier.SLOW: options.every_slow}
        self._hung: dict[str, tuple[Lane, int]] = {}  # by key: the job that was said to hang
        self._told = ""
        self._started = clock.mono()
        self._session = Session(config, clock, standing or {})
        self._events = Events(clock, self._session.driver_gone, self._look_at_once)
        self._session.quiet = self._events.quiet
        self._throughput = Throughput(self._session, float(options.every_normal), clock)
        self._asks: dict[Tier, queue.SimpleQueue[Request | None]] = {tier: queue.SimpleQueue() for tier in Tier}
        self._begun: set[Tier] = set()  # those whose thread runs

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Begin a round; returns at once."""
        self._events.answered_to(answer)
        if tier not in self._begun:
            if not begin(partial(self._run, tier), f"nvml-{tier.value}"):
                answer.failed("no thread can be started")
                answer.done()
                return
            self._begun.add(tier)
        self._asks[tier].put(Request(skip, answer))

    def close(self) -> None:
        """Let go of NVML as far as its threads come back."""
        for asks in self._asks.values():
            asks.put(None)
        self._throughput.close()
        self._events.close()
        self._session.close()

    def _run(self, tier: Tier) -> None:
        failing: float | None = None  # since when
        while (request := self._asks[tier].get()) is not None:  # idle between rounds; a daemon thread ends with the process
            busy: list[str] = []
            try:
                busy = self._conduct(tier, request.skip, request.answer)
                if tier is Tier.FAST and self._session.fleet is not None:
                    self._events.tend(self._session.library, self._session.fleet.gpus())
            except BaseException as error:  # root of the thread: what pynvml raises, SystemExit too, must not end all rounds
                request.answer.failed(raised(error))
                if failing is None:
                    failing = self._clock.mono()
                    log.exception("a bug in the %s rounds of nvml, their readings are incomplete", tier.value)
            else:
                if failing is not None:
                    log.info("the %s rounds of nvml are whole again after %.0f s", tier.value, self._clock.mono() - failing)
                failing = None
            request.answer.done(busy)

    def _conduct(self, tier: Tier, skip: frozenset[str], answer: Answer) -> list[str]:
        """Ask every GPU that can be asked, answer for those that cannot; return who did not come back.

        A GPU is told by its key, or before that is known, by #index.

        A round ends within the deadline: the daemon gives the process up that has not ended one after twice as long.
        """
        end = self._clock.mono() + self._deadline
        self._session.begun.wait(max(0.0, self._started + self._deadline - self._clock.mono()))  # only at the start
        self._session.retry()
        self._session.tell_news(answer)
        round_ = Round(answer.failed)
        if tier is Tier.NORMAL:
            self._ask_session(round_, answer)
        patience = min(self._deadline, self._periods[tier])
        busy: list[str] = []
        asked: set[str] = set()
        fleet = self._session.fleet
        if fleet is not None:
            opened: set[Lane | None] = set()
            for opening in fleet.openings():
                if opening.lane.running(self._clock.mono()) < PATIENCE:
                    patience = self._deadline  # the first call to a GPU is the slow one
                    opened.add(opening.lane)
                    self._ask_opening(opening, tier, round_, answer)
            for gpu in fleet.gpus():  # one that has opened since is among them already, and is asked once
                if gpu.identity.key not in skip and gpu.lane not in opened:
                    asked.add(gpu.identity.key)
                    busy += self._ask_gpu(gpu, tier, round_, answer)
        late = round_.wait(max(0.0, min(patience, end - self._clock.mono())))
        if fleet is not None:
            fleet.look_for_overdue(self._overdue)
            late += [f"#{opening.index}" for opening in fleet.openings() if not opening.overdue]
            for gpu in fleet.gpus():  # those that turned out meanwhile to be there, but cannot be opened
                if gpu.handle is None and gpu.identity.key not in asked | skip:
                    self._give(gpu.silent(tier), answer)
        if tier is Tier.NORMAL:
            self._have_sampled(answer)
        if self._session.restart and not self._told:
            self._told = self._session.restart
            answer.restart(self._told)
        return busy + [name for name in dict.fromkeys(late) if name != DRIVER_KEY]

    def _have_sampled(self, answer: Answer) -> None:
        """Have the next samples of the PCIe links taken, and tell of a bug in the last ones."""
        if self._throughput.bug:
            answer.failed(self._throughput.bug)
        self._throughput.asked()

    def _ask_session(self, round_: Round, answer: Answer) -> None:
        """Have the driver looked at, or say that it does not come back."""
        session = self._session
        stuck = session.lane.running(self._clock.mono())
        if stuck > self._overdue:
            session.hangs = Fault("failed", f"a call to NVML itself has not returned for {stuck:.0f} s")
            session.tell(answer)
        elif stuck < PATIENCE:
            session.hangs = None
            round_.hand(session.lane, DRIVER_KEY, lambda: session.survey(answer))

    def _ask_opening(self, opening: Opening, tier: Tier, round_: Round, answer: Answer) -> None:
        """Have a GPU read as soon as it is open, in this same round."""

        def job() -> None:
            gpu = opening.gpu
            if gpu is not None and gpu.lane is opening.lane:
                self._look(gpu, tier, answer)

        round_.hand(opening.lane, f"#{opening.index}", job)

    def _ask_gpu(self, gpu: Gpu, tier: Tier, round_: Round, answer: Answer) -> list[str]:
        """Hand a GPU's lane its job, or answer in its place; return its key if its last call has not come back."""
        key, lane = gpu.identity.key, gpu.lane
        if gpu.handle is None or lane is None:
            self._give(gpu.silent(tier), answer)
            return []
        stuck = gpu.stuck()
        if stuck >= PATIENCE:
            if stuck >= self._deadline:
                self._note_hung(gpu, lane)
                self._give(gpu.silent(tier, Absence.LATE, verdicts.HUNG), answer)
            return [key]
        round_.hand(lane, key, lambda: self._look(gpu, tier, answer))
        return []

    def _look_at_once(self, gpu: Gpu, tiers: tuple[Tier, ...], answer: Answer) -> None:
        """Have a GPU read between the rounds, since an event says that something has changed."""
        lane = gpu.lane
        if lane is None or gpu.stuck() >= PATIENCE:
            return  # the next round that reaches it reads it all
        for tier in tiers:
            lane.submit(partial(self._look, gpu, tier, answer))

    def _look(self, gpu: Gpu, tier: Tier, answer: Answer) -> None:
        """Read one GPU and send what it gave; on its lane."""
        started = self._clock.mono()
        try:
            readings = gpu.look(tier)
            for event in gpu.news():
                answer.event(event)
        except DriverGoneError as error:
            self._session.driver_gone(error.code)
            readings = gpu.silent(tier)
        else:
            if gpu.fault is verdicts.STALE_HANDLE:
                self._session.recount()
        took = self._clock.mono() - started
        if gpu.lane is not None and self._hung.get(gpu.identity.key) == (gpu.lane, gpu.lane.job):
            log.info("%s comes back after %.0f s", gpu, took)
        if took > self._deadline and gpu.handle is not None:
            return  # it was reported as hung, and these values are old by now: the next round is whole
        self._give(readings, answer)

    def _give(self, readings: Iterable[Reading], answer: Answer) -> None:
        """Answer with the readings of a GPU; before it is blamed for anything, how the driver is, where that has changed."""
        found = list(readings)
        if any(reading.fault is not None for reading in found):
            self._session.tell_news(answer)
        for reading in found:
            answer.reading(reading)

    def _note_hung(self, gpu: Gpu, lane: Lane) -> None:
        """Log once for each call that hangs."""
        job = (lane, lane.job)
        if self._hung.get(gpu.identity.key) != job:
            self._hung[gpu.identity.key] = job
            if not gpu.inherited.take(verdicts.HUNG):
                log.warning("%s: %s", gpu, verdicts.HUNG.words)
