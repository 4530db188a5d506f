"""The rules that ship: they load, name what exists, and Prometheus takes what is generated from them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuwatch import shipped
from gpuwatch.catalogue import METRICS, derived
from gpuwatch.config import read
from gpuwatch.export.chosen import switch
from gpuwatch.rules import promql
from gpuwatch.rules.language import metrics
from gpuwatch.rules.load import load
from gpuwatch.rules.rule import Rule
from tests.fakes.until import PATIENCE

RULES = load(shipped.folder("alerts"), {}, "gpuwatch.toml")
BY_NAME = {rule.name: rule for rule in RULES}
FAMILIES = {metric.family for metric in METRICS}


def test_every_rule_ships_in_a_file_of_its_name() -> None:
    files = sorted(file.stem for file in shipped.folder("alerts").glob("*.toml"))
    names = ["bus_errors", "gpu_dropped", "gpu_errors", "gpu_overheating", "host_rebooted_unexpectedly"]
    assert files == sorted(BY_NAME) == names


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_names_only_metrics_that_are_exported(rule: Rule) -> None:
    assert promql.names(rule) <= FAMILIES
    named = {metric for step in rule.steps for metric in metrics(step.when)} | {*rule.unless} | {rule.until} - {None}
    assert {metric: switch(metric) for metric in named if metric is not None and (metric.internal or switch(metric))} == {}


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_that_names_evidence_is_about_the_metric_that_has_it(rule: Rule) -> None:
    given = {word for step in rule.steps for metric in metrics(step.when) for word in derived.WORDS.get(metric, ())}
    known = (
        {"where", "value", "threshold", "lasted"}
        | {metric.id for metric in METRICS}
        | {n for s in rule.steps for n in s.parameters}
    )
    assert rule.fields - known <= given


def test_the_defaults_are_those_of_the_operators_table() -> None:
    table = {rule.name: [step.severity.value for step in rule.steps] for rule in RULES}
    assert table == {
        "gpu_overheating": ["warning", "critical"],
        "gpu_dropped": ["critical"],
        "gpu_errors": ["warning", "critical"],
        "bus_errors": ["warning", "critical"],
        "host_rebooted_unexpectedly": ["warning", "critical"],
    }
    warning, critical = BY_NAME["gpu_overheating"].steps
    assert (warning.parameters, warning.timing.share, warning.timing.window, warning.timing.clear_for) == (
        {"threshold": 85},
        0.8,
        120,
        180,
    )
    assert (critical.parameters["headroom"], critical.timing.hold) == (1, 30)
    assert BY_NAME["host_rebooted_unexpectedly"].steps[0].parameters == {"day": 86400}
    assert BY_NAME["gpu_dropped"].until is derived.STATE["ok"]


def test_a_dropped_gpu_mutes_everything_of_that_gpu() -> None:
    assert [BY_NAME["gpu_dropped"].mutes(rule) for rule in RULES] == [
        rule.name in {"gpu_errors", "gpu_overheating"} for rule in RULES
    ]


def test_no_text_names_a_command_that_does_not_exist() -> None:
    for file in shipped.folder("alerts").glob("*.toml"):
        for rule in read(file).values():
            assert "gpuwatch " not in rule["summary"] + rule.get("resolved", "")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
def test_prometheus_takes_the_generated_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(promql.rule_file(RULES, 15))
    command = ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "rules.yml")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (result.returncode, result.stderr, "9 rules found" in result.stdout) == (0, "", True)
