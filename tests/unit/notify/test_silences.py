"""The silences of a host: made, ended, bounded, restored."""

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue import own
from gpuwatch.model.silence import DAY, Made, Matcher, Silence
from gpuwatch.notify.silences import LIMIT, Silences
from gpuwatch.store.ulid import Ulid
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT
from tests.fakes.journal import Journal

GPU_3 = (Matcher(name="gpu", value="3"),)


class Host:
    """A host that is silenced now and then."""

    def __init__(self) -> None:
        self.clock, self.journal = FakeClock(), Journal()
        self.silences = self.again()

    def again(self) -> Silences:
        """Return the silences of a new run over the same disk."""
        made = Silences(self.journal, self.clock, Ulid(self.clock), {"rack": "A3"})
        made.restore(self.journal.memory().silences)
        return made

    def add(self, *matchers: Matcher, seconds: float = 3600.0) -> str:
        """Silence, and return the id."""
        kept = self.silences.add(matchers, seconds, author="lena", comment="")
        assert kept is not None
        return kept[0].id

    @property
    def maintenance(self) -> float:
        """What the page says."""
        (reading,) = self.silences.readings(self.clock.wall())
        return reading.values[own.MAINTENANCE_MODE]

    @property
    def silencing(self) -> list[str]:
        """What keeps HOT from being told."""
        return self.silences.silencing(HOT, self.clock.wall())


@pytest.fixture
def host() -> Host:
    """Return a host."""
    return Host()


def test_a_silence_holds_at_once_and_ends_by_itself(host: Host) -> None:
    identity = host.add(*GPU_3)
    assert host.silencing == [identity]
    host.clock.forward(3600)
    assert (host.silencing, host.silences.lasting(host.clock.wall())) == ([], [])
    assert [silence.id for silence in host.silences.known()] == [identity]


def test_a_silence_can_be_ended_and_says_by_whom(host: Host) -> None:
    identity = host.add()
    host.clock.forward(60)
    kept = host.silences.end(identity, by="root")
    assert kept is not None
    assert (kept[0].ended_by, kept[0].ends_at, kept[1]) == ("root", host.clock.wall(), True)
    assert host.silencing == []
    assert host.again().known() == [kept[0]]


def test_the_end_of_what_is_over_changes_nothing(host: Host) -> None:
    identity = host.add(seconds=10)
    before = host.silences.known()
    host.clock.forward(60)
    assert host.silences.end(identity, by="root") == (before[0], True)
    assert host.silences.known() == before


def test_what_is_not_known_cannot_be_ended(host: Host) -> None:
    assert host.silences.end("01HF0000000000000000000001", by="root") is None


def test_the_host_is_in_maintenance_while_all_of_it_is_silenced(host: Host) -> None:
    seen = [host.maintenance]
    host.add(*GPU_3)
    seen.append(host.maintenance)
    host.add(seconds=100)
    seen.append(host.maintenance)
    host.clock.forward(100)
    assert [*seen, host.maintenance] == [0.0, 0.0, 1.0, 0.0]


def test_one_that_others_hold_silences_beside_the_rest_and_is_not_remembered(host: Host) -> None:
    ends_at = host.clock.wall() + 60
    standing = Silence(id="release", matchers=GPU_3, starts_at=0, ends_at=ends_at, author="root", comment="")
    host.silences.hold(standing)
    assert (host.silencing, host.maintenance, host.again().known()) == (["release"], 0.0, [])
    host.silences.hold(None)
    assert host.silencing == []


def test_a_silence_outlives_the_run(host: Host) -> None:
    identity = host.add()
    host.silences = host.again()
    assert (host.silencing, host.maintenance) == ([identity], 1.0)


def test_what_is_restored_late_does_not_undo_what_this_run_has_said(host: Host) -> None:
    identity = host.add()
    (before,) = host.silences.known()
    host.silences.end(identity, by="root")
    host.silences.restore([before, replace(before, id="0")])
    assert [(silence.id, silence.ended_by) for silence in host.silences.known()] == [("0", ""), (identity, "root")]


def test_there_are_only_so_many_at_a_time_and_those_that_hold_are_never_forgotten(host: Host) -> None:
    first = host.add(seconds=1e6)
    for _ in range(5):
        for number in range(LIMIT - 1):
            host.add(Matcher(name="gpu", value=str(number)), seconds=10)
        assert host.silences.add((Matcher(name="gpu", value="x"),), 10, author="lena", comment="") is None
        assert host.add(seconds=1e6) == first  # which is one of them
        host.clock.forward(20)
    known = [silence.id for silence in host.silences.known()]
    assert (known[0], len(known) <= 4 * LIMIT) == (first, True)


