"""What driver and kernel report: whose it is, that it counts once, and what is alerted of it."""

import time
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.catalogue.events import (
    BUS_DROPS,
    ERRORS_OPEN,
    EVENTS_UNCOUNTED,
    KERNEL,
    KERNEL_EVENTS,
    KERNEL_LOG_LOST,
    SXID,
    SXID_ERRORS,
    XID,
    XID_ERRORS,
    XID_LAST,
)
from gpuwatch.catalogue.gpu import BAR1_SIZE
from gpuwatch.catalogue.own import OWN
from gpuwatch.catalogue.xids import BEGIN_AT_0
from gpuwatch.detectors.counters import LIMIT, TELL
from gpuwatch.detectors.places import SOON, WAIT
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from tests.fakes.happenings import told, xid
from tests.fakes.story import LOST, Story

Tell = Callable[..., Story]
RULE = "gpu_errors"
GPU_2 = "0000:42:00.0"


def value(story: Story, target: Target, metric: Metric) -> float | None:
    """Return a value of the board."""
    return story.board.view(story.wall, story.mono).value(target, metric)


def count(story: Story, gpu: int, code: int) -> float | None:
    """Return how often a GPU had an Xid."""
    return value(story, Target(subject=XID, key=f"{story.cards[gpu].uuid}|{code}"), XID_ERRORS)


def kernel(story: Story, metric: Metric) -> float | None:
    """Return a counter of the kernel."""
    return value(story, Target(subject=KERNEL, key=""), metric)


def test_critical_codes_begin_at_0_on_every_gpu_and_kernel_events_too(tell: Tell) -> None:
    story = tell(gpus=8).at(5)
    assert {count(story, gpu, code) for gpu in range(8) for code in BEGIN_AT_0} == {0}
    assert count(story, 0, 31) is None
    assert {kernel(story, metric) for metric in (*KERNEL_EVENTS.values(), KERNEL_LOG_LOST)} == {0}
    assert [story.value(gpu, BUS_DROPS) for gpu in range(8)] == [0] * 8
    assert [story.value(gpu, metric) for gpu in range(8) for metric in ERRORS_OPEN.values()] == [0] * 16


def test_an_xid_counts_for_the_gpu_at_its_address_with_its_labels_and_time(tell: Tell) -> None:
    story = tell(gpus=4).at(5)
    story.happens(xid(31, GPU_2, story.wall, count=3)).at(7)
    uuid = story.cards[2].uuid
    view = story.board.view(story.wall, story.mono)
    (entry,) = [entry for entry in view.of(XID) if entry.target.key == f"{uuid}|31"]
    assert entry.target.labels == {"gpu": "2", "uuid": uuid, "xid": "31", "severity": "warning"}
    assert (entry.values[XID_ERRORS], entry.values[XID_LAST]) == (3, story.wall - 2)


def test_the_severity_that_xids_are_counted_under_is_that_of_the_code_whatever_the_line_says(tell: Tell) -> None:
    """A label that followed the line would make one code two series."""
    story = tell(gpus=4).at(5)
    mild, grave = xid(154, GPU_2, story.wall), xid(154, GPU_2, story.wall + 2, recovery="2")
    assert (mild.severity, grave.severity) == (Severity.WARNING, Severity.CRITICAL)
    story.happens(mild).at(7).happens(grave).at(7 + TELL)
    view = story.board.view(story.wall, story.mono)
    found = [entry for entry in view.of(XID) if entry.target.labels["xid"] == "154"]
    assert [(entry.target.labels["severity"], entry.values[XID_ERRORS]) for entry in found] == [("warning", 2)]
    assert "`severity` is the code's own" in XID_ERRORS.help


def test_what_nvml_and_the_kernel_both_tell_counts_once_and_is_kept_in_the_kernels_words(tell: Tell) -> None:
    for first, second in (("nvml", "kernel"), ("kernel", "nvml")):
        story = tell(gpus=4).at(5)
        keys = {"nvml": story.cards[2].uuid, "kernel": GPU_2}
        story.happens(xid(62, keys[first], story.wall, source=first)).at(6)
        story.happens(xid(62, keys[second], story.wall, source=second)).at(15)
        assert count(story, 2, 62) == 1
        assert [(event.source, event.key, event.count) for event in story.kept] == [("kernel", story.cards[2].uuid, 1)]


