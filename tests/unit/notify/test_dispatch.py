"""What is decided from incidents and told-marks: told as stories, one beat a second."""

from collections.abc import Callable, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.config import Route
from gpuwatch.model.alert import AlertState, Incident, Severity
from gpuwatch.model.delivery import Delivery, DeliveryKind
from gpuwatch.notify.dispatch import Mark, decide
from tests.fakes.dispatching import Story, channels
from tests.fakes.incidents import HOT, ended, hot, milder, stale, worse

HOUR = 3600.0
CRITICAL = worse(HOT)


def test_a_warning_is_told_ten_seconds_after_it_fired() -> None:
    assert Story().tell(HOT).forward(60).kinds == [(10.0, "firing")]


def test_a_critical_one_is_told_within_five_seconds() -> None:
    assert Story().tell(CRITICAL).forward(60).kinds == [(5.0, "firing")]


def test_fired_and_ended_before_anybody_was_told_is_no_message() -> None:
    assert Story().tell(HOT).forward(9).tell(ended(HOT)).forward(HOUR).kinds == []


def test_eight_gpus_within_five_seconds_are_one_message_with_eight() -> None:
    story = Story()
    for number in range(8):
        story.tell(hot(number)).forward(0.5, 0.5)
    story.forward(60)
    assert [(at, len(delivery.incidents)) for at, delivery in story.sent] == [(10.0, 8)]


def test_two_rules_are_two_messages() -> None:
    story = Story().tell(hot(1), replace(hot(2), rule="gpu_dropped")).forward(20)
    assert [len(delivery.incidents) for _, delivery in story.sent] == [1, 1]


def test_the_worst_incident_comes_first_in_a_message() -> None:
    story = Story().tell(hot(1), worse(hot(2)), hot(3)).forward(20)
    assert [incident.labels["gpu"] for incident in story.sent[0][1].incidents] == ["2", "1", "3"]


def test_the_next_warning_of_a_group_waits_for_the_interval() -> None:
    assert Story().tell(hot(1)).forward(15).tell(hot(2)).forward(300).kinds == [(10.0, "firing"), (130.0, "firing")]


def test_the_next_critical_one_of_a_group_does_not_wait_for_the_interval() -> None:
    assert Story().tell(hot(1)).forward(15).tell(worse(hot(2))).forward(300).kinds == [(10.0, "firing"), (20.0, "firing")]


def test_long_after_the_last_message_a_group_waits_ten_seconds_again() -> None:
    assert Story().tell(hot(1)).forward(500).tell(hot(2)).forward(60).kinds == [(10.0, "firing"), (510.0, "firing")]


def test_an_upgrade_is_told_within_five_seconds() -> None:
    assert Story().tell(HOT).forward(20).tell(worse(HOT)).forward(60).kinds == [(10.0, "firing"), (25.0, "update")]


def test_a_downgrade_is_not_told() -> None:
    assert Story().tell(CRITICAL).forward(20).tell(milder(CRITICAL)).forward(3 * HOUR, 60).kinds == [(5.0, "firing")]


def test_a_downgrade_and_back_up_is_not_told() -> None:
    story = Story().tell(CRITICAL).forward(20).tell(milder(CRITICAL)).forward(60).tell(CRITICAL).forward(HOUR, 60)
    assert story.kinds == [(5.0, "firing")]


def test_who_heard_that_it_is_critical_hears_that_the_critical_one_is_over() -> None:
    """The critical step ends before the warning one, so that the incident itself ends as a warning."""
    story = Story().tell(CRITICAL).forward(20).tell(milder(CRITICAL)).forward(600).tell(ended(milder(CRITICAL))).forward(60)
    said = [(delivery.kind.value, delivery.incidents[0].severity.value) for _, delivery in story.sent]
    assert said == [("firing", "critical"), ("resolved", "critical")]


def test_an_upgrade_before_the_first_message_is_in_it() -> None:
    story = Story().tell(HOT).forward(8).tell(CRITICAL).forward(60)
    assert [(at, kind, story.sent[0][1].incidents[0].severity) for at, kind in story.kinds] == [
        (10.0, "firing", Severity.CRITICAL)
    ]


