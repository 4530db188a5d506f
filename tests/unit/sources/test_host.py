"""The host: what each tier gives, on fake trees."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalogue import host
from gpuwatch.catalogue.disk import DISK, DISK_IO, DISK_IO_TIME
from gpuwatch.catalogue.host import HOST, NETWORK, NETWORK_BYTES, NETWORK_DROPS, NETWORK_ERRORS
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.host import facts, procfs, source
from gpuwatch.sources.host.procfs import Values
from gpuwatch.sources.source import Source
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path).kernel()


def ask(tree: HostTree, tier: Tier = Tier.FAST, asked: Source | None = None) -> Answers:
    answers = Answers()
    (asked or source(tree.config, FakeClock())).ask(tier, frozenset(), answers)
    assert (answers.ends, answers.items) == (1, [])
    return answers


def test_a_fast_round_gives_cpu_load_memory_and_pressure(tree: HostTree) -> None:
    reading = ask(tree).of(HOST)
    modes = {"user": 10, "nice": 0.2, "system": 3, "idle": 400, "iowait": 0.5, "irq": 0.06, "softirq": 0.07, "steal": 0.08}
    expected = {
        **{host.CPU_SECONDS[mode]: seconds for mode, seconds in modes.items()},
        host.LOAD1: 1.5,
        host.LOAD5: 2.25,
        host.LOAD15: 3.0,
        host.MEMORY_SIZE: 1024000.0,
        host.MEMORY_AVAILABLE: 614400.0,
        host.SWAP_SIZE: 409600.0,
        host.SWAP_USED: 102400.0,
        host.PRESSURE_WAITING["cpu"]: 1.0,
        host.PRESSURE_WAITING["io"]: 2.0,
        host.PRESSURE_STALLED["io"]: 0.2,
        host.PRESSURE_WAITING["memory"]: 3.0,
        host.PRESSURE_STALLED["memory"]: 0.3,
    }
    assert reading.values == pytest.approx(expected)
    assert dict(reading.absent) == {}


def test_the_host_is_described_and_its_boot_is_known_to_detectors(tree: HostTree) -> None:
    target = facts.target(tree.config)
    assert (target.key, dict(target.labels)) == ("", {})
    assert target.info["name"] == "vision-07"
    assert target.info["kernel"] == "5.15.0-122-generic"
    assert target.info["os"] == "Ubuntu 22.04.5 LTS"
    assert target.info["labels"] == "rack=A3,site=north"
    assert target.info["boot_id"] == "11111111-2222-3333-4444-555555555555"
    assert "boot_id" not in HOST.info


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PRETTY_NAME='Rocky Linux 9.4 (Blue Onyx)'\n", "Rocky Linux 9.4 (Blue Onyx)"),
        ("NAME=Arch\n", "Arch"),
        ('PRETTY_NAME="Evil \x1b[31m"\n', "Evil \\x1b[31m"),
        ("PRETTY_NAME=\n", ""),
        ("", ""),
    ],
)
def test_the_system_is_named_as_os_release_names_it(tree: HostTree, text: str, name: str) -> None:
    tree.write(tree.root / "etc/os-release", text)
    assert name == facts.release(tree.root)


def test_a_kernel_without_pressure_lacks_only_that(tree: HostTree) -> None:
    for resource in host.RESOURCES:
        (tree.proc / "pressure" / resource).unlink()
    reading = ask(tree).of(HOST)
    assert dict(reading.absent) == dict.fromkeys(
        (*host.PRESSURE_WAITING.values(), *host.PRESSURE_STALLED.values()), Absence.UNSUPPORTED
    )
    assert len(reading.values) == 15


def test_a_kernel_before_3_14_lacks_available_memory(tree: HostTree) -> None:
    tree.write(tree.proc / "meminfo", "MemTotal: 10 kB\nMemFree: 4 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
    assert ask(tree).of(HOST).absent[host.MEMORY_AVAILABLE] is Absence.UNSUPPORTED


@pytest.mark.parametrize("file", ["stat", "loadavg", "meminfo", "pressure/io", "diskstats", "net/dev"])
@pytest.mark.parametrize(
    "content", [None, b"", b"\0\xff\n", b"cpu nan nan nan nan nan nan nan nan nan nan\n", b"some total=x\nMemTotal:\n"]
)
def test_one_bad_file_costs_its_own_values_only(tree: HostTree, file: str, content: bytes | None) -> None:
    tree.sata("sda")
    tree.diskstats("sda 8 16 1500")
    tree.net("eno1")
    whole = len(ask(tree).of(HOST).values)
    bad = tree.proc / file
    bad.unlink() if content is None else bad.write_bytes(content)
    for tier in Tier:
        ask(tree, tier)
    values = ask(tree).of(HOST).values
    cost = {"stat": 8, "loadavg": 3, "meminfo": 4, "pressure/io": 2}.get(file, 0)
    assert whole - cost == len(values)
    assert all(math.isfinite(value) for value in values.values())


def test_whole_disks_tell_their_io_and_partitions_do_not(tree: HostTree) -> None:
    tree.sata("sda")
    tree.nvme(0)
    tree.diskstats("sda 8 16 1500", "sda1 4 8 700", "nvme0n1 2 0 0", "loop0 1 1 1", "dm-0 8 16 1", "md0 1 1 1")
    answers = ask(tree)
    assert answers.keys(DISK) == ["eui.0025385100400000", "naa.5000c50000000061"]
    reading = answers.of(DISK, "naa.5000c50000000061")
    assert reading.values == {DISK_IO["read"]: 4096.0, DISK_IO["write"]: 8192.0, DISK_IO_TIME: 1.5}


def test_a_disk_that_comes_is_found_and_one_that_goes_is_gone(tree: HostTree) -> None:
    tree.sata("sda")
    tree.diskstats("sda 8 16 1500")
    asked = source(tree.config, FakeClock())
    assert ask(tree, asked=asked).keys(DISK) == ["naa.5000c50000000061"]
    tree.nvme(0)
    tree.diskstats("sda 8 16 1500", "nvme0n1 1 1 1")
    assert len(ask(tree, asked=asked).keys(DISK)) == 2
    tree.diskstats("nvme0n1 1 1 1")
    assert ask(tree, asked=asked).keys(DISK) == ["eui.0025385100400000"]


def test_another_disk_under_the_same_name_is_found_with_the_slow_round(tree: HostTree) -> None:
    block = tree.sata("sda")
    tree.diskstats("sda 8 16 1500")
    asked = source(tree.config, FakeClock())
    ask(tree, asked=asked)
    tree.write(block / "device/wwid", "naa.other\n")
    ask(tree, Tier.SLOW, asked)
    assert ask(tree, asked=asked).keys(DISK) == ["naa.other"]


def test_counters_that_step_back_are_given_as_they_are(tree: HostTree) -> None:
    tree.sata("sda")
    asked = source(tree.config, FakeClock())
    for sectors in (1000, 2):
        tree.diskstats(f"sda {sectors} 0 0")
        (reading,) = [one for one in ask(tree, asked=asked).readings if one.target.subject is DISK]
        assert reading.values[DISK_IO["read"]] == sectors * 512


def test_one_garbled_disk_costs_no_other(tree: HostTree) -> None:
    tree.sata("sda")
    tree.sata("sdb")
    tree.diskstats("sda x 0 0", "sdb 1 1 1")
    answers = ask(tree)
    assert set(answers.of(DISK, "naa.5000c50000000061").absent.values()) == {Absence.FAILED}
    assert answers.of(DISK, "naa.5000c50000000062").values[DISK_IO["read"]] == 512.0


def test_a_normal_round_gives_the_counters_of_real_interfaces(tree: HostTree) -> None:
    tree.net("lo", "eno1", "veth12")
    for name, real in (("lo", False), ("eno1", True), ("veth12", False)):
        tree.interface(name, real=real)
    answers = ask(tree, Tier.NORMAL)
    assert answers.keys(NETWORK) == ["eno1"]
    assert answers.of(NETWORK, "eno1").values == {
        NETWORK_BYTES["receive"]: 1000.0,
        NETWORK_BYTES["transmit"]: 2000.0,
        NETWORK_ERRORS["receive"]: 1.0,
        NETWORK_ERRORS["transmit"]: 3.0,
        NETWORK_DROPS["receive"]: 2.0,
        NETWORK_DROPS["transmit"]: 4.0,
    }


def test_the_rounds_carry_the_time_at_which_they_were_read(tree: HostTree) -> None:
    tree.net("eno1")
    clock = FakeClock(wall=1_700_000_123.0)
    for tier in Tier:
        for reading in ask(tree, tier, source(tree.config, clock)).readings:
            assert (reading.at, reading.source, reading.tier) == (1_700_000_123.0, "host", tier)


READERS: tuple[tuple[str, Callable[[str], Values]], ...] = (
    ("stat", procfs.cpu),
    ("loadavg", procfs.load),
    ("meminfo", procfs.memory),
    ("pressure/io", lambda proc: procfs.pressure(proc, "io")),
    ("stat", lambda proc: {host.CPU_CORES: procfs.cores(proc), host.BOOT_TIME: procfs.boot_time(proc)}),
)
WORDS = st.sampled_from(
    [b"cpu", b"cpu0", b"MemTotal:", b"SwapFree:", b"total=", b"some", b"full", b"btime", b"kB", b" ", b"\n", b"-1", b"9" * 400]
)


@settings(max_examples=80, deadline=None)
@given(pieces=st.lists(WORDS | st.binary(max_size=8), max_size=30))
@pytest.mark.parametrize(("file", "read"), READERS)
def test_any_bytes_are_numbers_or_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, file: str, read: Callable[[str], Values], pieces: list[bytes]
) -> None:
    proc = tmp_path_factory.mktemp("garbage")
    (proc / "pressure").mkdir()
    (proc / file).write_bytes(b" ".join(pieces))
    try:
        read(str(proc))
    except (ValueError, OverflowError):
        return
