"""promtool as the oracle: our `step()` and Prometheus judge the same series and agree at every evaluation.

Hundreds of random series go into one promtool run. The documented differences (promql.py) are kept out by construction:
no gap while an alert is active (there it is not resolved, here Prometheus ends it), and `increase` is compared with 0 only.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuwatch.catalogue import BY_ID
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from gpuwatch.rules import promql
from gpuwatch.rules.judge import Look, holds
from gpuwatch.rules.load import load
from gpuwatch.rules.rule import Rule
from gpuwatch.rules.step import State, step
from tests.fakes.until import PATIENCE

EVERY = 10  # seconds between two evaluations
STEPS = 90
SERIES = 30  # of each rule

HOT = 'severity = "warning"\nwhen = "temperature_celsius_core > threshold"\nthreshold = 85\n'
INFO = 'severity = "info"\n'
BOTH = INFO + 'when = "temperature_celsius_core > 85 and power_watts < 200"\n'
EITHER = INFO + 'when = "temperature_celsius_core > 88 or power_watts < 150"\n'
SHARE = 'share = 0.6\nwindow = "80s"\nclear_for = "80s"\n'
RULES = {
    "at_once": HOT,
    "held": HOT + 'for = "40s"\n',
    "kept": HOT + 'for = "30s"\nclear_for = "50s"\n',
    "hysteresis": HOT + 'clear = 80\nfor = "20s"\nclear_for = "30s"\n',
    "share": HOT + 'clear = 80\nshare = 0.8\nwindow = "2m"\nclear_for = "3m"\n',
    "half": HOT + 'share = 0.5\nwindow = "90s"\nclear_for = "90s"\n',
    "both": BOTH + 'for = "20s"\n',
    "both_share": BOTH + SHARE,
    "either": EITHER + 'for = "20s"\n',
    "either_share": EITHER + SHARE,
    "two_metrics": INFO + 'when = "temperature_celsius_core >= temperature_limit_celsius_slowdown"\nfor = "20s"\n',
    "flipped": INFO + 'when = "85 <= temperature_celsius_core"\n',
}
LATCH = "latched"
CORE, POWER, LIMIT, HEALED = (
    BY_ID["gpu", name] for name in ("temperature_celsius_core", "power_watts", "temperature_limit_celsius_slowdown", "state_ok")
)
METRICS = (CORE, POWER, LIMIT, HEALED)

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")


@dataclass
class Series:
    """What one GPU showed: values of each metric, None for a gap; and when our rule fired."""

    uuid: str
    values: dict[Metric, list[float | None]] = field(default_factory=dict)
    firing: list[bool] = field(default_factory=list)


def rules(folder: Path) -> tuple[Rule, ...]:
    """Return the rules under test, as the daemon would load them."""
    head = 'subject = "gpu"\nsummary = "x"\n'
    text = "".join(f"[{name}]\n{head}[[{name}.step]]\n{body}" for name, body in RULES.items())
    text += f'[{LATCH}]\n{head}latch = "until state_ok"\n[[{LATCH}.step]]\n{HOT}'
    folder.mkdir()
    (folder / "rules.toml").write_text(text)
    return load(folder, {}, "test")


def walk(dice: random.Random, low: float, high: float, stride: float) -> Callable[[], float]:
    """Return a random walk of whole numbers between two limits, with plateaus."""
    at = dice.uniform(low, high)

    def move() -> float:
        nonlocal at
        if dice.random() < 0.7:
            at = min(high, max(low, at + dice.uniform(-stride, stride)))
        return float(round(at))

    return move


def watch(rule: Rule, dice: random.Random, uuid: str) -> Series:
    """Make one random series, judging it on the way: a gap never falls into an active alert."""
    found, (one,), state = Series(uuid, {metric: [] for metric in METRICS}), rule.steps, State()
    walks = {CORE: walk(dice, 76, 94, 7), POWER: walk(dice, 100, 300, 60), LIMIT: walk(dice, 84, 92, 3)}
    state, _ = step(one.timing, state, None, -EVERY)
    for number in range(STEPS):
        gap = not state.active and dice.random() < 0.06
        known = {} if gap else {metric: move() for metric, move in walks.items()}
        if not gap:
            known[HEALED] = float(dice.random() < 0.1)
        look = Look(known, {}, 0.0)
        verdict = holds(one.clears if state.active else one.when, look)
        if rule.until is not None and state.active:
            verdict = known[HEALED] != 1 or holds(one.when, look) is True
        state, _ = step(one.timing, state, verdict, number * EVERY)
        found.firing.append(state.active)
        for metric, values in found.values.items():
            values.append(known.get(metric))
    return found


def written(metric: Metric, one: Series) -> dict[str, str]:
    """Return one input series in promtool's notation; a gap is `stale`, since `_` lets Prometheus look back 5 minutes."""
    labels = ", ".join(f'{name}="{value}"' for name, value in (*metric.labels, ("gpu", "0"), ("uuid", one.uuid)))
    return {
        "series": f"{metric.family}{{{labels}}}",
        "values": " ".join("stale" if v is None else f"{v:g}" for v in one.values[metric]),
    }


