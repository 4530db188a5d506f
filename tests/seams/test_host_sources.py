"""The host-side sources in a real worker, over files that fail and hang; and on this machine, beside psutil."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import psutil
import pytest

from gpuwatch import config as configuration
from gpuwatch.catalogue import host
from gpuwatch.catalogue.disk import (
    DISK,
    DISK_IO,
    FILESYSTEM,
    FILESYSTEM_AVAILABLE,
    FILESYSTEM_FAILED,
    FILESYSTEM_SIZE,
    FILESYSTEM_STUCK,
)
from gpuwatch.catalogue.host import HOST, NETWORK, NETWORK_BYTES, PCI, PCI_RESPONDING
from gpuwatch.config import Config, Host
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.places import places
from gpuwatch.sources import filesystem, hwmon, network, pci, wire
from gpuwatch.sources import host as host_source
from tests.fakes.badfs import BadFiles, build
from tests.fakes.host import Answers, HostTree
from tests.fakes.until import PATIENCE, until

NAMES = ("host", "pci", "filesystem", "hwmon", "network")
# What these calls fail with in earnest. The first of each says nothing about a device: nothing may change its name for it.
CODES = {
    "open": (errno.EMFILE, errno.ENOENT, errno.EACCES),
    "read": (errno.EIO, errno.ENODEV, errno.EINVAL),
    "list": (errno.EMFILE, errno.ENOENT, errno.EACCES),
    "statvfs": (errno.EIO, errno.ENOENT, errno.EACCES),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("badfs"))


@pytest.fixture
def bad(library: Path, tmp_path: Path) -> BadFiles:
    return BadFiles(library, tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """A host with one or two of everything."""
    tree = HostTree(tmp_path / "host").kernel()
    tree.nvme(0)
    tree.sata("sda")
    tree.virtio("vda")
    tree.diskstats("nvme0n1 1 2 3", "sda 4 5 6", "vda 7 8 9")
    tree.net("lo", "eno1")
    tree.interface("eno1", speed="1000", carrier="1")
    for address in ("0000:65:00.0", "0000:66:00.0"):
        tree.gpu(address)
    for number in range(2):
        chip = f"devices/platform/coretemp.{number}"
        tree.hwmon(number, "coretemp", chip, temp1_input="40000", temp1_label="Package", fan1_input="900", fan1_fault="0")
        tree.files(tree.sys / f"devices/system/cpu/cpu{number}/topology", physical_package_id="0", core_id="0")
        counts = tree.sys / f"devices/system/cpu/cpu{number}/thermal_throttle"
        tree.files(counts, core_throttle_count="2", package_throttle_count="3")
        tree.files(tree.sys / f"devices/system/edac/mc/mc{number}", ce_count="1", ue_count="0")
    tree.write(tree.proc / "mdstat", "md0 : active raid1 sdb1[1] sda1[0](F)\n      10 blocks [2/1] [_U]\n")
    tree.write(tree.sys / "block/md0/md/degraded", "1\n")
    for name in ("data", "nfs"):
        (tree.root / name).mkdir()
    tree.mounts("8:2 / ext4 /dev/sda2", "8:3 /data xfs /dev/sda3", "0:50 /nfs nfs4 server:/export")
    tree.write(tree.sys / "fs/ext4/sda2/errors_count", "0\n")
    return tree


class Worker:
    """A real worker over a fake host and a bad kernel; gone at the end."""

    def __init__(self, tree: HostTree, bad: BadFiles, names: tuple[str, ...] = NAMES) -> None:
        command = [sys.executable, "-m", "gpuwatch.sources.worker", "gpuwatch-test"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=bad.environ)
        self._frames = wire.frames(cast("BinaryIO", self.process.stdout))
        self._number = 0
        self.send(wire.Setup(list(names), configuration.plain(tree.config)))

    def send(self, frame: wire.Setup | wire.Ask) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(wire.pack(frame))
        self.process.stdin.flush()

    def begin(self, tier: Tier, skip: tuple[str, ...] = ()) -> Iterator[wire.FromWorker]:
        """Ask, and yield the frames up to the end of the round."""
        self._number += 1
        self.send(wire.Ask(self._number, tier, list(skip)))
        for body in self._frames:
            frame = wire.from_worker(body)
            assert not isinstance(frame, wire.Failed), frame
            yield frame
            if isinstance(frame, wire.Done):
                return

    def ask(self, tier: Tier, skip: tuple[str, ...] = ()) -> list[Reading]:
        """Ask, and return the readings of the round."""
        return [wire.reading(frame) for frame in self.begin(tier, skip) if isinstance(frame, wire.Got)]

    def end(self) -> None:
        """End it, whatever it hangs in."""
        self.process.kill()
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def worker(tree: HostTree, bad: BadFiles) -> Iterator[Worker]:
    worker = Worker(tree, bad)
    yield worker
    worker.end()


def told(readings: list[Reading]) -> dict[tuple[str, str, str], float]:
    """Return all values by subject, key and id, but for the space of the real disk below and the fault itself."""
    return {
        (reading.target.subject.name, reading.target.key, metric.id): value
        for reading in readings
        for metric, value in reading.values.items()
        if metric not in {FILESYSTEM_AVAILABLE, FILESYSTEM_SIZE, FILESYSTEM_FAILED}
    }


@pytest.mark.parametrize(
    ("call", "tier", "least"),
    [
        ("open", Tier.FAST, 6),
        ("read", Tier.FAST, 12),
        ("open", Tier.NORMAL, 1),
        ("read", Tier.NORMAL, 1),
        ("open", Tier.SLOW, 80),
        ("read", Tier.SLOW, 120),
        ("list", Tier.SLOW, 8),
        ("statvfs", Tier.SLOW, 3),
    ],
)
def test_any_one_call_that_fails_costs_its_own_values_and_only_once(
    worker: Worker, tree: HostTree, bad: BadFiles, *, call: str, tier: Tier, least: int
) -> None:
    """Every call that a round makes fails once with every code."""
    whole = told(worker.ask(tier))
    assert whole
    failures = 0
    for code in CODES[call]:
        for nth in range(1, 500):
            before = len(bad.faults())
            bad.fail(call, tree.folder, code, nth)
            found = told(worker.ask(tier))
            if len(bad.faults()) == before:
                break  # the round makes fewer than `nth` such calls
            failures += 1
            if code == CODES[call][0]:
                assert found.items() <= whole.items(), bad.faults()[-1]
            bad.work()
            assert whole == told(worker.ask(tier)), f"after {os.strerror(code)} in {bad.faults()[-1]}"
    assert failures >= least * len(CODES[call])


@pytest.mark.parametrize(
    ("call", "place", "item"),
    [
        ("statvfs", "root/nfs", "filesystem:/nfs"),
        ("list", "root/data", "filesystem:/data"),
        ("read", "sys/bus/pci/devices/0000:65:00.0/config", "pci:0000:65:00.0"),
        ("read", "sys/class/hwmon/hwmon1/temp1_input", "hwmon:coretemp-coretemp.1 Package"),
        ("read", "sys/class/net/eno1/speed", "network:eno1"),
    ],
)
def test_what_hangs_is_named_and_the_next_worker_reads_all_but_that(
    tree: HostTree, bad: BadFiles, call: str, place: str, item: str
) -> None:
    name, _, key = item.partition(":")
    names = (name, "host")
    first = Worker(tree, bad, names)
    try:
        whole = told(first.ask(Tier.SLOW))
        bad.hang(call, tree.folder / place)
        working = (frame for frame in first.begin(Tier.SLOW) if isinstance(frame, wire.Working))
        last = next(frame for frame in working if (frame.source, frame.item) == (name, key))
        until(lambda: bad.faults() == [f"{call} {tree.folder / place}"])
        assert first.process.poll() is None, last
    finally:
        first.end()
    second = Worker(tree, bad, names)
    try:
        readings = second.ask(Tier.SLOW, (item,))
        assert len(bad.faults()) == 1
        lost = {entry for entry in whole if entry not in told(readings)}
        assert {entry[1] for entry in lost} == {key}
    finally:
        second.end()


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN])
def test_a_mount_that_answers_with_an_error_is_at_fault_and_not_stuck(
    worker: Worker, tree: HostTree, bad: BadFiles, code: int
) -> None:
    bad.fail("statvfs", tree.root / "nfs", code)
    readings = {reading.target.key: reading for reading in worker.ask(Tier.SLOW) if reading.target.subject is FILESYSTEM}
    nfs = readings["/nfs"]
    assert (nfs.values[FILESYSTEM_STUCK], nfs.values[FILESYSTEM_FAILED]) == (0.0, 1.0)
    assert nfs.absent[FILESYSTEM_SIZE] is Absence.FAILED
    assert nfs.fault is not None
    assert (nfs.fault.kind, nfs.fault.code) == ("failed", code)
    assert os.strerror(code) in nfs.fault.words
    assert FILESYSTEM_SIZE in readings["/"].values
    assert readings["/"].values[FILESYSTEM_FAILED] == 0.0


def test_an_xfs_after_its_shutdown_is_at_fault_though_its_space_could_be_told(
    worker: Worker, tree: HostTree, bad: BadFiles
) -> None:
    bad.fail("list", tree.root / "data", errno.EIO)
    (data,) = [reading for reading in worker.ask(Tier.SLOW) if reading.target.key == "/data"]
    assert data.absent[FILESYSTEM_SIZE] is Absence.FAILED
    assert data.fault is not None
    assert data.fault.code == errno.EIO
    assert data.values[FILESYSTEM_FAILED] == 1.0


@pytest.mark.parametrize(
    ("code", "why"), [(errno.EACCES, Absence.DENIED), (errno.EMFILE, Absence.FAILED), (errno.ENOMEM, Absence.FAILED)]
)
def test_a_mount_is_not_at_fault_for_our_own_lack(worker: Worker, tree: HostTree, bad: BadFiles, code: int, why: Absence) -> None:
    bad.fail("list", tree.root / "data", code)
    (data,) = [reading for reading in worker.ask(Tier.SLOW) if reading.target.key == "/data"]
    assert (data.absent[FILESYSTEM_SIZE], data.absent[FILESYSTEM_FAILED], data.fault) == (why, why, None)


@pytest.mark.parametrize(
    ("code", "why"), [(errno.EACCES, Absence.DENIED), (errno.EIO, Absence.FAILED), (errno.ENODEV, Absence.LOST)]
)
def test_a_gpu_whose_bus_cannot_be_read_says_why(worker: Worker, tree: HostTree, bad: BadFiles, code: int, why: Absence) -> None:
    bad.fail("open", tree.sys / "bus/pci/devices/0000:65:00.0/config", code)
    readings = {reading.target.key: reading for reading in worker.ask(Tier.SLOW) if reading.target.subject is PCI}
    assert readings["0000:65:00.0"].absent[PCI_RESPONDING] is why
    assert readings["0000:66:00.0"].values[PCI_RESPONDING] == 1.0


def here(tier: Tier) -> Answers:
    """Return what all host-side sources say of this machine."""
    config = configuration.settle(Config(host=Host(name="here")), places(os.environ, root=False))
    answers = Answers()
    for module in (host_source, pci, filesystem, hwmon, network):
        module.source(config, SystemClock()).ask(tier, frozenset(), answers)
    assert len(NAMES) == answers.ends
    return answers


def test_on_this_machine_memory_and_load_are_those_of_psutil() -> None:
    values = here(Tier.FAST).of(HOST).values
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert (values[host.MEMORY_SIZE], values[host.SWAP_SIZE]) == (memory.total, swap.total)
    assert values[host.MEMORY_AVAILABLE] == pytest.approx(memory.available, rel=0.2)
    assert values[host.LOAD15] == pytest.approx(psutil.getloadavg()[2], abs=0.5)
    slow = here(Tier.SLOW).of(HOST).values
    assert slow[host.CPU_CORES] == psutil.cpu_count()
    assert slow[host.BOOT_TIME] == pytest.approx(psutil.boot_time(), abs=2)


def test_on_this_machine_disks_have_read_what_psutil_says() -> None:
    disks = {reading.target.labels["device"]: reading for reading in here(Tier.FAST).readings if reading.target.subject is DISK}
    counters = psutil.disk_io_counters(perdisk=True, nowrap=False)
    for device, reading in disks.items():
        assert reading.values[DISK_IO["read"]] <= counters[device].read_bytes  # read a moment later
        assert reading.values[DISK_IO["read"]] == pytest.approx(counters[device].read_bytes, rel=0.1, abs=1 << 26)
    assert not [device for device in disks if device.startswith(("loop", "zram", "dm-"))]


def test_on_this_machine_interfaces_have_sent_what_psutil_says() -> None:
    answers = here(Tier.NORMAL)
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    for name in answers.keys(NETWORK):
        assert answers.of(NETWORK, name).values[NETWORK_BYTES["transmit"]] <= counters[name].bytes_sent
    assert "lo" not in answers.keys(NETWORK)


def test_on_this_machine_the_root_has_the_size_that_psutil_says() -> None:
    answers = here(Tier.SLOW)
    root = answers.of(FILESYSTEM, "/")
    assert root.values[FILESYSTEM_SIZE] == pytest.approx(os.statvfs("/").f_blocks * os.statvfs("/").f_frsize)
    assert root.values[FILESYSTEM_SIZE] >= psutil.disk_usage("/").total
    assert root.values[FILESYSTEM_STUCK] == 0.0


@pytest.mark.parametrize("tier", list(Tier))
def test_on_this_machine_every_value_is_finite_and_crosses_the_wire(tier: Tier) -> None:
    for reading in here(tier).readings:
        (body,) = [wire.pack(wire.got(reading))[wire.LENGTH.size :]]
        frame = wire.from_worker(body)
        assert isinstance(frame, wire.Got)
        back = wire.reading(frame)
        assert (back.target, dict(back.values)) == (reading.target, dict(reading.values))
        assert not [metric for metric in back.values if metric in back.absent]
