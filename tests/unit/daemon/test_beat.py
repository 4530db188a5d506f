"""One beat: in which order things happen, and what becomes of one that fails."""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue import own
from gpuwatch.daemon.beat import REPORT_EVERY, Beat, tell_the_log
from gpuwatch.daemon.inbox import Inbox
from gpuwatch.model.alert import Incident, Severity, Transition
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Evidence, Findings
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from gpuwatch.sampling.board import Board
from tests.fakes.beating import around
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT, ended, milder, stale, worse
from tests.fakes.store_nouns import incident
from tests.fakes.until import PATIENCE, until

OURS = Target(subject=own.OWN, key="")
ALERT = Target(subject=own.ALERT, key="hot|warning|0", labels={"rule": "hot", "severity": "warning", "gpu": "0"})


class Rooms:
    """All rooms around a beat; they note what they are asked, and fail while `broken`."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.changes: list[Incident] = []
        self.firing = self.broken = False
        self.counted: tuple[str, ...] = ()
        self.held: threading.Event | None = None
        self.kept: list[Event] = []
        self.seen: list[tuple[Event, ...]] = []
        self.mode = 0.0

    def recall(self, mono: float, wall: float) -> None:
        """Nothing to take over."""

    def run(self, view: View, wall: float) -> Findings:
        """Find nothing, or fail, or wait."""
        self.noted.append("run")
        self.seen.append(view.events)
        if self.held is not None:
            self.held.wait(PATIENCE)
        if self.broken:
            raise SystemExit("broken")  # of all that may be raised the one that would end the thread without a word
        return Findings(counted=self.counted)

    def keep(self, names: Sequence[str]) -> None:
        """Note it."""
        self.noted.append(f"keep {' '.join(names)}")

    def save(self, mono: float, wall: float) -> None:
        """Note it."""
        self.noted.append("save")

    def beat(self, view: View, mono: float, evidence: Mapping[tuple[Target, Metric], Evidence]) -> list[Transition]:
        """Judge nothing."""
        return []

    def apply(self, transitions: Sequence[Transition]) -> list[Incident]:
        """Return what a test wants changed, once."""
        changed, self.changes = self.changes, []
        return changed

    def open(self) -> list[Incident]:
        """Return none."""
        return []

    def readings(self, wall: float) -> list[Reading]:
        """Return the one alert while it fires."""
        values = own.ALERT_STATE.at("firing")
        reading = Reading(source="own", tier=Tier.FAST, target=ALERT, at=wall, took=0.0, values=values)
        return [reading] if self.firing else []

    def commit(self, incidents: Sequence[Incident] = ()) -> None:
        """Note it."""
        self.noted.append("commit")

    def changed(self, incidents: Sequence[Incident]) -> None:
        """Note it."""
        self.noted.append("tell")

    def record(self, events: Sequence[Event]) -> None:
        """Keep them."""
        self.kept += events

    def observe(self, view: View) -> None:
        """Note it."""
        self.noted.append("observe")

    def turn(self) -> None:
        """Note it."""
        self.noted.append("turn")

    def turned(self, wall: float) -> list[Reading]:
        """Return the number that people turn by hand."""
        return [Reading(source="x", tier=Tier.NORMAL, target=OURS, at=wall, took=0.0, values={own.MAINTENANCE_MODE: self.mode})]

    def report(self, wall: float) -> list[Reading]:
        """Note it."""
        self.noted.append("report")
        return []


@pytest.fixture
def rooms() -> Rooms:
    """The rooms."""
    return Rooms()


@pytest.fixture
def board() -> Board:
    """A real board."""
    return Board({})


@pytest.fixture
def inbox() -> Inbox:
    """A real queue of events."""
    return Inbox()


@pytest.fixture
def beat(rooms: Rooms, board: Board, inbox: Inbox, clock: FakeClock) -> Iterator[Beat]:
    """A beat, which is ended after the test."""
    made = around(rooms, board, inbox, clock, reports=(rooms.report,), turning=(rooms.turned,))
    yield made
    assert made.stop(5)


def test_what_changed_is_committed_before_it_is_told_and_what_led_to_it_is_saved_at_once(
    beat: Beat, rooms: Rooms, clock: FakeClock
) -> None:
    beat.once()
    assert rooms.noted == ["report", "run", "observe", "turn", "save"]
    rooms.noted.clear()
    clock.forward(1)
    beat.once()
    assert rooms.noted == ["run", "observe", "turn"]
    rooms.noted.clear()
    rooms.changes = [incident(1)]
    clock.forward(1)
    beat.once()
    assert rooms.noted == ["run", "commit", "tell", "observe", "turn", "save"]
    clock.forward(REPORT_EVERY)
    rooms.noted.clear()
    beat.once()
    assert rooms.noted[0] == "report"


def test_what_was_counted_is_handed_to_the_disk_before_it_is_on_the_page(beat: Beat, rooms: Rooms, clock: FakeClock) -> None:
    beat.once()
    rooms.noted.clear()
    rooms.counted = ("events", "ended")
    clock.forward(1)
    beat.once()
    assert rooms.noted == ["run", "keep events ended", "observe", "turn"]


def test_an_alert_that_is_over_leaves_the_page_with_the_same_beat(
    beat: Beat, rooms: Rooms, board: Board, clock: FakeClock
) -> None:
    def shown() -> int:
        return len(board.view(clock.wall(), clock.mono()).entries[ALERT].values)

    rooms.firing = True
    beat.once()
    assert shown() == len(own.ALERT_STATE)
    rooms.firing = False
    clock.forward(1)
    beat.once()
    assert shown() == 0


def test_what_people_turn_by_hand_is_seen_with_the_next_beat_and_not_with_the_next_report(
    beat: Beat, rooms: Rooms, board: Board, clock: FakeClock
) -> None:
    for mode in (0.0, 1.0, 0.0):
        rooms.mode = mode
        beat.once()
        assert board.view(clock.wall(), clock.mono()).entries[OURS].values[own.MAINTENANCE_MODE] == mode
        clock.forward(1)
    assert rooms.noted.count("report") == 1


def test_beats_that_fail_are_said_once_at_each_end_and_do_not_count(
    beat: Beat, rooms: Rooms, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def beats(count: int) -> None:
        for _ in range(count):
            before = rooms.noted.count("run")
            beat.tick()
            until(lambda before=before: rooms.noted.count("run") > before)  # type: ignore[misc]  # a default binds the loop's value

    with caplog.at_level(logging.INFO, "gpuwatch.beat"):
        rooms.broken = True
        beat.start()
        beats(3)
        until(lambda: len(caplog.messages) == 1)
        assert beat.finished is None
        clock.forward(30)
        rooms.broken = False
        beats(2)
        until(lambda: beat.finished is not None and len(caplog.messages) == 2)
    assert caplog.messages == [
        "a beat failed: nothing is judged until one is whole again",
        "beats are whole again after 30 s",
    ]


def test_a_beat_that_hangs_is_not_waited_for_at_the_stop(beat: Beat, rooms: Rooms) -> None:
    rooms.held = threading.Event()
    beat.start()
    beat.tick()
    until(lambda: rooms.noted == ["report", "run"])
    assert not beat.stop(0.05)
    rooms.held.set()


def test_what_happened_is_shown_to_the_detectors_once(beat: Beat, rooms: Rooms, inbox: Inbox) -> None:
    event = Event(source="kernel", kind="oom_kill", severity=Severity.WARNING, at=1.0, words="Killed process 7")
    inbox.put(event)
    beat.once()
    beat.once()
    assert rooms.seen == [(event,), ()]


WHERE = {"where": "GPU 3"}
WORSE = worse(replace(HOT, words=WHERE))


@pytest.mark.parametrize(
    ("now", "before", "level", "line"),
    [
        (HOT, None, "WARNING", f"gpu_overheating: {HOT.summary}"),
        (WORSE, HOT, "CRITICAL", f"gpu_overheating: {HOT.summary}"),
        (milder(WORSE), WORSE, "INFO", "gpu_overheating of GPU 3 is no longer critical, but warning until it is over"),
        (HOT, HOT, "INFO", f"gpu_overheating, more is known: {HOT.summary}"),
        (HOT, stale(HOT), "INFO", f"gpu_overheating has data again, and is not over: {HOT.summary}"),
        (stale(HOT), HOT, "WARNING", f"gpu_overheating has no data any more, it is not resolved: {HOT.summary}"),
        (ended(HOT), HOT, "INFO", f"gpu_overheating is over: {HOT.summary}"),
    ],
)
def test_only_what_gets_worse_is_an_alarm_in_the_log(
    now: Incident, before: Incident | None, level: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpuwatch")
    tell_the_log([now], {} if before is None else {before.id: before})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]
