"""NVIDIA's daemons: running, stopped or not installed, told apart without systemd."""

from pathlib import Path

import pytest

from gpuwatch.catalogue.host import FABRIC_MANAGER_UP, PERSISTENCED_UP, SERVICES
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import services
from gpuwatch.sources.services import DAEMONS, GROUPS, UNITS, Service
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

EACH = pytest.mark.parametrize(("metric", "service"), DAEMONS.items(), ids=["fabric manager", "persistence daemon"])


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """The trees of a host."""
    return HostTree(tmp_path)


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    """Ask once."""
    answers = Answers()
    services.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def install(tree: HostTree, service: Service, folder: str = "lib/systemd/system") -> None:
    """Add its unit file."""
    tree.write(tree.root / folder / service.unit, "[Unit]\n")


def said(tree: HostTree, metric: Metric) -> float | Absence:
    """Return the value, or why there is none."""
    reading = ask(tree).of(SERVICES)
    return reading.values[metric] if metric in reading.values else reading.absent[metric]


@EACH
@pytest.mark.parametrize("group", GROUPS)
def test_a_service_whose_group_has_processes_runs(tree: HostTree, metric: Metric, service: Service, group: str) -> None:
    tree.write(tree.sys / group / "system.slice" / service.unit / "cgroup.procs", "812\n813\n")
    assert said(tree, metric) == 1.0


@EACH
@pytest.mark.parametrize("folder", UNITS)
def test_an_installed_service_without_processes_is_down(tree: HostTree, metric: Metric, service: Service, folder: str) -> None:
    install(tree, service, folder)
    tree.write(tree.sys / "fs/cgroup/system.slice" / service.unit / "cgroup.procs", "")
    assert said(tree, metric) == 0.0


@EACH
def test_one_that_is_not_installed_is_absent(tree: HostTree, metric: Metric, service: Service) -> None:
    (other,) = [one for one in DAEMONS.values() if one is not service]
    install(tree, other)
    assert said(tree, metric) is Absence.UNSUPPORTED


@EACH
def test_one_that_was_started_without_systemd_is_found_by_its_number(tree: HostTree, metric: Metric, service: Service) -> None:
    tree.write(tree.root / service.pid_file, "812\n")
    tree.write(tree.proc / "812/comm", f"{service.name[:15]}\n")
    assert said(tree, metric) == 1.0


@EACH
@pytest.mark.parametrize("number", ["812\n", "", "0", "../812", "-1", "8" * 400])
def test_a_number_that_is_anothers_or_none_does_not_make_it_run(
    tree: HostTree, metric: Metric, service: Service, number: str
) -> None:
    install(tree, service)
    tree.write(tree.root / service.pid_file, number)
    tree.write(tree.proc / "812/comm", "bash\n")
    assert said(tree, metric) == 0.0


def test_both_are_told_in_one_reading_once_a_slow_round(tree: HostTree) -> None:
    install(tree, DAEMONS[FABRIC_MANAGER_UP])
    reading = ask(tree).of(SERVICES)
    assert (reading.values, reading.absent) == ({FABRIC_MANAGER_UP: 0.0}, {PERSISTENCED_UP: Absence.UNSUPPORTED})
    assert [ask(tree, tier=tier).readings for tier in (Tier.FAST, Tier.NORMAL)] == [[], []]


def test_what_hung_is_late_and_the_other_is_told(tree: HostTree) -> None:
    unit = DAEMONS[FABRIC_MANAGER_UP].unit
    install(tree, DAEMONS[PERSISTENCED_UP])
    answers = ask(tree, frozenset({unit}))
    reading = answers.of(SERVICES)
    assert (reading.values, reading.absent) == ({PERSISTENCED_UP: 0.0}, {FABRIC_MANAGER_UP: Absence.LATE})
    assert answers.items == [DAEMONS[PERSISTENCED_UP].unit]