@pytest.mark.parametrize("back", [2.0, 3600.0, 400 * DAY])
def test_a_clock_that_is_set_back_makes_no_silence_longer(host: Host, back: float) -> None:
    identity = host.add(*GPU_3)
    host.clock.forward(1000)
    host.clock.step(-back)
    assert host.silencing == [identity]
    (silence,) = host.silences.lasting(host.clock.wall())
    assert silence.ends_at - host.clock.wall() == 2600
    host.clock.forward(2599)
    assert host.silencing == [identity]
    host.clock.forward(1)
    assert (host.silencing, host.silences.known()[0].state(host.clock.wall())) == ([], "expired")


def test_a_silence_that_ended_by_its_length_stays_over_in_the_next_run_and_after_another_step(host: Host) -> None:
    identity = host.add()
    host.clock.step(-100 * DAY)
    host.clock.forward(3600)
    assert host.maintenance == 0.0
    host.silences = host.again()
    assert (host.maintenance, [silence.id for silence in host.silences.known()]) == (0.0, [identity])
    host.clock.step(-DAY)
    assert host.maintenance == 0.0


def test_a_silence_has_at_most_its_whole_length_before_it_after_a_restart(host: Host) -> None:
    identity = host.add()
    host.clock.step(-400 * DAY)
    host.silences = host.again()
    assert host.silencing == [identity]
    host.clock.forward(3600)
    assert host.silencing == []


def test_a_clock_that_jumps_forth_and_back_leaves_a_silence_as_it_was(host: Host) -> None:
    identity = host.add()
    host.clock.step(DAY)
    seen = [host.silencing]
    host.clock.step(-DAY)
    assert [*seen, host.silencing] == [[], [identity]]


def test_a_clock_that_is_slewed_leaves_the_end_where_it_was(host: Host) -> None:
    host.add()
    (made,) = host.silences.known()
    host.clock.step(-0.5)
    assert host.silences.known() == [made]


def test_it_says_whether_what_earlier_runs_left_is_known(host: Host) -> None:
    fresh = Silences(host.journal, host.clock, Ulid(host.clock), {})
    before = fresh.is_whole
    fresh.restore(())
    assert (before, fresh.is_whole) == (False, True)


def wished(host: Host, seconds: float, comment: str = "", *, author: str = "ann") -> Made:
    """Ask for one of GPU 3 and two labels in another order."""
    made = host.silences.add((*GPU_3, Matcher(name="rule", value="hot")), seconds, author=author, comment=comment)
    assert made is not None
    return made


def test_an_equal_silence_is_the_one_that_lasts_to_the_later_end(host: Host) -> None:
    first = wished(host, 600, "fans", author="lena")
    host.clock.forward(60)
    labels = (Matcher(name="rule", value="hot"), *GPU_3)
    shorter, longer = (host.silences.add(labels, seconds, author="ann", comment="") for seconds in (60, 7200))
    assert shorter == Made(first.silence, stored=True, already=True)
    expected = replace(first.silence, ends_at=host.clock.wall() + 7200, author="ann")
    assert longer == Made(expected, stored=True, already=True)
    assert (host.silences.known(), host.again().known()) == ([expected], [expected])
    host.clock.forward(7199)
    assert host.silences.lasting(host.clock.wall()) == [expected]
    host.clock.forward(1)
    assert host.silences.lasting(host.clock.wall()) == []


def test_a_silence_after_the_end_of_an_equal_one_is_another(host: Host) -> None:
    first = wished(host, 60)
    host.clock.forward(60)
    second = wished(host, 60)
    host.silences.end(second.silence.id, by="root")
    third = wished(host, 60)
    assert len({made.silence.id for made in (first, second, third)}) == 3
    assert not any(made.already for made in (first, second, third))


def test_one_that_lasts_on_by_the_monotonic_clock_is_made_no_shorter_by_an_equal_one(host: Host) -> None:
    first = wished(host, 3600)
    host.clock.step(-1000)
    again = wished(host, 600)
    assert (again.silence.id, again.silence.ends_at - host.clock.wall(), again.already) == (first.silence.id, 3600, True)


def test_one_that_was_prolonged_again_and_again_is_never_restored_for_longer_than_thirty_days(host: Host) -> None:
    for _ in range(3):
        host.add(*GPU_3, seconds=30 * DAY)
        host.clock.forward(20 * DAY)
    host.clock.step(-400 * DAY)
    host.silences = host.again()
    host.clock.forward(30 * DAY)
    assert host.silencing == []


def test_no_silence_is_longer_than_thirty_days(host: Host) -> None:
    host.add(seconds=1e12)
    assert host.silences.known()[0].ends_at == host.clock.wall() + 30 * 86400
