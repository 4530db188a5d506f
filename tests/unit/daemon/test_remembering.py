"""What a run saves of itself, and what the next one takes for the end of the last."""

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from gpuwatch import detectors
from gpuwatch.catalogue import gpu
from gpuwatch.config import Config
from gpuwatch.daemon.ending import LATE, Ending
from gpuwatch.daemon.remembering import PATIENCE as LOOKED_FOR
from gpuwatch.daemon.remembering import Remembering, has_died, last_run
from gpuwatch.detectors.accumulate import State as Sums
from gpuwatch.detectors.reboot import Before, Reboot
from gpuwatch.detectors.usage import Book, State, Usage
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.finding import Findings
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.past import UnreadableError
from gpuwatch.model.view import View
from gpuwatch.notify import Channels, Notifier, Silences
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.incidents import Incidents
from gpuwatch.sources.kernel.pstore import Dump
from gpuwatch.store import Memory
from tests.fakes.clock import FakeClock
from tests.fakes.happenings import told, xid
from tests.fakes.until import PATIENCE, until


@dataclass
class Row:
    """One stored row."""

    at: float
    values: dict[Metric, float]


@dataclass
class Ticket:
    """Says whether a blob is on disk."""

    store: "Store"

    def wait(self, _: float) -> bool:
        """Return whether the disk takes anything."""
        return self.store.writes


@dataclass
class Store:
    """A store in memory, that remembers from a moment on."""

    blobs: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    remembers: bool = True
    asked: list[tuple[float, float]] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)
    happened: list[Event] = field(default_factory=list)
    hangs: threading.Event | None = None
    fails: str = ""
    error: Exception = field(default_factory=KeyError)
    writes: bool = True

    def memory(self) -> Memory:
        """Return nothing."""
        return Memory([], [], [])

    def commit(self, *_: object, **__: object) -> None:
        """Take nothing in."""

    def attempted(self, *_: object) -> None:
        """Count nothing."""

    def load_state(self, name: str) -> tuple[int, bytes] | None:
        """Return a blob."""
        return self.blobs.get(name)

    def save_state(self, name: str, version: int, blob: bytes) -> Ticket:
        """Keep a blob."""
        self.blobs[name] = version, blob
        return Ticket(self)

    def events(self, since: float, until: float, limit: int = 1000, kinds: Collection[str] | None = None) -> list[Event]:
        """Return what happened in that time."""
        self._fail("events")
        return [event for event in self.happened if since <= event.at < until and (kinds is None or event.kind in kinds)]

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float) -> list[Row]:
        """Return the rows of that time."""
        assert subject is gpu.GPU
        self._fail("rows")
        self.asked.append((since, until))
        if self.hangs is not None:
            self.hangs.wait(PATIENCE)
        return [row for row in self.kept if since <= row.at < until]

    def _fail(self, what: str) -> None:
        if self.fails == what:
            raise self.error


class Nothing(msgspec.Struct):
    """The state of a detector that has none."""


class Listening:
    """A detector that notes what happened."""

    name = "listening"
    version = 1

    def __init__(self, seen: list[tuple[str, ...]]) -> None:
        self.seen = seen

    def initial(self) -> Nothing:
        """Return nothing."""
        return Nothing()

    def step(self, state: Nothing, view: View, wall: float) -> tuple[Nothing, Findings]:
        """Note the events of the beat."""
        self.seen.append(tuple(event.words for event in view.events))
        return state, Findings()


def nothing(since: float) -> Iterator[Dump]:
    """The kernel left nothing."""
    yield Dump()


def run(store: Store, *more: Listening, left: Callable[[float], Iterable[Dump]] = nothing) -> Remembering:
    """Begin a run."""
    clock = FakeClock()
    silences = Silences(store, clock, str, {})  # type: ignore[arg-type] # none is made
    notifier = Notifier(Channels({}), store, clock, "here", str, silences=silences)  # type: ignore[arg-type] # nobody is told
    return Remembering(
        lambda known: detectors.Runner((*detectors.build(Config(), known), *more)),
        boot="boot-1",
        left=left,
        store=store,
        engine=Engine(()),
        incidents=Incidents("here", str),
        notifier=notifier,
    )


def marked(store: Store, *, boot: str = "boot-0", clean: bool = False, at: float = 5_000.0) -> Store:
    """Have the mark of an earlier run in the store."""
    store.save_state("run", 1, json.dumps({"boot_id": boot, "clean": clean, "at": at}).encode())
    return store


def before(store: Store, boot: str, left: Callable[[float], Iterable[Dump]], patience: float = LOOKED_FOR) -> Before | None:
    """Return what is known of the last run."""
    known = last_run(store)
    if not has_died(known, boot):
        return known
    looks = Ending(store, known, left)
    looks.is_over(patience)
    return looks.found()


def test_nothing_is_saved_before_what_earlier_runs_left_is_taken_over() -> None:
    store = Store(remembers=False)
    here = run(store)
    here.recall(1, 1)
    here.save(1, 1)
    here.keep(["events"])
    assert store.blobs == {}
    store.remembers = True
    here.recall(2, 2)
    store.blobs.clear()
    here.keep(["events"])
    assert [*store.blobs] == ["detector.events"]
    here.save(2, 2)
    assert {"rules", "detector.inventory", "detector.reboot"} <= store.blobs.keys()


