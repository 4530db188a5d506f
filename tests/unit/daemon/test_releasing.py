"""Letting go of the GPUs: what an outsider sees meanwhile, how it ends, and what of it survives."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gpuwatch.catalogue.derived import STATE
from gpuwatch.catalogue.gpu import DRIVER, DRIVER_STATE, POWER
from gpuwatch.daemon.attached import Card, Snapshot, changes, missing
from gpuwatch.daemon.releasing import GRACE, SUBJECTS, Releasing
from gpuwatch.detectors.detector import derived
from gpuwatch.model.alert import Severity
from gpuwatch.model.moment import stamp
from gpuwatch.model.reading import Absence, Fault
from gpuwatch.model.target import Target
from tests.fakes.letting_go import A, B, Host
from tests.fakes.until import PATIENCE, until


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host with a daemon that has just started."""
    with ExitStack() as stack:
        yield Host(stack)


def test_while_released_the_workers_rest_with_the_rules_and_what_was_read_counts_as_released(host: Host) -> None:
    host.shows(A)
    answer = host.releasing.release(60, "root")
    assert (answer["already"], answer["stuck"], answer["stored"], answer["state"]) == (False, [], True, "released")
    assert (host.crew.is_paused, host.told.resting, host.told.standing is not None) == (True, SUBJECTS, True)
    host.post(A, {POWER: 1.0})  # what a worker that was ended had still under way
    entry = host.board.view(host.clock.wall(), host.clock.mono()).entries[A]
    assert (dict(entry.values), entry.absent[POWER], entry.readings) == ({}, Absence.RELEASED, ())
    assert host.driver() == "released"


def test_a_worker_that_is_stuck_in_the_driver_is_named(host: Host) -> None:
    host.crew.is_stuck = True
    ticking = threading.Timer(0.2, lambda: host.clock.forward(3))
    ticking.start()
    assert host.releasing.release(60, "root")["stuck"] == ["gpuwatch-nvml (pid 4711)"]
    ticking.join()


def test_a_worker_that_is_started_when_the_release_has_ended_is_not_taken_for_a_stuck_one(host: Host) -> None:
    host.crew.is_stuck = True
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(host.releasing.release(60, "root")))
    asking.start()
    until(lambda: host.crew.is_paused)
    host.releasing.resume("root")
    assert host.crew.pids() == [4711]  # the clock stands still: who does not see the end would wait for ever
    asking.join(PATIENCE)
    assert [(one["stuck"], one["state"]) for one in answers] == [([], "attaching")]


def test_a_release_ends_by_its_time_and_tells_once_what_there_is(host: Host) -> None:
    host.shows(A, B)
    host.releasing.release(60, "root")
    host.clock.forward(61)
    host.until("attaching")
    # Until they answer, what was wrong with them before is no news: their alerts rest on.
    assert (host.crew.is_paused, host.told.resting, host.told.standing) == (False, SUBJECTS, None)
    assert host.driver() == ""
    host.shows(A, B)
    for _ in range(3):
        host.beat()
    assert host.told.resting == frozenset()
    (event,) = host.events
    assert (event.kind, event.words, event.facts["ended_by"]) == ("resumed", "driver 535.154.05, 2 GPUs, same UUIDs", "its time")
    assert host.releasing.state() == {"state": "attached", "found": event.words, "is_back": True, "missing": []}
    host.restart()
    assert host.state() == "attached"


def test_the_beginning_of_a_release_is_told_once_with_who_wants_it_and_until_when(host: Host) -> None:
    host.shows(A, B)
    began = host.clock.wall()
    host.releasing.release(60, "ro\x1bot")
    host.releasing.release(90, "lena", "hold")
    host.restart()
    host.releasing.resume("root")
    host.clock.forward(5)
    host.releasing.release(60, "lena")  # another one, before the end of the first was told
    first, again, second = host.happened
    assert again == first  # the restart may have cost it, and the history has it once
    words = f"until {stamp(began + 60)} by ro\\x1bot"
    assert (first.kind, first.subject, first.severity, first.at, first.words) == (
        "released",
        "driver",
        Severity.INFO,
        began,
        words,
    )
    assert first.facts == {"by": "ro\x1bot", "driver": "535.154.05", "gpus": "2"}
    assert (second.kind, second.at, second.facts["by"]) == ("released", began + 5, "lena")


