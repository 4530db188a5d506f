"""What the driver leaves in the file system, and who a GPU is that cannot be opened."""

import os
from pathlib import Path

import pytest

from gpuwatch.config import Config, Gpu, Paths
from gpuwatch.sources.nvml import census, identity, traces
from tests.fakes.clock import FakeClock

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\nGCC version:  12.2.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (dvs-builder)  Wed Oct 29\n"
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Sat Sep  2 02:43:11 PDT 2017\n"
UUID = "GPU-00000005-feed-4bee-a000-000000000005"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Empty trees of a host."""
    return Paths(proc=str(tmp_path / "proc"), sys=str(tmp_path / "sys"), dev=str(tmp_path / "dev"), root=str(tmp_path / "root"))


def write(path: str, text: str = "") -> None:
    """Write a file, with the folders above it."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROPRIETARY, ("535.154.05", "proprietary")),
        (OPEN, ("580.105.08", "open")),
        (OLD, ("384.81", "proprietary")),
        ("nonsense", ("", "")),
    ],
)
def test_version_and_kind_of_the_module_are_read(paths: Paths, text: str, expected: tuple[str, str]) -> None:
    write(f"{paths.proc}/driver/nvidia/version", text)
    assert expected == traces.module(paths)


def test_a_host_without_a_driver_leaves_no_traces(paths: Paths) -> None:
    found = traces.collect(paths)
    assert (found.module, found.nodes, found.nouveau, found.container) == (None, False, False, False)


def test_nodes_count_only_with_a_card_among_them(paths: Paths) -> None:
    write(f"{paths.dev}/nvidiactl")
    write(f"{paths.dev}/nvidia-uvm")
    assert not traces.collect(paths).nodes
    write(f"{paths.dev}/nvidia0")
    assert traces.collect(paths).nodes


def test_how_long_nodes_are_missing_is_counted_from_the_first_look_and_anew_after_each_return(paths: Paths) -> None:
    clock = FakeClock()
    watch = traces.Watch(paths, clock)
    version, control, card = (
        Path(paths.proc) / "driver/nvidia/version",
        Path(paths.dev) / "nvidiactl",
        Path(paths.dev) / "nvidia0",
    )
    clock.forward(500)
    assert watch.look().nodeless == 0  # no module: no nodes are lacking
    write(str(version), PROPRIETARY)
    counted = []
    for seconds in (500, 70, 49.5, 0.5):
        clock.forward(seconds)
        counted.append(watch.look().nodeless)
    assert counted == [0, 70, 119.5, 120]
    clock.step(3600)  # the wall clock has no part in it
    assert watch.look().nodeless == 120
    write(str(control))
    assert watch.look().nodeless == 120  # one of both is not enough
    write(str(card))
    assert watch.look().nodeless == 0
    clock.forward(1000)
    card.unlink()
    assert watch.look().nodeless == 0
    clock.forward(30)
    assert watch.look().nodeless == 30
    version.unlink()
    assert watch.look().nodeless == 0
    clock.forward(30)
    write(str(version), PROPRIETARY)
    assert watch.look().nodeless == 0


@pytest.mark.parametrize(
    ("age", "uptime", "expected"),
    [
        (50.0, "86400.00 1.00\n", 50.0),
        (1000.0, "86400.00 1.00\n", 1000.0),
        (1e9, "86400.00 1.00\n", 86400.0),  # the clock was set since
        (-1000.0, "86400.00 1.00\n", 0.0),
        (1000.0, "", 0.0),
        (1000.0, "soon\n", 0.0),
    ],
)
def test_nodes_that_are_missing_from_the_start_have_been_so_since_the_module_was_loaded(
    paths: Paths, age: float, uptime: str, expected: float
) -> None:
    clock = FakeClock()
    write(f"{paths.proc}/driver/nvidia/version", PROPRIETARY)
    write(f"{paths.proc}/uptime", uptime)
    write(f"{paths.sys}/module/nvidia/refcnt")
    os.utime(f"{paths.sys}/module/nvidia", (clock.wall() - age, clock.wall() - age))
    watch = traces.Watch(paths, clock)
    assert watch.look().nodeless == expected
    clock.forward(10)
    assert watch.look().nodeless == expected + 10
    write(f"{paths.dev}/nvidiactl")
    write(f"{paths.dev}/nvidia0")
    watch.look()
    Path(f"{paths.dev}/nvidia0").unlink()
    assert watch.look().nodeless == 0  # what was seen to go counts from then


def test_nouveau_and_a_container_are_seen(paths: Paths) -> None:
    write(f"{paths.sys}/module/nouveau/refcnt")
    write(f"{paths.root}/run/.containerenv")
    found = traces.collect(paths)
    assert (found.nouveau, found.container) == (True, True)


