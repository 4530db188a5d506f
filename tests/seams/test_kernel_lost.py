"""Kernel messages that were overwritten while nobody read: counted once, whoever reads next."""

from pathlib import Path

import pytest

from gpuwatch.catalogue.events import LOG_READ
from gpuwatch.detectors.witnesses import Witnesses
from tests.fakes.clock import FakeClock
from tests.fakes.kernel_log import BOOT, XID, KernelLog

FALLEN = f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def log(tmp_path: Path) -> KernelLog:
    """A kernel log in a file."""
    return KernelLog(tmp_path)


class Run:
    """One run of the daemon: what it reads is taken in by what all runs remember."""

    def __init__(self, log: KernelLog, clock: FakeClock, witnesses: Witnesses) -> None:
        self.log, self.clock, self.witnesses = log, clock, witnesses

    def lost(self, seconds: int) -> int:
        """Read for so long, ask by ask; return how many messages it counted as lost."""
        reader, lost = self.log.reader(self.clock), 0
        for _ in range(seconds):
            self.clock.forward(1.0)
            lost += sum(event.count for event in self.witnesses.fresh(tuple(reader.ask())) if event.kind == "log_lost")
            (target, values) = (reader.heard.readings[-1].target, reader.heard.readings[-1].values)
            if LOG_READ in values:
                self.witnesses.has_read(target.info["boot_id"], int(values[LOG_READ]))
        reader.source.close()
        return lost


@pytest.mark.parametrize("age", [900.0, 0.5], ids=["long ago", "just now"])
def test_what_was_overwritten_before_a_start_is_counted_once(log: KernelLog, clock: FakeClock, age: float) -> None:
    """However young the first message is that can be read: the gap before it is told with its second."""
    run = Run(log, clock, Witnesses())
    log.say("nothing", at=clock.mono() + 1.0 - age, lost=300)
    assert run.lost(5) == 300
    assert run.lost(5) == 0
    log.say("nothing", at=clock.mono())
    assert run.lost(5) == 0  # number 301 was read
    log.path.write_bytes(b"")
    log.say(FALLEN, at=clock.mono() + 0.5, lost=41)  # 302 to 342 came and went while nobody read
    assert run.lost(5) == 41
    assert run.lost(5) == 0


def test_a_log_that_can_be_read_from_its_beginning_has_lost_nothing(log: KernelLog, clock: FakeClock) -> None:
    log.say(FALLEN, at=1.0)
    assert Run(log, clock, Witnesses()).lost(3) == 0


def test_another_boot_begins_with_its_own_numbers(log: KernelLog, clock: FakeClock) -> None:
    witnesses = Witnesses()
    witnesses.has_read("another boot", 90_000)
    log.say(FALLEN, at=900.0, lost=12)
    assert Run(log, clock, witnesses).lost(3) == 12
    assert (witnesses.boot, witnesses.read) == (BOOT, 12)