def test_a_second_release_makes_it_longer_and_never_shorter(host: Host) -> None:
    host.releasing.release(3600, "root")
    ends = host.clock.wall() + 3600
    assert host.releasing.release(60, "lena")["until"] == ends
    answer = host.releasing.release(7200, "lena")
    assert (answer["already"], answer["until"], answer["by"]) == (True, ends + 3600, "root")


def test_while_an_installer_is_at_work_it_lasts_on_in_steps(host: Host) -> None:
    host.installer = "nvidia-installe (pid 7)"
    host.releasing.release(60, "root")
    for _ in range(3):
        host.clock.forward(GRACE + 1)
        until(lambda: host.releasing.state()["until"] > host.clock.wall())
        assert (host.state(), host.releasing.state()["waits_for"]) == ("released", "nvidia-installe (pid 7)")
    host.installer = ""
    host.clock.forward(GRACE + 1)
    host.until("attaching")


def test_when_the_last_release_was_is_known_for_good(host: Host) -> None:
    assert host.span() == (None, None)
    host.shows(A)
    began = host.clock.wall()
    host.releasing.release(60, "root")
    assert host.span() == (began, None)
    host.restart()
    assert host.span() == (began, None)
    host.clock.forward(30)
    host.releasing.resume("root")
    assert host.span() == (began, began + 30)
    host.clock.forward(61)  # nothing comes back: the attaching is given up
    host.beat()
    assert (host.state(), host.span()) == ("attached", (began, began + 30))
    host.restart()
    assert (host.state(), host.span(), host.crew.is_paused) == ("attached", (began, began + 30), False)
    host.clock.forward(100)
    host.releasing.release(60, "root")
    assert host.span() == (began + 191, None)


def test_a_clock_that_is_set_back_meanwhile_takes_the_start_along(host: Host) -> None:
    host.releasing.release(600, "root")
    host.clock.step(-3600)
    now = host.clock.wall()
    assert host.span() == (now, None)
    host.releasing.resume("root")
    assert host.span() == (now, now)


def test_a_clock_that_is_set_meanwhile_makes_the_time_of_a_release_no_longer_and_no_shorter(host: Host) -> None:
    host.releasing.release(600, "root")
    for step in (3600.0, -7200.0):
        host.clock.forward(10)
        host.clock.step(step)
    ends = host.clock.wall()
    assert host.span() == (ends - 20, None)
    host.releasing.resume("root")
    assert host.span() == (ends - 20, ends)


@pytest.mark.parametrize("is_told", [False, True])
def test_a_clock_that_goes_back_behind_the_end_of_a_release_makes_its_time_void_for_good(host: Host, *, is_told: bool) -> None:
    began = host.clock.wall()
    host.releasing.release(600, "root")
    host.clock.forward(30)
    host.releasing.resume("root")
    host.clock.forward(61 if is_told else 1)
    assert (host.span(), host.state()) == ((began, began + 30), "attached" if is_told else "attaching")
    host.clock.step(-80 if is_told else -2)
    assert host.span() == (None, None)
    host.clock.forward(100)
    assert host.span() == (None, None)
    host.restart()
    assert host.span() == (None, None)


def test_a_clock_that_goes_back_while_nobody_looks_makes_it_void_too(host: Host) -> None:
    host.releasing.release(600, "root")
    host.clock.forward(30)
    host.releasing.resume("root")
    host.clock.forward(61)
    host.beat()
    host.releasing.stop()
    host.clock.step(-80)
    host.restart()
    assert (host.state(), host.span()) == ("attached", (None, None))


@pytest.mark.parametrize("step", [-86400.0, 86400.0])
def test_it_lasts_as_long_as_it_was_made_for_whatever_the_wall_clock_does(host: Host, step: float) -> None:
    host.releasing.release(600, "root")
    host.clock.step(step)
    host.clock.forward(590)
    assert host.state() == "released"
    host.clock.forward(20)
    host.until("attaching")


