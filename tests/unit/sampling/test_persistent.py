"""What is done about a worker that stays, told as stories on a clock of its own."""

import logging
import math

from gpuwatch.model.reading import Tier
from gpuwatch.sampling.events import (
    Action,
    Answered,
    Asked,
    Broke,
    Ended,
    Erred,
    Event,
    Found,
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
from gpuwatch.sampling.persistent import Phase, State, decide, due, report

PATIENCE = Patience(deadline=5, start=30)


class Story:
    """One worker's life; the lines of the log are gathered."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.state = State(name="gpuwatch-nvml")
        self.log: list[tuple[int, str]] = []
        self.starts: list[float] = []

    def on(self, event: Event, after: float = 0.0) -> list[Action]:
        """Let time pass, then something happen; return what is done beside the log."""
        self.now += after
        self.state, actions = decide(self.state, event, self.now, PATIENCE)
        self.log += [(action.level, action.text % action.arguments) for action in actions if isinstance(action, Say)]
        self.starts += [self.now for action in actions if isinstance(action, Start)]
        return [action for action in actions if not isinstance(action, Say)]

    def up(self, *tiers: Tier) -> "Story":
        """Bring the worker up, with these tiers answered once."""
        self.on(Tick())
        for tier in tiers:
            self.on(Asked(tier))
            self.answer(tier)
        return self

    def answer(self, tier: Tier = Tier.FAST, after: float = 0.0) -> None:
        """Answer the open question of a tier."""
        self.on(Answered(self.state.worker, self.state.open[tier].number), after)

    def crash(self, after: float = 0.0, status: int = -11) -> None:
        """The process ends by itself."""
        self.on(Broke(self.state.worker), after)
        self.on(Ended(self.state.worker, status))

    def again(self) -> float:
        """Wait until the next worker starts; return how long that took."""
        waited = max(0.0, due(self.state, PATIENCE) - self.now)
        self.on(Tick(), waited)
        assert Phase.UP is self.state.phase
        return waited

    def report(self) -> Report:
        """Return what is told."""
        return report(self.state, ("nvml",), self.now)


def test_the_worker_starts_before_anybody_asks() -> None:
    assert [Start(1)] == Story().on(Tick())


def test_a_tier_whose_round_is_open_is_not_asked_again_and_the_others_are() -> None:
    story = Story().up()
    assert [Question(1, 1, Tier.FAST)] == story.on(Asked(Tier.FAST))
    assert story.on(Asked(Tier.FAST), 1) == []
    assert [Question(1, 2, Tier.SLOW)] == story.on(Asked(Tier.SLOW))
    story.answer(Tier.FAST)
    assert [Question(1, 3, Tier.FAST)] == story.on(Asked(Tier.FAST))


def test_an_answer_to_no_open_question_changes_nothing() -> None:
    story = Story().up(Tier.FAST)
    before = story.state
    story.on(Answered(1, 99))
    story.on(Answered(7, 1))
    assert before == story.state


def test_a_new_worker_has_longer_for_its_first_answer_than_for_the_next() -> None:
    story = Story().up()
    story.on(Asked(Tier.FAST))
    assert story.on(Tick(), 29) == []
    story.answer()
    story.on(Asked(Tier.FAST))
    assert story.on(Tick(), 4.9) == []
    assert [Kill(1)] == story.on(Tick(), 0.1)


def test_a_worker_that_never_answers_at_all_is_killed_after_its_start_time() -> None:
    story = Story().up()
    story.on(Asked(Tier.FAST))
    assert [Kill(1)] == story.on(Tick(), 30)


def test_a_hung_worker_is_replaced_and_asked_for_every_tier_at_once() -> None:
    story = Story().up(Tier.FAST, Tier.SLOW)
    story.on(Asked(Tier.FAST))
    assert [Kill(1)] == story.on(Tick(), 5)
    story.on(Ended(1, -9), 0.1)
    assert story.on(Tick(), 0.9) == []
    assert [Start(2), Question(2, 4, Tier.FAST), Question(2, 5, Tier.SLOW)] == story.on(Tick(), 0.1)
    assert story.report().restarts[Reason.HANG] == 1


def test_a_hang_is_said_once_when_it_starts_and_once_when_it_ends() -> None:
    story = Story().up(Tier.FAST)
    story.on(Asked(Tier.FAST))
    story.on(Tick(), 5)
    story.on(Ended(1, -9))
    story.again()
    story.answer(Tier.FAST, 0.5)
    assert story.log == [
        (
            logging.WARNING,
            "gpuwatch-nvml has not answered for 5 s (killed by SIGKILL); its values are missing until a new process answers",
        ),
        (logging.INFO, "gpuwatch-nvml answers again after 2 s"),
    ]


def test_what_is_told_of_a_hang_ends_with_the_first_answer() -> None:
    story = Story().up(Tier.FAST)
    well = story.report().standings["nvml"]
    assert (well.success, well.hung, story.report().problem) == (True, False, "")
    story.on(Asked(Tier.FAST))
    story.on(Tick(), 5)
    sick = story.report().standings["nvml"]
    assert (sick.success, sick.hung, story.report().problem) == (False, True, "has not answered for 5 s")
    story.on(Ended(1, -9))
    story.again()
    assert story.report().standings["nvml"].hung
    story.answer()
    well = story.report().standings["nvml"]
    assert (well.success, well.hung, story.report().problem) == (True, False, "")


def test_the_pause_doubles_up_to_a_minute_and_is_forgotten_after_a_minute_of_work() -> None:
    story = Story().up(Tier.FAST)
    pauses: list[float] = []
    for _ in range(9):
        story.crash(1)
        pauses.append(story.again())
        story.answer()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    story.on(Asked(Tier.FAST), 60)
    story.answer()
    story.crash(1)
    assert story.again() == 1
    assert story.report().restarts[Reason.CRASH] == 10


def test_a_crash_loop_fills_no_log() -> None:
    story = Story().up(Tier.FAST)
    for _ in range(20):
        story.crash(1)
        story.again()
        story.answer()
    assert [text for _, text in story.log] == [
        "gpuwatch-nvml ended unasked (killed by SIGSEGV); its values are missing until a new process answers",
        "gpuwatch-nvml answers again after 1 s",
        "gpuwatch-nvml ended unasked (killed by SIGSEGV); its values are missing until a new process answers",
    ]
    story.on(Asked(Tier.FAST), 60)
    story.answer()
    assert story.log[-1][1] == "gpuwatch-nvml answers again after 980 s"
    assert len(story.log) == 4


def test_a_worker_that_asks_for_it_is_replaced_at_once_but_not_again_and_again() -> None:
    story = Story().up(Tier.FAST)
    assert [Kill(1)] == story.on(Wanted(1, "driver_change"))
    story.on(Ended(1, -9))
    assert story.again() == 0
    story.on(Wanted(2, "driver_change"))
    story.on(Ended(2, -9))
    assert story.again() == 2
    assert story.report().restarts == {Reason.HANG: 0, Reason.CRASH: 0, Reason.DRIVER_CHANGE: 2}
    assert [level for level, _ in story.log] == [logging.INFO]


def test_a_changed_driver_does_not_wait_for_the_back_off_of_crashes_before_it() -> None:
    story = Story().up(Tier.FAST)
    for pause in (1, 2, 4, 8):
        story.crash()
        assert story.again() == pause
    story.answer(Tier.FAST, 1)
    story.on(Wanted(5, "driver_change"))
    story.on(Ended(5, -9))
    assert story.again() == 0
    story.answer(Tier.FAST, 1)
    assert story.log[-1] == (logging.INFO, "gpuwatch-nvml answers again after 17 s")
    story.crash()
    assert story.again() == 2  # one that fails with the new driver has a past of its own
    story.on(Wanted(7, "driver_change"))
    story.on(Ended(7, -9))
    assert story.again() == 0
    story.on(Wanted(8, "driver_change"))
    story.on(Ended(8, -9))
    assert story.again() == 2


def test_junk_on_the_pipe_is_a_crash_with_a_name() -> None:
    story = Story().up(Tier.FAST)
    assert [Kill(1)] == story.on(Broke(1, "sent junk (frame of 4294967295 bytes, over 4194304)"))
    assert story.report().problem == "sent junk (frame of 4294967295 bytes, over 4194304)"


def test_a_process_that_will_not_die_is_replaced_twice_and_then_left_alone() -> None:
    story = Story().up(Tier.FAST)
    for worker in (1, 2, 3):
        story.on(Asked(Tier.FAST))
        assert [Kill(worker)] == story.on(Tick(), 30)
        assert story.on(Tick(), 1.9) == []
        story.on(Tick(), 0.1)
        if worker < 3:
            story.again()
    assert Phase.LEFT is story.state.phase
    for _ in range(100):
        assert story.on(Asked(Tier.FAST), 3600) == []
        assert story.on(Tick()) == []
    assert len(story.starts) == 3
    assert story.report().problem == "3 processes are stuck in the kernel; nothing is started until one of them ends"
    assert [logging.getLevelName(level) for level, _ in story.log] == ["WARNING", "ERROR", "ERROR", "ERROR"]


def test_a_stuck_process_that_ends_at_last_makes_room_for_a_new_one() -> None:
    story = Story().up(Tier.FAST)
    for _ in range(3):
        story.on(Asked(Tier.FAST))
        story.on(Tick(), 30)
        story.on(Tick(), 2)
        story.on(Tick(), 60)
    assert Phase.LEFT is story.state.phase
    story.on(Ended(2, -9), 7 * 3600)
    assert story.again() == 0
    story.answer()
    assert story.report().problem == ""
    assert story.log[-1][1] == "gpuwatch-nvml: a process that could not be killed has ended"
    story.on(Asked(Tier.FAST))
    story.on(Tick(), 5)
    story.on(Tick(), 2)
    assert Phase.LEFT is story.state.phase


def test_an_abandoned_process_that_ends_while_another_works_is_only_noted() -> None:
    story = Story().up(Tier.FAST)
    story.on(Asked(Tier.FAST))
    story.on(Tick(), 5)
    story.on(Tick(), 2)
    story.again()
    story.answer()
    before = story.state
    story.on(Ended(1, -9))
    assert (before.phase, before.worker, frozenset()) == (story.state.phase, story.state.worker, story.state.abandoned)


def test_what_an_earlier_worker_says_is_not_heard() -> None:
    story = Story().up(Tier.FAST)
    story.crash()
    story.again()
    before = story.state
    events: list[Event] = [Answered(1, 1), Broke(1, "late"), Wanted(1, "late"), Erred(1, "nvml", "late"), Ended(1, 0)]
    for event in events:
        story.on(event)
    assert before == story.state


def test_a_source_that_failed_is_told_until_a_round_is_well_and_before_the_first_nothing_is_claimed() -> None:
    story = Story().up()
    assert (story.report().standings["nvml"].success, story.report().problem) == (None, "has not answered yet")
    story.on(Erred(1, "nvml", "cannot be built: ImportError: x"))
    for told in ((False, "nvml cannot be built: ImportError: x"), (True, "")):
        story.on(Asked(Tier.FAST))
        story.answer()
        assert told == (story.report().standings["nvml"].success, story.report().problem)


def test_a_source_that_fails_in_one_tier_is_not_well_because_another_tier_is() -> None:
    story, well, bad = Story().up(Tier.FAST, Tier.SLOW), (True, ""), (False, "nvml raised: x")
    story.on(Asked(Tier.SLOW))
    story.on(Erred(1, "nvml", "raised: x", story.state.open[Tier.SLOW].number))
    for tier, told in ((Tier.FAST, well), (Tier.SLOW, bad), (Tier.FAST, bad), (None, well)):
        if tier is None:  # the next worker, of which nothing is claimed
            story.crash()
            story.again()
        else:
            story.on(Asked(tier))
        story.answer(tier or Tier.FAST)
        assert told == (story.report().standings["nvml"].success, story.report().problem)


def test_rounds_longer_than_their_period_are_said_once_and_shown_as_duration() -> None:
    story = Story().up(Tier.FAST)
    for _ in range(60):
        story.on(Asked(Tier.FAST), 0.5)
        story.on(Asked(Tier.FAST), 1)
        story.answer(Tier.FAST, 1)
    assert [text for _, text in story.log] == [
        "gpuwatch-nvml needs longer for a round (2.0 s) than its period; it is asked as often as it can answer"
    ]
    assert story.report().standings["nvml"].took == 2
    for _ in range(62):
        story.on(Asked(Tier.FAST), 1)
        story.answer()
    assert [text for _, text in story.log[1:]] == ["gpuwatch-nvml keeps up with its period again"]


def test_a_round_under_way_shows_its_age_once_that_is_the_longer() -> None:
    story = Story().up()
    story.on(Asked(Tier.FAST))
    story.answer(Tier.FAST, 2)
    story.on(Asked(Tier.FAST))
    story.now += 1
    assert story.report().standings["nvml"].took == 2
    story.now += 3
    assert story.report().standings["nvml"].took == 4


def test_processes_of_an_earlier_daemon_count_among_the_three() -> None:
    story = Story()
    for number in (-1, -2):
        story.on(Found(number))
    assert story.on(Tick()) == [Start(1)]
    story.on(Asked(Tier.FAST))
    story.on(Tick(), 30)
    story.on(Tick(), 2)
    assert story.state.phase is Phase.LEFT
    story.on(Ended(-1, None))
    assert story.again() == 0


def test_after_three_hung_daemons_a_fourth_starts_no_worker() -> None:
    story = Story()
    for number in (-1, -2, -3):
        story.on(Found(number))
    assert story.on(Tick()) == []
    assert (story.starts, story.state.phase) == ([], Phase.LEFT)
    assert story.report().problem == "3 processes are stuck in the kernel; nothing is started until one of them ends"
    story.on(Ended(-2, None), 3600)
    assert story.on(Tick()) == [Start(1)]


def test_a_paused_worker_is_killed_at_once_and_no_other_one_is_started_until_it_goes_on() -> None:
    story = Story().up(Tier.FAST, Tier.SLOW)
    assert [Kill(1)] == story.on(Pause(begins=True), 5)
    story.on(Ended(1, -9))
    assert (story.on(Asked(Tier.FAST), 60), math.inf, "") == ([], due(story.state, PATIENCE), story.report().problem)
    assert story.on(Pause(begins=False)) == []
    assert [Start(2), Question(2, 3, Tier.FAST), Question(2, 4, Tier.SLOW)] == story.on(Tick())
    assert (story.log, sum(story.state.restarts.values())) == ([], 0)  # it was no failure


def test_a_pause_ends_the_waiting_for_a_worker_that_fails() -> None:
    story = Story().up(Tier.FAST)
    story.crash()
    assert story.on(Pause(begins=True)) == []
    assert story.on(Tick(), 3600) == []
    story.on(Pause(begins=False))
    assert [Start(2), Question(2, 2, Tier.FAST)] == story.on(Tick())


def test_a_worker_that_a_pause_cannot_end_is_said_and_counted() -> None:
    story = Story().up(Tier.FAST)
    story.on(Pause(begins=True))
    story.on(Tick(), 2.0)
    assert [level for level, _ in story.log] == [logging.ERROR]
    assert story.state.abandoned == {1}
    story.on(Pause(begins=False))
    assert story.again() == 0
    story.on(Ended(1, -9))
    assert story.state.abandoned == frozenset()


def test_a_pause_that_is_over_before_the_worker_is_gone_is_followed_by_a_new_one() -> None:
    story = Story().up(Tier.FAST)
    story.on(Pause(begins=True))
    story.on(Pause(begins=False))
    story.on(Ended(1, -9), 0.1)
    assert story.again() == 0
    assert story.log == []