def test_the_mark_of_the_last_boot_stays_until_this_one_is_judged() -> None:
    store = marked(Store())
    here = run(store)
    here.recall(1, 6_000)
    here.save(1, 6_000)
    assert json.loads(store.blobs["run"][1])["boot_id"] == "boot-0"
    here._runner.states["reboot"].boot_id = "boot-1"
    here.save(2, 6_001)
    assert json.loads(store.blobs["run"][1]) == {"boot_id": "boot-1", "clean": False, "at": 6_001}


def test_a_run_that_is_ended_in_order_says_so_although_its_last_beat_is_late_or_never_ends() -> None:
    store = marked(Store())
    here = run(store)
    here.recall(1, 6_000)
    here.save(1, 6_000)
    here.leave(6_001)
    assert json.loads(store.blobs["run"][1])["boot_id"] == "boot-0"  # this boot has not been judged
    here = run(store)
    here.recall(1, 6_000)
    here._runner.states["reboot"].boot_id = "boot-1"
    here.save(2, 6_001)
    here.leave(6_002)
    assert json.loads(store.blobs["run"][1]) == {"boot_id": "boot-1", "clean": True, "at": 6_002}
    here.save(3, 6_003)  # the beat's own, late
    assert json.loads(store.blobs["run"][1]) == {"boot_id": "boot-1", "clean": True, "at": 6_003}


def test_the_last_sample_is_looked_for_around_the_last_mark_and_only_after_a_reboot_that_nobody_asked_for() -> None:
    power, core = gpu.POWER, gpu.TEMPERATURE["core"]
    rows = [Row(4_000, {power: 1.0}), Row(5_020, {power: 300.0, core: 70.0}), Row(5_020, {power: 310.0, core: 74.0})]
    for clean, boot in ((True, "boot-0"), (False, "boot-1")):
        store = marked(Store(kept=rows), clean=clean, boot=boot)
        assert (before(store, "boot-1", nothing), store.asked) == (Before(boot, clean, 5_000.0), [])
    store = marked(Store(kept=rows))
    assert before(store, "boot-1", nothing) == Before("boot-0", False, 5_020, 610.0, 74.0)
    assert store.asked == [(4_400.0, 5_300.0)]


def test_a_history_that_hangs_costs_the_last_sample_and_not_the_start() -> None:
    store = marked(Store(hangs=threading.Event()))
    assert before(store, "boot-1", nothing, patience=0.05) == Before("boot-0", False, 5_000.0, unsampled=LATE)
    assert store.hangs is not None
    store.hangs.set()


def test_a_pstore_that_hangs_is_said_to_be_unread_and_costs_no_sample() -> None:
    over = threading.Event()

    def hangs(since: float) -> Iterator[Dump]:
        over.wait(PATIENCE)
        yield Dump()

    store = marked(Store(kept=[Row(5_020, {gpu.POWER: 300.0})]))
    looks = Ending(store, Before("boot-0", False, 5_000.0), hangs)
    until(lambda: looks._told.is_over(0) and looks._rows.is_over(0))
    known = looks.found()
    over.set()
    assert known == Before("boot-0", False, 5_020.0, power_watts=300.0, unread=LATE)