def test_forty_tellings_of_each_are_forty_and_what_only_one_source_tells_counts(tell: Tell) -> None:
    story = tell(gpus=4).at(5)
    uuid = story.cards[2].uuid
    story.happens(*(xid(45, uuid, story.wall + n * 0.02, source="nvml") for n in range(40)))
    story.happens(xid(45, GPU_2, story.wall, count=41)).at(6)
    assert count(story, 2, 45) == 41
    story.happens(xid(45, uuid, story.wall + 10, source="nvml")).at(20)  # later than two seconds: another one
    assert count(story, 2, 45) == 42
    assert sum(event.count for event in story.kept) == 42


def test_a_log_that_is_read_again_after_a_restart_counts_nothing_twice(tell: Tell) -> None:
    story = tell(gpus=4).at(5)
    record = xid(62, GPU_2, story.wall, mark="boot-1:70")
    flood = xid(45, GPU_2, story.wall, count=10, mark="boot-1:71-80")
    story.happens(record, flood).at(10)
    story.restart(away=30)
    more = xid(45, GPU_2, flood.at, count=14, mark="boot-1:71-84")
    story.happens(record, more, xid(31, GPU_2, story.wall, mark="boot-1:85")).at(50)
    assert [count(story, 2, code) for code in (62, 45, 31)] == [1, 14, 1]
    story.boot_id = "boot-2"
    story.happens(xid(62, GPU_2, story.wall, mark="boot-2:3")).at(60)
    assert count(story, 2, 62) == 2


def test_what_was_counted_is_shown_with_the_first_beats_after_a_restart(tell: Tell) -> None:
    story = tell(gpus=4).at(5)
    story.happens(xid(62, GPU_2, story.wall, mark="boot-1:70")).at(10)
    story.restart(away=1).at(story.now + 3)
    assert (count(story, 2, 62), count(story, 0, 79), kernel(story, KERNEL_LOG_LOST)) == (1, 0, 0)


def test_a_log_that_is_read_before_nvml_answers_finds_its_gpu(tell: Tell) -> None:
    story = tell(gpus=4)
    story.nvml = False
    story.happens(xid(62, GPU_2, story.wall, mark="boot-1:1")).at(5)
    assert list(story.board.view(story.wall, story.mono).of(XID)) == []
    story.nvml = True
    story.at(8)
    assert count(story, 2, 62) == 1


def test_a_gpu_that_never_comes_up_goes_by_its_address_and_is_alerted_without_waiting(tell: Tell) -> None:
    """NVSentinel#155: off the bus at boot, no Xid, never a handle."""
    story = tell(gpus=2).at(5)
    story.happens(told("off_bus", Severity.CRITICAL, story.wall, "0000:b1:00")).at(60)
    (heard,) = story.heard(RULE)
    assert (heard.gpu, heard.after, heard.severity) == ("0000:b1:00.0", "firing", "critical")
    assert heard.at - 5 <= SOON + 10 + 1  # what the rule asks for comes on top
    assert story.transitions[-1][1].summary.startswith("GPU 0000:b1:00.0: The driver says that the GPU has fallen")


def heard_after(story: Story, address: str = "0000:9b:00") -> float:
    """Return how long it takes until an error of a GPU that nobody knows is kept."""
    began = story.now
    story.happens(xid(79, address, story.wall))
    while not story.kept:
        assert story.now < began + 2 * WAIT
        story.beat()
    assert story.kept[0].key == f"{address}.0"
    return story.now - began


def test_an_address_that_nobody_knows_waits_only_while_its_gpu_can_still_come(tell: Tell) -> None:
    assert heard_after(tell(gpus=2).at(120)) == SOON + 1
    starts = tell(gpus=2)
    starts.nvml = False
    assert heard_after(starts) == WAIT + 1  # NVML has not answered yet
    released = tell(gpus=2).at(120).released()
    released.at(130)
    assert heard_after(released) == WAIT + 1
    opening = tell(gpus=2)
    opening.listed = 3
    assert heard_after(opening.at(5)) == WAIT + 1 - 5  # a third is still being opened, or never will be
    opening.kept.clear()
    assert heard_after(opening.at(300), "0000:9c:00") == SOON + 1


