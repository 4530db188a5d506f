"""A release that comes before the alert memory can be read, or before the driver has answered."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gpuwatch.catalogue.gpu import DRIVER, DRIVER_STATE
from gpuwatch.daemon.attached import SETTLE
from gpuwatch.model.target import Target
from tests.fakes.letting_go import A, B, Host


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host with a daemon that has just started."""
    with ExitStack() as stack:
        yield Host(stack)


def come_back(host: Host, *cards: Target) -> None:
    """These come back under a new driver, and others are not waited for any longer."""
    for _ in range(2):
        host.shows(*cards, driver="550.90.07")
        host.beat()
        host.clock.forward(SETTLE + 1)


@pytest.mark.parametrize(("again", "by"), [(60, "root"), (7200, "lena")])
def test_what_is_asked_for_before_the_memory_can_be_read_becomes_one_with_what_an_earlier_run_left(
    host: Host, again: int, by: str
) -> None:
    host.shows(A, B)
    began = host.clock.wall()
    host.releasing.release(3600, "root")
    host.disk.remembers = False
    host.clock.forward(300)
    host.restart()
    assert (host.state(), host.crew.is_paused) == ("unknown", False)
    answer = host.releasing.release(again, "lena", "a")
    assert (answer["state"], answer["stored"], host.crew.is_paused) == ("released", False, True)
    host.disk.remembers = True
    host.until_began(began)
    assert host.lasts() == ("released", max(3300, again), by)
    host.restart()
    assert (host.lasts(), host.span()) == (("released", max(3300, again), by), (began, None))
    host.releasing.resume("lena")
    come_back(host, A)
    (event,) = host.events
    gone = "driver 535.154.05 -> 550.90.07, 2 -> 1 GPU, gone: GPU 1 GPU-1"
    assert (event.kind, event.words) == ("driver_changed", gone)


def test_a_command_that_ends_before_the_memory_can_be_read_has_ended(host: Host) -> None:
    host.shows(A)
    host.releasing.release(3600, "root", "a")
    host.disk.remembers = False
    began = host.clock.wall()
    host.clock.forward(100)
    host.restart()
    answer = host.releasing.resume("root", "a")
    assert (answer["state"], answer["stored"]) == ("unknown", False)
    host.disk.remembers = True
    host.until("attaching")
    assert host.span() == (began, began + 100)
    come_back(host, A)
    assert [event.words for event in host.events] == ["driver 535.154.05 -> 550.90.07, 1 GPU, same UUID"]
    host.restart()
    assert host.state() == "attached"


def test_a_command_that_ends_then_leaves_what_others_want_of_the_earlier_run(host: Host) -> None:
    host.releasing.release(3600, "root", "a")
    host.releasing.release(600, "lena")
    host.disk.remembers = False
    host.restart()
    host.releasing.resume("root", "a")
    host.disk.remembers = True
    host.until("released")
    assert host.lasts() == ("released", 600, "lena")


def test_a_release_that_was_over_by_then_does_not_end_that_of_the_earlier_run(host: Host) -> None:
    host.releasing.release(3600, "root")
    host.disk.remembers = False
    host.restart()
    host.releasing.release(60, "lena")
    host.clock.forward(61)
    host.until("attaching")
    host.disk.remembers = True
    host.until("released")
    assert (host.lasts(), host.crew.is_paused) == (("released", 3539, "root"), True)


def test_a_person_who_resumes_after_it_ends_that_of_the_earlier_run_too(host: Host) -> None:
    host.releasing.release(3600, "root")
    host.disk.remembers = False
    host.restart()
    host.releasing.release(60, "lena")
    host.clock.forward(61)
    host.until("attaching")
    host.releasing.resume("lena")
    host.disk.remembers = True
    host.beat()
    assert (host.state(), host.crew.is_paused) == ("attaching", False)


def test_what_is_owed_of_an_earlier_run_is_told_by_the_release_that_came_before_it_was_read(host: Host) -> None:
    host.shows(A)
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.disk.remembers = False
    host.restart()
    host.releasing.release(600, "lena")
    host.disk.remembers = True
    host.releasing.readings(host.clock.wall())
    host.releasing.resume("lena")
    come_back(host, A)
    assert [event.words for event in host.events] == ["driver 535.154.05 -> 550.90.07, 1 GPU, same UUID"]


@pytest.mark.parametrize("late", [False, True])
def test_a_release_before_the_first_answer_of_the_driver_compares_with_what_was_seen_last(host: Host, *, late: bool) -> None:
    host.shows(A, B)
    host.beat()
    host.disk.remembers = not late
    host.restart()
    host.releasing.release(600, "root")
    host.disk.remembers = True
    host.beat()
    host.releasing.resume("root")
    come_back(host, A)
    (event,) = host.events
    assert (event.kind, event.words.partition(",")[0]) == ("driver_changed", "driver 535.154.05 -> 550.90.07")
    host.restart()  # and what was seen then is known to the next
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    come_back(host, A)
    assert [one.kind for one in host.events] == ["driver_changed", "resumed"]


def test_another_driver_makes_what_was_seen_last_void_though_not_all_gpus_have_answered(host: Host) -> None:
    host.shows(A, B)
    host.beat()
    host.restart()
    host.post(Target(subject=DRIVER, key="", info={"driver_version": "550.90.07"}), DRIVER_STATE.at("ok"))
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.shows(A, B, driver="550.90.07")
    host.beat()
    assert [one.kind for one in host.events] == ["resumed"]


@pytest.mark.parametrize("kept", [(2, b"x"), (1, b"x"), (1, b"\x80")])
def test_what_was_seen_and_cannot_be_read_is_nothing(host: Host, kept: tuple[int, bytes]) -> None:
    host.disk.kept["attached"] = kept
    host.restart()
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.shows(A)
    host.beat()
    assert [one.words for one in host.events] == ["driver 535.154.05, 1 GPU"]
