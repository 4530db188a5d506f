"""A host with disks and a smartctl of the tests, and what the smart source answered it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

from gpuwatch.catalogue import disk
from gpuwatch.config import Config, Paths, Smart, Sources
from gpuwatch.model.event import Event
from gpuwatch.model.quantity import Duration
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sources.smart import source
from gpuwatch.sources.source import Source
from tests.fakes.clock import FakeClock
from tests.fakes.drives import Drive
from tests.fakes.smartctl import Answer, FakeSmartctl
from tests.fakes.until import PATIENCE

SHORT = 2.0  # seconds: time for a smartctl that answers, also on a slow machine


@final
class Host:
    """The host: the source in this process answers it."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.sys, self.dev, self.proc = folder / "sys", folder / "dev", folder / "proc"
        (self.sys / "block").mkdir(parents=True)
        self.dev.mkdir()
        self.proc.mkdir()
        self.smartctl = FakeSmartctl(folder / "smartctl")
        self.clock = clock
        self.happened: list[str] = []
        self.readings: dict[str, Reading] = {}
        self.busy: list[str] = []

    def drive(self, name: str, drive: Drive) -> Answer:
        """Return the answer that shows this drive."""
        return self.smartctl.document(name, drive.tree, drive.text)

    def source(self, program: str = "", *, deadline: float = PATIENCE, sleep: bool = True) -> Source:
        """Build the source as a worker does."""
        smart = Smart(smartctl=program or str(self.smartctl.program), deadline=Duration(deadline), standby=sleep)
        paths = Paths(sys=str(self.sys), dev=str(self.dev), proc=str(self.proc))
        return source(Config(sources=Sources(smart=smart), paths=paths), self.clock)

    def round(self, program: str = "", *, skip: Sequence[str] = (), deadline: float = PATIENCE, sleep: bool = True) -> None:
        """Ask a new source, as every round is a new worker."""
        self.happened, self.readings, self.busy = [], {}, []
        self.source(program, deadline=deadline, sleep=sleep).ask(Tier.SLOW, frozenset(skip), self)

    def until_ok(self, *names: str) -> None:
        """Fail unless these disks are well; on a slow machine a smartctl may be too late for the first round."""
        ends = time.monotonic() + PATIENCE
        while [self.state(name) for name in names] != ["ok"] * len(names):
            assert time.monotonic() < ends, self.readings
            self.round(deadline=SHORT)

    def state(self, name: str) -> str:
        """Return the verdict of a disk; exactly one state holds."""
        (state,) = [state for state, metric in disk.VERDICT.items() if self.readings[name].values[metric]]
        return state

    def fault(self, name: str) -> str:
        """Return the kind of fault of a disk, "" for none."""
        fault = self.readings[name].fault
        return fault.kind if fault else ""

    def reading(self, reading: Reading) -> None:
        """Take a reading."""
        self.happened.append(f"reading {reading.target.labels['device']}")
        self.readings[reading.target.labels["device"]] = reading

    def event(self, event: Event) -> None:
        """SMART tells of no events."""
        raise AssertionError(event)

    def working(self, item: str) -> None:
        """Note what is about to be touched."""
        self.happened.append(f"working {item}")

    def restart(self, reason: str) -> None:
        """SMART never asks for it."""
        raise AssertionError(reason)

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """Note the end of the round."""
        self.happened.append("done")
        self.busy = list(busy)