def test_released_stays_released_over_a_restart_until_its_time(host: Host) -> None:
    host.shows(A)
    host.releasing.release(600, "root")
    host.clock.forward(300)
    host.restart()
    assert (host.state(), host.crew.is_paused, host.told.resting) == ("released", True, SUBJECTS)
    host.clock.forward(301)
    host.until("attaching")
    host.shows(B, driver="550.90.07")
    host.clock.forward(1)
    host.beat()
    (event,) = host.events
    gone = "driver 535.154.05 -> 550.90.07, 1 GPU, gone: GPU 0 GPU-0, new: GPU 1 GPU-1"
    assert (event.kind, event.words) == ("driver_changed", gone)
    assert host.releasing.state()["missing"] == ["GPU-0"]


def test_a_restart_that_cannot_read_its_disk_lets_go_once_it_can(host: Host) -> None:
    host.releasing.release(600, "root")
    host.disk.remembers = False
    host.restart()
    assert (host.state(), host.crew.is_paused) == ("unknown", False)
    host.disk.remembers = True
    host.until("released")
    assert host.crew.is_paused


def test_what_this_run_was_told_stands_against_what_an_earlier_one_left(host: Host) -> None:
    host.releasing.release(600, "root")
    host.disk.remembers = False
    host.restart()
    assert host.state() == "unknown"
    host.releasing.resume("root")
    assert host.state() == "attached"
    host.disk.remembers = True
    host.restart()
    assert (host.state(), host.crew.is_paused) == ("attached", False)


def test_that_a_resume_is_not_stored_is_said_until_it_is(host: Host) -> None:
    assert host.releasing.resume("root")["stored"]
    host.shows(A)
    host.releasing.release(600, "root")
    host.disk.takes = False
    assert host.releasing.resume("root")["stored"] is False
    assert host.releasing.resume("root")["stored"] is False
    host.shows(A)
    host.beat()
    assert (host.state(), host.releasing.resume("root")["stored"]) == ("attached", False)
    host.disk.takes = True
    assert host.releasing.resume("root")["stored"]
    host.restart()
    assert host.state() == "attached"


@pytest.mark.parametrize("kept", [(2, b"x"), (1, b"x"), (1, b"\x80")])
def test_a_release_that_cannot_be_read_is_none(host: Host, kept: tuple[int, bytes]) -> None:
    host.disk.kept["release"] = kept
    host.restart()
    assert (host.state(), host.crew.is_paused) == ("attached", False)


def test_a_driver_that_does_not_come_back_is_told_of_as_it_is(host: Host) -> None:
    host.shows(A)
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    gone = Fault("not_loaded", "the nvidia kernel module is not loaded")
    host.post(Target(subject=DRIVER, key=""), DRIVER_STATE.at("not_loaded"), fault=gone)
    host.beat()
    assert host.events == []
    host.clock.forward(61)
    host.post(Target(subject=DRIVER, key=""), DRIVER_STATE.at("not_loaded"), fault=gone)
    host.beat()
    (event,) = host.events
    words = "the driver is not back (not_loaded): the nvidia kernel module is not loaded"
    assert (event.kind, event.severity, event.words) == ("not_resumed", Severity.WARNING, words)
    assert host.releasing.state() == {"state": "attached", "found": words, "is_back": False, "missing": []}
    host.shows(A)
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.shows(A)
    host.beat()
    assert (host.events[-1].kind, host.events[-1].severity, host.releasing.state()["is_back"]) == ("resumed", Severity.INFO, True)


def test_a_driver_that_never_was_is_not_waited_for_once_it_says_so(host: Host) -> None:
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.beat()
    assert (host.state(), host.events) == ("attaching", [])
    host.post(Target(subject=DRIVER, key=""), DRIVER_STATE.at("no_library"), fault=Fault("no_library", "no libnvidia-ml.so.1"))
    host.beat()
    words = "the driver is not there, as before (no_library): no libnvidia-ml.so.1"
    assert (host.state(), [event.words for event in host.events]) == ("attached", [words])


