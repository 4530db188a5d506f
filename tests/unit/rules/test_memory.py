"""What survives a restart, kill -9 included (alerting.md E4, EN-02)."""

import logging
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuwatch.model.alert import AlertState
from tests.fakes.story import Story

RULE = "gpu_overheating"
LONG = {RULE: {"critical": {"threshold": 90, "for": "10m"}, "enabled": True, "threshold": 200}}
Tell = Callable[..., Story]


def test_a_restart_of_30_s_does_not_restart_a_clock_of_10_min(tell: Tell) -> None:
    story = tell(LONG).gpu(0, temperature=95.0).at(500)
    story.restart(away=30).at(900)
    assert [(one.after, one.at) for one in story.heard()] == [("firing", 630.0)]


def test_the_time_we_were_down_is_a_gap_that_counts_for_nothing(tell: Tell) -> None:
    story = tell(LONG).gpu(0, temperature=95.0).at(300)
    story.restart(away=400).at(999)
    assert story.heard() == []
    story.at(1001)
    assert [one.after for one in story.heard()] == ["firing"]


def test_a_gap_longer_than_the_hold_begins_it_anew(tell: Tell) -> None:
    story = tell(LONG).gpu(0, temperature=95.0).at(300)
    begun = story.restart(away=700).now
    story.at(begun + 599)
    assert story.heard() == []
    story.at(begun + 602)
    assert [one.after for one in story.heard()] == ["firing"]


def test_a_window_goes_on_after_a_restart(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(80)
    story.restart(away=30).at(80 + 30 + 20)
    assert [one.after for one in story.heard()] == ["firing"]


def test_a_firing_alert_goes_on_without_a_word(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    since = story.incidents.open()[0].since
    story.restart(away=3600).at(4000)
    assert [one.after for one in story.heard()] == ["firing"]
    (incident,) = story.incidents.open()
    assert (incident.id, incident.since) == ("id-1", since)


def test_what_cleared_while_we_were_down_is_resolved_after(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    story.gpu(0, temperature=60.0)
    story.restart(away=600).at(1100)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]


def test_a_target_that_does_not_come_back_turns_stale_after_a_minute(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    story.nvml = False
    begun = story.restart(away=10).now
    story.at(begun + 59)
    assert [one.after for one in story.heard()] == ["firing"]
    story.at(begun + 70)
    assert [one.after for one in story.heard()] == ["firing", "stale"]


def test_two_restarts_in_a_row_lose_nothing(tell: Tell) -> None:
    story = tell(LONG).gpu(0, temperature=95.0).at(500)
    story.restart(away=30).restart(away=30).at(755)
    assert [one.after for one in story.heard()] == ["firing"]


def test_an_alert_newer_than_the_dump_is_taken_from_its_incident(story: Story) -> None:
    story.save()
    story.gpu(0, temperature=88.0).at(200)
    story.gpu(0, temperature=60.0)
    story.restart(away=5, crashed=True).at(205 + 190)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]
    assert story.incidents.open() == []


def test_an_alert_taken_from_its_incident_waits_for_the_first_answer(story: Story) -> None:
    story.save()
    story.gpu(0, temperature=88.0).at(200)
    story.nvml = False
    begun = story.restart(away=5, crashed=True).now
    story.at(begun + 30)
    story.nvml = True
    story.at(begun + 60)
    assert [one.after for one in story.heard()] == ["firing"]


def test_an_alert_that_ended_after_the_dump_can_fire_again(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    story.save()
    story.gpu(0, temperature=60.0).at(500)
    story.gpu(0, temperature=88.0)
    story.restart(away=5, crashed=True).at(700)
    assert [one.after for one in story.heard()] == ["firing", "inactive", "firing"]


def test_an_incident_of_a_rule_that_was_switched_off_ends(tell: Tell) -> None:
    story = tell().gpu(0, temperature=88.0).at(200)
    story.rules = tell({RULE: {"enabled": False}}).rules
    story.restart(away=5).at(300)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]
    assert story.transitions[-1][1].words["because"] == "the rule is switched off"


def test_an_incident_of_a_subject_that_only_a_newer_gpuwatch_knows_ends_after_a_downgrade(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    (known,) = story.incidents.open()
    newer = replace(known, id="id-9", rule="pump_failed", subject="pump", key="pump 1")
    story.incidents.restore([known, newer])
    (ended,) = story.incidents.apply(story.engine.adopt([known, newer], story.mono, story.wall))
    assert (ended.id, ended.state, ended.words["because"]) == ("id-9", AlertState.INACTIVE, "the rule is switched off")
    assert story.incidents.open() == [known]


def test_a_changed_threshold_is_judged_anew_and_does_not_flap(tell: Tell) -> None:  # E16
    story = tell().gpu(0, temperature=88.0).at(200)
    story.rules = tell({RULE: {"threshold": 90}}).rules
    story.restart(away=5).at(300)
    assert [one.after for one in story.heard()] == ["firing"]  # 88 is above the new clear level
    story.rules = tell({RULE: {"threshold": 95}}).rules
    story.restart(away=5).at(600)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]


NOW = b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00"
DEEP = b"\x94\x01" + NOW + b"\x90" + b"\x91" * 5000 + b"\x90"  # a part that we do not know, nested without an end


@pytest.mark.parametrize("blob", [b"", b"\xff", b"\x93\x09" + NOW + b"\x90", b"\x91", DEEP])
def test_what_cannot_be_read_back_is_said_and_costs_nothing(story: Story, blob: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        story.engine.restore(blob, story.mono, story.wall)
    assert len(caplog.records) == 1
    story.gpu(0, temperature=88.0).at(120)
    assert [one.after for one in story.heard()] == ["firing"]


def test_a_wall_clock_that_stepped_back_over_the_restart_does_nothing(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    story.step_wall(-7200)
    story.restart(away=5).at(300)
    assert [(one.after) for one in story.heard()] == ["firing"]
    assert story.incidents.open()[0].state is AlertState.FIRING