def test_s1_xid_79_and_what_follows_is_one_message_that_names_it(tell: Tell) -> None:
    story = tell(gpus=8).at(60)
    at, place = story.wall, "0000:45:00.0"
    story.gpu(5, fault=LOST).at(62)
    story.happens(xid(79, place, at), told("off_bus", Severity.CRITICAL, at, place), xid(154, place, at, recovery="2"))
    story.happens(*(xid(45, place, at + n) for n in range(40))).at(200)
    assert {(one.rule, one.gpu, one.after, one.severity) for one in story.heard()} == {("gpu_dropped", "5", "firing", "critical")}
    (incident,) = story.incidents.open()
    assert "; Xid 79 GPU fell off the PCIe bus (recovery: reboot); last seen" in incident.summary
    assert incident.fired_at - at < 2
    assert [count(story, 5, code) for code in (79, 154, 45)] == [1, 1, 40]
    assert [story.value(gpu, BUS_DROPS) for gpu in (4, 5)] == [0, 1]
    assert story.value(5, ERRORS_OPEN["critical"]) == 1
    story.gpu(5, fault=None).at(220)
    assert [(one.rule, one.after) for one in story.heard()][-1] == ("gpu_dropped", "inactive")
    assert (story.value(5, ERRORS_OPEN["critical"]), story.incidents.open()) == (0, [])


def test_each_fall_from_the_bus_counts_once_whoever_tells_it(tell: Tell) -> None:
    story = tell(gpus=2).at(60)
    story.gpu(1, fault=LOST).at(90)
    story.restart(away=20).at(150)
    assert story.value(1, BUS_DROPS) == 1
    story.gpu(1, fault=None).at(200)
    story.happens(xid(79, "0000:41:00.0", story.wall)).at(203)
    story.gpu(1, fault=LOST).at(260)
    assert story.value(1, BUS_DROPS) == 2


