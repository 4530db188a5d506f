"""Xids of a reset that somebody does under `gpuwatch release` are kept, counted and marked, and nobody is told of them."""

from collections.abc import Callable, Sequence

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.catalogue.events import BUS_DROPS, KERNEL, KERNEL_EVENTS, XID, XID_ERRORS
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.target import Target
from tests.fakes.happenings import told, xid
from tests.fakes.story import Story

Tell = Callable[..., Story]
GPU_2 = "0000:42:00.0"
DROPPED = ("off_bus", Severity.CRITICAL)


def count(story: Story, code: int) -> float | None:
    """Return how often the third GPU had an Xid."""
    view = story.board.view(story.wall, story.mono)
    return view.value(Target(subject=XID, key=f"{story.cards[2].uuid}|{code}"), XID_ERRORS)


def marks(events: Sequence[Event]) -> list[tuple[int | None, str]]:
    """Return code and mark of what is kept."""
    return [(event.code, event.facts.get("released", "")) for event in events]


def test_what_a_reset_makes_the_driver_say_is_kept_counted_and_marked_and_never_told(tell: Tell) -> None:
    story = tell(gpus=4).at(60).released().at(70)
    story.happens(*(xid(code, GPU_2, story.wall) for code in (79, 119, 45, 74)), told(*DROPPED, story.wall, GPU_2)).at(90)
    story.resumed().expects_nothing_until(600)
    assert marks(story.kept) == [(79, "yes"), (119, "yes"), (45, "yes"), (74, "yes"), (None, "yes")]
    assert [count(story, code) for code in (79, 119, 45, 74)] == [1, 1, 1, 1]
    assert story.value(2, BUS_DROPS) == 0  # it was taken off the bus, it did not fall


def test_an_error_after_the_release_is_told(tell: Tell) -> None:
    story = tell(gpus=4).at(60).released().at(90).resumed().at(92)
    story.happens(xid(119, GPU_2, story.wall)).at(120)
    assert [(one.rule, one.gpu, one.severity) for one in story.heard()] == [("gpu_errors", "2", "critical")]
    assert marks(story.kept) == [(119, "")]


def test_the_time_of_an_event_decides_and_not_when_it_is_heard_of(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    before = xid(119, GPU_2, story.wall - 1)
    story.released().happens(before).at(80)
    meanwhile = xid(120, "0000:41:00.0", story.wall - 1)
    story.at(90).resumed().at(92).happens(meanwhile).at(200)
    assert [(one.rule, one.gpu) for one in story.heard()] == [("gpu_errors", "2")]
    assert marks(story.kept) == [(119, ""), (120, "yes")]


def test_a_line_of_a_release_that_comes_in_the_next_one_is_explained_and_one_between_them_is_not(tell: Tell) -> None:
    story = tell(gpus=4).at(60).released().at(62)
    meanwhile = xid(119, GPU_2, story.wall - 1)
    story.resumed().at(64)
    between = xid(120, "0000:41:00.0", story.wall - 1)
    before = {
        gpu.RELEASED_BEFORE_SINCE: story.release[gpu.RELEASED_SINCE],
        gpu.RELEASED_BEFORE_UNTIL: story.release[gpu.RELEASED_UNTIL],
    }
    story.released()
    story.release |= before
    story.happens(meanwhile, between).at(66).resumed()
    story.release |= before
    story.at(200)
    assert [(one.rule, one.gpu) for one in story.heard()] == [("gpu_errors", "1")]
    assert marks(story.kept) == [(119, "yes"), (120, "")]


@pytest.mark.parametrize("code", [48, 64, 95, 140, 54])
def test_a_fault_of_memory_or_power_is_no_work_of_a_reset(tell: Tell, code: int) -> None:
    story = tell(gpus=4).at(60).released().at(70)
    story.happens(xid(code, GPU_2, story.wall)).at(90).resumed().at(200)
    assert [(one.rule, one.gpu, one.severity) for one in story.heard()] == [("gpu_errors", "2", "critical")]


def test_a_reset_under_release_ends_what_the_driver_wanted_it_for(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(xid(119, GPU_2, story.wall), xid(154, GPU_2, story.wall, recovery="1")).at(90).released().at(100)
    story.happens(xid(154, GPU_2, story.wall, recovery="0")).at(120).resumed().at(300)
    assert [(one.rule, one.after) for one in story.heard()] == [("gpu_errors", "firing"), ("gpu_errors", "inactive")]


def test_events_of_the_host_mean_what_they_always_mean(tell: Tell) -> None:
    story = tell(gpus=4).at(60).released().at(70)
    story.happens(told("oom_kill", Severity.CRITICAL, story.wall, pid="1")).at(75)
    assert [event.facts for event in story.kept] == [{"pid": "1"}]
    assert story.board.view(story.wall, story.mono).value(Target(subject=KERNEL, key=""), KERNEL_EVENTS["oom_kill"]) == 1


def test_what_the_log_tells_again_after_a_kill_is_still_explained(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.save()  # the last save before the kill
    story.released().at(70)
    reset = xid(79, GPU_2, story.wall, mark="boot-1:41")
    story.happens(reset).at(90).resumed().at(100)
    story.restart(away=5, crashed=True)
    story.happens(reset).expects_nothing_until(600)