@pytest.mark.parametrize(
    ("error", "why", "level"),
    [
        (KeyError("a bug"), "it could not be read (KeyError)", "ERROR"),
        (UnreadableError("the history cannot be read: it is corrupt"), "the history cannot be read: it is corrupt", "WARNING"),
    ],
)
def test_what_cannot_be_looked_for_has_a_reason_and_costs_nothing_else(
    error: Exception, why: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    losses: dict[str, dict[str, Any]] = {
        "left": {"crash": "", "unread": why},
        "events": {"errors": (), "unheard": why},
        "rows": {"at": 5_000.0, "power_watts": None, "unsampled": why},
    }
    whole = Before("boot-0", False, 5_020.0, power_watts=300.0, crash="Kernel panic", errors=("Xid 79 (GPU-5)",))
    for fails, lost in losses.items():
        kept, happened = [Row(5_020, {gpu.POWER: 300.0})], [xid(79, "GPU-5", 4_990.0)]
        store = marked(Store(fails=fails, error=error, kept=kept, happened=happened))
        assert before(store, "boot-1", partial(dumped, store)) == msgspec.structs.replace(whole, **lost)
    assert [record.levelname for record in caplog.records] == [level] * 3


def dumped(store: Store, since: float) -> Iterator[Dump]:
    """Yield what the kernel left, unless the test says that this fails."""
    store._fail("left")
    yield Dump("Kernel panic")


def test_beats_go_on_while_disk_and_pstore_hang_and_what_happens_meanwhile_is_judged_again() -> None:
    over, store, seen = threading.Event(), marked(Store(hangs=threading.Event())), list[tuple[str, ...]]()

    def hangs(since: float) -> Iterator[Dump]:
        over.wait(PATIENCE)
        yield Dump()

    here = run(store, Listening(seen), left=hangs)
    event = Event(source="kernel", kind="mce", severity=Severity.WARNING, at=0.0, words="told")
    for mono, events in ((0.0, (event,)), (LOOKED_FOR - 0.1, ())):
        here.recall(mono, 6_000 + mono)
        assert not here.is_whole
        here.run(View(mono, {}, events), mono)
        here.save(mono, mono)
    assert store.blobs.keys() == {"run"}  # that of the last boot
    here.recall(LOOKED_FOR, 6_000 + LOOKED_FOR)
    here.run(View(LOOKED_FOR, {}), LOOKED_FOR)
    assert (here.is_whole, seen, store.asked) == (True, [("told",), (), ("told",)], [(4_400.0, 5_300.0)])
    (reboot,) = [one for one in here._runner.detectors if isinstance(one, Reboot)]
    assert reboot.before == Before("boot-0", False, 5_000.0, unread=LATE, unsampled=LATE)
    over.set()
    assert store.hangs is not None
    store.hangs.set()


def test_what_was_found_before_a_pstore_hangs_is_known_and_that_it_may_not_be_all() -> None:
    over = threading.Event()

    def hangs(since: float) -> Iterator[Dump]:
        yield Dump("Kernel panic")
        over.wait(PATIENCE)

    looks = Ending(Store(), Before("boot-0", False, 5_000.0), hangs)
    until(lambda: looks.found().crash)
    known = looks.found()
    over.set()
    assert (known.crash, known.unread) == ("Kernel panic", "it could not be read in time")


def test_what_the_kernel_left_and_what_was_told_before_come_into_one() -> None:
    asked: list[float] = []

    def left(since: float) -> Iterator[Dump]:
        asked.append(since)
        yield Dump("Kernel panic", ("Xid 79 (0000:65:00.0)", "Xid 62 (0000:65:00.0)"))

    store = marked(Store())
    store.happened = [
        xid(79, "GPU-5", 4_990.0),
        xid(31, "GPU-4", 4_991.0),  # a program's
        xid(119, "GPU-3", 4_992.0, released="yes"),  # somebody's reset
        xid(74, "GPU-2", 3_000.0),  # long before
        told("mce", Severity.CRITICAL, 4_993.0, corrected="no"),
    ]
    assert before(store, "boot-1", left) == Before(
        "boot-0",
        False,
        5_000.0,
        crash="Kernel panic",
        errors=("Xid 79 (GPU-5)", "Xid 62 (0000:65:00.0)"),
        machine_check=True,
    )
    assert asked == [4_700.0]


def test_a_crash_that_is_found_is_an_event_once_a_boot() -> None:
    store, seen = marked(Store()), list[tuple[str, ...]]()

    def left(since: float) -> Iterator[Dump]:
        assert since == 4_700.0
        yield Dump("Kernel panic - not syncing: hung")

    for _ in range(2):
        here = run(store, Listening(seen), left=left)
        here.recall(1, 6_000)
        here.run(View(6_000.0, {}), 6_000)
        here._runner.states["reboot"].boot_id = "boot-1"
        here.save(2, 6_001)
    assert seen == [("before this boot: Kernel panic - not syncing: hung",), ()]


def test_what_happens_before_the_memory_can_be_read_is_judged_at_once_and_again_by_those_who_remember() -> None:
    store = Store(remembers=False)
    seen: list[tuple[str, ...]] = []
    started = run(store, Listening(seen))

    def beat(*words: str) -> None:
        started.recall(0.0, 0.0)
        events = tuple(Event(source="kernel", kind="mce", severity=Severity.WARNING, at=0.0, words=word) for word in words)
        started.run(View(0.0, {}, events), 0.0)

    beat("first")
    beat("second")
    store.remembers = True
    beat("third")
    beat("fourth")
    assert seen == [("first",), ("second",), ("first", "second", "third"), ("fourth",)]


def test_accounts_are_told_only_as_far_as_the_disk_has_them() -> None:
    store = Store(writes=False)
    here = run(store)
    here.recall(1, 1)
    (usage,) = [one for one in here._runner.detectors if isinstance(one, Usage)]
    assert usage.written == State()
    here._runner.states["usage"] = State({"GPU-1": Book(7.0)})
    here.save(2, 2)
    here.run(View(3, {}), 3)
    assert usage.written == State()
    store.writes = True
    here.run(View(4, {}), 4)
    assert usage.written is not None
    assert usage.written.gpus == {"GPU-1": Book(7.0)}


def test_counters_go_on_once_from_an_orderly_stop() -> None:
    store = Store()
    first = run(store)
    first.recall(1, 1)
    first._runner.states["accumulate"] = Sums({"GPU-1": {}})
    first.leave(2)
    first.save(2, 2)
    second, third = run(store), run(store)
    second.recall(3, 3)  # and is killed before it has saved anything
    third.recall(4, 4)
    assert (second._runner.states["accumulate"], third._runner.states["accumulate"]) == (Sums({"GPU-1": {}}), Sums())
