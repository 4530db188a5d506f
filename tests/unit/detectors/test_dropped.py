"""The story of GPUs that drop out (alerting.md DG, operator.md S1 and S12, cases.md 27), from NVML's answers to the alert."""

from collections.abc import Callable

import pytest

from gpuwatch.catalogue.derived import DOWN_REASON, LAST_SEEN, STATE, UP
from gpuwatch.catalogue.gpu import TEMPERATURE
from gpuwatch.detectors.presence import Known, Scene, judge
from gpuwatch.model.reading import Fault
from tests.fakes.happenings import xid
from tests.fakes.story import HUNG, LOST, RESET, START, UNKNOWN, UNLISTED, Story, card

RULE = "gpu_dropped"
Tell = Callable[..., Story]


def dropped(story: Story) -> list[tuple[str, str]]:
    """Return what was heard of dropped GPUs: which, and into what."""
    return [(one.gpu, one.after) for one in story.heard(RULE)]


@pytest.mark.parametrize(
    ("fault", "reason", "state"),
    [
        (LOST, "lost", "lost"),  # DG-02: GPU_IS_LOST, count unchanged
        (RESET, "reset_required", "reset_required"),
        (UNKNOWN, "unknown_error", "lost"),  # 999, the usual face of a lost GPU
        (UNLISTED, "lost", "lost"),  # DG-01: its UUID vanishes
    ],
)
def test_a_lost_gpu_is_told_once_within_15_s_and_no_other_is_blamed(tell: Tell, fault: Fault, reason: str, state: str) -> None:
    story = tell(gpus=8).at(60)
    story.gpu(5, fault=fault).at(400)
    assert [(one.gpu, one.after, one.severity, one.at - 60 <= 15) for one in story.heard()] == [("5", "firing", "critical", True)]
    assert (story.value(5, UP), story.value(5, STATE[state]), story.value(5, DOWN_REASON[reason])) == (0, 1, 1)
    assert story.value(5, TEMPERATURE["core"]) is None
    assert story.value(5, LAST_SEEN) == START + 59
    assert [story.value(index, UP) for index in (0, 1, 2, 3, 4, 6, 7)] == [1] * 7


def test_the_text_says_which_card_why_since_when_and_what_to_do(tell: Tell) -> None:  # S1
    story = tell(gpus=8, names={"0000:45:00.0": "slot 3"}).at(60)
    story.gpu(5, fault=LOST).at(70)
    ((_, told),) = story.transitions
    head = "GPU 5 (slot 3, 0000:45:00.0, NVIDIA A40, serial S5) dropped out: NVML says that it is lost (code 15); "
    assert told.summary.startswith(f"{head}no Xid was reported; last seen ")
    assert told.summary.endswith(
        ". Power cycle the host, a warm reboot is often not enough; then reseat the card and its power cables."
    )


def test_gpus_that_speak_of_the_driver_before_it_does_are_not_dropped(tell: Tell) -> None:
    """The driver's own reading may be up to 10 s older than theirs, and still says that all is well."""
    story = tell(gpus=4).at(60)
    for index in range(4):
        story.gpu(index, fault=Fault("driver", "the driver as a whole does not answer"))
    story.expects_nothing_until(90)
    assert [(story.value(index, UP), story.value(index, DOWN_REASON["driver"])) for index in range(4)] == [(0, 1)] * 4


def test_one_odd_answer_is_nothing(tell: Tell) -> None:  # S1: 999 on others for one sample
    story = tell(gpus=8).at(60)
    story.gpu(3, fault=UNKNOWN).at(61)
    story.gpu(3, fault=None).expects_nothing_until(200)


def test_one_call_that_fails_for_good_does_not_make_a_gpu_lost(story: Story) -> None:  # cases.md 43
    story.at(30)
    story.gpu(0, fault=UNKNOWN, partly=True).expects_nothing_until(300)
    assert (story.value(0, UP), story.value(0, STATE["degraded"])) == (1, 1)


def test_an_empty_list_every_third_time_is_nothing(tell: Tell) -> None:  # cases.md 27
    story = tell(gpus=4).at(60)
    for second in range(60, 240, 3):
        for each in story.cards:
            each.silent = True
        story.listed = 0
        story.at(second + 1)
        for each in story.cards:
            each.silent = False
        story.listed = None
        story.at(second + 3)
    assert story.heard() == []