def test_errors_of_a_gpu_are_told_once_they_have_lasted_and_end_when_they_are_over(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(*(xid(119, GPU_2, story.wall + 1, pid="7", name="python3") for _ in range(3))).at(90)
    (heard,) = story.heard()
    assert (heard.rule, heard.gpu, heard.severity) == (RULE, "2", "critical")
    summary = story.transitions[0][1].summary
    assert summary.startswith(
        "GPU 2 (0000:42:00.0, NVIDIA A40, serial S2): Xid 119 GSP firmware did not answer (RPC timeout), 3 times."
    )
    assert summary.endswith(" drain; reset GPU; reboot if NVML hangs; update driver")
    assert [story.value(2, metric) for metric in ERRORS_OPEN.values()] == [1, 1]
    story.happens(xid(154, GPU_2, story.wall, recovery="0")).at(95)  # somebody has reset it
    assert [(one.rule, one.after) for one in story.heard()] == [(RULE, "firing"), (RULE, "inactive")]


def test_errors_of_programs_are_counted_and_kept_and_told_to_nobody(tell: Tell) -> None:
    """operator.md 3: application Xids are for the digest."""
    story = tell(gpus=4).at(60)
    codes = (13, 31, 32, 43, 45, 68, 69)
    story.happens(*(xid(code, GPU_2, story.wall, name="train") for code in codes)).expects_nothing_until(200)
    assert [count(story, 2, code) for code in codes] == [1] * len(codes)
    assert [event.code for event in story.kept] == [*codes]


def test_errors_of_different_programs_on_one_gpu_are_told_and_pass(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(xid(31, GPU_2, story.wall, name="train")).expects_nothing_until(200)
    story.happens(xid(13, GPU_2, story.wall, name="infer")).at(2400)
    assert [(one.severity, one.after) for one in story.heard()] == [("warning", "firing"), ("warning", "inactive")]
    assert "errors of different programs (infer, train)" in story.transitions[0][1].summary


def test_a_window_without_room_is_over_when_the_gpu_works_and_has_one(tell: Tell) -> None:
    def no_room(at: float) -> Event:
        return told("bar_unassigned", Severity.WARNING, at, GPU_2, bar="1")

    story = tell(gpus=4).gpu(2, more={BAR1_SIZE: 2.0**28}).at(60)
    story.happens(no_room(story.wall - 120)).at(120)  # of this boot, read by a daemon that starts: nothing was ever wrong
    assert story.heard() == []
    story.gpu(2, more={}).at(200)
    story.happens(no_room(story.wall)).at(400)  # it answers, and shows no window
    assert [(one.rule, one.after, one.severity) for one in story.heard(RULE)] == [(RULE, "firing", "warning")]
    story.gpu(2, more={BAR1_SIZE: 2.0**36}).at(410)
    assert [(one.rule, one.after) for one in story.heard(RULE)] == [(RULE, "firing"), (RULE, "inactive")]


def test_a_reboot_ends_what_was_open(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(xid(62, GPU_2, story.wall, mark="boot-1:1")).at(90)
    story.boot_id = "boot-2"
    story.restart(away=60).at(200)
    assert [(one.rule, one.after) for one in story.heard(RULE)] == [(RULE, "firing"), (RULE, "inactive")]


def test_an_open_error_survives_a_restart(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.happens(xid(62, GPU_2, story.wall, mark="boot-1:1")).at(90)
    story.restart(away=60).at(300)
    assert [(one.rule, one.after) for one in story.heard()] == [(RULE, "firing")]
    assert story.value(2, ERRORS_OPEN["critical"]) == 1


def test_other_events_have_their_counters(tell: Tell) -> None:
    story = tell(gpus=1).at(5)
    story.happens(
        told("oom_kill", Severity.CRITICAL, story.wall, pid="7"),
        told("nvme_timeout", Severity.WARNING, story.wall, "nvme1", count=3),
        told("log_lost", Severity.INFO, story.wall, count=84),
        told("sxid", Severity.INFO, story.wall, "0000:86:00.0", fatal="no", link="61"),
    ).at(7)
    assert [kernel(story, KERNEL_EVENTS[kind]) for kind in ("oom_kill", "nvme_timeout", "mce")] == [1, 3, 0]
    assert kernel(story, KERNEL_LOG_LOST) == 84
    (switch,) = story.board.view(story.wall, story.mono).of(SXID)
    assert (dict(switch.target.labels), switch.values[SXID_ERRORS]) == (
        {"nvswitch": "0000:86:00.0", "sxid": "None", "fatal": "no"},
        1,
    )
    assert [event.kind for event in story.kept] == ["oom_kill", "nvme_timeout", "log_lost", "sxid"]


def test_every_event_is_in_some_number(tell: Tell) -> None:
    """More codes than have room for their series, and what NVML's own fold could not tell apart."""
    story = tell(gpus=1).at(5)
    ours = Target(subject=OWN, key="")
    assert value(story, ours, EVENTS_UNCOUNTED) == 0
    codes = [xid(code, story.cards[0].pci, story.wall, count=2) for code in range(1000, 1000 + LIMIT)]
    switches = [
        replace(told("sxid", Severity.INFO, story.wall, "0000:86:00.0"), code=code, count=3)
        for code in range(10_000, 10_001 + LIMIT)
    ]
    lost = replace(told("events_lost", Severity.INFO, story.wall, story.cards[0].uuid, count=40), source="nvml")
    story.happens(*codes, *switches, lost).at(40)
    counted = sum(entry.values.get(XID_ERRORS, 0.0) for entry in story.board.view(story.wall, story.mono).of(XID))
    assert counted == 2 * (LIMIT - len(BEGIN_AT_0))
    assert value(story, ours, EVENTS_UNCOUNTED) == 2 * len(BEGIN_AT_0) + 3 + 40


def test_what_is_told_of_other_things_than_gpus_is_counted_and_in_no_story(tell: Tell) -> None:
    story = tell(gpus=1).at(5)
    story.happens(
        told("oom_kill", Severity.CRITICAL, story.wall, pid="7"),
        told("nvme_disabled", Severity.CRITICAL, story.wall, "nvme1"),
        told("sxid", Severity.CRITICAL, story.wall, "0000:86:00.0", fatal="yes"),
        told("api_mismatch", Severity.WARNING, story.wall),
        told("ecc", Severity.WARNING, story.wall, story.cards[0].uuid),
    ).at(40)
    assert [one.kind for one in story.runner.states["events"].chronicle.open] == ["ecc"]
    assert [kernel(story, KERNEL_EVENTS[kind]) for kind in ("oom_kill", "nvme_disabled", "api_mismatch")] == [1, 1, 1]


def test_a_flood_is_bounded_in_state_and_store(tell: Tell) -> None:
    story = tell(gpus=2).at(5)
    codes = [xid(code % 5_000, GPU_2, story.wall, name=f"p{code}") for code in range(4_000)]
    story.happens(*codes)
    began = time.thread_time()
    story.at(6)
    assert time.thread_time() - began < 5
    assert len(story.kept) <= 256
    (blob,) = [blob for name, _, blob in story.runner.dump() if name == "events"]
    assert len(blob) < 2_000_000


def test_counts_of_a_gpu_known_by_its_address_move_to_its_uuid(tell: Tell) -> None:
    story = tell(gpus=2).at(5)
    story.gpu(1, nameless=True).at(40)
    story.happens(xid(62, "0000:41:00", story.wall)).at(80)
    story.gpu(1, nameless=False).at(120)
    assert count(story, 1, 62) == 1


def test_state_of_junk_is_begun_afresh(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    story = tell(gpus=1).at(5)
    story.runner.restore(lambda name: (1, msgspec.msgpack.encode({"counters": 5})) if name == "events" else None)
    story.at(10)
    assert story.runner.problem() == ""
    assert "detector events begins afresh" in caplog.text


def test_words_that_come_a_moment_after_an_alert_are_in_it_before_it_is_told_and_once(tell: Tell) -> None:
    """The kernel log says why a GPU is gone some seconds after NVML says that it is."""
    story = tell(gpus=2).at(60)
    story.gpu(1, fault=LOST).at(62)
    story.happens(xid(79, "0000:41:00.0", story.wall)).at(120)
    told = [(at - 60, one.before.value, one.after.value, "Xid 79" in one.summary) for at, one in story.transitions]
    assert told == [(0, "inactive", "firing", False), (3, "firing", "firing", True)]
    assert story.engine.fired["gpu_dropped", Severity.CRITICAL] == 1
    (incident,) = story.incidents.open()
    assert ("Xid 79" in incident.summary, incident.fired_at) == (True, story.transitions[0][1].at)


def test_the_counters_of_a_gpu_begin_with_the_gpu_and_follow_its_index(tell: Tell) -> None:
    story = tell(gpus=2)
    story.nvml = False
    story.at(5)
    story.nvml = True
    story.at(7)
    assert [count(story, gpu, 79) for gpu in range(2)] == [0, 0]
    story.gpu(1, index=7).at(10)
    labels = {entry.target.labels["gpu"] for entry in story.board.view(story.wall, story.mono).of(XID)}
    assert labels == {"0", "7"}


def test_the_drivers_number_of_a_gpu_is_its_index_while_all_are_there(tell: Tell) -> None:
    story = tell(gpus=4).at(30)
    story.happens(told("gsp", Severity.WARNING, story.wall, index="2")).at(35)
    assert [event.key for event in story.kept] == [story.cards[2].uuid]


@pytest.mark.parametrize("facts", [{"silent": True}, {"silent": True, "on_bus": False}], ids=["on the bus", "gone"])
def test_the_drivers_number_blames_no_neighbour_once_a_gpu_is_gone(tell: Tell, facts: dict[str, object]) -> None:
    """NVML's indexes close up behind a GPU that has dropped, the driver's numbers do not."""
    story = tell(gpus=4).at(30).gpu(1, **facts)
    for card in story.cards[2:]:
        card.index -= 1
    story.at(60)
    story.happens(told("gsp", Severity.WARNING, story.wall, index="2")).at(120)
    (event,) = story.kept
    assert event.key == ""
    assert event.words == "gsp  (the driver's own number, which need not be NVML's index)"
    assert [one.gpu for one in story.heard(RULE)] == ["number 2 of the driver"]
