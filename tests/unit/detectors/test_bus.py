"""Errors of the PCIe bus: whose they are, that of one GPU or that of a port above several."""

from collections.abc import Callable

from gpuwatch.catalogue.events import ERRORS_OPEN, PORT, PORT_ERRORS_OPEN
from gpuwatch.model.alert import Severity
from gpuwatch.model.metric import Metric
from gpuwatch.model.target import Target
from tests.fakes.happenings import told
from tests.fakes.story import Story

Tell = Callable[..., Story]
RULE = "gpu_errors"


def value(story: Story, target: Target, metric: Metric) -> float | None:
    """Return a value of the board."""
    return story.board.view(story.wall, story.mono).value(target, metric)


def test_pcie_errors_of_a_port_are_those_of_the_gpu_below_it(tell: Tell) -> None:
    story = tell(gpus=2)
    port = "0000:40:01.1"
    story.ports[1] = f"{port} 0000:40:03.0"
    story.at(60)
    for _ in range(90):
        errors = told("aer_corrected", Severity.INFO, story.wall, "0000:40:03.0", port=port)
        elsewhere = told("aer_corrected", Severity.INFO, story.wall, "0000:00:1c.5", port="0000:00:1c.5")
        story.happens(errors, elsewhere).at(story.now + 1)
    story.at(200)
    assert {(one.rule, one.gpu, one.after, one.severity) for one in story.heard()} == {(RULE, "1", "firing", "warning")}


def shared(story: Story) -> Story:
    """Put all GPUs below one port of a switch, each with a port of its own."""
    story.ports = {number: f"0000:30:01.0 0000:31:00.0 0000:32:0{number}.0" for number in range(len(story.cards))}
    return story


def test_an_error_of_a_port_above_several_gpus_is_told_of_the_port_and_of_none_of_them(tell: Tell) -> None:
    story = shared(tell(gpus=4)).at(60)
    story.happens(told("aer_fatal", Severity.CRITICAL, story.wall, "0000:30:01.0")).at(90)
    assert [(one.rule, one.after, one.severity) for one in story.heard()] == [("bus_errors", "firing", "critical")]
    summary = story.transitions[0][1].summary
    assert summary.startswith(
        "PCIe port 0000:30:01.0 above GPUs 0, 1, 2, 3: A fatal PCIe error, or a recovery that failed once. "
    )
    assert [story.value(gpu, metric) for gpu in range(4) for metric in ERRORS_OPEN.values()] == [0] * 8
    story.restart(away=10).at(120)
    story.boot_id = "boot-2"
    story.restart(away=60).at(240)
    assert [(one.rule, one.after) for one in story.heard()] == [("bus_errors", "firing"), ("bus_errors", "inactive")]


def test_the_port_of_one_gpu_below_a_switch_is_that_of_the_gpu(tell: Tell) -> None:
    story = shared(tell(gpus=4)).at(60)
    story.happens(told("aer_fatal", Severity.CRITICAL, story.wall, "0000:32:02.0")).at(90)
    assert {(one.rule, one.gpu, one.after, one.severity) for one in story.heard()} == {(RULE, "2", "firing", "critical")}


def test_the_ports_of_another_boot_are_not_those_of_this_one(tell: Tell) -> None:
    """With a card less the bus is numbered anew: its port is now that of another one, and of that alone."""
    story = tell(gpus=2)
    story.ports = {0: "0000:30:01.0", 1: "0000:30:02.0"}
    story.at(60)
    story.boot_id, story.ports = "boot-2", {0: "0000:30:02.0"}
    story.gpu(1, on_bus=False, silent=True).restart(away=60).at(140)
    story.happens(told("aer_fatal", Severity.CRITICAL, story.wall, "0000:30:02.0")).at(170)
    assert {(one.rule, one.gpu) for one in story.heard() if one.rule != "gpu_dropped"} == {(RULE, "0")}


def test_a_port_is_told_to_be_well_for_a_while_and_is_no_series_before_and_after(tell: Tell) -> None:
    story = shared(tell(gpus=2)).at(60)
    port = Target(subject=PORT, key="0000:30:01.0")
    assert value(story, port, PORT_ERRORS_OPEN["warning"]) is None
    story.happens(told("aer_nonfatal", Severity.WARNING, story.wall, "0000:30:01.0")).at(65)
    assert [value(story, port, metric) for metric in PORT_ERRORS_OPEN.values()] == [1, 0]
    story.boot_id = "boot-2"
    story.at(70)
    assert [value(story, port, metric) for metric in PORT_ERRORS_OPEN.values()] == [0, 0]
    story.at(60 + 700)
    assert value(story, port, PORT_ERRORS_OPEN["warning"]) is None
