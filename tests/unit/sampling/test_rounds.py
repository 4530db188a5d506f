"""What is done about short-lived workers, told as stories on a clock of its own."""

import logging

import pytest

from gpuwatch.model.reading import Tier
from gpuwatch.sampling.events import (
    Action,
    Answered,
    Asked,
    Broke,
    Dismiss,
    Ended,
    Erred,
    Event,
    Found,
    Heard,
    Kill,
    Patience,
    Pause,
    Question,
    Reason,
    Report,
    Say,
    Start,
    Tick,
    Wanted,
)
from gpuwatch.sampling.rounds import State, decide, due, report

PATIENCE = Patience(deadline=10, start=30)
ALL = ("pci", "filesystem", "hwmon")


class Story:
    """The rounds of one probe."""

    def __init__(self, *sources: str) -> None:
        self.now = 1000.0
        self.state = State(name="gpuwatch-probe", sources=sources or ALL)
        self.log: list[tuple[int, str]] = []

    def on(self, event: Event, after: float = 0.0) -> list[Action]:
        """Let time pass, then something happen; return what is done beside the log."""
        self.now += after
        self.state, actions = decide(self.state, event, self.now, PATIENCE)
        self.log += [(action.level, action.text % action.arguments) for action in actions if isinstance(action, Say)]
        return [action for action in actions if not isinstance(action, Say)]

    def ask(self) -> list[Action]:
        """The schedule asks."""
        return self.on(Asked(Tier.SLOW))

    def touch(self, source: str, *items: str, after: float = 0.0) -> None:
        """The worker begins a source and touches these items, one after the other."""
        for item in ("", *items):
            self.on(Heard(self.state.worker, source, item, begins=True), after)

    def got(self, source: str, item: str, after: float = 0.0) -> None:
        """The worker gives the reading of an item."""
        self.on(Heard(self.state.worker, source, item, begins=False), after)

    def done(self, after: float = 0.0) -> list[Action]:
        """The worker has read everything and ends."""
        worker = self.state.worker
        actions = self.on(Answered(worker, self.state.number), after)
        self.on(Ended(worker, 0))
        return actions

    def hang(self) -> int:
        """Nothing comes any more until the worker is killed; return which one."""
        (kill,) = self.on(Tick(), due(self.state, PATIENCE) - self.now)
        assert isinstance(kill, Kill)
        return kill.worker

    def report(self) -> Report:
        """Return what is told."""
        return report(self.state, self.now)


def test_a_round_is_read_by_a_process_of_its_own() -> None:
    story = Story()
    assert [Start(1, ALL), Question(1, 1, Tier.SLOW)] == story.ask()
    story.touch("pci", "0000:65:00.0")
    assert [Dismiss(1)] == story.done()
    assert [Start(2, ALL), Question(2, 2, Tier.SLOW)] == story.ask()


def test_a_round_under_way_is_not_joined_by_another() -> None:
    story = Story()
    story.ask()
    assert story.ask() == []


def test_each_sign_of_life_gives_the_deadline_anew() -> None:
    story = Story()
    story.ask()
    for number in range(15):
        story.on(Heard(1, "filesystem", f"/{number}", begins=True), 9)
        assert story.on(Tick()) == []
    assert story.on(Tick(), 9.9) == []
    assert [Kill(1)] == story.on(Tick(), 0.1)


def test_signs_of_life_without_an_end_are_a_hang_too() -> None:
    story = Story()
    story.ask()
    for _ in range(199):
        story.on(Heard(1, "filesystem", "/", begins=True), 1)
        assert story.on(Tick()) == []
    assert [Kill(1)] == story.on(Tick(), 1)


def test_what_a_killed_round_had_not_reached_is_read_by_a_fresh_process_without_the_item_that_hung() -> None:
    story = Story()
    story.ask()
    story.touch("pci", "0000:65:00.0")
    story.touch("filesystem", "/", "/data")
    assert story.hang() == 1
    assert [Start(2, ("filesystem", "hwmon")), Question(2, 2, Tier.SLOW, ("filesystem:/data",))] == story.on(Ended(1, -9), 0.1)
    story.touch("filesystem", "/")
    story.touch("hwmon", "k10temp")
    story.done()
    assert {source: standing.success for source, standing in story.report().standings.items()} == {
        "pci": True,
        "filesystem": True,
        "hwmon": True,
    }


def test_an_item_that_hung_is_tried_again_once_its_process_is_gone() -> None:
    story = Story()
    story.ask()
    story.touch("filesystem", "/data")
    story.hang()
    story.on(Ended(1, -9))
    story.done()
    assert [Start(3, ALL), Question(3, 3, Tier.SLOW)] == story.ask()


