"""Which metrics are meant by a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.catalogue import METRICS, SUBJECTS, derived, disk, events, gpu, mig, process
from gpuwatch.catalogue.named import FACTS, UnknownMetricError, named
from gpuwatch.model.metric import Metric


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("power_watts", [gpu.POWER]),
        ("gpu.power_watts", [gpu.POWER]),
        ("gpuwatch_gpu_power_watts", [gpu.POWER]),
        ("temperature_celsius_core", [gpu.TEMPERATURE["core"]]),
        ("temperature_celsius", list(gpu.TEMPERATURE.values())),
        ("gpuwatch_gpu_temperature_celsius", list(gpu.TEMPERATURE.values())),
        ("gpu_temperature_celsius", list(gpu.TEMPERATURE.values())),
        ("gpu_up", [derived.UP]),
        ("xid_errors_total", [events.XID_ERRORS]),
        ("gpu_energy_joules_total", [gpu.ENERGY]),  # and not those of users and jobs, who have a family of that end
        ("disk.temperature_celsius", [disk.TEMPERATURE]),
        ("gpuwatch_disk_temperature_celsius", [disk.TEMPERATURE]),
        ("memory_used_bytes", [gpu.MEMORY_USED]),
        ("mig.memory_used_bytes", [mig.MIG_MEMORY_USED]),
        ("process.cpu_seconds_total", [process.PROCESS_CPU]),
    ],
)
def test_a_name_is_an_id_or_a_family_of_the_gpu_unless_it_says_of_what(name: str, metrics: list[Metric]) -> None:
    assert named(name) == tuple(metrics)


def test_every_metric_that_is_kept_is_found_by_its_full_name_and_by_its_family() -> None:
    for metric in METRICS:
        if not metric.internal:
            assert named(f"{metric.subject.name}.{metric.id}") == (metric,)
            assert metric in named(metric.family)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("power_wats", "no metric is called 'power_wats'; did you mean power_watts"),
        ("gpu.power_wats", "no metric is called 'gpu.power_wats'; did you mean gpu.power_watts"),
        ("gpuwatch_gpu_temprature_celsius", "did you mean gpuwatch_gpu_temperature_celsius"),
        ("zzzzzzzzzzzzzzzzz", "no metric is called 'zzzzzzzzzzzzzzzzz'; `gpuwatch metrics` lists all"),
        ("", "no metric is called ''"),
        ("disk.power_watts", "no metric is called 'disk.power_watts'"),
        ("pcie_receive_raw_bytes", "'pcie_receive_raw_bytes' feeds detectors and is not kept"),
        (
            "errors_total",
            "'errors_total' is of several things: say which, filesystem.errors_total, network.errors_total, ",
        ),
    ],
)
def test_what_is_not_kept_or_not_clear_is_said_with_what_comes_nearest(name: str, words: str) -> None:
    with pytest.raises(UnknownMetricError) as caught:
        named(name)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["energy_joule", "temperature_celsiu", "gpu_power_wats"])
def test_a_metric_is_offered_in_one_spelling(name: str) -> None:
    with pytest.raises(UnknownMetricError) as caught:
        named(name)
    offered = str(caught.value).partition("did you mean ")[2].rstrip("?").split(" or ")
    families = [{metric.family for metric in named(one)} for one in offered]
    assert (len(families) > 0, len(set().union(*families))) == (True, len(offered))


@given(st.text(max_size=200))
def test_junk_is_no_metric(name: str) -> None:
    with pytest.raises(UnknownMetricError):
        named(f"!{name}")


@pytest.mark.parametrize("name", ["gpuwatch_gpu_info", "gpu_info", "gpu.info", "gpuwatch_build_info", "disk.info"])
def test_a_family_of_facts_is_said_to_have_no_history(name: str) -> None:
    with pytest.raises(UnknownMetricError) as refused:
        named(name)
    assert str(refused.value) == f"'{name}' is text and has no history: what it is now is on /metrics and in /api/v1/view"


def test_every_family_without_a_number_is_one_of_facts() -> None:
    found = {f"{one.head}_info" for one in SUBJECTS.values() if one.info}
    assert found <= FACTS
    assert FACTS.isdisjoint(metric.family for metric in METRICS)
