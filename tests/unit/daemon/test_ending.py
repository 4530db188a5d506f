"""The looks for the end of a boot where the system has no thread for them."""

from collections.abc import Collection, Iterator, Sequence

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.daemon.ending import Ending, Row
from gpuwatch.detectors.reboot import Before
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.sources.kernel.pstore import Dump
from tests.fakes.threadless import threadless


class Store:
    """Nothing was kept."""

    def events(self, since: float, until: float, limit: int = 1000, kinds: Collection[str] | None = None) -> Sequence[Event]:
        """Return nothing."""
        return ()

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float) -> Sequence[Row]:
        """Return nothing of GPUs."""
        assert subject is gpu.GPU
        return ()


def test_a_look_that_gets_no_thread_is_over_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def left(since: float) -> Iterator[Dump]:
        yield Dump("Kernel panic")

    with threadless():
        looks = Ending(Store(), Before("boot-0", False, 5_000.0), left)
    assert looks.is_over(0)
    why = "it could not be read (can't start new thread)"
    assert looks.found() == Before("boot-0", False, 5_000.0, unread=why, unheard=why, unsampled=why)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
