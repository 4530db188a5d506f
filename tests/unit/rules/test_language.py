"""What the language of `when` takes, what it refuses, and with which words."""

import re

import pytest

from gpuwatch.catalogue.derived import UNEXPECTED_REBOOT, UP
from gpuwatch.catalogue.gpu import CLOCK_EVENT_THERMAL_SECONDS, GPU, PCIE_REPLAYS, TEMPERATURE, TEMPERATURE_LIMIT
from gpuwatch.catalogue.host import HOST
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence
from gpuwatch.rules.judge import Growth, Look, holds
from gpuwatch.rules.language import Age, Both, Comparison, Either, Increase, Number, Parameter, Value, parse

CORE, SLOWDOWN = TEMPERATURE["core"], TEMPERATURE_LIMIT["slowdown"]
HOT = Comparison(Value(CORE), ">", Parameter("threshold"))
DOWN = Comparison(Value(UP), "==", Number(0.0))
PARAMETERS = {"threshold": Number(85.0), "day": Number(86400.0, "seconds")}


@pytest.mark.parametrize(
    ("text", "subject", "tree"),
    [
        ("temperature_celsius_core > threshold", GPU, HOT),
        ("up==0", GPU, DOWN),
        ("up == 0 or up == 0 and temperature_celsius_core > threshold", GPU, Either((DOWN, Both((DOWN, HOT))))),
        (
            "temperature_celsius_core >= temperature_limit_celsius_slowdown",
            GPU,
            Comparison(Value(CORE), ">=", Value(SLOWDOWN)),
        ),
        (
            "age(unexpected_reboot_timestamp_seconds) < 24h",
            HOST,
            Comparison(Age(UNEXPECTED_REBOOT), "<", Number(86400, "seconds")),
        ),
        ("increase(pcie_replays_total, 10m) > 0", GPU, Comparison(Increase(PCIE_REPLAYS, 600), ">", Number(0))),
        ("-5 < temperature_celsius_core", GPU, Comparison(Number(-5), "<", Value(CORE))),
    ],
)
def test_conditions_become_small_trees(text: str, subject: Subject, tree: object) -> None:
    assert parse(text, subject, PARAMETERS) == tree


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends where a metric, a number or a parameter was expected"),
        ("temperature_celsius_core", "ends where one of > >= < <= == != was expected"),
        (
            "temperature_celsius_core > treshold",
            '"treshold" is neither a metric of gpu nor a parameter of this step; did you mean threshold?',
        ),
        ("temperature_celsius_cor > 85", "did you mean temperature_celsius_core?"),
        ("temperature_celsius_core > 85 85", 'found "85" where "and", "or" or the end was expected'),
        ("temperature_celsius_core + 1 > 85", '"+ 1 > 85" is not part of the language of rules'),
        ("(temperature_celsius_core > 85)", '"(" is neither a metric of gpu'),
        ("not up == 1", '"not" is neither a metric of gpu'),
        ("temperature_celsius_core > 30s", "is in seconds, and the other side is in celsius"),
        ("temperature_celsius_core > power_watts", "temperature_celsius_core is in celsius, and power_watts in watts"),
        ("clock_event_thermal_seconds_total > 5", 'expected a duration with a unit, such as "24h"'),
        ("1 > 2", "compares two numbers; one side must be a metric"),
        ("age(up) < 1h", "expected a metric that tells a time"),
        ("increase(power_watts, 10m) > 0", "expected a counter"),
        ("increase(pcie_replays_total) > 0", "the window is missing"),
        ("increase(pcie_replays_total, 10) > 0", "expected a duration with a unit as the window"),
        ("absent(upp) == 1", '"upp" is no metric of gpu; did you mean up?'),
        ("temperature_celsius_core > 5parsecs", '"5parsecs" is no number'),
        ("up == 1 and", "ends where a metric, a number or a parameter was expected"),
        ("up = 1", '"= 1" is not part of the language of rules'),
        ("__import__('os') == 1", "is not part of the language of rules"),
        ("__import__ == 1", '"__import__" is neither a metric of gpu'),
    ],
)
def test_everything_else_is_refused_with_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse(text, GPU, PARAMETERS)


def look(values: dict[Metric, float], absent: dict[Metric, Absence] | None = None, wall: float = 0.0) -> Look:
    """Return what is known."""
    return Look(values, absent or {}, wall)


@pytest.mark.parametrize(
    ("text", "values", "absent", "verdict"),
    [
        ("temperature_celsius_core > 85", {CORE: 86.0}, {}, True),
        ("temperature_celsius_core > 85", {CORE: 85.0}, {}, False),
        ("temperature_celsius_core > 85", {}, {}, None),
        ("temperature_celsius_core > 85", {CORE: float("nan")}, {}, None),
        ("temperature_celsius_core > 85 and up == 1", {CORE: 80.0}, {}, False),
        ("temperature_celsius_core > 85 and up == 1", {CORE: 86.0}, {}, None),
        ("temperature_celsius_core > 85 or up == 0", {CORE: 86.0}, {}, True),
        ("temperature_celsius_core > 85 or up == 0", {CORE: 80.0}, {}, None),
        ("temperature_celsius_core > 85 or up == 0", {CORE: 80.0}, {UP: Absence.FAILED}, None),
        ("temperature_celsius_core > 85 or up == 0", {CORE: 80.0}, {UP: Absence.UNSUPPORTED}, False),
        ("temperature_celsius_core > 85 or up == 0", {}, {UP: Absence.UNSUPPORTED, CORE: Absence.UNSUPPORTED}, None),
        ("temperature_celsius_core >= temperature_limit_celsius_slowdown", {CORE: 90.0, SLOWDOWN: 90.0}, {}, True),
        ("temperature_celsius_core >= temperature_limit_celsius_slowdown", {CORE: 90.0}, {}, None),
        ("absent(temperature_celsius_core) == 1", {}, {}, True),
        ("absent(temperature_celsius_core) == 1", {CORE: 40.0}, {}, False),
    ],
)
def test_a_verdict_is_true_false_or_unknown(
    text: str, values: dict[Metric, float], absent: dict[Metric, Absence], verdict: bool | None
) -> None:
    assert holds(parse(text, GPU, {}), look(values, absent)) is verdict


def test_age_is_measured_against_the_wall_clock() -> None:
    condition = parse("age(unexpected_reboot_timestamp_seconds) < 24h", HOST, {})
    assert holds(condition, look({UNEXPECTED_REBOOT: 1000.0}, wall=1000 + 86399)) is True
    assert holds(condition, look({UNEXPECTED_REBOOT: 1000.0}, wall=1000 + 86401)) is False


def test_increase_counts_growth_within_its_window_and_survives_resets() -> None:
    growth = Growth()
    for second, value in ((0, 5.0), (10, 5.0), (20, 7.0), (30, 1.0), (100, 1.0)):
        growth.add(value, second, 100)
    assert growth.total() == 3.0  # 2 before the reset, 1 after it
    growth.add(1.0, 125, 100)
    assert growth.total() == 1.0
    condition = parse("increase(clock_event_thermal_seconds_total, 100s) > 0s", GPU, {})
    assert isinstance(condition, Comparison)
    assert isinstance(condition.left, Increase)
    seen = Look({CLOCK_EVENT_THERMAL_SECONDS: 1.0}, {}, 0.0, {condition.left: growth})
    assert holds(condition, seen) is True