def test_an_item_in_which_a_process_is_stuck_is_left_alone_until_that_is_gone() -> None:
    story = Story()
    story.ask()
    story.touch("filesystem", "/data")
    story.hang()
    assert story.on(Tick(), 1.9) == []
    skip = ("filesystem:/data",)
    assert [Start(2, ("filesystem", "hwmon")), Question(2, 2, Tier.SLOW, skip)] == story.on(Tick(), 0.1)
    story.done()
    for number in (3, 4):
        assert [Start(number, ALL), Question(number, number, Tier.SLOW, skip)] == story.ask()
        story.done()
    story.on(Ended(1, -9))
    assert [Start(5, ALL), Question(5, 5, Tier.SLOW)] == story.ask()


def test_a_mount_that_hangs_for_a_day_is_said_once_and_once_more_when_it_is_well() -> None:
    story = Story()
    for _ in range(1440):
        story.ask()
        story.touch("filesystem", "/data", after=0.1)
        story.on(Ended(story.hang(), -9))
        assert story.report().standings["filesystem"].hung
        story.done()
    story.now += 60
    story.ask()
    story.touch("filesystem", "/data", "/", after=1)
    story.done()
    assert story.log == [
        (
            logging.WARNING,
            (
                "gpuwatch-probe: filesystem /data does not return (killed by SIGKILL); "
                "it is left out and the rest is read without it"
            ),
        ),
        (logging.INFO, "gpuwatch-probe: filesystem /data is well again, or gone, after 14751 s"),
    ]
    assert not story.report().standings["filesystem"].hung
    assert story.report().restarts[Reason.HANG] == 1440


def test_a_source_that_hangs_before_its_first_item_is_left_out_as_a_whole() -> None:
    story = Story()
    story.ask()
    story.touch("pci", "0000:65:00.0")
    story.touch("filesystem")
    story.hang()
    assert [Start(2, ("hwmon",)), Question(2, 2, Tier.SLOW)] == story.on(Ended(1, -9))
    story.done()
    assert {source: standing.success for source, standing in story.report().standings.items()} == {
        "pci": True,
        "filesystem": False,
        "hwmon": True,
    }
    assert story.report().problem == "filesystem does not return"


def test_a_source_that_holds_a_process_as_a_whole_is_not_asked() -> None:
    story = Story()
    story.ask()
    story.touch("filesystem")
    story.hang()
    story.on(Tick(), 2)
    story.done()
    assert [Start(3, ("pci", "hwmon")), Question(3, 3, Tier.SLOW)] == story.ask()


def test_a_single_source_is_to_blame_from_the_start() -> None:
    story = Story("smart")
    story.ask()
    story.hang()
    assert story.on(Ended(1, -9)) == []
    assert (story.report().problem, story.report().standings["smart"].success) == ("smart does not return", False)


def test_after_its_reading_an_item_is_no_more_to_blame() -> None:
    story = Story("smart")
    story.ask()
    story.touch("smart", "sda")
    story.got("smart", "sda")
    story.hang()
    assert story.on(Ended(1, -9)) == []
    assert "gpuwatch-probe: smart does not return (killed by SIGKILL)" in story.log[0][1]


def test_a_process_that_never_came_to_life_blames_no_source() -> None:
    story = Story()
    story.ask()
    assert story.on(Tick(), 29) == []
    assert [Kill(1)] == story.on(Tick(), 1)
    assert story.on(Ended(1, -9)) == []
    assert story.report().problem == "the process itself does not return"
    assert [standing.success for standing in story.report().standings.values()] == [False, False, False]
    story.ask()
    story.done()
    assert (story.report().problem, len(story.log)) == ("", 2)


def test_an_item_that_crashes_its_process_does_not_cost_the_rest() -> None:
    story = Story()
    story.ask()
    story.touch("filesystem", "/data")
    assert [Kill(1)] == story.on(Broke(1))
    skip = ("filesystem:/data",)
    assert [Start(2, ("filesystem", "hwmon")), Question(2, 2, Tier.SLOW, skip)] == story.on(Ended(1, -11))
    story.done()
    assert story.report().restarts[Reason.CRASH] == 1
    assert not story.report().standings["filesystem"].hung
    assert "filesystem /data ended the process (killed by SIGSEGV)" in story.log[0][1]


def test_an_end_that_is_seen_before_the_pipe_closes_is_a_crash_too() -> None:
    story = Story()
    story.ask()
    story.touch("filesystem", "/data")
    assert Start(2, ("filesystem", "hwmon")) == story.on(Ended(1, -11))[0]