def test_an_end_is_told_at_the_groups_interval() -> None:
    assert Story().tell(HOT).forward(20).tell(ended(HOT)).forward(300).kinds == [(10.0, "firing"), (130.0, "resolved")]


def test_an_end_long_after_the_message_is_told_in_ten_seconds() -> None:
    assert Story().tell(HOT).forward(600).tell(ended(HOT)).forward(60).kinds == [(10.0, "firing"), (610.0, "resolved")]


def test_an_end_that_is_taken_back_within_the_interval_is_no_message() -> None:
    assert Story().tell(HOT).forward(20).tell(ended(HOT)).forward(60).tell(HOT).forward(HOUR, 60).kinds == [(10.0, "firing")]


def test_the_end_comes_before_the_next_start_of_the_same_thing() -> None:
    again = replace(HOT, id="01HF0000000000000000000002")
    story = Story().tell(HOT).forward(20).tell(ended(HOT), again).forward(300)
    assert story.kinds == [(10.0, "firing"), (130.0, "resolved"), (130.0, "firing")]


def test_an_incident_that_was_reopened_is_told_again() -> None:
    story = Story().tell(HOT).forward(20).tell(ended(HOT)).forward(300).tell(HOT).forward(60)
    assert [kind for _, kind in story.kinds] == ["firing", "resolved", "firing"]


def test_a_receiver_that_wants_no_end_hears_none_and_the_mark_is_settled() -> None:
    story = Story(channels({"name": "a", "send_resolved": False})).tell(HOT).forward(20).tell(ended(HOT)).forward(300)
    assert (story.kinds, [told.state for told in story.settled]) == ([(10.0, "firing")], [AlertState.INACTIVE])


def test_stale_is_told_once_however_often_the_data_comes_and_goes() -> None:
    story = Story().tell(HOT).forward(200)
    for _ in range(4):
        story.tell(stale(HOT)).forward(300).tell(HOT).forward(300)
    assert [kind for _, kind in story.kinds] == ["firing", "stale"]


def test_stale_is_told_once_also_over_an_upgrade_and_a_restart() -> None:
    story = Story().tell(HOT).forward(200).tell(stale(HOT)).forward(300).tell(CRITICAL).forward(300).restart()
    story.tell(stale(CRITICAL)).forward(600)
    assert [kind for _, kind in story.kinds] == ["firing", "stale", "update"]


def test_what_went_stale_is_told_to_have_ended() -> None:
    story = Story().tell(HOT).forward(200).tell(stale(HOT)).forward(300).tell(ended(HOT)).forward(300)
    assert [kind for _, kind in story.kinds] == ["firing", "stale", "resolved"]


def test_what_went_stale_before_anybody_was_told_is_told() -> None:
    story = Story().tell(HOT).forward(5).tell(stale(HOT)).forward(60)
    assert [(kind, story.sent[0][1].incidents[0].state) for _, kind in story.kinds] == [("firing", AlertState.STALE)]


def test_stale_is_not_repeated() -> None:
    story = Story().tell(CRITICAL).forward(200).tell(stale(CRITICAL)).forward(48 * HOUR, 600)
    assert [kind for _, kind in story.kinds] == ["firing", "stale"]


def test_critical_is_repeated_every_four_hours() -> None:
    story = Story().tell(CRITICAL).forward(10).forward(13 * HOUR, 10)
    assert [(round(at / HOUR, 1), kind) for at, kind in story.kinds] == [
        (0.0, "firing"),
        (4.0, "repeat"),
        (8.0, "repeat"),
        (12.0, "repeat"),
    ]


def test_a_warning_is_repeated_once_a_day() -> None:
    story = Story().tell(HOT).forward(20).forward(50 * HOUR, 60)
    assert [(round(at / HOUR), kind) for at, kind in story.kinds] == [(0, "firing"), (24, "repeat"), (48, "repeat")]


def test_a_group_is_repeated_as_one_message() -> None:
    story = Story().tell(worse(hot(1))).forward(HOUR, 10).tell(worse(hot(2))).forward(8 * HOUR, 10)
    assert [(delivery.kind.value, len(delivery.incidents)) for _, delivery in story.sent] == [
        ("firing", 1),
        ("firing", 1),
        ("repeat", 2),
        ("repeat", 2),
    ]


