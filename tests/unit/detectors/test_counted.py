"""What events add up to: each counts once whoever tells of it and when, and no counter falls after a kill or a power cut."""

import itertools
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue.events import KERNEL, KERNEL_EVENTS, KERNEL_LOG_LOST, XID, XID_ERRORS
from gpuwatch.detectors.counters import TELL
from gpuwatch.detectors.events import State
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from tests.fakes.happenings import told, xid
from tests.fakes.story import Story

Tell = Callable[..., Story]
GPU_2 = "0000:42:00.0"


def count(story: Story, gpu: int, code: int) -> float | None:
    """Return how often a GPU had an Xid."""
    target = Target(subject=XID, key=f"{story.cards[gpu].uuid}|{code}")
    return story.board.view(story.wall, story.mono).value(target, XID_ERRORS)


def kernel(story: Story, metric: Metric) -> float | None:
    """Return a counter of the kernel."""
    return story.board.view(story.wall, story.mono).value(Target(subject=KERNEL, key=""), metric)


def test_a_recovery_action_that_nvml_is_asked_for_later_is_the_one_that_the_kernel_told(tell: Tell) -> None:
    def noticed(at: float, number: str) -> Event:
        event = told("recovery_action", Severity.CRITICAL, at, story.cards[2].uuid, recovery=number)
        return replace(event, source="nvml")

    for late in (0, 1, 5, 45, 64):
        story = tell(gpus=4).at(5)
        at = story.wall
        story.happens(xid(154, GPU_2, at, recovery="2")).at(5 + late).happens(noticed(at + late, "2")).at(100)
        assert (late, count(story, 2, 154), [event.source for event in story.kept]) == (late, 1, ["kernel"])
    story.happens(noticed(story.wall, "1")).at(110)  # another one
    assert count(story, 2, 154) == 2
    story.happens(noticed(story.wall, "2")).at(120)  # the kernel told of it too long ago
    assert count(story, 2, 154) == 3


def test_the_three_tellings_of_a_recovery_action_are_one_in_any_order(tell: Tell) -> None:
    """The kernel's line, NVML's Xid without the number, and the action itself that is read again at once."""
    for order in itertools.permutations(range(3)):
        story = tell(gpus=4).at(5)
        uuid, at = story.cards[2].uuid, story.wall
        tellings = (
            xid(154, GPU_2, at, recovery="2"),
            xid(154, uuid, at + 0.1, source="nvml"),
            replace(told("recovery_action", Severity.CRITICAL, at + 0.3, uuid, recovery="2"), source="nvml"),
        )
        for number in order:
            story.happens(tellings[number]).at(story.now + 1)
        assert count(story.at(30), 2, 154) == 1
        assert [(event.source, event.count) for event in story.kept] == [("kernel", 1)]


def test_what_is_counted_is_written_in_the_beat_that_tells_it_and_no_oftener_than_every_few_seconds(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    written: dict[float, int] = {}
    for _ in range(40):
        story.happens(xid(43, GPU_2, story.wall)).beat()
        if story.kept_states:
            _, blob = story.kept_states.pop("events")
            state = msgspec.msgpack.decode(blob, type=State)
            written[story.now] = state.counters.xids[f"{story.cards[2].uuid}|43"].count
        assert count(story, 2, 43) == [*written.values()][-1]  # the page is not ahead of the disk
    assert [late - early for early, late in itertools.pairwise(written)] == [TELL] * 7
    assert [*written.values()] == [when - 60 for when in written]
    story.at(story.now + TELL)
    story.kept_states.clear()
    assert story.at(story.now + 100).kept_states == {}


def counts(story: Story) -> list[float | None]:
    """Return counters of three kinds."""
    return [count(story, 2, 43), kernel(story, KERNEL_EVENTS["segfault"]), kernel(story, KERNEL_LOG_LOST)]


def test_no_counter_of_events_falls_after_a_power_cut(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(*(xid(43, GPU_2, story.wall) for _ in range(40))).at(130)
    story.happens(
        xid(43, GPU_2, story.wall), told("segfault", Severity.WARNING, story.wall), told("log_lost", Severity.INFO, 0, count=7)
    )
    story.at(132)
    assert counts(story) == [41, 1, 7]
    story.boot_id = "boot-2"
    story.restart(away=60, crashed=True).at(200)
    assert counts(story) == [41, 1, 7]
