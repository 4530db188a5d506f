"""Which collectors there are follows from the configuration; what is off costs nothing."""

import msgspec
import pytest

from gpuwatch.config import Config, Dcgm, Simulated, Sources
from gpuwatch.daemon.building import Imitating, cadences, collectors, holding
from gpuwatch.model.reading import Tier
from gpuwatch.model.view import View
from gpuwatch.sampling.local import Local
from gpuwatch.sampling.probe import Probe
from gpuwatch.sampling.supervisor import Supervisor
from tests.fakes.clock import FakeClock


def config(**table: object) -> Config:
    """Return a configuration with these options of DCGM."""
    return Config(sources=Sources(dcgm=msgspec.convert(table, Dcgm, dec_hook=lambda kind, value: kind(value))))


def built(chosen: Config) -> dict[str, tuple[type, dict[Tier, float]]]:
    """Return the kind and the periods of every collector, by name."""
    found = collectors(chosen, lambda _: None, lambda _: None, lambda: View(0.0, {}), FakeClock())
    return {one.collector.name: (type(one.collector), dict(one.periods)) for one in found}


def test_a_simulated_host_goes_on_during_a_release_and_tells_all_of_it_at_its_end() -> None:
    asked = list[Tier]()
    imitating = Imitating("gpuwatch-sim", asked.append)
    imitating.pause()
    assert (asked, imitating.pids()) == ([], [])
    imitating.go_on()
    assert asked == list(Tier)


@pytest.mark.parametrize(
    ("sources", "names"),
    [(Sources(), [(Supervisor, "gpuwatch-nvml")]), (Sources(simulated=Simulated(enabled=True)), [(Imitating, "gpuwatch-sim")])],
)
def test_what_has_gpus_open_lets_go_of_them(sources: Sources, names: list[tuple[type, str]]) -> None:
    found = collectors(Config(sources=sources), lambda _: None, lambda _: None, lambda: View(0.0, {}), FakeClock())
    assert [(type(one), one.name) for one in holding(found)] == names


def test_dcgm_is_not_read_unless_it_is_asked_for() -> None:
    assert {name for name in built(Config()) if "dcgm" in name} == set()


def test_the_page_of_an_exporter_is_read_by_a_thread_of_the_daemon() -> None:
    assert built(config(enabled=True, every=20.0))["dcgm"] == (Local, {Tier.NORMAL: 20.0})


def test_dcgmi_is_called_in_a_process_that_ends_after_each_round() -> None:
    assert built(config(enabled=True, mode="dmon"))["gpuwatch-dcgm"] == (Probe, {Tier.NORMAL: 30.0})


@pytest.mark.parametrize("mode", ["exporter", "dmon"])
def test_a_value_of_dcgm_counts_for_three_of_its_periods(mode: str) -> None:
    assert cadences(config(enabled=True, mode=mode, every=20.0))["dcgm", Tier.NORMAL].life == 60.0
