"""Mount tables, and the file systems behind them."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.catalogue.disk import (
    FILESYSTEM,
    FILESYSTEM_AVAILABLE,
    FILESYSTEM_ERRORS,
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_SIZE,
    FILESYSTEM_STUCK,
)
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import filesystem, mounts
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def ask(tree: HostTree, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
    answers = Answers()
    filesystem.source(tree.config, FakeClock()).ask(tier, skip, answers)
    assert answers.ends == 1
    return answers


def counted(*lines: str) -> list[str]:
    """Return the mount points that count out of `device path fstype`."""
    rows = (line.split() for line in lines)
    raw = "".join(f"1 1 {device} / {path} rw - {fstype} x rw\n" for device, path, fstype in rows)
    return [mount.item for mount in mounts.counted(mounts.parse(raw.encode()))]


def test_what_people_fill_counts_and_what_the_kernel_shows_does_not() -> None:
    expected = ["/", "/boot/efi", "/dev/shm", "/tmp", "/run", "/data", "/home/lab", "/mnt/s3"]
    found = counted(
        "0:21 /proc proc",
        "0:22 /sys sysfs",
        "0:6 /dev devtmpfs",
        "8:2 / ext4",
        "8:1 /boot/efi vfat",
        "0:23 /dev/shm tmpfs",
        "0:24 /tmp tmpfs",
        "0:25 /run tmpfs",
        "0:26 /run/lock tmpfs",
        "0:27 /run/user/1000 tmpfs",
        "0:28 /sys/fs/cgroup tmpfs",
        "0:29 /sys/fs/cgroup/memory cgroup",
        "7:0 /snap/core20/1 squashfs",
        "11:0 /media/cd iso9660",
        "0:40 /var/lib/docker/overlay2/abc/merged overlay",
        "0:41 /run/docker/netns/x nsfs",
        "0:42 /var/lib/kubelet/pods/1/volumes/token tmpfs",
        "259:1 /data xfs",
        "0:50 /home/lab nfs4",
        "0:51 /mnt/s3 fuse.s3fs",
    )
    assert expected == found


def test_of_mounts_of_one_file_system_the_shortest_path_counts() -> None:
    assert counted("8:2 /srv/docker/bind ext4", "8:2 / ext4", "8:2 /home ext4") == ["/"]


def test_a_mount_over_another_hides_it() -> None:
    assert counted("0:50 /data autofs", "0:51 /data nfs4", "8:3 /mnt ext4", "8:4 /mnt xfs") == ["/data", "/mnt"]


def test_the_overlay_of_a_container_counts_as_its_root_only() -> None:
    assert counted("0:40 / overlay", "0:41 /x overlay") == ["/"]


def test_a_folder_of_a_container_runtime_counts_where_it_is_a_disk_of_its_own() -> None:
    assert counted("8:9 /var/lib/docker ext4", "0:9 /var/lib/docker/x ext4") == ["/var/lib/docker"]


def test_at_most_128_count() -> None:
    assert len(counted(*(f"8:{number} /mnt/{number} ext4" for number in range(300)))) == 128


def test_octal_escapes_are_undone_in_the_path_and_shown_escaped() -> None:
    (mount,) = mounts.parse(b"1 1 8:1 / /mnt/a\\040b\\011c\\134d rw - ext4 /dev/x rw\n")
    assert (mount.path, mount.item) == (b"/mnt/a b\tc\\d", "/mnt/a b\\tc\\d")


def test_a_path_that_is_no_utf8_is_kept_for_the_kernel_and_shown_escaped() -> None:
    (mount,) = mounts.parse(b"1 1 8:1 / /mnt/\xff rw - ext4 /dev/x rw\n")
    assert mount.path == b"/mnt/\xff"
    mount.item.encode()  # has no lone surrogates


@given(st.binary(max_size=400))
def test_any_bytes_are_a_mount_table(raw: bytes) -> None:
    for mount in mounts.counted(mounts.parse(raw)):
        assert mount.item.isprintable()


@given(st.integers(0, 80))
def test_a_cut_table_keeps_its_whole_lines(cut: int) -> None:
    line = b"22 27 8:1 / /data rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
    assert mounts.parse(line + line[:cut])[0].path == b"/data"


def test_the_table_of_process_1_is_preferred_to_our_own(tree: HostTree) -> None:
    tree.mounts("8:2 / ext4 /dev/sda2 ro", process="self")
    assert not mounts.table(tree.proc).host
    tree.mounts("8:2 / ext4", process="1")
    assert mounts.table(tree.proc).host


def test_space_is_that_of_statvfs(tree: HostTree) -> None:
    (tree.root / "data").mkdir()
    tree.mounts("8:2 /data xfs")
    reading = ask(tree).of(FILESYSTEM, "/data")
    space = os.statvfs(tree.root / "data")
    assert reading.values[FILESYSTEM_SIZE] == space.f_blocks * space.f_frsize
    assert reading.values[FILESYSTEM_AVAILABLE] > 0
    assert (reading.values[FILESYSTEM_STUCK], reading.values[FILESYSTEM_READ_ONLY]) == (0.0, 0.0)
    assert dict(reading.absent) == {FILESYSTEM_ERRORS: Absence.UNSUPPORTED}
    assert dict(reading.target.labels) == {"mountpoint": "/data", "fstype": "xfs"}


@pytest.mark.parametrize(
    ("process", "options", "superblock", "read_only"),
    [
        ("1", "rw", "rw", 0.0),
        ("1", "ro", "rw", 1.0),
        ("1", "rw", "ro,data=ordered", 1.0),
        ("1", "rw", "rw,emergency_ro", 1.0),
        ("self", "ro", "rw", 0.0),  # ProtectSystem= of our own unit
        ("self", "rw", "ro", 1.0),
    ],
)
def test_read_only_is_what_the_administrator_or_the_kernel_made_it(
    tree: HostTree, process: str, options: str, superblock: str, read_only: float
) -> None:
    tree.mounts(f"8:2 / ext4 /dev/sda2 {options} {superblock}", process=process)
    assert read_only == ask(tree).of(FILESYSTEM, "/").values[FILESYSTEM_READ_ONLY]


def test_ext4_tells_its_errors_under_the_name_of_its_block_device(tree: HostTree) -> None:
    tree.mounts("252:0 / ext4 /dev/mapper/vg-root")
    tree.link(tree.sys / "dev/block/252:0", tree.sys / "devices/virtual/block/dm-0")
    tree.write(tree.sys / "fs/ext4/dm-0/errors_count", "3\n")
    assert ask(tree).of(FILESYSTEM, "/").values[FILESYSTEM_ERRORS] == 3.0


def test_btrfs_tells_the_errors_of_all_its_devices(tree: HostTree) -> None:
    tree.mounts("0:33 / btrfs /dev/mapper/crypt")
    tree.write(tree.dev / "dm-1", "")
    (tree.dev / "mapper").mkdir()
    (tree.dev / "mapper/crypt").symlink_to("../dm-1")
    other, mine = tree.sys / "fs/btrfs/aaaa", tree.sys / "fs/btrfs/bbbb"
    tree.link(other / "devices/sdz1", tree.sys / "devices/z")
    tree.write(other / "devinfo/1/error_stats", "write_errs 100\n")
    tree.link(mine / "devices/dm-1", tree.sys / "devices/dm-1")
    for device in ("1", "2"):
        tree.write(mine / f"devinfo/{device}/error_stats", "write_errs 1\nread_errs 2\nflush_errs 0\ncorruption_errs 4\n")
    assert ask(tree).of(FILESYSTEM, "/").values[FILESYSTEM_ERRORS] == 14.0


@pytest.mark.parametrize("fstype", ["ext4", "btrfs"])
def test_a_kernel_without_these_counters_lacks_only_them(tree: HostTree, fstype: str) -> None:
    tree.mounts(f"8:2 / {fstype} /dev/sda2")
    reading = ask(tree).of(FILESYSTEM, "/")
    assert dict(reading.absent) == {FILESYSTEM_ERRORS: Absence.UNSUPPORTED}
    assert FILESYSTEM_SIZE in reading.values


def test_garbage_in_a_counter_costs_only_that(tree: HostTree) -> None:
    tree.mounts("8:2 / ext4 /dev/sda2")
    tree.write(tree.sys / "fs/ext4/sda2/errors_count", "many\n")
    assert dict(ask(tree).of(FILESYSTEM, "/").absent) == {FILESYSTEM_ERRORS: Absence.FAILED}


def test_a_mount_that_went_away_meanwhile_is_not_there(tree: HostTree) -> None:
    tree.mounts("8:2 / ext4", "8:3 /gone ext4")
    assert ask(tree).keys(FILESYSTEM) == ["/"]


def test_a_mount_that_our_namespace_hides_is_denied_and_not_that_of_another(tree: HostTree) -> None:
    """ProtectHome= puts a tmpfs over /home: statvfs would give that one's size."""
    (tree.root / "home").mkdir()
    tree.mounts("8:2 / ext4", "8:3 /home ext4", process="1")
    tree.mounts("8:2 / ext4", "0:99 /home tmpfs", process="self", prefix=str(tree.root))
    answers = ask(tree)
    assert FILESYSTEM_SIZE in answers.of(FILESYSTEM, "/").values
    hidden = answers.of(FILESYSTEM, "/home")
    assert (hidden.absent[FILESYSTEM_SIZE], hidden.absent[FILESYSTEM_AVAILABLE]) == (Absence.DENIED, Absence.DENIED)
    assert (hidden.values[FILESYSTEM_STUCK], hidden.fault) == (0.0, None)


