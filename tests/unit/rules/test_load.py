"""Rules from TOML, with the configuration's numbers in them; every mistake names file, key, found and expected."""

import math
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.catalogue.gpu import GPU, TEMPERATURE
from gpuwatch.config import ConfigError
from gpuwatch.model.target import Target
from gpuwatch.rules.language import Comparison, Number, Value
from gpuwatch.rules.load import load
from gpuwatch.rules.rule import Rule, Step

GOOD = """
[hot]
subject = "gpu"
summary = "{where} at {value:.0f} C, limit {threshold}"
[[hot.step]]
severity = "warning"
when = "temperature_celsius_core > threshold"
threshold = 85
clear = 80
share = 0.8
window = "2m"
clear_for = "3m"
[[hot.step]]
severity = "critical"
when = "temperature_celsius_core > threshold"
threshold = 95
for = "30s"
"""


def rules(folder: Path, text: str = GOOD, **overrides: Any) -> tuple[Rule, ...]:
    """Return the rules of one file."""
    (folder / "hot.toml").write_text(text)
    return load(folder, overrides, "/etc/gpuwatch/gpuwatch.toml")


def levels(step: Step) -> tuple[float, float]:
    """Return the number that fires and the one that clears."""
    assert isinstance(step.when, Comparison)
    assert isinstance(step.clears, Comparison)
    assert isinstance(step.when.right, Number)
    assert isinstance(step.clears.right, Number)
    return step.when.right.value, step.clears.right.value


def test_a_rule_is_read_with_all_its_numbers(tmp_path: Path) -> None:
    (rule,) = rules(tmp_path)
    warning, critical = rule.steps
    assert (levels(warning), levels(critical)) == ((85, 80), (95, 95))
    assert warning.when == Comparison(Value(TEMPERATURE["core"]), ">", Number(85))
    assert (warning.timing.share, warning.timing.window, warning.timing.clear_for, critical.timing.hold) == (0.8, 120, 180, 30)


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"threshold": 90}, [(90, 85), (95, 95)]),  # the clear level keeps its distance
        ({"threshold": 90, "clear": 70}, [(90, 70), (95, 95)]),
        ({"clear": 84}, [(85, 84), (95, 95)]),
        ({"critical": {"threshold": 92}}, [(85, 80), (92, 92)]),
        ({"critical": {"clear": 90}}, [(85, 80), (95, 90)]),
        ({"threshold": 70, "critical": {"threshold": 80}}, [(70, 65), (80, 80)]),
    ],
)
def test_the_configuration_changes_numbers(tmp_path: Path, over: dict[str, Any], expected: list[tuple[float, float]]) -> None:
    (rule,) = rules(tmp_path, hot=over)
    assert [levels(step) for step in rule.steps] == expected


def test_times_and_shares_may_be_changed_too(tmp_path: Path) -> None:
    (rule,) = rules(tmp_path, hot={"share": 0.5, "window": "10m", "clear_for": "1m", "critical": {"for": "5s"}})
    assert [rule.steps[0].timing[1:4], rule.steps[1].timing.hold] == [(0.5, 600, 60), 5]


def test_a_rule_can_be_switched_off(tmp_path: Path) -> None:
    assert rules(tmp_path, hot={"enabled": False}) == ()


def test_the_narrowest_of_several_only_tables_wins(tmp_path: Path) -> None:
    only = [
        {"model": "*", "threshold": 60},
        {"model": "*30?0*", "threshold": 70},
        {"model": "NVIDIA GeForce RTX 3090", "threshold": 72},
        {"uuid": "GPU-1*", "threshold": 74},
        {"uuid": "GPU-11", "threshold": 76},
        {"model": "*A40*", "enabled": False},
    ]
    (rule,) = rules(tmp_path, hot={"only": only})

    def threshold(key: str, model: str) -> list[float]:
        return [levels(step)[0] for step in rule.steps_for(Target(subject=GPU, key=key, info={"name": model}))]

    assert threshold("GPU-2", "NVIDIA L4") == [60, 95]
    assert threshold("GPU-2", "NVIDIA GeForce RTX 3080") == [70, 95]
    assert threshold("GPU-2", "NVIDIA GeForce RTX 3090") == [72, 95]
    assert threshold("GPU-12", "NVIDIA GeForce RTX 3090") == [74, 95]
    assert threshold("GPU-11", "NVIDIA GeForce RTX 3090") == [76, 95]
    assert threshold("GPU-2", "NVIDIA A40") == []


