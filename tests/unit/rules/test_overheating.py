"""The story of heat: what fires, when, and what does not (alerting.md OH-01 to OH-11)."""

from collections.abc import Callable

import pytest

from gpuwatch.catalogue.gpu import TEMPERATURE, TEMPERATURE_MARGIN, TEMPERATURE_TLIMIT_OFFSET
from gpuwatch.model.alert import AlertState
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.view import Entry, View
from tests.fakes.story import LOST, Heard, Story

RULE = "gpu_overheating"
Tell = Callable[..., Story]


def test_heat_that_passes_is_not_an_alert(story: Story) -> None:
    story.at(10).gpu(0, temperature=95.0)
    story.at(70).gpu(0, temperature=60.0)
    story.expects_nothing_until(900)


def test_a_slow_ramp_fires_within_150_s_of_the_limit(story: Story) -> None:  # OH-01
    story.gpu(0, temperature=70.0).at(60)
    for second in range(0, 1200, 10):
        story.gpu(0, temperature=70 + 18 * second / 1200).at(60 + second)
    passed = 60 + 1200 * 15 / 18
    story.gpu(0, temperature=88.0).at(1500)
    (only,) = story.heard()
    assert (only.rule, only.after, only.severity) == (RULE, "firing", "warning")
    assert only.at - passed <= 150


def test_heat_that_swings_around_the_limit_is_told_once(story: Story) -> None:  # OH-04
    for second in range(0, 1800, 40):
        story.gpu(0, temperature=84.0).at(second + 6)
        story.gpu(0, temperature=88.0).at(second + 40)
    (only,) = story.heard()
    assert (only.after, only.at <= 180) == ("firing", True)


def test_one_degree_before_slowdown_is_critical_in_the_same_incident(story: Story) -> None:  # OH-06
    story.gpu(0, temperature=86.0, slowdown=93.0).at(600)
    story.gpu(0, temperature=92.0).at(700)
    assert [(one.after, one.severity) for one in story.heard()] == [("firing", "warning"), ("firing", "critical")]
    assert story.heard()[1].at - 600 <= 60
    (incident,) = story.incidents.open()
    assert (incident.severity.value, incident.highest.value, incident.id) == ("critical", "critical", "id-1")
    assert "reached 92 C, near or past where the hardware cuts its clocks" in incident.summary


def test_a_lower_severity_is_told_in_the_same_incident_and_keeps_the_highest(story: Story) -> None:
    story.gpu(0, temperature=92.0, slowdown=93.0).at(200)
    story.gpu(0, temperature=84.0).at(600)
    assert [(one.after, one.severity) for one in story.heard()] == [
        ("firing", "critical"),
        ("firing", "warning"),
    ]
    (incident,) = story.incidents.open()
    assert (incident.severity.value, incident.highest.value) == ("warning", "critical")
    assert "reached 92 C, limit 85 C" in incident.summary  # and not 84, which is below it


def test_what_is_told_again_at_a_value_between_the_limits_says_what_it_was_raised_for(story: Story) -> None:
    story.gpu(0, temperature=95.0, slowdown=95.0).at(200)
    story.gpu(0, silent=True).at(230)
    story.gpu(0, temperature=90.0, silent=False).at(240)  # neither near the slowdown, nor far enough from it to be over
    told = [one for _, one in story.transitions if one.rule == RULE]
    assert [one.after.value for one in told] == ["firing", "stale", "firing"]
    text = "reached 95 C, near or past where the hardware cuts its clocks"
    assert [text in one.summary for one in told] == [True] * 3
    assert told[-1].numbers["temperature_celsius_core"] == 95.0


def test_the_end_of_a_rule_that_is_told_for_another_reason_does_not_say_that_it_has_cooled_down(tell: Tell) -> None:
    story = tell().gpu(0, temperature=88.0).at(200)
    (alert,) = (one for one in story.engine.awake() if one.rule.name == RULE)
    reading = Reading(
        source="derived",
        tier=Tier.FAST,
        target=alert.target,
        at=story.wall,
        took=0.0,
        values={},
        fault=Fault("retired", "replaced by GPU-2"),
    )
    view = View(story.wall, {alert.target: Entry(alert.target, {TEMPERATURE["core"]: 88.0}, {}, (reading,))})
    (end,) = (one for one in story.engine.beat(view, story.mono, {}) if one.rule == RULE)
    assert end.summary.partition(")")[2] == ": over after 3 min 20 s (replaced by GPU-2)"


def test_a_single_wild_sample_is_nothing(story: Story) -> None:  # OH-07
    story.gpu(0, slowdown=93.0).at(60)
    story.gpu(0, temperature=255.0).at(61)
    story.gpu(0, temperature=60.0).expects_nothing_until(300)


def test_exactly_the_limit_is_not_over_it(tell: Tell) -> None:  # OH-08
    story = tell(every=5.0)
    story.gpu(0, temperature=85.0).expects_nothing_until(3600)


def test_a_minute_of_heat_every_20_minutes_is_nothing(tell: Tell) -> None:  # OH-09
    story = tell(every=5.0)
    for start in range(0, 4800, 1200):
        story.gpu(0, temperature=88.0).at(start + 60)
        story.gpu(0, temperature=70.0).at(start + 1200)
    assert story.heard() == []


def test_a_gpu_without_a_temperature_is_left_in_peace(story: Story) -> None:  # OH-11
    story.gpu(0, temperature=None).expects_nothing_until(300)


