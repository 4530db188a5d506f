"""Network interfaces: which count, their speed and their state."""

from pathlib import Path

import pytest

from gpuwatch.catalogue.host import NETWORK, NETWORK_CARRIER_CHANGES, NETWORK_SPEED, NETWORK_UP
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import interfaces, network
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    answers = Answers()
    network.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def test_an_interface_gives_speed_in_bytes_its_state_and_its_changes(tree: HostTree) -> None:
    tree.interface("eno1", speed="25000", operstate="up", carrier_changes="7")
    reading = ask(tree).of(NETWORK, "eno1")
    assert reading.values == {NETWORK_SPEED: 3.125e9, NETWORK_UP: 1.0, NETWORK_CARRIER_CHANGES: 7.0}
    assert dict(reading.target.labels) == {"interface": "eno1"}


def test_devices_and_bonds_count_and_what_containers_add_does_not(tree: HostTree) -> None:
    for name in ("eno1", "ib0"):
        tree.interface(name)
    for name in ("lo", "docker0", "veth1a2b3c", "br-1", "vlan10", "tun0"):
        tree.interface(name, real=False)
    (tree.interface("bond0", real=False) / "bonding").mkdir()
    tree.write(tree.sys / "class/net/bonding_masters", "bond0\n")
    assert interfaces.counted(tree.sys) == ["bond0", "eno1", "ib0"]


def test_in_a_container_all_but_the_loopback_count(tree: HostTree) -> None:
    for name in ("lo", "eth0"):
        tree.interface(name, real=False)
    assert interfaces.counted(tree.sys) == ["eth0"]


def test_at_most_64_count(tree: HostTree) -> None:
    assert len(interfaces.counted(tree.sys, [f"eth{number}" for number in range(200)])) == 64


@pytest.mark.parametrize("speed", ["-1", "0", "4294967295"])
def test_an_interface_without_a_link_has_no_speed(tree: HostTree, speed: str) -> None:
    tree.interface("eno2", speed=speed, operstate="down")
    reading = ask(tree).of(NETWORK, "eno2")
    assert (reading.values[NETWORK_UP], reading.absent[NETWORK_SPEED]) == (0.0, Absence.EMPTY)


@pytest.mark.parametrize(
    ("operstate", "carrier", "up"),
    [
        ("up", "1", 1.0),
        ("down", "0", 0.0),
        ("lowerlayerdown", "0", 0.0),
        ("dormant", "1", 0.0),
        ("unknown", "1", 1.0),
        ("unknown", "0", 0.0),
    ],
)
def test_the_state_is_the_kernels_and_the_carrier_where_it_keeps_none(
    tree: HostTree, operstate: str, carrier: str, up: float
) -> None:
    tree.interface("eno1", operstate=operstate, carrier=carrier)
    assert up == ask(tree).of(NETWORK, "eno1").values[NETWORK_UP]


def test_one_bad_file_costs_one_value_and_no_neighbour(tree: HostTree) -> None:
    tree.interface("eno1", speed="fast")
    (tree.interface("eno2", speed="1000") / "carrier_changes").unlink()
    answers = ask(tree)
    assert dict(answers.of(NETWORK, "eno1").absent) == {NETWORK_SPEED: Absence.FAILED}
    assert dict(answers.of(NETWORK, "eno2").absent) == {NETWORK_CARRIER_CHANGES: Absence.UNSUPPORTED}


def test_each_is_named_before_it_is_touched_and_a_hung_one_left_alone(tree: HostTree) -> None:
    for name in ("eno1", "eno2"):
        tree.interface(name)
    assert ask(tree).items == ["eno1", "eno2"]
    assert ask(tree, skip=frozenset({"eno1"})).keys(NETWORK) == ["eno2"]


def test_it_is_read_in_slow_rounds_only(tree: HostTree) -> None:
    tree.interface("eno1")
    assert [*ask(tree, tier=Tier.FAST).readings, *ask(tree, tier=Tier.NORMAL).readings] == []


def test_without_sysfs_there_is_nothing(tree: HostTree) -> None:
    assert ask(tree).readings == []