def test_gpus_that_come_one_by_one_are_waited_for(host: Host) -> None:
    host.shows(A, B)
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.shows(A)
    host.beat()
    assert host.events == []
    host.shows(A, B, mig={"GPU-0": ["3g.20gb", "1g.5gb", "1g.5gb"]})
    host.beat()
    words = "driver 535.154.05, 2 GPUs, same UUIDs, MIG of GPU 0 none -> 2 x 1g.5gb + 1 x 3g.20gb"
    assert [event.words for event in host.events] == [words]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_gpu_that_was_lost_before_and_still_is_is_not_passed_over(host: Host, *, is_listed: bool) -> None:
    def stays_away() -> None:
        if is_listed:
            host.post(B, {}, fault=Fault("lost", "it has fallen off the bus"))
        else:
            host.board.post(derived(B, STATE.at("missing"), {}, host.clock.wall()), host.clock.mono())

    host.shows(A)
    stays_away()
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.shows(A)
    stays_away()
    host.beat()
    assert [event.words for event in host.events] == ["driver 535.154.05, 1 GPU, same UUID, lost as before: GPU 1 GPU-1"]
    assert host.releasing.state()["missing"] == ["GPU-1"]


ONE = {"u": Card("0", "94.02", ())}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            Snapshot("1", ONE),
            Snapshot("1", {"u": Card("0", "94.03", ())}),
            "driver 1, 1 GPU, same UUID, VBIOS of GPU 0 94.02 -> 94.03",
        ),
        (Snapshot("1", ONE), Snapshot("2", {}), "driver 1 -> 2, 1 -> no GPU, gone: GPU 0 u"),
        (Snapshot(), Snapshot("2", ONE), "driver 2, 1 GPU"),
        (Snapshot(), Snapshot(), "driver of unknown version, no GPU"),
        (Snapshot("1", ONE), Snapshot("1", ONE, {"w": "1"}), "driver 1, 1 GPU, same UUID, lost: GPU 1 w"),
        (
            Snapshot("1", ONE, {"w": "1"}, {"w": "0000:41:00.0"}),
            Snapshot("1", ONE, {"0000:41:00.0": "1"}, {"0000:41:00.0": "0000:41:00.0"}),
            "driver 1, 1 GPU, same UUID, lost as before: GPU 1 0000:41:00.0",
        ),
        (
            Snapshot("1", ONE, {}, {"u": "0000:40:00.0"}),
            Snapshot("1", {}, {"0000:40:00.0": "0"}, {"0000:40:00.0": "0000:40:00.0"}),
            "driver 1, 1 -> no GPU, gone: GPU 0 u",
        ),
    ],
)
def test_what_has_changed_is_said_in_words(before: Snapshot, after: Snapshot, words: str) -> None:
    assert changes(before, after) == words


def test_a_gpu_is_missing_once_however_it_is_known() -> None:
    """By its UUID before, and by its place after: it is one card."""
    before = Snapshot("1", ONE, {}, {"u": "0000:40:00.0"})
    after = Snapshot("1", {}, {"0000:40:00.0": "0", "w": "1"}, {"0000:40:00.0": "0000:40:00.0", "w": "0000:41:00.0"})
    assert missing(before, after) == ["u", "w"]


def test_a_bug_in_asking_for_installers_does_not_end_the_watch(host: Host) -> None:
    calls: list[int] = []

    def broken() -> str:
        calls.append(1)
        raise SystemExit("broken")

    host.releasing.stop()
    host.releasing = Releasing(
        [host.crew],
        board=host.board,
        engine=host.told,
        silences=host.told,
        store=host.disk,
        clock=host.clock,
        happened=host.happened.append,
        at_work=broken,
    )
    host.releasing.start()
    host.releasing.release(1, "root")
    host.clock.forward(2)
    until(lambda: calls)
    assert host.releasing.resume("root")["was_released"]
    host.releasing.stop()