def test_a_file_system_without_a_size_is_none(tree: HostTree) -> None:
    """An unknown pseudo file system is told by having no blocks, as the real /proc has none."""
    tree.mounts("0:21 /proc newpseudofs", f"8:2 {tree.root} ext4")
    answers = Answers()
    config = msgspec.structs.replace(tree.config, paths=msgspec.structs.replace(tree.config.paths, root="/"))
    filesystem.source(config, FakeClock()).ask(Tier.SLOW, frozenset(), answers)
    assert answers.items == ["/proc", str(tree.root)]
    assert answers.keys(FILESYSTEM) == [str(tree.root)]


@pytest.mark.parametrize(
    ("path", "device"), [(b"/", "1:1"), (b"/home", "1:3"), (b"/home/lab/x", "1:3"), (b"/homes", "1:1"), (b"/data/x", "1:4")]
)
def test_a_path_leads_to_the_deepest_mount_above_it_and_the_latest_of_equals(path: bytes, device: str) -> None:
    lines = ("1:1 /", "1:2 /home", "1:3 /home", "1:4 /data")
    table = mounts.parse("".join(f"1 1 {line.split()[0]} / {line.split()[1]} rw - ext4 x rw\n" for line in lines).encode())
    found = mounts.covering(table, path)
    assert found is not None
    assert found.device == device