def group_of(rule: Rule, told: list[Series]) -> dict[str, object]:
    """Return one promtool test group: the series of one rule, and which of them fire at each evaluation."""
    severity = rule.steps[0].severity.value
    return {
        "interval": f"{EVERY}s",
        "name": rule.name,
        "input_series": [written(metric, one) for one in told for metric in METRICS],
        "alert_rule_test": [
            {
                "eval_time": f"{number * EVERY}s",
                "alertname": rule.name,
                "exp_alerts": [
                    {"exp_labels": {"severity": severity, "gpu": "0", "uuid": one.uuid}} for one in told if one.firing[number]
                ],
            }
            for number in range(STEPS)
        ],
    }


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Rule, ...], dict[str, list[Series]]]:
    """Random series of every rule, with our verdicts."""
    folder = tmp_path_factory.mktemp("promtool")
    loaded, dice = rules(folder / "alerts"), random.Random(20_260_101)
    return folder, loaded, {rule.name: [watch(rule, dice, f"GPU-{n}") for n in range(SERIES)] for rule in loaded}


def run(folder: Path, loaded: tuple[Rule, ...], told: dict[str, list[Series]]) -> subprocess.CompletedProcess[str]:
    """Let promtool judge, each rule over its own series, in one run; JSON is YAML."""
    files = []
    for rule in loaded:
        (folder / f"{rule.name}.rules.yml").write_text(promql.rule_file([rule], EVERY))
        file = {
            "rule_files": [f"{rule.name}.rules.yml"],
            "evaluation_interval": f"{EVERY}s",
            "tests": [group_of(rule, told[rule.name])],
        }
        files.append(folder / f"{rule.name}.test.yml")
        files[-1].write_text(json.dumps(file))
    return promtool("test", "rules", *map(str, files))


def test_promtool_agrees_with_step_on_random_series(judged: tuple[Path, tuple[Rule, ...], dict[str, list[Series]]]) -> None:
    folder, loaded, told = judged
    result = run(folder, loaded, told)
    assert (result.returncode, result.stderr[-3000:], result.stdout.count("SUCCESS")) == (0, "", len(loaded))


def test_the_series_are_worth_judging(judged: tuple[Path, tuple[Rule, ...], dict[str, list[Series]]]) -> None:
    _, _, told = judged
    for name, group in told.items():
        fired = sum(any(one.firing) for one in group)
        changes = sum(before != after for one in group for before, after in zip(one.firing, one.firing[1:], strict=False))
        assert (name, fired >= 10, changes >= 10) == (name, True, True)
    assert any(value is None for one in told["share"] for value in one.values[POWER])


def test_promtool_would_notice_one_wrong_verdict(judged: tuple[Path, tuple[Rule, ...], dict[str, list[Series]]]) -> None:
    folder, loaded, told = judged
    group = told["held"]
    wrong = Series(group[0].uuid, group[0].values, [*group[0].firing[:-1], not group[0].firing[-1]])
    held = next(rule for rule in loaded if rule.name == "held")
    result = run(folder, (held,), {"held": [wrong, *group[1:5]]})
    assert result.returncode == 1


def test_increase_over_zero_age_and_absent_agree_too(tmp_path: Path) -> None:
    """`increase` needs two samples in its window there; ours counts from the first growth, at the same evaluation."""
    text = ""
    for name, subject, when in (
        ("grew", "gpu", "increase(pcie_replays_total, 1m) > 0"),
        ("recent", "host", "age(unexpected_reboot_timestamp_seconds) < 1m"),
        ("dark", "gpu", "absent(temperature_celsius_core) == 1"),
    ):
        text += f'[{name}]\nsubject = "{subject}"\nsummary = "x"\n[[{name}.step]]\nseverity = "info"\nwhen = "{when}"\n'
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "more.toml").write_text(text)
    (tmp_path / "rules.yml").write_text(promql.rule_file(load(tmp_path / "alerts", {}, "test"), EVERY))
    series = {
        'gpuwatch_gpu_pcie_replays_total{gpu="0", uuid="GPU-0"}': "7x5 8x20",
        "gpuwatch_host_unexpected_reboot_timestamp_seconds": "0x30",
        'gpuwatch_gpu_info{gpu="0", uuid="GPU-0", name="A40"}': "1x30",
        'gpuwatch_gpu_temperature_celsius{gpu="0", uuid="GPU-0", sensor="core"}': "40x9 stale _x4 41x10",
    }

    def expected(name: str, number: int) -> list[dict[str, dict[str, str]]]:
        fires = {"grew": 6 <= number <= 11, "recent": number < 6, "dark": 10 <= number <= 14}[name]
        target = {} if name == "recent" else {"gpu": "0", "uuid": "GPU-0"}
        return [{"exp_labels": {"severity": "info", **target}}] if fires else []

    checks = [
        {"eval_time": f"{number * EVERY}s", "alertname": name, "exp_alerts": expected(name, number)}
        for name in ("grew", "recent", "dark")
        for number in range(24)
    ]
    group = {
        "interval": f"{EVERY}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": checks,
    }
    file = {"rule_files": ["rules.yml"], "evaluation_interval": f"{EVERY}s", "tests": [group]}
    (tmp_path / "test.yml").write_text(json.dumps(file))
    result = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_target_is_told_apart_by_its_labels_on_every_host() -> None:
    assert promql.by(GPU) == "instance, job, gpu, uuid"
    assert Target(subject=GPU, key="GPU-0").subject.labels == ("gpu", "uuid")