def test_two_empty_lists_in_a_row_are_nothing(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    for fault in (UNLISTED, None):
        for each in story.cards:
            each.fault, each.silent = fault, fault is None
        story.at(story.now + 2)
        for each in story.cards:
            each.fault, each.silent = None, False
        story.at(story.now + 60)
    assert story.heard() == []


def test_one_list_is_one_answer_however_long_it_stands() -> None:
    known = Known(key="GPU-1", labels={"gpu": "1", "uuid": "GPU-1"}, last_seen=50.0)

    def after(clock: float, listed_at: float) -> str:
        scene = Scene(driver="ok", settled=True, listed=3.0, listed_at=listed_at, answering=3, bus={}, clock=clock)
        return judge(known, None, scene).state

    assert [after(60, 60), after(64, 60), after(69, 60)] == ["", "", ""]
    assert after(69.5, 69.5) == "missing"


def test_a_gpu_that_is_not_listed_any_more_is_missing(tell: Tell) -> None:
    story = tell(gpus=8).at(60)
    story.gpu(5, silent=True, on_bus=False).at(90)
    assert dropped(story) == [("5", "firing")]
    assert (story.value(5, STATE["missing"]), story.value(5, DOWN_REASON["missing"])) == (1, 1)


def test_a_gpu_that_only_the_bus_shows_is_lost(tell: Tell) -> None:  # DG-05
    story = tell(gpus=8).at(60)
    story.gpu(5, silent=True).at(90)
    assert (story.value(5, STATE["lost"]), story.value(5, DOWN_REASON["lost"])) == (1, 1)


def test_all_gpus_gone_while_nvml_lives_are_told_together(tell: Tell) -> None:  # DG-03
    story = tell(gpus=8).at(60)
    for index in range(8):
        story.gpu(index, silent=True)
    story.at(120)
    assert len({one.at for one in story.heard()}) == 1
    assert (len(dropped(story)), story.heard()[0].at - 60 <= 30) == (8, True)


def test_a_boot_with_seven_of_eight_is_told_within_a_minute(tell: Tell) -> None:  # DG-04
    story = tell(gpus=8).at(60)
    story.gpu(5, silent=True, on_bus=False)
    for index in (6, 7):  # the indexes of the others shift
        story.gpu(index, index=index - 1)
    story.boot_id = "boot-2"
    begun = story.restart(away=180).now
    story.at(begun + 300)
    assert [(one.gpu, one.after) for one in story.heard(RULE)] == [("5", "firing")]
    assert story.heard(RULE)[0].at - begun <= 60
    assert story.transitions[-1][1].target.key == story.cards[5].uuid


@pytest.mark.parametrize("up", [4, 9])
@pytest.mark.parametrize("facts", [{"fault": LOST}, {"fault": RESET}, {"fault": UNKNOWN}, {"fault": UNLISTED}, {"silent": True}])
def test_a_daemon_that_keeps_being_restarted_tells_of_a_lost_gpu(tell: Tell, up: int, facts: dict[str, object]) -> None:
    story = tell(gpus=8).at(60)
    story.gpu(5, **facts)
    for _ in range(8):
        story.restart(away=2)
        story.driver = None  # the worker has not answered yet
        story.at(story.now + 2)
        story.driver = "ok"
        story.at(story.now + up - 2)
    assert dropped(story) == [("5", "firing")]


def test_a_driver_that_may_have_been_loaded_anew_while_nobody_looked_settles_anew(tell: Tell) -> None:
    story = tell(gpus=8).at(60)
    for index in range(8):  # they come one by one
        story.gpu(index, silent=True)
    begun = story.restart(away=30).now
    for index in range(8):
        story.gpu(index, silent=False).at(begun + 2 * index)
    story.expects_nothing_until(300)


def test_an_alert_of_a_lost_gpu_lives_through_reboots_until_it_is_back(tell: Tell) -> None:  # S1
    story = tell(gpus=8).at(60)
    story.gpu(5, fault=LOST).at(100)
    story.gpu(5, silent=True, on_bus=False)
    story.restart(away=120).at(1000)
    story.driver = "not_loaded"
    story.restart(away=60).at(1400)
    story.driver = "ok"
    story.every = 30.0  # a long night, told in larger steps
    story.at(22_000 - 200)
    story.every = 1.0
    story.gpu(5, fault=None, silent=False, on_bus=True)
    story.restart(away=200).at(story.now + 60)
    assert dropped(story) == [("5", "firing"), ("5", "inactive")]
    (incident,) = story.incidents.known.values()
    assert (incident.id, incident.words["lasted"], "gone 6 h" in incident.summary) == ("id-1", "6 h 5 min", True)


def test_a_driver_reload_blames_no_gpu(tell: Tell) -> None:  # DG-08
    story = tell(gpus=8).at(60)
    story.driver = "not_loaded"
    story.at(100)
    assert (story.value(3, UP), story.value(3, STATE["ok"]), story.value(3, DOWN_REASON["driver"])) == (0, None, 1)
    story.driver = "ok"
    for index in range(8):  # they come one by one
        story.gpu(index, silent=True)
    for index in range(8):
        story.gpu(index, silent=False).at(102 + 2 * index)
    story.expects_nothing_until(300)


@pytest.mark.parametrize("state", ["version_mismatch", "not_loaded", "no_nodes", "access_lost", "no_library"])
def test_a_driver_that_is_down_blames_no_gpu(tell: Tell, state: str) -> None:  # DG-09, S2
    story = tell(gpus=4).at(60)
    story.driver = state
    story.expects_nothing_until(600)


def test_a_boot_without_the_driver_blames_no_gpu(tell: Tell) -> None:  # S2
    story = tell(gpus=4).at(60)
    story.driver = "not_loaded"
    story.restart(away=120).expects_nothing_until(900)
    assert (story.value(2, UP), story.value(2, DOWN_REASON["driver"])) == (0, 1)


def test_released_gpus_are_not_gone(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.driver = "released"
    story.expects_nothing_until(600)
    assert story.value(2, DOWN_REASON["released"]) == 1


def test_a_dead_worker_makes_gpus_late_and_not_lost(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.nvml = False
    story.expects_nothing_until(600)
    assert (story.value(2, UP), story.value(2, DOWN_REASON["late"]), story.value(2, STATE["ok"])) == (0, 1, None)


def test_one_late_gpu_is_late_and_not_lost(tell: Tell) -> None:  # DG-13
    story = tell(gpus=4).at(60)
    story.listed = 4
    story.gpu(2, silent=True).expects_nothing_until(300)
    assert (story.value(2, UP), story.value(2, DOWN_REASON["late"])) == (0, 1)


def test_a_hung_gpu_is_hung(tell: Tell) -> None:  # S7
    story = tell(gpus=4).at(60)
    story.gpu(2, fault=HUNG).expects_nothing_until(300)
    assert (story.value(2, UP), story.value(2, STATE["hung"]), story.value(2, DOWN_REASON["hung"])) == (0, 1, 1)


def test_a_hung_gpu_that_the_bus_finds_dead_is_lost(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.gpu(2, fault=HUNG, all_ones=True).at(90)
    assert dropped(story) == [("2", "firing")]


def test_a_gpu_that_reads_as_all_ones_but_answers_is_there(tell: Tell) -> None:
    story = tell(gpus=4)
    story.gpu(2, all_ones=True).expects_nothing_until(120)


def test_a_gpu_given_to_a_virtual_machine_is_not_gone(tell: Tell) -> None:  # DG-11
    story = tell(gpus=4).at(60)
    story.gpu(2, silent=True, bound_to="vfio-pci").expects_nothing_until(300)
    assert story.value(2, DOWN_REASON["released"]) == 1


def test_swapped_indexes_are_nothing(tell: Tell) -> None:  # DG-12, S12 d
    story = tell(gpus=4).at(60)
    story.gpu(1, index=2).gpu(2, index=1)
    story.restart(away=120).expects_nothing_until(600)


def test_another_card_in_the_slot_is_a_replacement(tell: Tell) -> None:  # S12 a
    story = tell(gpus=4).at(60)
    story.gpu(2, uuid="GPU-99999999-aaaa-bbbb-cccc-000000000000", serial="S99")
    story.restart(away=600).expects_nothing_until(1500)


def test_a_replaced_card_takes_its_alert_with_it(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.gpu(2, fault=LOST).at(120)
    story.gpu(2, fault=None, uuid="GPU-99999999-aaaa-bbbb-cccc-000000000000", serial="S99")
    story.restart(away=600).at(1500)
    assert dropped(story) == [("2", "firing"), ("2", "inactive")]
    assert story.transitions[-1][1].words["because"] == "replaced at 0000:42:00.0: serial S2 by serial S99"


def test_an_empty_slot_stays_critical(tell: Tell) -> None:  # S12 b
    story = tell(gpus=4).at(60)
    story.gpu(2, silent=True, on_bus=False)
    story.every = 10.0
    story.restart(away=600).at(3000)
    story.restart(away=600).at(6000)
    assert dropped(story) == [("2", "firing")]


def test_too_few_gpus_at_the_first_start_are_critical_within_a_minute(tell: Tell) -> None:  # S12 e
    story = tell(gpus=7, expected=8).at(300)
    assert [(one.gpu, one.after, one.severity, one.at <= 60) for one in story.heard()] == [
        ("missing-1", "firing", "critical", True)
    ]
    assert (
        "this host should have 8 GPUs ([inventory] gpus), and 7 are known; no Xid was reported; last seen never"
        in story.transitions[0][1].summary
    )
    story.cards.append(card(7))
    story.at(330)
    assert dropped(story) == [("missing-1", "firing"), ("missing-1", "inactive")]


def test_the_configuration_can_say_that_a_lost_gpu_was_removed_for_good(tell: Tell) -> None:
    story = tell(gpus=4, expected=4).at(60)
    story.gpu(2, silent=True).at(120)
    story.config = tell(expected=3).config
    story.restart(away=10).at(300)
    assert dropped(story) == [("2", "firing"), ("2", "inactive")]


def test_a_gpu_that_is_lost_at_the_first_start_is_told(tell: Tell) -> None:  # S5
    story = tell(gpus=4).gpu(1, fault=LOST).at(20)
    assert dropped(story) == [("1", "firing")]


def test_a_gpu_that_cannot_say_its_name_is_the_one_at_its_address(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.gpu(1, nameless=True, fault=LOST).at(80)
    assert [(one.target.key, one.after.value) for _, one in story.transitions] == [(story.cards[1].uuid, "firing")]


def test_a_new_gpu_is_learned_by_itself(tell: Tell) -> None:
    story = tell(gpus=4).at(60)
    story.cards.append(card(4))
    story.restart(away=600).at(700)
    story.gpu(4, silent=True).at(800)
    assert dropped(story) == [("4", "firing")]


def test_the_clock_may_step_while_a_gpu_is_away_for_a_moment(tell: Tell) -> None:  # EN-05
    story = tell(gpus=2).at(60)
    story.gpu(1, silent=True).at(61)
    story.step_wall(3600).at(62)
    story.gpu(1, silent=False).at(70)
    story.step_wall(-3600).expects_nothing_until(200)


@pytest.mark.parametrize("leap", [3600.0, -3600.0])
def test_a_clock_that_steps_does_not_make_odd_answers_last(tell: Tell, leap: float) -> None:  # EN-05
    story = tell(gpus=2).at(60)
    story.gpu(1, fault=UNKNOWN).at(61)
    story.step_wall(leap).at(62)
    story.gpu(1, fault=None).expects_nothing_until(200)


def test_the_warnings_of_a_dropped_gpu_are_muted(tell: Tell) -> None:  # EN-10
    story = tell(gpus=2).gpu(0, temperature=88.0).gpu(1, temperature=88.0).at(110)
    story.gpu(1, fault=LOST).at(111)
    assert {(rule, target.labels["gpu"]) for rule, target in story.engine.muted() if target.labels} == {
        ("gpu_errors", "1"),
        ("gpu_overheating", "1"),
    }


def test_an_xid_that_is_told_minutes_later_is_in_the_words_of_the_drop(tell: Tell) -> None:
    story = tell(gpus=4).at(5).gpu(2, fault=LOST)
    story.at(400).happens(xid(79, "0000:42:00.0", story.wall)).at(800)
    said = [one.summary for _, one in story.transitions if one.rule == "gpu_dropped"]
    assert ["no Xid was reported" in words for words in (said[0], said[-1])] == [True, False]
    assert "Xid 79" in said[-1]
