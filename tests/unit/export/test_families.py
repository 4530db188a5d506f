"""The page's text: prometheus_client's parsers are the oracle."""

import logging
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpuwatch import catalogue
from gpuwatch.catalogue import disk, gpu, host, own
from gpuwatch.export.families import FAMILIES, Renderer, number
from gpuwatch.export.families import Family as ExportedFamily
from gpuwatch.model.metric import Kind, Metric
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes import page_view

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
Series = tuple[str, frozenset[tuple[str, str]]]


def series(name: str, labels: dict[str, str]) -> Series:
    return name, frozenset(labels.items())


def families(text: str, *, openmetrics: bool) -> Iterable[Family]:
    parse = parse_openmetrics if openmetrics else parse_text
    return cast("Iterable[Family]", parse(text))


def parsed(text: str, *, openmetrics: bool) -> dict[Series, float]:
    """Return what prometheus_client reads; a series that comes twice fails here."""
    found: dict[Series, float] = {}
    for family in families(text, openmetrics=openmetrics):
        for sample in family.samples:
            key = series(sample.name, sample.labels)
            assert key not in found, key
            found[key] = sample.value
    return found


def expected(view: View) -> dict[Series, float]:
    """Return what the view says, put together without the renderer."""
    wanted: dict[Series, float] = {}
    for entry in view.entries.values():
        labels = dict(entry.target.labels)
        for metric, value in entry.values.items():
            if not metric.internal:
                wanted[series(metric.family, labels | dict(metric.labels))] = value
        info = {name: entry.target.info[name] for name in entry.target.subject.info if name in entry.target.info}
        if info:
            wanted[series(f"{entry.target.subject.head}_info", labels | info)] = 1.0
    return wanted


def page(view: View, *, openmetrics: bool, renderer: Renderer | None = None) -> str:
    text = (renderer or Renderer()).render(view).text(openmetrics=openmetrics)
    return text + "# EOF\n" if openmetrics else text


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_pages_read_by_prometheus_client_equal_the_view(openmetrics: bool) -> None:
    view = page_view.big_host()
    assert expected(view) == parsed(page(view, openmetrics=openmetrics), openmetrics=openmetrics)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ['"', "\\", "\n", '\\"', "\\n", "a\nb", "显卡", "{}=,", "# EOF", " ", "\r", "\u2028", '"} 1\ngpuwatch_fake 1']
)
NUMBERS = (
    st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float) | st.sampled_from([5e-324, 1.7e308, -0.0, 1e22, 0.1])
)


@settings(max_examples=60, deadline=None)
@given(
    cards=st.lists(st.tuples(TEXTS, TEXTS, TEXTS, st.lists(NUMBERS, min_size=4, max_size=4)), max_size=4),
    openmetrics=st.booleans(),
)
def test_any_label_and_number_survives_the_page(cards: list[tuple[str, str, str, list[float]]], openmetrics: bool) -> None:
    metrics = (gpu.TEMPERATURE["core"], gpu.UTILIZATION, gpu.POWER, gpu.ENERGY)
    entries = []
    for index, (label, name, serial, numbers) in enumerate(cards):
        known = Target(
            subject=gpu.GPU,
            key=str(index),
            labels={"gpu": str(index), "uuid": label},
            info={"name": name, "serial": serial or "-"},
        )
        entries.append(page_view.entry(known, dict(zip(metrics, (*numbers[:3], abs(numbers[3])), strict=True))))
    view = page_view.view(entries)
    # An empty label is an absent one to Prometheus; empty facts are left out.
    wanted = {
        (name, frozenset(pair for pair in labels if pair[1] or pair[0] == "uuid")): value
        for (name, labels), value in expected(view).items()
    }
    assert wanted == parsed(page(view, openmetrics=openmetrics), openmetrics=openmetrics)


@given(value=NUMBERS)
def test_a_number_parses_back_to_exactly_itself(value: float) -> None:
    assert value == float(number(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e22, "1e+22"),
        (True, "1"),
        (7, "7"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, ""),
    ],
)
def test_numbers_are_written_short_and_whole_ones_without_a_point(value: float, text: str) -> None:
    assert text == number(value)


