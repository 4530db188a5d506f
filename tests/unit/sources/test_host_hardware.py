"""What changes seldom: cores, boot time, throttling, memory errors, RAID."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.catalogue import host
from gpuwatch.catalogue.disk import MD, MD_DEGRADED
from gpuwatch.catalogue.host import HOST
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.host import raid, source
from gpuwatch.sources.host.raid import Array
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

MDSTAT = """Personalities : [raid1] [raid6] [raid5] [raid4] [raid0]
md0 : active raid1 sdb1[1] sda1[0](F)
      1046528 blocks super 1.2 [2/1] [_U]

md1 : active (auto-read-only) raid6 sdc1[0] sdd1[1] sde1[2] sdf1[3]
      2093056 blocks super 1.2 level 6, 512k chunk, algorithm 2 [4/4] [UUUU]
      [=>...................]  resync =  7.1% (74880/1046528) finish=0.6min speed=24960K/sec
      bitmap: 0/1 pages [0KB], 65536KB chunk

md2 : active raid0 sdg1[0] sdh1[1]
      2093056 blocks super 1.2 512k chunks

md127 : inactive sdi1[0](S)
      1046528 blocks super 1.2

unused devices: <none>
"""


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path).kernel()


def ask(tree: HostTree) -> Answers:
    answers = Answers()
    source(tree.config, FakeClock()).ask(Tier.SLOW, frozenset(), answers)
    assert answers.ends == 1
    return answers


def cpu(tree: HostTree, number: int, package: int, core: int, counts: tuple[int, int] | None) -> None:
    folder = tree.sys / f"devices/system/cpu/cpu{number}"
    tree.files(folder / "topology", physical_package_id=str(package), core_id=str(core))
    if counts:
        tree.files(folder / "thermal_throttle", core_throttle_count=str(counts[0]), package_throttle_count=str(counts[1]))


def test_a_slow_round_gives_cores_and_boot_time(tree: HostTree) -> None:
    reading = ask(tree).of(HOST)
    assert reading.values == {host.CPU_CORES: 2.0, host.BOOT_TIME: 1_700_000_000.0}
    assert set(reading.absent.values()) == {Absence.UNSUPPORTED}


def test_threads_of_a_core_and_cores_of_a_package_count_its_throttling_once(tree: HostTree) -> None:
    for number, (package, core, counts) in enumerate(
        [
            (0, 0, (3, 10)),
            (0, 1, (4, 10)),
            (1, 0, (0, 7)),
            (1, 1, (1, 7)),
            (0, 0, (3, 10)),
            (0, 1, (4, 9)),
            (1, 0, (0, 7)),
            (1, 1, (1, 7)),
        ]
    ):
        cpu(tree, number, package, core, counts)
    values = ask(tree).of(HOST).values
    assert (values[host.CPU_THROTTLES["core"]], values[host.CPU_THROTTLES["package"]]) == (8.0, 17.0)


def test_cpus_that_count_nothing_leave_throttling_absent(tree: HostTree) -> None:
    cpu(tree, 0, 0, 0, None)
    reading = ask(tree).of(HOST)
    assert [reading.absent[metric] for metric in host.CPU_THROTTLES.values()] == [Absence.UNSUPPORTED] * 2


def test_an_offline_cpu_costs_nothing(tree: HostTree) -> None:
    cpu(tree, 0, 0, 0, (3, 10))
    cpu(tree, 1, 0, 1, None)
    assert ask(tree).of(HOST).values[host.CPU_THROTTLES["core"]] == 3.0


def test_a_throttle_count_that_cannot_be_read_makes_the_sum_absent_not_smaller(tree: HostTree) -> None:
    cpu(tree, 0, 0, 0, (3, 10))
    cpu(tree, 1, 0, 1, (4, 10))
    tree.write(tree.sys / "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "?\n")
    assert ask(tree).of(HOST).absent[host.CPU_THROTTLES["core"]] is Absence.FAILED


def test_memory_errors_are_summed_over_the_controllers(tree: HostTree) -> None:
    folder = tree.sys / "devices/system/edac/mc"
    for number, (corrected, uncorrected) in enumerate([("2", "0"), ("5", "1")]):
        tree.files(folder / f"mc{number}", ce_count=corrected, ue_count=uncorrected)
    tree.files(folder / "power", ce_count="99")
    values = ask(tree).of(HOST).values
    assert (values[host.MEMORY_ERRORS["corrected"]], values[host.MEMORY_ERRORS["uncorrected"]]) == (7.0, 1.0)


def test_edac_without_a_controller_counts_nothing_rather_than_0(tree: HostTree) -> None:
    (tree.sys / "devices/system/edac/mc/power").mkdir(parents=True)
    assert ask(tree).of(HOST).absent[host.MEMORY_ERRORS["corrected"]] is Absence.UNSUPPORTED


def test_arrays_are_read_from_mdstat() -> None:
    expected = [
        Array("md0", active=True, redundant=True, missing=1),
        Array("md1", active=True, redundant=True, missing=0),
        Array("md2", active=True, redundant=False, missing=None),
        Array("md127", active=False, redundant=False, missing=None),
    ]
    assert expected == raid.arrays(MDSTAT)


def test_a_degraded_array_is_told_and_an_inactive_one_is_a_fault(tree: HostTree) -> None:
    tree.write(tree.proc / "mdstat", MDSTAT)
    tree.write(tree.sys / "block/md1/md/degraded", "2\n")  # the kernel's own count goes before
    answers = ask(tree)
    assert answers.keys(MD) == ["md0", "md1", "md127"]
    assert answers.of(MD, "md0").values == {MD_DEGRADED: 1.0}
    assert answers.of(MD, "md1").values == {MD_DEGRADED: 2.0}
    inactive = answers.of(MD, "md127")
    assert dict(inactive.absent) == {MD_DEGRADED: Absence.FAILED}
    assert inactive.fault is not None
    assert inactive.fault.kind == "inactive"


def test_a_host_without_md_has_no_arrays(tree: HostTree) -> None:
    assert ask(tree).keys(MD) == []


@given(st.integers(0, len(MDSTAT)), st.text(max_size=20))
def test_a_cut_or_garbled_mdstat_invents_no_array(cut: int, tail: str) -> None:
    known = {"md0", "md1", "md2", "md127"}
    assert {array.name for array in raid.arrays(MDSTAT[:cut])} <= known
    raid.arrays(MDSTAT[:cut] + tail)