def test_a_round_in_which_everything_hangs_ends() -> None:
    story = Story()
    story.ask()
    processes = 0
    for number in range(100):
        if story.state.round is None:
            break
        story.touch("filesystem", f"/{number}")
        story.on(Ended(story.hang(), -9))
        processes += 1
    assert processes == 10
    assert not story.report().standings["hwmon"].success


def test_three_stuck_processes_are_the_most_there_ever_are() -> None:
    story = Story()
    starts = 0
    for number in range(50):
        actions = story.ask()
        while any(isinstance(action, Start) for action in actions):
            starts += 1
            story.touch("filesystem", f"/{number}.{starts}")
            story.hang()
            actions = story.on(Tick(), 2)
        story.now += 60
    assert (starts, len(story.state.abandoned)) == (3, 3)
    assert story.report().problem == "3 processes are stuck in the kernel; nothing is read until one of them ends"
    assert story.log[-1][1] == "gpuwatch-probe: 3 processes are stuck in the kernel; nothing is read until one of them ends"
    length = len(story.log)
    story.on(Ended(2, -9))
    assert Start(4, ALL) == story.ask()[0]
    assert story.log[length + 1][1] == "gpuwatch-probe: processes are started again"


def test_a_process_that_does_not_leave_is_killed_and_then_abandoned() -> None:
    story = Story()
    story.ask()
    story.on(Answered(1, 1))
    assert story.on(Tick(), 1.9) == []
    assert [Kill(1)] == story.on(Tick(), 0.1)
    assert story.on(Tick(), 2) == []
    assert frozenset({1}) == story.state.abandoned


def test_a_source_that_raised_has_no_success_and_a_problem() -> None:
    story = Story()
    story.ask()
    story.on(Erred(1, "hwmon", "raised: ValueError: x"))
    story.done()
    assert (
        story.report().problem,
        [standing.success for standing in story.report().standings.values()],
    ) == ("hwmon raised: ValueError: x", [True, True, False])


def test_the_duration_of_each_source_is_its_own() -> None:
    story = Story()
    story.ask()
    for source in ALL:
        story.touch(source, "a", "b", after=1)
    story.done(after=4)
    assert [standing.took for standing in story.report().standings.values()] == [3, 3, 6]


def test_a_source_under_way_shows_its_age_once_that_is_the_longer() -> None:
    story = Story()
    story.ask()
    story.touch("pci")
    story.now += 7
    assert story.report().standings["pci"].took == 7


@pytest.mark.parametrize("event", [Answered(1, 1), Broke(1), Wanted(1, "x"), Erred(1, "pci", "x"), Ended(1, 0)])
def test_what_a_process_of_an_earlier_round_says_is_not_heard(event: Event) -> None:
    story = Story()
    story.ask()
    story.done()
    story.ask()
    before = story.state
    assert story.on(event) == []
    assert before == story.state


def test_before_the_first_round_nothing_is_claimed() -> None:
    asked = Story()
    asked.ask()
    found = [(story.report().problem, [one.success for one in story.report().standings.values()]) for story in (Story(), asked)]
    assert found == [("", [None, None, None]), ("has not answered yet", [None, None, None])]


def test_processes_of_an_earlier_daemon_count_among_the_three() -> None:
    story = Story()
    for number in (-1, -2, -3):
        story.on(Found(number))
    assert story.ask() == []
    story.on(Ended(-1, None))
    assert story.ask() == [Start(1, ALL), Question(1, 1, Tier.SLOW)]


def test_a_pause_kills_the_round_under_way_and_what_is_leaving_and_blames_nobody() -> None:
    story = Story("dcgm")
    story.ask()
    story.on(Answered(1, 1))
    story.ask()
    assert [Kill(1), Kill(2)] == story.on(Pause(begins=True))
    assert story.on(Broke(2)) == []
    assert [story.on(Ended(worker, -9)) for worker in (1, 2)] == [[], []]
    assert (story.ask(), story.report().problem, story.log) == ([], "", [])
    story.on(Pause(begins=False))
    assert [Start(3, ("dcgm",)), Question(3, 3, Tier.SLOW)] == story.ask()
    assert (story.report().standings["dcgm"].success, sum(story.state.restarts.values())) == (True, 0)


def test_a_process_that_a_pause_cannot_end_is_abandoned() -> None:
    story = Story("dcgm")
    story.ask()
    story.on(Pause(begins=True))
    story.on(Tick(), 2.0)
    assert (story.state.abandoned, [level for level, _ in story.log]) == (frozenset({1}), [logging.ERROR])
