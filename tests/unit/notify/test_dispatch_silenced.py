"""What is told, and what is not, around a silence: told as stories."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.config import Config, Host
from gpuwatch.model.alert import AlertState, Incident
from gpuwatch.model.delivery import Delivery, DeliveryKind
from gpuwatch.model.silence import Matcher
from gpuwatch.notify import build
from tests.fakes.dispatching import Story, channels
from tests.fakes.incidents import HOT, ended, hot, milder, stale, worse

HOUR = 3600.0
GPU_3 = Matcher(name="gpu", value="3")
WARNING = Matcher(name="severity", value="warning")


def fires_and_ends_inside(story: Story) -> None:
    story.silence(HOUR).forward(10).tell(HOT).forward(600).tell(ended(HOT)).forward(2 * HOUR, 10)


def still_fires_at_the_end(story: Story) -> None:
    story.silence(HOUR).forward(10).tell(HOT).forward(HOUR + 600)


def critical_at_the_end(story: Story) -> None:
    story.silence(HOUR).forward(10).tell(HOT).forward(20).tell(worse(HOT)).forward(HOUR + 600)


def fires_just_before_the_silence(story: Story) -> None:
    story.tell(HOT).forward(5).silence(100).forward(600)


def told_before_and_ends_inside(story: Story) -> None:
    story.tell(HOT).forward(20).silence(HOUR).forward(60).tell(ended(HOT)).forward(HOUR + 600)


def told_before_and_ends_after(story: Story) -> None:
    story.tell(HOT).forward(20).silence(HOUR).forward(HOUR + 1000).tell(ended(HOT)).forward(600)


def told_before_and_worse_inside(story: Story) -> None:
    story.tell(HOT).forward(20).silence(HOUR).forward(60).tell(worse(HOT)).forward(HOUR + 600)


def told_before_and_worse_and_back_inside(story: Story) -> None:
    story.tell(HOT).forward(20).silence(HOUR).forward(60).tell(worse(HOT)).forward(60).tell(milder(worse(HOT))).forward(
        2 * HOUR, 10
    )


def told_before_and_no_data_inside(story: Story) -> None:
    story.tell(HOT).forward(20).silence(HOUR).forward(60).tell(stale(HOT)).forward(HOUR + 600)


def due_to_be_repeated_inside(story: Story) -> None:
    story.tell(worse(HOT)).forward(3 * HOUR, 5).silence(2 * HOUR).forward(4 * HOUR, 5)


def another_gpu_is_silenced(story: Story) -> None:
    story.silence(HOUR, GPU_3).tell(hot(4)).forward(60)


def one_of_two_gpus_is_silenced(story: Story) -> None:
    story.silence(HOUR, GPU_3).tell(hot(3), hot(4)).forward(HOUR + 60)


def two_silences_overlap(story: Story) -> None:
    story.silence(100).forward(50).silence(100, GPU_3).tell(HOT).forward(600)


def told_as_critical_and_ends_as_the_warning_that_is_silenced(story: Story) -> None:
    story.silence(24 * HOUR, WARNING).tell(HOT).forward(60).tell(worse(HOT)).forward(60).tell(milder(worse(HOT)))
    story.forward(600).tell(ended(milder(worse(HOT)))).forward(3 * HOUR, 10)


def told_as_warning_and_ends_as_the_critical_that_is_silenced(story: Story) -> None:
    story.tell(HOT).forward(20).silence(24 * HOUR, Matcher(name="severity", value="critical")).tell(worse(HOT))
    story.forward(600).tell(ended(worse(HOT))).forward(3 * HOUR, 10)


def told_as_warning_and_the_end_of_warnings_is_silenced(story: Story) -> None:
    story.tell(HOT).forward(20).silence(24 * HOUR, WARNING).forward(600).tell(ended(HOT)).forward(3 * HOUR, 10)


def severity_is_silenced(story: Story) -> None:
    story.silence(HOUR, WARNING).tell(HOT).forward(60).tell(worse(HOT)).forward(60)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (fires_and_ends_inside, []),  # EN-09
        (still_fires_at_the_end, [(HOUR + 10, "firing")]),
        (critical_at_the_end, [(HOUR + 5, "firing")]),
        (fires_just_before_the_silence, [(115, "firing")]),
        (told_before_and_ends_inside, [(10, "firing"), (20 + HOUR + 10, "resolved")]),
        (told_before_and_ends_after, [(10, "firing"), (20 + HOUR + 1000 + 10, "resolved")]),
        (told_before_and_worse_inside, [(10, "firing"), (20 + HOUR + 5, "update")]),
        (told_before_and_worse_and_back_inside, [(10, "firing")]),
        (told_before_and_no_data_inside, [(10, "firing"), (20 + HOUR + 10, "stale")]),
        (due_to_be_repeated_inside, [(5, "firing"), (5 * HOUR, "repeat")]),
        (another_gpu_is_silenced, [(10, "firing")]),
        (one_of_two_gpus_is_silenced, [(10, "firing"), (HOUR + 10, "firing")]),
        (two_silences_overlap, [(160, "firing")]),
        (severity_is_silenced, [(65, "firing")]),
        (told_as_critical_and_ends_as_the_warning_that_is_silenced, [(65, "firing"), (730, "resolved")]),
        (told_as_warning_and_ends_as_the_critical_that_is_silenced, [(10, "firing"), (630, "resolved")]),
        (told_as_warning_and_the_end_of_warnings_is_silenced, [(10, "firing")]),
    ],
)
def test_what_is_told_around_a_silence(happens: Callable[[Story], None], told: list[tuple[float, str]]) -> None:
    story = Story()
    happens(story)
    assert [(round(at), kind) for at, kind in story.kinds] == told


def test_a_restart_inside_a_silence_tells_nothing_before_its_end() -> None:
    story = Story().silence(HOUR).forward(10).tell(HOT).forward(60).restart().forward(HOUR - 80)
    assert story.kinds == []
    assert [kind for _, kind in story.forward(60).kinds] == ["firing"]


def test_the_hosts_own_labels_can_be_silenced() -> None:
    receiver = {"name": "a", "kind": "webhook", "url": "http://127.0.0.1:1/"}
    story = (
        Story(build(Config(receivers=[receiver], host=Host(labels={"rack": "A3"}))))
        .silence(HOUR, Matcher(name="rack", value="A3"))
        .tell(HOT)
        .forward(60)
    )
    assert story.kinds == []


def test_the_end_of_a_silence_is_a_time_to_look() -> None:
    story = Story().silence(HOUR)
    assert story.look == pytest.approx(story.clock.mono() + HOUR)
    story.tell(HOT)
    while not story.sent:
        assert story.look is not None
        story.clock.forward(max(0.001, story.look - story.clock.mono()))
        story.beat()
    assert [round(at) for at, _ in story.kinds] == [HOUR + 10]


def test_a_clock_that_is_set_back_does_not_wake_what_is_silenced_and_one_set_forth_does() -> None:
    story = Story().silence(HOUR).tell(HOT).forward(60)
    story.clock.step(-2 * HOUR)
    assert story.forward(HOUR, 10).kinds == []
    story.clock.step(4 * HOUR)
    assert [round(at) for at, _ in story.forward(60).kinds] == [60 + HOUR + 1 + 10]


def test_a_channel_that_wants_no_end_gets_none_after_the_silence() -> None:
    story = Story(channels({"name": "a", "send_resolved": False})).tell(HOT).forward(20).silence(HOUR).tell(ended(HOT))
    story.forward(HOUR + 60)
    assert (story.kinds, [told.state for told in story.settled]) == ([(10.0, "firing")], [AlertState.INACTIVE])


CHANGES: dict[str, Callable[[Incident], Incident]] = {"worse": worse, "milder": milder, "stale": stale, "end": ended}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.5, 400), st.integers(0, 2), st.sampled_from(["fire", "silence", "silence all", *CHANGES, "restart"])
        ),
        max_size=25,
    )
)
def test_nothing_is_told_of_what_is_silenced_and_the_last_word_is_true_once_all_silences_are_over(
    steps: list[tuple[float, int, str]],
) -> None:
    story = Story()
    for seconds, number, act in steps:
        before, known = story.incidents.get(hot(number).id), len(story.sent)
        if act == "restart":
            story.restart()
        elif act.startswith("silence"):
            story.silence(300.0, *([] if act == "silence all" else [Matcher(name="gpu", value=str(number))]))
        elif act == "fire":
            story.tell(hot(number))
        elif before is not None:
            story.tell(CHANGES[act](before))
        story.forward(seconds, 5.0)
        for _, delivery in story.sent[known:]:
            meant = [silence for silence in story.silences if silence.starts_at <= delivery.created < silence.ends_at]
            assert not any(silence.matches(incident.labels) for silence in meant for incident in delivery.incidents)
    story.forward(600, 5.0)
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
