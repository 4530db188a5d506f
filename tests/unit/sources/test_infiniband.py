"""InfiniBand ports: their state, their speed, what they counted, and what says nothing."""

from pathlib import Path

import pytest

from gpuwatch.catalogue.host import INFINIBAND, INFINIBAND_BYTES, INFINIBAND_ERRORS, INFINIBAND_RATE, INFINIBAND_UP
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources import infiniband
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

COUNTERS = {
    "port_rcv_data": "1000",
    "port_xmit_data": "2000",
    "symbol_error": "1",
    "link_error_recovery": "2",
    "link_downed": "3",
    "port_rcv_errors": "4",
    "local_link_integrity_errors": "5",
    "excessive_buffer_overrun_errors": "6",
}


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """The trees of a host."""
    return HostTree(tmp_path)


def port(tree: HostTree, device: str = "mlx5_0", number: str = "1", **files: str) -> Path:
    """Add a port as the kernel shows it."""
    counters = {f"counters__{name}": value for name, value in COUNTERS.items()}
    known = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "InfiniBand", **counters}
    return tree.files(tree.sys / "class/infiniband" / device / "ports" / number, **(known | files))


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    """Ask once."""
    answers = Answers()
    infiniband.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def reading(tree: HostTree) -> Reading:
    """Return the reading of the one port."""
    return ask(tree).of(INFINIBAND, "mlx5_0/1")


def test_a_port_gives_state_speed_and_counters_in_our_units(tree: HostTree) -> None:
    port(tree)
    found = reading(tree)
    errors = dict(zip(INFINIBAND_ERRORS.values(), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), strict=True))
    directions = {INFINIBAND_BYTES["receive"]: 4000.0, INFINIBAND_BYTES["transmit"]: 8000.0}
    assert (found.values, found.absent) == ({INFINIBAND_UP: 1.0, INFINIBAND_RATE: 12.5e9, **directions, **errors}, {})
    assert found.target.labels == {"device": "mlx5_0", "port": "1"}


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED", "5: ACTIVE_DEFER"])
def test_a_port_that_is_not_active_is_down_and_has_no_speed(tree: HostTree, state: str) -> None:
    port(tree, state=state)
    found = reading(tree)
    assert (found.values[INFINIBAND_UP], found.absent) == (0.0, {INFINIBAND_RATE: Absence.EMPTY})


@pytest.mark.parametrize(
    ("text", "expected"), [("2.5 Gb/sec (1X SDR)", 2.5e9 / 8), ("40 Gb/sec (4X QDR)", 5e9), ("400 Gb/sec (4X NDR)", 50e9)]
)
def test_every_speed_is_understood(tree: HostTree, text: str, expected: float) -> None:
    port(tree, rate=text)
    assert reading(tree).values[INFINIBAND_RATE] == expected


@pytest.mark.parametrize("text", ["", "fast", "-1 Gb/sec", "\x00", "100"])
def test_a_speed_that_is_none_is_absent_and_costs_nothing_else(tree: HostTree, text: str) -> None:
    port(tree, rate=text)
    found = reading(tree)
    assert (found.absent, found.values[INFINIBAND_UP]) == ({INFINIBAND_RATE: Absence.FAILED}, 1.0)


def test_an_adapter_that_counts_nothing_says_so(tree: HostTree) -> None:
    port(tree, **{f"counters__{name}": "N/A (no PMA)" for name in COUNTERS})
    found = reading(tree)
    assert (found.values, set(found.absent.values())) == ({INFINIBAND_UP: 1.0, INFINIBAND_RATE: 12.5e9}, {Absence.UNSUPPORTED})


def test_counters_that_are_not_there_are_unsupported(tree: HostTree) -> None:
    folder = port(tree)
    for name in COUNTERS:
        (folder / "counters" / name).unlink()
    assert set(reading(tree).absent.values()) == {Absence.UNSUPPORTED}


def test_a_byte_counter_that_is_full_is_no_number(tree: HostTree) -> None:
    """A counter of 32 bits stays at its largest value (InfiniBand specification, PortCounters)."""
    port(tree, counters__port_rcv_data="4294967295", counters__port_xmit_data="99999999999")
    found = reading(tree)
    assert found.absent == {INFINIBAND_BYTES["receive"]: Absence.EMPTY}
    assert found.values[INFINIBAND_BYTES["transmit"]] == 99999999999.0 * 4


def test_every_port_of_every_adapter_is_read_but_not_those_of_virtual_functions(tree: HostTree) -> None:
    port(tree, "mlx4_0", "1")
    port(tree, "mlx4_0", "2")
    port(tree, "mlx5_9", "1")
    tree.link(tree.sys / "class/infiniband/mlx5_9/device/physfn", tree.sys / "devices/physical")
    assert ask(tree).keys(INFINIBAND) == ["mlx4_0/1", "mlx4_0/2"]


def test_no_more_ports_are_read_than_a_host_has(tree: HostTree) -> None:
    for number in range(infiniband.LIMIT + 5):
        port(tree, f"mlx5_{number}")
    assert len(ask(tree).readings) == infiniband.LIMIT


def test_a_port_that_hung_is_late_and_the_others_are_read(tree: HostTree) -> None:
    port(tree, "mlx5_0")
    port(tree, "mlx5_1")
    answers = ask(tree, frozenset({"mlx5_0/1"}))
    assert set(answers.of(INFINIBAND, "mlx5_0/1").absent.values()) == {Absence.LATE}
    assert (answers.items, answers.of(INFINIBAND, "mlx5_1/1").values[INFINIBAND_UP]) == (["mlx5_1/1"], 1.0)


def test_a_host_without_adapters_gives_nothing_and_no_other_tier_reads(tree: HostTree) -> None:
    assert ask(tree).readings == []
    port(tree)
    assert [ask(tree, tier=tier).readings for tier in (Tier.FAST, Tier.NORMAL)] == [[], []]
