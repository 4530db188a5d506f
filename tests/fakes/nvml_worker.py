"""The nvml source in the real worker process, under the fake library: asked round by round, as the daemon does."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from gpuwatch import config as configuration
from gpuwatch.catalogue.gpu import DRIVER, FAN, GPU, GPUS, VISIBLE
from gpuwatch.catalogue.own import OWN
from gpuwatch.config import Config, Gpu, Nvml, Paths, Sources
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.quantity import Duration
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.sources import wire
from tests.fakes.nvml import FakeNvml
from tests.fakes.until import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Round:
    """What one Ask was answered with."""

    number: int
    readings: list[Reading] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    bugs: list[str] = field(default_factory=list)
    took: float = 0.0

    def of(self, subject: Subject, tier: Tier | None = None) -> dict[str, Reading]:
        """Return the last readings of a subject, by key."""
        return {one.target.key: one for one in self.readings if one.target.subject is subject and tier in (None, one.tier)}

    def gpu(self, key: str) -> Reading:
        """Return the reading of one GPU."""
        return self.of(GPU)[key]

    def fans(self) -> list[Reading]:
        """Return the readings of fans."""
        return list(self.of(FAN).values())

    @property
    def driver(self) -> Reading:
        """The reading of the driver."""
        return self.of(DRIVER)[""]

    @property
    def state(self) -> str:
        """The driver's state: its state set has exactly one 1."""
        (state,) = (dict(metric.labels)["state"] for metric, value in self.driver.values.items() if metric.labels and value == 1)
        return state

    @property
    def visible(self) -> float | Absence:
        """How many GPUs NVML shows, or why that is not known."""
        reading = self.of(GPUS)[""]
        metric = VISIBLE["nvml"]
        return reading.values[metric] if metric in reading.values else reading.absent[metric]

    @property
    def errors(self) -> dict[str, float]:
        """NVML's errors so far by code, without those that never came."""
        return {dict(metric.labels)["code"]: value for metric, value in self.of(OWN)[""].values.items() if value}


class NvmlWorker:
    """The worker process. `with closing(NvmlWorker(fake)) as worker:` ends it."""

    module = "gpuwatch.sources.worker"

    def __init__(
        self,
        fake: FakeNvml,
        *,
        every: float = 1.0,
        normal: float = 0.5,
        deadline: float = 3.0,
        per_link: bool = False,
        labels: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        standing: dict[str, tuple[str, float]] | None = None,  # what the worker before has said of GPUs, by key
        buggy: bool = False,  # pynvml is made to raise what it never should
    ) -> None:
        self._buggy = buggy
        options = Nvml(
            every=Duration(every),
            every_normal=Duration(normal),
            every_slow=Duration(60),
            deadline=Duration(deadline),
            per_link=per_link,
        )
        self.config = Config(
            gpus={place: Gpu(label=label) for place, label in (labels or {}).items()},
            paths=Paths(proc=fake.proc, sys=fake.sys, dev=fake.dev, root=fake.root),
            sources=Sources(nvml=options),
        )
        self._log = fake.path / "worker.log"
        self._number = 0
        self._frames: queue.SimpleQueue[wire.FromWorker | None] = queue.SimpleQueue()
        self.restarts: list[str] = []
        self.events: list[Event] = []
        self.after: list[Reading] = []  # readings that came between rounds
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "gpuwatch-nvml"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **fake.environment, **(environment or {})},
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self._send(wire.Setup(["nvml"], configuration.plain(self.config), {"nvml": standing} if standing else {}))

    def close(self) -> None:
        """End the process, by its pipe if that works."""
        stdin, stdout = cast("BinaryIO", self.process.stdin), cast("BinaryIO", self.process.stdout)
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
        stdout.close()

    def ask(self, tier: Tier = Tier.FAST, skip: Sequence[str] = ()) -> Round:
        """Ask for one round and return its answers."""
        self._number += 1
        answers = Round(self._number)
        self.idle()
        started = time.monotonic()
        self._send(wire.Ask(self._number, tier, [f"nvml:{key}" for key in skip]))
        while True:
            frame = self._frames.get(timeout=PATIENCE)
            assert frame is not None, f"the worker has died: {self.log()}"
            if isinstance(frame, wire.Failed):
                assert self._buggy, frame
                answers.bugs.append(frame.words)
            elif isinstance(frame, wire.Got):
                answers.readings.append(wire.reading(frame))
            elif isinstance(frame, wire.Happened):
                self.events.append(wire.event(frame))
            elif isinstance(frame, wire.Restart):
                self.restarts.append(frame.reason)
            elif isinstance(frame, wire.Done) and frame.number == self._number:
                answers.busy = list(frame.busy)
                answers.took = time.monotonic() - started
                return answers

    def until(self, tier: Tier, holds: Callable[[Round], bool], seconds: float = PATIENCE) -> Round:
        """Ask again and again until a round is as wanted, less and less often."""
        answers: list[Round] = []

        def came() -> bool:
            answers[:] = [self.ask(tier)]
            with contextlib.suppress(KeyError):  # a round may say nothing of what takes its time
                return holds(answers[0])
            return False

        until(came, seconds, lambda: f": {[one.fault for one in answers[0].readings]} {self.log()}")
        return answers[0]

    def survey(self) -> Round:
        """Return the first normal round that says how the driver is: where it takes longer than a period, that is a later one."""
        return self.until(Tier.NORMAL, lambda found: bool(found.driver.values))

    def warm(self) -> Round:
        """Ask every tier until every GPU has given a fast reading; return that round."""
        for tier in Tier:
            self.ask(tier)
        return self.ask()

    def idle(self) -> list[Reading]:
        """Take what came since the last round."""
        came: list[Reading] = []
        while not self._frames.empty():
            frame = self._frames.get()
            if isinstance(frame, wire.Got):
                came.append(wire.reading(frame))
            elif isinstance(frame, wire.Happened):
                self.events.append(wire.event(frame))
            elif isinstance(frame, wire.Restart):
                self.restarts.append(frame.reason)
        self.after += came
        return came

    def told(self, kind: str) -> list[Event]:
        """Return the events of one kind so far."""
        self.idle()
        return [event for event in self.events if event.kind == kind]

    def died(self) -> int:
        """Wait for the process to end by itself, and return its status."""
        return self.process.wait(PATIENCE)

    def log(self) -> str:
        """Return what the worker has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _send(self, frame: wire.ToWorker) -> None:
        stdin = cast("BinaryIO", self.process.stdin)
        stdin.write(wire.pack(frame))
        stdin.flush()

    def _listen(self) -> None:
        try:
            for body in wire.frames(cast("BinaryIO", self.process.stdout)):
                self._frames.put(wire.from_worker(body))
        finally:
            self._frames.put(None)


def fault_of(reading: Reading) -> tuple[str, int | None]:
    """Return kind and code of a reading's fault, ("", None) where it has none."""
    fault: Fault | None = reading.fault
    return (fault.kind, fault.code) if fault else ("", None)


def missing(reading: Reading, why: Absence) -> set[Metric]:
    """Return what is absent for this reason."""
    return {metric for metric, reason in reading.absent.items() if reason is why}
