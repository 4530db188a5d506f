"""How events fold into stories: what belongs together, what is its cause, how grave it is, and when it is over."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.catalogue.events import KINDS
from gpuwatch.catalogue.xids import xids
from gpuwatch.detectors.stories import OPEN_LIMIT, Chronicle, Scene, Story, add, settle
from gpuwatch.detectors.suspicion import THINGS
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from tests.fakes.happenings import told, xid

GPUS = ("GPU-0", "GPU-1", "GPU-2")
HOUR, DAY = 3600.0, 86400.0
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


class Tale:
    """A chronicle on a clock that a test moves."""

    def __init__(self, gpus: Sequence[str] = GPUS) -> None:
        self.chronicle, self.gpus = Chronicle(), gpus
        self.over: list[Story] = []
        self.boot = "boot-1"
        self.look(0)

    def hear(self, *events: Event) -> "Tale":
        """Tell events, each at its time."""
        for event in events:
            self.over += add(self.chronicle, event, event.count, clock=event.at, wall=event.at)
            self.look(event.at)
        return self

    def look(self, now: float, **facts: object) -> "Tale":
        """Let a beat pass in which this is true of the GPUs."""
        scene = Scene(boot=self.boot, **facts)  # type: ignore[arg-type] # facts go through as they are
        self.over += settle(self.chronicle, scene, now, self.gpus)
        return self

    def open(self) -> list[tuple[str, str, Severity]]:
        """Return thing, cause and severity of the open stories."""
        return [(one.thing, one.label, one.severity) for one in self.chronicle.open]

    @property
    def last(self) -> Story:
        """The story that began last."""
        return self.chronicle.open[-1]


@pytest.mark.parametrize("codes", [(79, 119, 48, 45), (45, 48, 119, 79), (119, 45, 79, 48)])
def test_the_cause_is_the_gravest_by_rank_whatever_came_first(codes: tuple[int, ...]) -> None:
    tale = Tale().hear(*(xid(code, "GPU-0", 10.0 + n) for n, code in enumerate(codes)))
    assert tale.open() == [("gpu GPU-0", "Xid 79", CRITICAL)]


def test_the_order_of_causes_is_that_of_the_reference() -> None:
    order = [(79,), (119, 120, 62), (48, 95, 140), (64,), (74,), (94, 63), (31, 13, 43), (45,)]
    for first, second in itertools.pairwise(order):
        for grave in first:
            for mild in second:
                assert Tale().hear(xid(mild, "GPU-0", 1), xid(grave, "GPU-0", 2)).last.label == f"Xid {grave}"
                assert Tale().hear(xid(grave, "GPU-0", 1), xid(mild, "GPU-0", 2)).last.label == f"Xid {grave}"


def test_of_equal_causes_the_first_is_the_root() -> None:
    assert Tale().hear(xid(62, "GPU-0", 1), xid(119, "GPU-0", 7)).last.label == "Xid 62"
    assert Tale().hear(xid(119, "GPU-0", 1), xid(62, "GPU-0", 7)).last.label == "Xid 119"


def test_another_gpu_is_another_story_and_so_is_another_cause_after_a_minute() -> None:
    tale = Tale().hear(xid(31, "GPU-0", 0), xid(31, "GPU-1", 1), xid(48, "GPU-0", 62))
    assert tale.open() == [
        ("gpu GPU-0", "Xid 31", INFO),
        ("gpu GPU-1", "Xid 31", INFO),
        ("gpu GPU-0", "Xid 48", CRITICAL),
    ]


def test_the_same_again_within_ten_minutes_goes_on_and_later_begins_anew() -> None:
    tale = Tale().hear(*(xid(119, "GPU-0", 45.0 * n) for n in range(36)))
    assert (len(tale.chronicle.open), tale.last.count) == (1, 36)
    tale.hear(xid(119, "GPU-0", 45 * 35 + 599), xid(119, "GPU-0", 45 * 35 + 599 + 601))
    assert ([one.count for one in tale.over], tale.last.count) == ([37], 1)


def test_a_fall_that_is_told_minutes_apart_is_one() -> None:
    tale = Tale().hear(told("off_bus", CRITICAL, 0, "GPU-0"), xid(79, "GPU-0", 200), xid(45, "GPU-0", 240))
    assert ([one.label for one in tale.chronicle.open], tale.last.also) == (["off_bus"], "Xid 79 x1, Xid 45 x1")


@pytest.mark.parametrize(("recovery", "severity"), [("1", CRITICAL), ("2", CRITICAL), ("4", CRITICAL), ("", WARNING)])
def test_a_recovery_action_is_attached_and_raises_even_an_error_of_a_program(recovery: str, severity: Severity) -> None:
    tale = Tale().hear(xid(31, "GPU-0", 0), xid(154, "GPU-0", 300, recovery=recovery))
    assert tale.open() == [("gpu GPU-0", "Xid 31", severity)]
    assert tale.last.action.startswith("the driver asks for: ") is bool(recovery)


def test_a_recovery_action_of_none_ends_all_stories_of_that_gpu_and_begins_none() -> None:
    tale = Tale().hear(xid(31, "GPU-0", 0), xid(48, "GPU-0", 100), xid(31, "GPU-1", 100), xid(154, "GPU-0", 200, recovery="0"))
    assert [one[0] for one in tale.open()] == ["gpu GPU-1"]
    assert Tale().hear(xid(154, "GPU-0", 0, recovery="0")).open() == []


def test_a_recovery_action_that_nvml_tells_is_the_same_trouble() -> None:
    event = told("recovery_action", CRITICAL, 5, "GPU-0", recovery="2")
    tale = Tale().hear(xid(31, "GPU-0", 0), event)
    assert (tale.last.label, tale.last.recovery, tale.last.severity, tale.last.also) == ("Xid 31", "2", CRITICAL, "Xid 154 x1")


def test_a_driver_that_wants_nothing_any_more_ends_what_it_wanted_something_for() -> None:
    tale = Tale().hear(xid(48, "GPU-0", 0), xid(154, "GPU-0", 1, recovery="1"), xid(48, "GPU-1", 1))
    tale.look(60, wants_nothing={"GPU-0": 0.5, "GPU-1": 59.0})
    assert len(tale.open()) == 2  # it was asked before the error; GPU 1 was never asked for anything
    tale.look(120, wants_nothing={"GPU-0": 119.0, "GPU-1": 119.0})
    assert [one[0] for one in tale.open()] == ["gpu GPU-1"]


def test_the_word_in_the_line_counts_for_nvlink_5_and_nvml_does_not_know_it() -> None:  # cases.md 37
    tale = Tale().hear(xid(145, "GPU-0", 0, fatal="no"))
    assert tale.last.severity is WARNING
    tale.hear(xid(145, "GPU-0", 1, fatal="yes"))
    assert tale.last.severity is CRITICAL
    tale = Tale().hear(xid(149, "GPU-0", 0, source="nvml"))
    assert tale.last.severity is CRITICAL  # as the table has it
    tale.hear(xid(149, "GPU-0", 0.5, fatal="no"))
    assert tale.last.severity is WARNING


def test_an_uncorrectable_error_that_was_contained_is_a_warning() -> None:
    tale = Tale().hear(xid(48, "GPU-0", 0))
    assert tale.last.severity is CRITICAL
    tale.hear(xid(63, "GPU-0", 0.1), xid(94, "GPU-0", 0.2))
    assert (tale.open(), "restart the affected app" in tale.last.action) == ([("gpu GPU-0", "Xid 48", WARNING)], True)
    tale.hear(xid(95, "GPU-0", 5))
    assert tale.last.severity is CRITICAL


@pytest.mark.parametrize("code", [38, 44])
def test_a_firmware_watchdog_is_critical_when_it_repeats(code: int) -> None:
    tale = Tale().hear(xid(code, "GPU-0", 0), xid(code, "GPU-0", 5))
    assert tale.last.severity is WARNING
    assert tale.hear(xid(code, "GPU-0", 2 * HOUR)).last.severity is CRITICAL
    assert tale.hear(xid(code, "GPU-0", 3 * DAY)).last.severity is WARNING


@pytest.mark.parametrize("code", [13, 31, 32, 43, 45, 68, 69])
def test_an_error_of_a_program_is_information(code: int) -> None:  # operator.md 3
    assert Tale().hear(xid(code, "GPU-0", 0)).last.severity is INFO


def test_errors_of_programs_are_no_hardware_verdict_until_they_come_three_times_on_one_gpu() -> None:
    tale = Tale().hear(xid(13, "GPU-0", 0), xid(43, "GPU-0", 1), xid(13, "GPU-0", HOUR))
    assert (tale.last.severity, tale.last.suspicion) == (INFO, "")
    assert tale.hear(xid(31, "GPU-0", 2 * HOUR)).last.severity is WARNING
    assert tale.last.suspicion == "errors of programs 3 times in a day, none on the other GPUs: suspect this GPU"


def test_two_programs_that_fail_on_one_gpu_are_a_suspicion_even_as_information() -> None:
    tale = Tale().hear(xid(43, "GPU-0", 0, name="train"), xid(43, "GPU-0", HOUR, name="train"))
    assert (tale.last.severity, tale.last.suspicion) == (INFO, "")
    tale.hear(xid(43, "GPU-0", HOUR + 30, name="infer"))
    assert tale.last.severity is WARNING
    assert tale.last.suspicion.startswith("errors of different programs (infer, train)")


def test_no_gpu_is_suspected_whose_siblings_have_errors_too_or_that_has_none() -> None:
    hours = [xid(13, "GPU-0", n * HOUR) for n in range(5)]
    assert Tale().hear(xid(31, "GPU-2", 0), *hours).last.suspicion == ""
    assert Tale(["GPU-0"]).hear(*hours).last.suspicion == ""
    assert Tale().hear(*hours).last.suspicion != ""


def test_a_controller_that_halts_again_within_a_week_is_the_card_or_its_power() -> None:
    tale = Tale().hear(xid(62, "GPU-0", 0), xid(62, "GPU-0", 30))
    assert tale.last.suspicion == ""
    tale.boot = "boot-2"
    tale.look(DAY).hear(xid(62, "GPU-0", 2 * DAY))
    assert tale.last.suspicion == "Xid 62 has come 2 times: suspect the card or its power, not the program"


def test_what_comes_back_after_two_reboots_is_the_hardware() -> None:  # cases.md 39
    tale = Tale()
    words = []
    for number in range(3):
        tale.boot = f"boot-{number}"
        tale.look(number * HOUR).hear(xid(145, "GPU-0", number * HOUR + 1, fatal="yes"))
        words.append(tale.last.suspicion)
    assert words == ["", "", "Xid 145 has come back after 2 reboots: suspect the hardware"]


def test_a_nonfatal_switch_error_is_information_until_it_comes_back_on_that_link() -> None:
    def error(at: float, link: str, severity: Severity = INFO) -> Event:
        event = told("sxid", severity, at, "0000:86:00.0", link=link, fatal="no")
        return replace(event, code=12028)

    tale = Tale().hear(error(0, "61"), error(1, "61"), error(HOUR, "5"))
    assert tale.last.severity is INFO
    assert tale.hear(error(2 * HOUR, "61")).last.severity is WARNING
    assert Tale().hear(error(0, "1", CRITICAL)).last.severity is CRITICAL


def test_corrected_bus_errors_are_a_warning_when_they_go_on() -> None:
    def at(seconds: float, every: float) -> Severity:
        tale = Tale()
        moment = 0.0
        while moment < seconds:
            tale.hear(told("aer_corrected", INFO, moment, "GPU-0"))
            moment += every
        return tale.last.severity

    assert [at(90, 1), at(HOUR, 10), at(HOUR, 5.5), at(20, 1)] == [WARNING, INFO, WARNING, INFO]
    assert Tale().hear(told("aer_fatal", CRITICAL, 0, "GPU-0")).last.severity is CRITICAL


def test_each_victim_of_memory_is_a_story_and_a_dead_disk_with_its_file_systems_is_one() -> None:
    tale = Tale().hear(told("oom_kill", CRITICAL, 0, pid="7"), told("oom_kill", CRITICAL, 1, pid="8"))
    assert [one[0] for one in tale.open()] == ["host oom_kill 7", "host oom_kill 8"]
    tale = Tale().hear(
        told("nvme_timeout", WARNING, 0, "nvme4"),
        told("nvme_disabled", CRITICAL, 490, "nvme4"),
        told("io_error", WARNING, 490, "nvme4n1"),
        told("io_error", WARNING, 550, "dm-0"),
        told("fs_readonly", CRITICAL, 551, "dm-0"),
        told("nvme_timeout", WARNING, 552, "nvme1"),
    )
    assert tale.open() == [("disk nvme4", "nvme_disabled", CRITICAL), ("disk nvme1", "nvme_timeout", WARNING)]


def test_a_gpu_that_was_gone_and_answers_is_over_and_one_that_never_left_after_a_minute() -> None:
    tale = Tale().hear(xid(79, "GPU-0", 100), xid(79, "GPU-1", 100), xid(48, "GPU-1", 101))
    tale.look(103, gone={"GPU-0"}, working={"GPU-1": 102.0})
    assert len(tale.open()) == 2
    tale.look(30 * DAY, gone={"GPU-0"})
    assert [one[0] for one in tale.open()] == ["gpu GPU-0", "gpu GPU-1"]  # a fall is not over by silence
    tale = Tale().hear(xid(79, "GPU-0", 100), xid(79, "GPU-1", 100)).look(103, gone={"GPU-0"})
    tale.look(150, working={"GPU-0": 149.0, "GPU-1": 149.0})
    assert [one[0] for one in tale.open()] == ["gpu GPU-1"]
    assert tale.look(170, working={"GPU-1": 165.0}).open() == []


@pytest.mark.parametrize(
    ("code", "quiet"), [(45, 600.0), (31, 1800.0), (8, 6 * HOUR), (63, DAY), (62, DAY)], ids=lambda value: f"{value:g}"
)
def test_a_story_is_over_after_its_time_of_silence(code: int, quiet: float) -> None:
    tale = Tale().hear(xid(code, "GPU-0", 0))
    assert len(tale.look(quiet - 1).open()) == 1
    assert tale.look(quiet).open() == []


def test_what_a_first_look_finds_in_an_old_log_is_as_old_as_it_says() -> None:
    tale = Tale()
    add(tale.chronicle, xid(31, "GPU-0", 1000.0), 1, clock=5.0, wall=1000.0 + HOUR)
    assert tale.look(6.0).open() == []


def test_a_reboot_ends_every_story_but_not_those_of_the_new_boot() -> None:
    tale = Tale().hear(xid(62, "GPU-0", 0, mark="boot-1:5"), xid(79, "GPU-2", 0))
    tale.boot = "boot-2"
    tale.hear(xid(62, "GPU-1", 10, mark="boot-2:5"))
    assert [one[0] for one in tale.look(20).open()] == ["gpu GPU-1"]


WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
EVENTS = st.builds(
    Event,
    source=st.sampled_from(["kernel", "nvml"]),
    kind=st.sampled_from([*KINDS]),
    severity=st.sampled_from(list(Severity)),
    at=st.floats(-1e6, 1e6),
    words=WORDS,
    subject=st.sampled_from(["gpu", "host", "disk", "pci", "driver", "nvswitch"]),
    key=st.sampled_from(["", "GPU-0", "GPU-1", "0000:65:00.0", "nvme0n1p1", "dm-0", "sda1"]),
    code=st.one_of(st.none(), st.sampled_from([*xids()]), st.integers(0, 10**9)),
    facts=st.dictionaries(
        st.sampled_from(["pid", "name", "recovery", "fatal", "link", "index", "nvidia"]),
        WORDS,
    ),
    count=st.integers(1, 10**9),
    mark=st.sampled_from(["", "boot-1:5", "boot-1:5-7", "junk", ":", "a:b-c"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_whatever_is_told_no_story_breaks_and_all_of_it_can_be_stored(events: list[Event]) -> None:
    tale = Tale().hear(*events)
    for story in (*tale.chronicle.open, *tale.over):
        assert (story.count >= 1, story.title != "", isinstance(story.also + story.action, str)) == (True, True, True)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(tale.chronicle), type=Chronicle)
    assert len(again.open) == len(tale.chronicle.open)


def test_what_is_remembered_is_bounded() -> None:
    tale = Tale()
    for number in range(3000):
        add(
            tale.chronicle, told("oom_kill", CRITICAL, float(number), pid=str(number)), 1, clock=float(number), wall=float(number)
        )
    assert len(tale.chronicle.open) == OPEN_LIMIT
    assert len(tale.chronicle.past) == THINGS