def test_a_repeat_after_a_downgrade_waits_a_day_and_says_the_present_severity() -> None:
    story = Story().tell(CRITICAL).forward(20).tell(milder(CRITICAL)).forward(25 * HOUR, 60)
    assert [(round(at / HOUR), delivery.kind.value, delivery.incidents[0].severity) for at, delivery in story.sent] == [
        (0, "firing", Severity.CRITICAL),
        (24, "repeat", Severity.WARNING),
    ]


def test_the_clock_stepped_an_hour_forth_and_back_tells_nothing() -> None:
    story = Story().tell(CRITICAL).forward(3.5 * HOUR, 5)
    story.clock.step(HOUR)
    story.forward(600)
    story.clock.step(-2 * HOUR)
    story.forward(600)
    assert story.kinds == [(5.0, "firing")]


def test_the_clock_stepped_delays_no_message() -> None:
    story = Story().tell(HOT).forward(5)
    story.clock.step(-HOUR)
    assert story.forward(60).kinds == [(10.0, "firing")]


def test_a_restart_tells_nothing_that_was_told() -> None:
    assert Story().tell(CRITICAL).forward(60).restart().forward(HOUR, 10).kinds == [(5.0, "firing")]


def test_a_restart_after_the_clock_went_back_brings_no_repeat_storm() -> None:
    story = Story().tell(*(replace(worse(hot(number)), rule=f"rule_{number}") for number in range(20))).forward(60)
    story.clock.step(-HOUR)
    assert {kind for _, kind in story.restart().forward(3 * HOUR, 60).kinds} == {"firing"}


def test_repeats_go_on_over_restarts() -> None:
    story = Story().tell(CRITICAL).forward(3 * HOUR, 10).restart().forward(0.9 * HOUR, 10)
    before = len(story.sent)
    story.forward(0.2 * HOUR, 10)
    assert (before, [kind for _, kind in story.kinds]) == (1, ["firing", "repeat"])


def test_repeats_go_on_after_a_clock_that_was_a_year_ahead_is_set_right() -> None:
    story = Story().tell(CRITICAL).forward(60)
    story.clock.step(-365 * 24 * HOUR)
    assert [kind for _, kind in story.restart().forward(4.1 * HOUR, 60).kinds] == ["firing", "repeat"]


def test_a_repeat_that_came_due_while_we_were_away_waits_for_what_the_first_beats_say() -> None:
    def back_after_a_day() -> Story:
        story = Story().tell(CRITICAL).forward(60)
        story.clock.forward(30 * HOUR)
        return story.restart().forward(10)

    assert [kind for _, kind in back_after_a_day().kinds] == ["firing"]
    assert [kind for _, kind in back_after_a_day().forward(50).kinds] == ["firing", "repeat"]
    assert [kind for _, kind in back_after_a_day().tell(ended(CRITICAL)).forward(HOUR, 10).kinds] == ["firing", "resolved"]


def test_what_fired_before_we_died_is_told_after_the_start() -> None:
    story = Story().tell(HOT).forward(5).restart().forward(60)
    assert [kind for _, kind in story.kinds] == ["firing"]


def test_an_end_that_came_while_we_were_dead_is_told_after_the_start() -> None:
    story = Story().tell(HOT).forward(60)
    story.incidents[HOT.id] = ended(HOT)
    assert [kind for _, kind in story.restart().forward(60).kinds] == ["firing", "resolved"]


def test_who_was_told_hears_the_end_though_the_route_is_for_critical() -> None:
    who = channels({"name": "a"}, {"name": "b"}, routes=[Route(receivers=["a"], match={"severity": "critical"})])
    story = Story(who).tell(CRITICAL).forward(20).tell(milder(CRITICAL)).forward(60).tell(ended(HOT)).forward(300)
    assert [(delivery.channel, delivery.kind.value) for _, delivery in story.sent] == [("a", "firing"), ("a", "resolved")]


def test_an_upgrade_is_the_first_word_to_who_hears_of_critical_only() -> None:
    who = channels({"name": "a"}, {"name": "b", "min_severity": "critical"})
    story = Story(who).tell(HOT).forward(20).tell(CRITICAL).forward(60)
    assert [(delivery.channel, delivery.kind.value) for _, delivery in story.sent] == [
        ("a", "firing"),
        ("a", "update"),
        ("b", "firing"),
    ]


