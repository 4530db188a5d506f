"""The catalogue maps ids and Prometheus' names one to one, and keeps Prometheus' conventions."""

import re

import pytest

from gpuwatch import catalogue
from gpuwatch.catalogue import events, gpu
from gpuwatch.catalogue.xids import BEGIN_AT_0, xids
from gpuwatch.model.alert import Severity
from gpuwatch.model.metric import Kind, Metric

BASE_UNITS = {
    "",
    "seconds",
    "bytes",
    "bytes_per_second",
    "joules",
    "watts",
    "celsius",
    "hertz",
    "ratio",
    "rpm",
    "lanes",
}


def test_each_id_is_one_series_and_each_series_one_id() -> None:
    ids = {(metric.subject.name, metric.id) for metric in catalogue.METRICS}
    series = {(metric.family, metric.labels) for metric in catalogue.METRICS}
    assert len(catalogue.METRICS) == len(ids) == len(series)


def test_no_family_is_of_two_subjects_kinds_or_helps() -> None:
    for family in {metric.family for metric in catalogue.METRICS}:
        alike = [metric for metric in catalogue.METRICS if metric.family == family]
        facts = {
            (metric.subject, metric.kind, metric.help, metric.unit, tuple(name for name, _ in metric.labels)) for metric in alike
        }
        assert len(facts) == 1, family


def test_no_info_family_collides_with_a_metric() -> None:
    families = {metric.family for metric in catalogue.METRICS}
    infos = [f"{subject.head}_info" for subject in catalogue.SUBJECTS.values() if subject.info]
    assert not families & set(infos)
    assert len(set(infos)) == len(infos)


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: f"{metric.subject.name}.{metric.id}")
def test_a_metric_keeps_the_conventions(metric: Metric) -> None:
    assert metric.unit in BASE_UNITS
    assert re.fullmatch(r"gpuwatch(_[a-z0-9]+)+", metric.family)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.id)
    assert metric.family.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    assert not {name for name, _ in metric.labels} & set(metric.subject.labels)
    assert metric.family.removesuffix("_total").endswith(metric.unit)


def test_the_names_that_shipped_are_what_the_docs_say() -> None:
    temperature = gpu.TEMPERATURE["core"]
    assert (temperature.id, temperature.family) == ("temperature_celsius_core", "gpuwatch_gpu_temperature_celsius")
    assert gpu.ECC_ERRORS["corrected_volatile"].id == "ecc_errors_total_corrected_volatile"
    assert gpu.FAN_SPEED.family == "gpuwatch_gpu_fan_speed_ratio"


def test_find_names_what_is_missing() -> None:
    assert catalogue.find(gpu.GPU, "power_watts") is gpu.POWER
    with pytest.raises(KeyError, match="gpu has no metric 'powr_watts'"):
        catalogue.find(gpu.GPU, "powr_watts")


def test_a_state_set_says_which_state_holds_and_refuses_an_unknown_one() -> None:
    values = gpu.DRIVER_STATE.at("nouveau")
    assert [state for state, metric in gpu.DRIVER_STATE.items() if values[metric]] == ["nouveau"]
    assert set(values) == set(gpu.DRIVER_STATE.values())
    with pytest.raises(KeyError):
        gpu.DRIVER_STATE.at("sleepy")


def test_history_keeps_the_highest_temperature_and_the_last_counter() -> None:
    assert {metric.keep.value for metric in catalogue.METRICS if metric.kind is Kind.COUNTER} == {"last"}
    assert {metric.keep.value for metric in gpu.TEMPERATURE.values()} == {"max"}
    assert gpu.POWER.keep.value == "mean"


NOT_KERNEL_EVENTS = {  # kinds without a series in gpuwatch_kernel_events_total
    "xid": "gpuwatch_xid_errors_total",
    "sxid": "gpuwatch_sxid_errors_total",
    "recovery_action": "an Xid 154 of gpuwatch_xid_errors_total",
    "off_bus": "gpuwatch_gpu_bus_drops_total",
    "unavailable": "gpuwatch_gpu_bus_drops_total",
    "log_lost": "gpuwatch_kernel_log_lost_total",
    "events_lost": "gpuwatch_events_uncounted_total",
    "oom_suspected": "gpuwatch_gpu_oom_suspected_total; no log tells of it",
    "access_lost": "gpuwatch_job_gpu_access_missing; no log tells of it",
    "access_back": "the end of it",
    "ecc": "NVML alone tells of it, and counts in gpuwatch_gpu_ecc_errors_total",
    "mig_changed": "NVML alone tells of it; no trouble",
    "released": "ours",
    "resumed": "ours",
    "driver_changed": "ours",
    "not_resumed": "ours",
}
NOT_AT_0 = {  # critical Xids whose counters begin with the first event, since 256 series are too many
    54: "told when the driver starts: no card begins to run without its cable",
    57: "told when memory is trained, at the start",
    58: "hardly ever reported",
    59: "old drivers only",
    61: "hardly ever reported",
    110: "hardly ever reported",
    136: "told when links are trained, at the start",
    149: "the line says whether it is fatal",
    150: "the line says whether it is fatal",
    151: "confidential computing only",
    155: "hardly ever reported",
    156: "hardly ever reported",
    158: "hardly ever reported",
    166: "confidential computing only",
    167: "hardly ever reported",
    169: "hardly ever reported",
    171: "detail of a 48",
    172: "detail of a 48",
    173: "Grace only",
    175: "hardly ever reported",
}


def test_every_kind_of_event_has_a_series_that_is_known() -> None:
    assert {kind.name for kind in events.KINDS.values() if not kind.counted} == set(NOT_KERNEL_EVENTS)
    families = {metric.family for metric in catalogue.METRICS}
    named = {found for words in NOT_KERNEL_EVENTS.values() for found in re.findall(r"gpuwatch_\w+", words)}
    assert named <= families


def test_every_critical_xid_begins_at_0_or_not_for_a_reason_and_the_help_names_those_that_do() -> None:
    critical = {code for code, one in xids().items() if one.severity is Severity.CRITICAL}
    assert set(BEGIN_AT_0) | set(NOT_AT_0) == critical
    assert not set(BEGIN_AT_0) & set(NOT_AT_0)
    assert ", ".join(map(str, BEGIN_AT_0)) in events.XID_ERRORS.help
    assert f"All {len(critical)} would be {8 * len(critical)} series" in events.XID_ERRORS.help