FILE, CONF = "hot.toml", "/etc/gpuwatch/gpuwatch.toml"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('subject = "gpu"', ""), "hot.subject: is missing, and it is required"),
        (('subject = "gpu"', 'subject = "gpus_"'), 'hot.subject: "gpus_" is not a subject; did you mean gpus?'),
        (('subject = "gpu"', "subject = 5"), "hot.subject: expected text, found 5"),
        (("[hot]", '[hot]\nsumary = "x"'), "hot.sumary: is not a known key; did you mean summary?"),
        (
            ('for = "30s"', 'for = "30s"\nsummary = "{wher}"'),
            "hot.step[1].summary: {wher} is not known here; did you mean where?",
        ),
        (
            ('window = "2m"', 'window = "5s"'),
            'hot.step[0].window: expected at least 10s, for a share needs some beats of 1 s, found "5s"',
        ),
        (("{where}", "{wher}"), "hot.summary: {wher} is not known here; did you mean where?"),
        (("{where}", "{where.__class__}"), "hot.summary: {where.__class__}: a field is a name"),
        (("{where}", "{where!r}"), "hot.summary: {where}: a field is a name"),
        (("{where}", "{"), "hot.summary: is not a text with {fields}"),
        (("{value:.0f}", "{value:>1000000}"), "hot.summary: {value}: a field is a name"),
        (('"warning"', '"warn"'), 'hot.step[0].severity: expected one of info, warning, critical, found "warn"'),
        (('"warning"', '"critical"'), "hot.step: has two steps of the same severity"),
        (("temperature_celsius_core >", "temperature_core >"), 'hot.step[0].when: "temperature_core" is neither a metric of gpu'),
        (("threshold = 85", 'threshold = "85s"'), "hot.step[0].when: threshold is in seconds, and the other side is in celsius"),
        (("threshold = 85", 'threshold = "hot"'), 'hot.step[0].threshold: expected a number, a duration such as "30s" or a size'),
        (("threshold = 85", "treshold = 85"), 'hot.step[0].when: "threshold" is neither'),
        (("threshold = 85", "threshold = 85\nlimit = 3"), "hot.step[0].limit: is not a known key, and `when` does not name it"),
        (("threshold = 85", "threshold = true"), "hot.step[0].threshold: expected a number"),
        (("clear = 80", "clear = 90"), "hot.step[0].clear: 90 is not on the quiet side of threshold = 85"),
        (("share = 0.8", "share = 80"), "hot.step[0].share: expected a number over 0 and at most 1, found 80"),
        (("share = 0.8", ""), "hot.step[0].share: share and window belong together"),
        (('window = "2m"', ""), "hot.step[0].share: share and window belong together"),
        (('window = "2m"', "window = 120"), 'hot.step[0].window: expected a duration with a unit, such as "30s", found 120'),
        (('window = "2m"', 'window = "2m"\nfor = "1m"'), "hot.step[0].for: expected either `for`, or `share` and a `window`"),
        (("[hot]", '[hot]\nlatch = "until ok"'), 'hot.latch: "ok" is not a metric of gpu'),
        (("[hot]", '[hot]\nlatch = "state_ok"'), 'hot.latch: expected "until METRIC", found "state_ok"'),
        (("[hot]", '[hot]\nunless = ["hosts.up"]'), 'hot.unless: "hosts" is not a subject with a single target'),
        (("[hot]", '[hot]\ninhibits = "gpu.*"'), 'hot.inhibits: expected a list of texts, found "gpu.*"'),
        (("[hot]", "[hot]\nenabled = 1"), "hot.enabled: expected true or false, found 1"),
        (("[[hot.step]]", "[[hot.steps]]"), "hot.steps: is not a known key; did you mean step?"),
    ],
)
def test_a_mistake_in_a_rule_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in GOOD
    count = -1 if change[0] == "[[hot.step]]" else 1
    with pytest.raises(ConfigError) as error:
        rules(tmp_path, GOOD.replace(*change, count))
    assert str(error.value).startswith(f"{tmp_path / FILE}: {message}")


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"hott": {}}, "rules.hott: is not a known rule; did you mean hot?"),
        ({"zzz": {}}, "rules.zzz: is not a known rule; known are hot"),
        ({"hot": 5}, "rules.hot: expected a table, found 5"),
        ({"hot": {"treshold": 5}}, "rules.hot.treshold: is not a known key; did you mean threshold?"),
        ({"hot": {"threshold": "5m"}}, 'rules.hot.threshold: expected a plain number, found "5m"'),
        ({"hot": {"when": "up == 0"}}, "rules.hot.when: is not a known key"),
        ({"hot": {"info": {"threshold": 5}}}, "rules.hot.info: this rule has no such step; it has warning, critical"),
        ({"hot": {"critical": 5}}, "rules.hot.critical: expected a table, found 5"),
        ({"hot": {"critical": {"threshold": "x"}}}, "rules.hot.critical.threshold: expected a number"),
        ({"hot": {"clear": 90}}, "rules.hot.clear: 90 is not on the quiet side of threshold = 85"),
        ({"hot": {"for": "1m"}}, "rules.hot.for: expected either `for`, or `share`"),
        ({"hot": {"clear_for": "-1m"}}, "rules.hot.clear_for: expected a number"),
        ({"hot": {"only": {"model": "x"}}}, "rules.hot.only: expected tables, as in [[rules.NAME.only]]"),
        ({"hot": {"only": [{"threshold": 5}]}}, 'rules.hot.only[0]: expected `model = "*3090*"` or `uuid = "GPU-..."`'),
        ({"hot": {"only": [{"model": "x", "limit": 5}]}}, "rules.hot.only[0].limit: is not a known key"),
        ({"hot": {"only": [{"modle": "x", "threshold": 5}]}}, "rules.hot.only[0].modle: is not a known key; did you mean model?"),
        ({"hot": {"only": [{"model": "x", "uuuid": "y"}]}}, "rules.hot.only[0].uuuid: is not a known key; did you mean uuid?"),
        (
            {"hot": {"only": [{"model": "x", "treshold": 5}]}},
            "rules.hot.only[0].treshold: is not a known key; did you mean thresh",
        ),
        ({"hot": {"only": [{"model": "x"}]}}, "rules.hot.only[0]: changes nothing: expected another number"),
        ({"hot": {"only": [{"model": "x", "critical": {}}]}}, "rules.hot.only[0]: changes nothing: expected another number"),
        ({"hot": {"only": [{"model": 5, "threshold": 5}]}}, "rules.hot.only[0].model: expected text, found 5"),
        ({"hot": {"threshold": math.inf}}, "rules.hot.threshold: expected a number, a duration"),
        ({"hot": {"threshold": math.nan}}, "rules.hot.threshold: expected a number, a duration"),
        ({"hot": {"clear": -math.inf}}, "rules.hot.clear: expected a number, a duration"),
        ({"hot": {"critical": {"threshold": math.inf}}}, "rules.hot.critical.threshold: expected a number, a duration"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(tmp_path: Path, over: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        rules(tmp_path, GOOD, **over)
    assert str(error.value).startswith(f"{CONF}: {message}")


def test_a_clear_level_may_be_named_by_parameter(tmp_path: Path) -> None:
    two = GOOD.replace('> threshold"\nthreshold = 85', '> threshold or power_watts > watts"\nthreshold = 85\nwatts = 300')
    with pytest.raises(ConfigError, match="the step has 2 parameters; expected a table"):
        rules(tmp_path, two)
    (rule,) = rules(tmp_path, two.replace("clear = 80", "clear = { threshold = 80 }"))
    assert rule.steps[0].parameters == {"threshold": 85, "watts": 300}


def test_two_files_may_not_have_the_same_rule(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    with pytest.raises(ConfigError, match=r"hot: is already a rule in .*a\.toml"):
        rules(tmp_path)
