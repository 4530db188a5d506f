"""What the page leaves out by default, and how it is had."""

import json
from collections.abc import Iterator

import pytest

from gpuwatch import catalogue
from gpuwatch.catalogue import gpu, interconnect, process
from gpuwatch.catalogue.details import DETAILS
from gpuwatch.cli.metrics import page
from gpuwatch.config import Config, Http, Nvml, Processes, Sources
from gpuwatch.export.api import encoded
from gpuwatch.export.chosen import left_out, read_with, switch
from gpuwatch.export.page import Page
from gpuwatch.model.metric import Kind, Metric, StateSet
from gpuwatch.sources.nvml.nvlink import EACH
from tests.fakes import page_view


def shown(config: Config) -> set[str]:
    """Return the lines of a page with every metric, without their numbers."""
    text = Page(page_view.everything, hidden=left_out(config)).get().decode()
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def hidden(config: Config) -> set[str]:
    """Return the families that such a page lacks a line of."""
    everything = shown(
        Config(http=Http(details=True), processes=Processes(series=True), sources=Sources(nvml=Nvml(per_link=True)))
    )
    return {line.partition("{")[0] for line in everything - shown(config)}


def test_details_links_and_processes_are_left_out_and_each_has_its_switch() -> None:
    links = {metric.family for metric in catalogue.of(interconnect.NVLINK)}
    processes = {metric.family for metric in (*catalogue.of(process.PROCESS), *catalogue.of(process.PROCESS_GPU))}
    details = {metric.family for metric in DETAILS}
    assert hidden(Config()) == links | processes | details
    assert hidden(Config(http=Http(details=True))) == links | processes
    assert hidden(Config(sources=Sources(nvml=Nvml(per_link=True)))) == processes | details
    assert hidden(Config(processes=Processes(series=True))) == links | details
    assert {switch(metric) for metric in catalogue.METRICS} == {
        "",
        "[http] details",
        "[sources.nvml] per_link",
        "[processes] series",
    }


def test_bytes_and_errors_of_a_link_are_said_to_be_read_only_with_the_option_that_reads_them() -> None:
    assert {metric for metric in catalogue.METRICS if read_with(metric)} == EACH.keys()
    lines = page(catalogue.METRICS, ())
    assert {line.split("`")[1] for line in lines if "Read only with `[sources.nvml] per_link`." in line} == {
        metric.family for metric in EACH
    }


def test_what_is_left_out_of_a_family_leaves_its_other_members() -> None:
    lines = shown(Config())
    there = {"sm", "memory"}
    assert {name for name in gpu.CLOCK if any("gpu_clock_hertz{" in line and f'"{name}"' in line for line in lines)} == there


def test_the_json_has_all_that_the_page_leaves_out() -> None:
    whole = Page(page_view.everything, hidden=left_out(Config()))
    whole.get()
    told = json.loads(whole.json(encoded))
    ids = {name for target in told["targets"] for name in target["values"]}
    assert {metric.id for metric in DETAILS} <= ids


def state_sets() -> Iterator[tuple[Metric, ...]]:
    """Yield the metrics of each state set."""
    for module in catalogue.MODULES:
        yield from (tuple(one.values()) for one in vars(module).values() if isinstance(one, StateSet))


@pytest.mark.parametrize("states", list(state_sets()), ids=lambda states: str(states[0].family))
def test_a_state_set_is_on_the_page_as_a_whole_or_not_at_all(states: tuple[Metric, ...]) -> None:
    assert len({metric in DETAILS for metric in states}) == 1


def test_a_detail_is_a_metric_of_the_page() -> None:
    assert not [metric for metric in DETAILS if metric.internal or metric not in catalogue.METRICS]


def test_errors_that_cannot_be_corrected_are_no_detail() -> None:
    counters = {metric for metric in DETAILS if metric.kind is Kind.COUNTER and ("type", "uncorrected") in metric.labels}
    assert all(("lifetime", "volatile") in metric.labels for metric in counters)  # `aggregate` counts the same ones