def test_what_is_not_a_number_is_left_off_and_not_written_as_nan() -> None:
    view = page_view.view([page_view.entry(page_view.target(gpu.GPU), {gpu.UTILIZATION: math.nan, gpu.POWER: 300.0})])
    names = {name for name, _ in parsed(page(view, openmetrics=False), openmetrics=False)}
    assert {"gpuwatch_gpu_info", "gpuwatch_gpu_power_watts"} == names


def test_every_exported_metric_of_the_catalogue_is_on_the_page_and_no_internal_one() -> None:
    found = {name for name, _ in parsed(page(page_view.everything(), openmetrics=False), openmetrics=False)}
    metrics = {metric.family for metric in catalogue.METRICS if not metric.internal}
    facts = {f"{subject.head}_info" for subject in catalogue.SUBJECTS.values() if subject.info}
    assert metrics | facts == found
    assert any(metric.internal for metric in catalogue.METRICS)  # else the second half of the claim would be empty


def test_a_family_comes_once_with_its_help_and_type_and_in_the_order_of_the_catalogue() -> None:
    text = page(page_view.big_host(), openmetrics=False)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert [1] * len(names) == list(Counter(names).values())
    catalogued = dict.fromkeys(metric.family for metric in catalogue.METRICS if not metric.internal)
    assert [name for name in catalogued if name in names] == [name for name in names if not name.endswith("_info")]
    assert len(names) == sum(line.startswith("# HELP ") for line in text.splitlines())


def test_openmetrics_states_units_and_counters_as_the_standard_wants() -> None:
    text = page(page_view.everything(), openmetrics=True)
    found = {family.name: family for family in families(text, openmetrics=True)}
    assert (found["gpuwatch_gpu_energy_joules"].type, found["gpuwatch_gpu_energy_joules"].unit) == ("counter", "joules")
    assert found["gpuwatch_gpu_energy_joules"].samples[0].name == "gpuwatch_gpu_energy_joules_total"
    assert (
        found["gpuwatch_gpu_temperature_celsius"].type,
        found["gpuwatch_gpu_temperature_celsius"].unit,
    ) == ("gauge", "celsius")
    assert all(family.members for family in FAMILIES)


def test_the_lines_of_both_formats_are_the_same() -> None:
    samples = Renderer().render(page_view.big_host())
    text, standard = ([line for line in samples.text(openmetrics=flag).splitlines() if line[0] != "#"] for flag in (False, True))
    assert text == standard


def test_an_alert_carries_the_labels_of_its_target() -> None:
    view = page_view.view([page_view.entry(page_view.target(own.ALERT), own.ALERT_STATE.at("firing"))])
    found = parsed(page(view, openmetrics=False), openmetrics=False)
    assert found[series("gpuwatch_alert_state", page_view.ALERT_LABELS | {"state": "firing"})] == 1.0
    assert found[series("gpuwatch_alert_state", page_view.ALERT_LABELS | {"state": "stale"})] == 0.0


def test_a_fixed_label_wins_over_a_label_of_the_target_with_the_same_name() -> None:
    """A line with one label name twice would cost Prometheus the whole page."""
    target = Target(subject=own.ALERT, key="x", labels={"rule": "r", "severity": "info", "state": "from the target"})
    view = page_view.view([page_view.entry(target, {own.ALERT_STATE["firing"]: 1.0})])
    found = parsed(page(view, openmetrics=False), openmetrics=False)
    assert {series("gpuwatch_alert_state", {"rule": "r", "severity": "info", "state": "firing"}): 1.0} == found


def hwmon(key: str, **numbers: float) -> Entry:
    metrics: dict[str, Metric] = {"temperature": host.HWMON_TEMPERATURE, "fan": host.HWMON_FAN}
    target = Target(subject=host.HWMON, key=key, labels={"chip": "nct6775", "sensor": "1"})
    return page_view.entry(target, {metrics[name]: value for name, value in numbers.items()})


