"""The schedule: ticks by APScheduler that survive a wall clock which jumps.

APScheduler 3 keeps the next run of a job as a wall time. Left alone, a clock set back by an hour stops every job for an hour,
and one set forward by years makes the stock trigger build millions of missed runs (agronholm/apscheduler#526).
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_STOPPED
from apscheduler.triggers.base import BaseTrigger

from gpuwatch.model.clock import Clock

LOOK = 1.0  # seconds between two looks at the clocks
STEP = 2.0  # a difference over this is a step, not a slew

log = logging.getLogger(__name__)


def following(previous: datetime | None, now: datetime, every: timedelta, delay: timedelta) -> datetime:
    """Return the next tick: after its delay for a new job, in step with the last one, or one period from now when that is past.

    Always after `now` but for a new job, so that no run is ever made up for.
    """
    if previous is None:
        return now + delay
    due = previous + every
    return due if now < due <= now + every else now + every


def moved(due: datetime, now: datetime, every: timedelta, stepped: timedelta) -> datetime:
    """Return when a job is due after the wall clock has stepped: as many real seconds from now as before."""
    new = due + stepped
    return new if now <= new <= now + every else now + every


class Every(BaseTrigger):  # type: ignore[misc]  # apscheduler has no types
    """APScheduler's interval, without a memory of the past."""

    __slots__ = ("_delay", "every")

    def __init__(self, seconds: float, delay: float = 0.0) -> None:
        self.every = timedelta(seconds=seconds)
        self._delay = timedelta(seconds=delay)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Answer APScheduler."""
        return following(previous_fire_time, now, self.every, self._delay)


class Scheduler(BackgroundScheduler):  # type: ignore[misc]  # apscheduler has no types
    """APScheduler that looks at the clocks before it looks for jobs, and at least once a second.

    The look must come first and in the same thread: a job of its own would be the first to stall.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        # Ticks run in the scheduler's thread (DebugExecutor): they only put something into a queue, and its stock pool would
        # be joined at exit.
        super().__init__(timezone=timezone.utc, executors={"default": DebugExecutor()})

    def _process_jobs(self) -> float:
        self._look()
        wait: float | None = super()._process_jobs()
        return LOOK if wait is None else min(wait, LOOK)

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - the stock signature
        """Stop; the stock method waits for ever for a tick that blocks: for the lock it holds, and for its thread."""
        self.state = STATE_STOPPED
        self.wakeup()
        self._thread.join(STEP)


class Job:
    """One tick that repeats; it may raise without harm to the others."""

    def __init__(self, name: str, tick: Callable[[], None]) -> None:
        self._name, self._tick = name, tick
        self._failing = 0

    def run(self) -> None:
        """Tick; the first failure of a row is logged, and its end."""
        try:
            self._tick()
        except BaseException:  # root of what a job does: the other jobs go on
            self._failing += 1
            if self._failing == 1:
                log.exception("job %s failed; it is tried again at its pace", self._name)
            return
        if self._failing:
            log.info("job %s works again after %d failures", self._name, self._failing)
            self._failing = 0


class Schedule:
    """Repeats ticks, each at once and then at its period. A tick only puts something into a queue: it must not block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduler = Scheduler(self._look)
        self._offset = 0.0  # wall minus monotonic clock at the last look
        self._looked = clock.mono()
        logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it logs every run at INFO

    def every(self, seconds: float, name: str, *ticks: Callable[[], None], delay: float = 0.0) -> None:
        """Repeat `ticks` in their order, the first time after `delay` seconds from the start.

        To wake up costs more than to tick (0.3 ms of CPU, measured): what has the same pace belongs into one job, and paces
        of whole seconds wake up together.
        """
        trigger, jobs = Every(seconds, delay), [Job(name, tick) for tick in ticks]

        def run() -> None:
            for job in jobs:
                job.run()

        self._scheduler.add_job(run, trigger, id=name, name=name, misfire_grace_time=None, coalesce=True)

    def start(self) -> None:
        """Begin to tick, in a thread of its own."""
        self._offset = self._clock.wall() - self._clock.mono()
        self._scheduler.start()

    def stop(self) -> None:
        """Stop ticking; returns within two seconds even when a tick blocks."""
        self._scheduler.shutdown()

    def progress(self) -> float:
        """Return the monotonic time at which the schedule was last seen to work, for the watchdog."""
        return self._looked

    def _look(self) -> None:
        self._looked = self._clock.mono()
        offset = self._clock.wall() - self._looked
        stepped, self._offset = offset - self._offset, offset
        if abs(stepped) <= STEP:
            return
        log.warning("the wall clock stepped by %+.0f s; all jobs keep their pace", stepped)
        now = datetime.fromtimestamp(self._clock.wall(), timezone.utc)
        for job in self._scheduler.get_jobs():
            due: Any = job.next_run_time
            job.modify(next_run_time=moved(due, now, job.trigger.every, timedelta(seconds=stepped)))