def test_a_card_without_a_slowdown_limit_is_critical_at_the_last_resort(story: Story) -> None:
    story.gpu(0, temperature=100.0).at(60)
    assert [(one.after, one.severity) for one in story.heard()] == [("firing", "critical")]
    story.gpu(0, temperature=60.0).at(300)
    assert story.heard()[-1].after == "inactive"


def tlimit(story: Story, core: float, most: float, offset: float) -> Story:
    """Have the card at a temperature, of which it tells the margin to its maximum of `most` degrees."""
    return story.gpu(0, temperature=core, more={TEMPERATURE_MARGIN: most - core, TEMPERATURE_TLIMIT_OFFSET["slowdown"]: offset})


@pytest.mark.parametrize(
    ("most", "offset"),
    [
        (83.0, -2.0),  # RTX 4090
        (85.0, -2.0),  # L4
        (87.0, -2.0),  # H100
        (93.0, 0.0),  # RTX PRO 6000
    ],
)
@pytest.mark.parametrize("past", [-1.0, 0.0, 5.0])
def test_a_card_that_tells_offsets_is_critical_at_its_slowdown_and_past_it(
    story: Story, most: float, offset: float, past: float
) -> None:
    slowdown = most - offset
    tlimit(story, slowdown - 2, most, offset).at(300)
    assert [one.severity for one in story.heard()] == (["warning"] if slowdown - 2 > 85 else [])
    story.transitions.clear()
    tlimit(story, slowdown - 1, most, offset).at(315)
    tlimit(story, slowdown + past, most, offset).at(335)  # it gets hotter while the hold runs
    assert [(one.after, one.severity, one.at) for one in story.heard()] == [("firing", "critical", 330.0)]
    story.at(900)
    assert [one.after for one in story.heard() if one.severity == "critical"] == ["firing"]
    tlimit(story, 60.0, most, offset).at(1300)
    assert story.heard()[-1].after == "inactive"


def test_it_clears_after_three_minutes_at_80_and_says_how_long_it_lasted(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    story.gpu(0, temperature=82.0).at(1000)
    assert [one.after for one in story.heard()] == ["firing"]
    story.gpu(0, temperature=80.0).at(1300)
    _, over = story.heard()
    assert (over.after, 1180 <= over.at <= 1181) == ("inactive", True)
    assert story.transitions[-1][1].summary.startswith(
        "GPU 0 (0000:40:00.0, NVIDIA A40, serial S0) has cooled down to 80 C after 19 min"
    )


def test_the_text_names_the_card_so_that_somebody_finds_it(tell: Tell) -> None:
    story = tell(names={"0000:40:00.0": "slot 3"}).gpu(0, temperature=88.0).at(200)
    ((_, told),) = story.transitions
    assert told.summary == (
        "GPU 0 (slot 3, 0000:40:00.0, NVIDIA A40, serial S0) reached 88 C, limit 85 C; check airflow, fans and dust"
    )
    assert (told.value, told.numbers["threshold"]) == (88.0, 85.0)


def test_a_model_may_have_its_own_number(tell: Tell) -> None:
    story = tell({RULE: {"only": [{"model": "*A40*", "threshold": 70}]}}).gpu(0, temperature=75.0).at(300)
    assert [one.after for one in story.heard()] == ["firing"]
    assert "limit 70 C" in story.transitions[0][1].summary


def test_missing_samples_neither_fire_nor_clear(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(100)
    for second in range(100, 400, 20):  # 5 % of the samples are missing
        story.gpu(0, silent=True).at(second + 1)
        story.gpu(0, silent=False).at(second + 20)
    assert [one.after for one in story.heard()] == ["firing"]


def test_an_alert_whose_gpu_is_lost_turns_stale_once_and_is_never_resolved(story: Story) -> None:  # DG-07
    story.gpu(0, temperature=88.0).at(200)
    story.gpu(0, fault=LOST).at(900)
    assert [one.after for one in story.heard(RULE)] == ["firing", "stale"]
    assert story.heard(RULE)[1].at - 200 <= 30
    assert [(one.after, one.severity, one.at) for one in story.heard("gpu_dropped")] == [("firing", "critical", 200.0)]
    stale = next(one for one in story.incidents.open() if one.rule == RULE)
    assert (stale.state, stale.ended_at, "88 C" in stale.summary) == (AlertState.STALE, None, True)
    story.gpu(0, fault=None, temperature=88.0).at(910)
    assert story.heard(RULE)[-1].after == "firing"


def test_the_wall_clock_fires_and_clears_nothing(story: Story) -> None:  # EN-05
    story.gpu(0, temperature=88.0).at(50)
    story.step_wall(3600).at(60)
    assert story.heard() == []
    story.at(200)
    story.step_wall(-7200).at(400)
    story.step_wall(3600).at(500)
    assert [one.after for one in story.heard()] == ["firing"]


def test_eight_gpus_fire_together(tell: Tell) -> None:  # EN-03
    story = tell(gpus=8)
    for index in range(8):
        story.gpu(index, temperature=88.0)
    story.at(120)
    assert [(one.gpu, one.after) for one in story.heard()] == [(str(index), "firing") for index in range(8)]


def test_heard_is_what_people_hear(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(120)
    assert story.heard() == [Heard(at=96.0, rule=RULE, gpu="0", after="firing", severity="warning")]