def test_each_mount_is_named_before_it_is_touched_and_a_hung_one_is_said_to_be_stuck(tree: HostTree) -> None:
    for name in ("data", "nfs"):
        (tree.root / name).mkdir()
    tree.mounts("8:2 / ext4", "8:3 /data xfs", "0:50 /nfs nfs4")
    assert ask(tree).items == ["/", "/data", "/nfs"]
    answers = ask(tree, skip=frozenset({"/nfs"}))
    assert answers.items == ["/", "/data"]
    stuck = answers.of(FILESYSTEM, "/nfs")
    assert dict(stuck.values) == {FILESYSTEM_STUCK: 1.0}
    assert set(stuck.absent.values()) == {Absence.LATE}
    assert dict(stuck.target.labels) == {"mountpoint": "/nfs", "fstype": "nfs4"}
    assert stuck.fault is not None
    assert stuck.fault.kind == "hung"


def test_without_a_mount_table_there_is_nothing(tree: HostTree) -> None:
    assert ask(tree).readings == []


@pytest.mark.parametrize("tier", [Tier.FAST, Tier.NORMAL])
def test_it_is_read_in_slow_rounds_only(tree: HostTree, tier: Tier) -> None:
    tree.mounts("8:2 / ext4")
    assert ask(tree, tier=tier).readings == []