def test_two_targets_with_equal_labels_repeat_no_series_and_the_first_wins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    renderer = Renderer()
    both = page_view.view([hwmon("a", temperature=40.0), hwmon("b", temperature=50.0, fan=900.0)])
    for _ in range(3):
        found = parsed(page(both, openmetrics=False, renderer=renderer), openmetrics=False)
        labels = {"chip": "nct6775", "sensor": "1"}
        assert {
            series("gpuwatch_hwmon_temperature_celsius", labels): 40.0,
            series("gpuwatch_hwmon_fan_rpm", labels): 900.0,
        } == found
    assert renderer.lost == 3
    assert len(caplog.records) == 1
    renderer.render(page_view.view([hwmon("b", temperature=50.0)]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_the_values_of_a_disk_that_took_the_name_of_a_gone_one_are_shown() -> None:
    """The gone disk stays on the board for an hour without values; it must not hide its successor."""
    gone, new = (Target(subject=disk.DISK, key=key, labels={"device": "sda"}, info={"serial": key}) for key in ("old", "new"))
    view = page_view.view([Entry(gone, {}, {}, ()), page_view.entry(new, {disk.TEMPERATURE: 30.0})])
    found = parsed(page(view, openmetrics=False), openmetrics=False)
    assert {
        series("gpuwatch_disk_info", {"device": "sda", "serial": "new"}): 1.0,
        series("gpuwatch_disk_temperature_celsius", {"device": "sda"}): 30.0,
    } == found


def test_help_with_quotes_and_line_breaks_is_read_back_whole() -> None:
    words = 'a "quoted" word, a \\ and\na second line'
    for openmetrics in (False, True):
        family = ExportedFamily("gpuwatch_a_total", Kind.COUNTER, "", words, ())
        text = family.comments(openmetrics=openmetrics) + "gpuwatch_a_total 1\n" + ("# EOF\n" if openmetrics else "")
        assert [found.documentation for found in families(text, openmetrics=openmetrics)] == [words]
        assert (r"\"quoted\"" in text) == openmetrics  # prometheus_client also reads it unescaped; the standard does not


def test_changed_labels_and_info_show_in_the_next_beat() -> None:
    renderer = Renderer()
    before = page_view.target(gpu.GPU)
    after_labels = replace(before, labels={**before.labels, "gpu": "7"})
    after_info = replace(after_labels, info={**before.info, "vbios_version": "new"})
    for known in (before, after_labels, after_info):
        view = page_view.view([page_view.entry(known, {gpu.POWER: 1.0})])
        assert expected(view) == parsed(page(view, openmetrics=False, renderer=renderer), openmetrics=False)


def test_targets_that_come_and_go_a_hundred_times_leave_nothing_behind() -> None:
    """client_python#626: re-enumeration must neither fail nor let series grow."""
    renderer = Renderer()
    for turn in range(100):
        view = page_view.view(
            page_view.entry(page_view.target(gpu.GPU, 8 * turn + index), {gpu.POWER: 1.0}) for index in range(8)
        )
        assert len(parsed(page(view, openmetrics=True, renderer=renderer), openmetrics=True)) == 16
    assert len(renderer._heads) == 8


def test_text_that_is_not_utf8_or_holds_a_nul_costs_no_more_than_itself() -> None:
    target = Target(subject=disk.FILESYSTEM, key="x", labels={"mountpoint": "/a\udc80\0b", "fstype": "nfs"})
    text = page(page_view.view([page_view.entry(target, {disk.FILESYSTEM_SIZE: 1.0})]), openmetrics=False)
    labels = {"mountpoint": "/a\\udc80\\x00b", "fstype": "nfs"}
    assert {series("gpuwatch_filesystem_size_bytes", labels): 1.0} == parsed(text.encode().decode(), openmetrics=False)


def test_every_member_of_a_family_agrees_on_kind_unit_and_help() -> None:
    """A family has one HELP and one TYPE line, taken from its first member."""
    for family in FAMILIES:
        metrics = [member for member in family.members if isinstance(member, Metric)]
        assert {(family.kind, family.unit, family.help)} >= {(metric.kind, metric.unit, metric.help) for metric in metrics}
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")


@pytest.mark.parametrize(("name", "openmetrics"), [("metrics.txt", False), ("metrics.openmetrics.txt", True)])
def test_the_page_is_the_golden_one(name: str, openmetrics: bool, regold: bool) -> None:
    text = page(page_view.everything(), openmetrics=openmetrics)
    if regold:
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert (GOLDEN / name).read_text(encoding="utf-8") == text
