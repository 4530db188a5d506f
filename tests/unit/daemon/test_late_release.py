"""A release of an earlier run that becomes known only when the alert memory opens, after the start."""

import threading
from collections.abc import Mapping, Sequence

import msgspec

from gpuwatch.catalogue.gpu import DRIVER, RELEASED_SINCE
from gpuwatch.daemon.attached import Snapshot
from gpuwatch.daemon.inbox import Inbox
from gpuwatch.daemon.kept import PEOPLE, STATE, VERSION, Hold, Kept
from gpuwatch.daemon.releasing import Releasing
from gpuwatch.model.alert import Incident, Transition
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading
from gpuwatch.model.silence import Silence
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.sampling.board import Board
from tests.fakes.beating import around
from tests.fakes.clock import FakeClock


class Rooms:
    """All rooms around a beat; the memory opens in the moment in which the detectors ask for it."""

    resting: frozenset[Subject] = frozenset()

    def __init__(self, kept: Kept) -> None:
        self.kept, self.remembers = kept, False
        self.seen: list[float | None] = []

    def recall(self, mono: float, wall: float) -> None:
        """Remember from now on."""
        self.remembers = True

    def run(self, view: View, wall: float) -> Findings:
        """Note since when the GPUs were released, as detectors see it."""
        self.seen.append(view.value(Target(subject=DRIVER, key=""), RELEASED_SINCE))
        return Findings()

    def load_state(self, name: str) -> tuple[int, bytes] | None:
        """Return the release of an earlier run."""
        return (VERSION, msgspec.msgpack.encode(self.kept)) if name == STATE else None

    def save_state(self, name: str, version: int, blob: bytes) -> "Rooms":
        """Keep nothing."""
        return self

    def wait(self, seconds: float) -> bool:
        """It is on the disk."""
        return True

    def hold(self, standing: Silence | None) -> None:
        """Tell nobody of nothing."""

    def save(self, mono: float, wall: float) -> None:
        """Save nothing."""

    def beat(self, view: View, mono: float, evidence: Mapping[tuple[Target, Metric], Evidence]) -> list[Transition]:
        """Judge nothing."""
        return []

    def apply(self, transitions: Sequence[Transition]) -> list[Incident]:
        """Change nothing."""
        return []

    def open(self) -> list[Incident]:
        """Return none."""
        return []

    def readings(self, wall: float) -> list[Reading]:
        """Return no alerts."""
        return []

    def observe(self, view: View) -> None:
        """Keep nothing."""

    def record(self, events: Sequence[object]) -> None:
        """Keep nothing."""

    def commit(self, incidents: Sequence[Incident] = ()) -> None:
        """Keep nothing."""

    def changed(self, incidents: Sequence[Incident]) -> None:
        """Tell nobody."""

    def turn(self) -> None:
        """Show nothing."""


def test_the_first_beat_that_remembers_knows_when_the_gpus_were_released(clock: FakeClock) -> None:
    """Else the Xids of a reset under release, which it judges, would become stories."""
    since = clock.wall() - 60
    rooms = Rooms(Kept(since=since, holds={PEOPLE: Hold("root", since + 600)}, settled_at=since, before=Snapshot()))
    board, threads = Board({}), set(threading.enumerate())
    releasing = Releasing(
        [],
        board=board,
        engine=rooms,
        silences=rooms,
        store=rooms,
        clock=clock,
        happened=lambda _: None,
        at_work=lambda: "",
    )
    beat = around(rooms, board, Inbox(), clock, reports=(), turning=(releasing.readings,))
    releasing.start()
    beat.once()
    releasing.stop()
    for thread in set(threading.enumerate()) - threads:
        thread.join()
    assert rooms.seen == [since]