def test_every_channel_is_told_by_itself() -> None:
    story = Story(channels({"name": "a"}, {"name": "b"})).tell(HOT).forward(60)
    assert [(delivery.channel, delivery.kind.value) for _, delivery in story.sent] == [("a", "firing"), ("b", "firing")]


def test_a_silent_channel_is_left_as_it_is() -> None:
    marks: dict[tuple[str, str], Mark] = {}
    plan = decide([HOT], marks, channels(), {}, mono=100.0, wall=0.0, new_id=lambda: "x", silent=frozenset({"a"}))
    assert (plan.messages, plan.groups, plan.look) == ((), {}, None)


def test_info_is_not_told() -> None:
    assert Story().tell(replace(HOT, severity=Severity.INFO)).forward(60).kinds == []


def test_an_incident_lowered_to_info_is_not_repeated_but_its_end_is_told() -> None:
    mild = replace(HOT, severity=Severity.INFO)
    story = Story().tell(HOT).forward(20).tell(mild).forward(30 * HOUR, 600)
    assert [kind for _, kind in story.tell(replace(mild, state=AlertState.INACTIVE)).forward(60).kinds] == ["firing", "resolved"]


def test_the_next_look_is_when_something_falls_due() -> None:
    story = Story().tell(HOT)
    waiting = None if story.look is None else story.look - story.clock.mono()
    story.forward(10).beat()
    told = None if story.look is None else story.look - story.clock.mono()
    assert (waiting, told) == (10.0, 24 * HOUR)


def lazy(story: Story, seconds: float) -> None:
    """Look only when the last look said so."""
    until = story.clock.mono() + seconds
    while story.look is not None and story.look <= until:
        story.clock.forward(max(0.0, story.look - story.clock.mono()))
        story.beat()
    story.clock.forward(until - story.clock.mono())


def eager(story: Story, seconds: float) -> None:
    """Look every second."""
    story.forward(seconds)


def test_looking_only_when_told_to_misses_nothing() -> None:
    assert play(lazy) == play(eager)


def test_looking_only_when_told_to_finds_the_repeats() -> None:
    story = Story().tell(CRITICAL)
    lazy(story, 9 * HOUR)
    assert [(round(at / HOUR), kind) for at, kind in story.kinds] == [(0, "firing"), (4, "repeat"), (8, "repeat")]


def play(pass_time: Callable[[Story, float], None]) -> list[tuple[float, str]]:
    """Return what a long story sends, with time passed in a way of its own."""
    story = Story()
    steps: Iterable[tuple[float, Incident]] = (
        (0, hot(1)),
        (15, hot(2)),
        (30, worse(hot(1))),
        (500, ended(hot(2))),
        (20, hot(3)),
        (9000, ended(worse(hot(1)))),
    )
    for seconds, incident in steps:
        pass_time(story, seconds)
        story.tell(incident)
    pass_time(story, 20_000)
    return story.kinds


CHANGES: dict[str, Callable[[Incident], Incident]] = {
    "fire": lambda incident: hot(int(incident.labels["gpu"])),
    "worse": worse,
    "milder": milder,
    "stale": stale,
    "end": ended,
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 400), st.integers(0, 2), st.sampled_from([*CHANGES, "restart"])),
        max_size=25,
    )
)
def test_the_last_word_a_channel_hears_is_true(steps: list[tuple[float, int, str]]) -> None:
    """Whatever happens: in the end the channel knows of every open incident, and of every end of one it knew."""
    story = Story()
    for seconds, number, act in steps:
        before = story.incidents.get(hot(number).id)
        if act == "restart":
            story.restart()
        elif act == "fire" or before is not None:
            story.tell(CHANGES[act](before or hot(number)))
        story.forward(seconds, 5.0)
    story.forward(300, 5.0)
    last: dict[str, Delivery] = {}
    for _, delivery in story.sent:
        last.update((incident.id, delivery) for incident in delivery.incidents)
    for incident in story.incidents.values():
        told = last.get(incident.id)
        if incident.state is AlertState.INACTIVE:
            assert told is None or told.kind is DeliveryKind.RESOLVED
        else:
            assert told is not None
            assert told.kind is not DeliveryKind.RESOLVED