@pytest.mark.parametrize(
    ("uuid", "address", "expected"),
    [
        (UUID, (0, 0x65, 0), UUID),
        ("GPU-\\xff\\x00", (0, 0x65, 0), "0000:65:00.0"),
        ("", (0x10000, 1, 0), "10000:01:00.0"),
        ("", None, "index-0"),
    ],
)
def test_the_key_is_the_uuid_else_the_pci_address(uuid: str, address: tuple[int, int, int] | None, expected: str) -> None:
    assert expected == identity.key(uuid, address, 0)


def test_the_only_card_that_is_not_open_is_the_one_that_cannot_be_opened(paths: Paths) -> None:
    write(f"{paths.proc}/driver/nvidia/gpus/0000:17:00.0/information", "GPU UUID: \t GPU-????????-????-????-????-????????????\n")
    write(f"{paths.proc}/driver/nvidia/gpus/0000:65:00.0/information", f"Model: \t x\nGPU UUID: \t {UUID}\n")
    config = Config(paths=paths, gpus={"0000:65:00.0": Gpu(label="slot 3")})
    found = census.nameless(config, {4: (0, 0x17, 0)}, [5], 6)
    assert [(index, one.key, one.info["label"]) for index, one in found.items()] == [(5, UUID, "slot 3")]
    found = census.nameless(config, {1: (0, 0x65, 0)}, [0], 2)
    assert [(index, one.key) for index, one in found.items()] == [(0, "0000:17:00.0")]


def test_a_doubt_about_which_card_it_is_names_none(paths: Paths) -> None:
    for bus in ("17", "65", "ca"):
        write(f"{paths.proc}/driver/nvidia/gpus/0000:{bus}:00.0/information")
    assert census.nameless(Config(paths=paths), {0: (0, 0x17, 0)}, [1], 2) == {}


def test_the_one_card_between_two_known_neighbours_is_named_although_more_are_listed_than_counted(paths: Paths) -> None:
    for bus in ("17", "25", "33", "45", "65"):
        write(f"{paths.proc}/driver/nvidia/gpus/0000:{bus}:00.0/information")
    config = Config(paths=paths)
    found = census.nameless(config, {0: (0, 0x17, 0), 2: (0, 0x33, 0)}, [1, 3], 4)
    assert [(index, one.key) for index, one in found.items()] == [(1, "0000:25:00.0")]  # 3 may be either of two
    assert census.nameless(config, {0: (0, 0x33, 0), 2: (0, 0x17, 0)}, [1], 3) == {}  # another order: nothing follows from it
    assert census.nameless(config, {0: (0, 0x17, 0)}, [1], 3) == {}  # the neighbour is not known


def test_a_card_that_says_where_it_sits_is_named_by_that(paths: Paths) -> None:
    write(f"{paths.proc}/driver/nvidia/gpus/0000:65:00.0/information", f"GPU UUID: \t {UUID}\n")
    write(f"{paths.proc}/driver/nvidia/gpus/0000:66:00.0/information")
    found = census.nameless(Config(paths=paths), {3: (0, 0x65, 0), 4: (0, 0x70, 0)}, [3, 4], 5)
    assert {index: one.key for index, one in found.items()} == {3: UUID, 4: "0000:70:00.0"}


def test_the_bus_names_a_card_that_the_driver_does_not_list(paths: Paths) -> None:
    for bus in ("17", "65"):
        write(f"{paths.sys}/bus/pci/devices/0000:{bus}:00.0/vendor", "0x10de\n")
        write(f"{paths.sys}/bus/pci/devices/0000:{bus}:00.0/class", "0x030200\n")
    write(f"{paths.sys}/bus/pci/devices/0000:65:00.1/vendor", "0x10de\n")
    write(f"{paths.sys}/bus/pci/devices/0000:65:00.1/class", "0x040300\n")  # its sound card
    found = census.nameless(Config(paths=paths), {0: (0, 0x17, 0)}, [1], 2)
    assert [(index, one.key) for index, one in found.items()] == [(1, "0000:65:00.0")]


def test_a_library_replaced_on_disk_is_noticed(tmp_path: Path) -> None:
    mapped = tmp_path / "libnvidia-ml.so.535.154.05"
    mapped.touch()
    (tmp_path / "libnvidia-ml.so.1").symlink_to(mapped.name)
    maps = tmp_path / "maps"
    maps.write_text(f"7f0000000000-7f0000010000 r-xp 00000000 08:01 1234   {mapped}\n")
    assert not traces.replaced(maps)
    (tmp_path / "libnvidia-ml.so.550.90.07").touch()
    (tmp_path / "libnvidia-ml.so.1").unlink()
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.90.07")
    assert traces.replaced(maps)
    maps.write_text(f"7f0000000000-7f0000010000 r-xp 00000000 08:01 1234   {mapped} (deleted)\n")
    assert traces.replaced(maps)
    maps.write_text("7f0000000000-7f0000010000 r-xp 00000000 08:01 1234   /usr/lib/libc.so.6\n")
    assert not traces.replaced(maps)
