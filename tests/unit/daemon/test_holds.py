"""Several want the GPUs released at once: it lasts until nobody does any more."""

from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import pytest

from gpuwatch.daemon.attached import Snapshot
from gpuwatch.daemon.kept import PEOPLE, VERSION, Hold, Kept, left, read
from gpuwatch.daemon.releasing import HOLDS, SUBJECTS
from tests.fakes.letting_go import A, Host
from tests.fakes.until import until


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host with a daemon that has just started."""
    with ExitStack() as stack:
        yield Host(stack)


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("restarts", [False, True])
def test_of_several_commands_the_last_to_end_gives_the_gpus_back(host: Host, first: str, *, restarts: bool) -> None:
    host.releasing.release(1800, "ann", "a")
    host.clock.forward(2)
    host.releasing.release(1800, "bob", "b")
    host.clock.forward(2)
    host.releasing.resume("x", first)
    assert host.lasts() == (("released", 1798, "bob") if first == "a" else ("released", 1796, "ann"))
    assert (host.crew.is_paused, host.told.resting) == (True, SUBJECTS)
    if restarts:
        host.restart()
    assert host.releasing.resume("x", first)["is_known"] is False  # twice is once
    assert host.state() == "released"
    answer = host.releasing.resume("x", "b" if first == "a" else "a")
    assert (answer["was_released"], answer["stored"], host.state()) == (True, True, "attaching")
    assert host.releasing.resume("x", "b" if first == "a" else "a")["is_known"]  # and is waited for by whoever had it


def test_a_clock_that_is_set_back_makes_no_hold_longer_than_it_was_asked_for(host: Host) -> None:
    host.releasing.release(60, "root", "a")
    host.clock.forward(50)
    host.releasing.release(60, "ann", "b")
    host.clock.step(-40)
    host.restart()
    assert host.lasts() == ("released", 60, "ann")


def test_the_end_of_a_command_does_not_end_what_a_person_has_asked_for_meanwhile(host: Host) -> None:
    host.releasing.release(1800, "root", "a")
    host.clock.forward(2)
    host.releasing.release(8 * 3600, "lena")
    host.releasing.resume("root", "a")
    assert host.lasts() == ("released", 8 * 3600, "lena")
    host.releasing.release(24 * 3600, "root", "b")
    host.releasing.resume("root", "b")  # and a longer one of a command leaves it as long as it was
    assert host.lasts() == ("released", 8 * 3600, "lena")
    host.clock.forward(8 * 3600 + 1)
    host.until("attaching")


def test_a_person_ends_what_commands_want_and_their_ends_do_nothing_to_the_next_release(host: Host) -> None:
    host.releasing.release(1800, "root", "a")
    host.releasing.release(1800, "root", "b")
    host.releasing.resume("lena")
    assert host.state() == "attaching"
    host.releasing.release(600, "lena")
    for hold in ("a", "b"):
        assert host.releasing.resume("root", hold)["state"] == "released"
    assert host.lasts() == ("released", 600, "lena")


def test_a_command_whose_time_is_over_is_waited_for_by_nobody(host: Host) -> None:
    host.releasing.release(60, "root", "killed")
    host.releasing.release(600, "root", "a")
    host.clock.forward(61)
    host.releasing.resume("root", "a")
    assert host.state() == "attaching"


def test_while_an_installer_is_at_work_the_end_of_the_only_command_ends_it_at_once(host: Host) -> None:
    host.installer = "a package manager"
    host.releasing.release(60, "root", "apt")
    host.clock.forward(61)
    until(lambda: host.releasing.state()["waits_for"])
    host.restart()
    assert host.releasing.state()["waits_for"] == "a package manager"
    host.releasing.resume("root", "apt")
    assert host.state() == "attaching"


@pytest.mark.parametrize("settles", [False, True])
def test_a_release_that_follows_another_knows_when_that_was_over_a_restart_too(host: Host, settles: bool) -> None:
    host.shows(A)
    began = host.clock.wall()
    host.releasing.release(600, "root", "a")
    host.clock.forward(3)
    host.releasing.resume("root", "a")
    if settles:
        host.clock.forward(1)
        host.shows(A)
        host.beat()
        assert host.state() == "attached"
    after = host.clock.wall()
    host.releasing.release(600, "root", "b")
    for _ in range(2):
        assert (host.span(), host.before()) == ((after, None), (began, began + 3))
        host.restart()
    host.clock.step(-100)  # the time of the earlier one comes once more
    assert host.before() == (None, None)


def test_a_release_long_after_another_has_nothing_to_do_with_it(host: Host) -> None:
    host.shows(A)
    host.releasing.release(600, "root")
    host.releasing.resume("root")
    host.clock.forward(61)
    host.beat()
    host.releasing.release(600, "root")
    assert host.before() == (None, None)


def test_an_installer_prolongs_no_hold_that_was_over_before(host: Host) -> None:
    host.installer = "a package manager"
    host.releasing.release(60, "ann")
    host.releasing.release(600, "root", "apt")
    host.clock.forward(601)
    until(lambda: host.releasing.state()["waits_for"])
    assert host.lasts() == ("released", 300, "root")
    host.releasing.resume("root", "apt")
    assert host.state() == "attaching"


def test_holds_are_bounded_and_those_beyond_last_until_their_time(host: Host) -> None:
    for number in range(HOLDS + 5):
        host.releasing.release(600, "root", str(number))
    for number in range(HOLDS + 5):
        host.releasing.resume("root", str(number))
    assert host.state() == "released"
    host.clock.forward(601)
    host.until("attaching")


def test_a_stored_release_that_does_not_say_when_its_ends_were_settled_had_them_from_its_start() -> None:
    kept = Kept(since=1_000.0, holds={PEOPLE: Hold("root", 1_600.0)}, before=Snapshot())
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=dict[str, object])
    del stored["settled_at"]
    found = read((VERSION, msgspec.msgpack.encode(stored)))
    assert found is not None
    assert left(found, 400.0) == {PEOPLE: 600.0}  # the clock was set back: not 1,200 s
    assert left(found, 1_100.0) == {PEOPLE: 500.0}
