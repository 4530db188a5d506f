"""Disk identity from sysfs."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.target import Target
from gpuwatch.sources import disks
from gpuwatch.sources.disks import Disk
from tests.fakes.host import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def only(tree: HostTree) -> Disk:
    (disk,) = disks.disks(tree.sys)
    return disk


def test_an_nvme_disk_is_known_by_its_eui_and_asked_through_its_controller(tree: HostTree) -> None:
    tree.nvme(0)
    expected = Disk(
        name="nvme0n1",
        key="eui.0025385100400000",
        model="SAMSUNG MZVL21T0HCLR-00B00",
        serial="S0000000000000",
        firmware="GXA7801Q",
        protocol="nvme",
        controller="nvme0",
        size=512_000,
    )
    assert expected == only(tree)


def test_a_sata_disk_behind_any_controller_is_known_by_its_wwn(tree: HostTree) -> None:
    tree.sata("sda")
    found = only(tree)
    assert (found.key, found.protocol, found.rotational, found.removable) == ("naa.5000c50000000061", "ata", True, False)


def test_a_scsi_disk_without_wwn_is_known_by_model_and_serial_of_page_80(tree: HostTree) -> None:
    block = tree.sata("sdb", device__vendor="SEAGATE ", device__wwid="")
    tree.write(block / "device/vpd_pg80", b"\0\x80\0\x0a Z0000001 \0")
    found = only(tree)
    assert (found.key, found.protocol, found.serial) == ("SEAGATE ST4000NM0035-1V4 Z0000001", "scsi", "Z0000001")


def test_a_disk_without_wwn_and_serial_is_known_by_its_kernel_name(tree: HostTree) -> None:
    tree.sata("sdc", device__wwid="naa.0000000000000000")
    assert only(tree).key == "sdc"


def test_the_serial_of_a_virtio_disk_is_not_asked_for(tree: HostTree) -> None:
    """A FIFO hangs whoever opens it, as the real file does when the hypervisor is gone."""
    block = tree.virtio("vda")
    (block / "serial").unlink()
    os.mkfifo(block / "serial")
    assert (only(tree).key, only(tree).protocol, only(tree).serial) == ("vda", "virtio", "")


def test_a_stick_is_removable(tree: HostTree) -> None:
    tree.usb()
    assert (only(tree).removable, only(tree).protocol) == (True, "usb")


def test_a_disk_on_usb_that_calls_itself_fixed_is_removable_too(tree: HostTree) -> None:
    tree.usb(removable="0")
    assert only(tree).removable


def test_a_card_reader_without_a_card_is_no_disk_but_a_dead_disk_of_size_0_is(tree: HostTree) -> None:
    tree.usb("sdv", size="0")
    tree.nvme(0, size="0")
    assert [disk.name for disk in disks.disks(tree.sys)] == ["nvme0n1"]


@pytest.mark.parametrize(
    "name", ["loop0", "ram1", "zram0", "dm-0", "md127", "sr0", "fd0", "zd16", "nbd0", "rbd0", "mmcblk0boot0"]
)
def test_what_is_made_of_something_else_is_no_disk(tree: HostTree, name: str) -> None:
    tree.files(tree.sys / "block" / name, size="8")
    assert disks.disks(tree.sys) == []


def test_the_hidden_paths_of_a_multipath_nvme_are_no_disks(tree: HostTree) -> None:
    tree.nvme(0)
    tree.disk("nvme0c0n1", "devices/pci0000:00/0000:00:01.1/0000:01:00.0/nvme", "nvme9", hidden="1")
    assert [disk.name for disk in disks.disks(tree.sys)] == ["nvme0n1"]


def test_a_multipath_nvme_names_the_first_controller_of_its_subsystem(tree: HostTree) -> None:
    block = tree.disk("nvme1n1", "devices/virtual/nvme-subsystem", "nvme-subsys1", wwid="eui.1")
    (block / "device/nvme3").mkdir()
    assert only(tree).controller == "nvme3"


def test_a_wwn_that_two_disks_share_identifies_neither(tree: HostTree) -> None:
    tree.nvme(0, wwid="eui.0000000000000001")
    tree.nvme(1, wwid="eui.0000000000000001")
    expected = ["SAMSUNG MZVL21T0HCLR-00B00 S0000000000000", "SAMSUNG MZVL21T0HCLR-00B00 S0000000000001"]
    assert expected == [disk.key for disk in disks.disks(tree.sys)]


def test_two_paths_to_one_lun_are_told_apart_by_name(tree: HostTree) -> None:
    for name in ("sda", "sdb"):
        block = tree.sata(name, device__wwid="naa.600")
        tree.write(block / "device/vpd_pg80", b"\0\x80\0\x04SAME")
    assert [disk.key for disk in disks.disks(tree.sys)] == ["sda", "sdb"]


def test_the_target_carries_the_kernel_name_as_its_only_label(tree: HostTree) -> None:
    tree.nvme(0)
    target: Target = only(tree).target()
    assert (target.key, dict(target.labels)) == ("eui.0025385100400000", {"device": "nvme0n1"})
    assert target.info["firmware"] == "GXA7801Q"


def test_text_of_a_device_is_safe_to_print(tree: HostTree) -> None:
    tree.nvme(0, device__model="Evil\x1b[31m \u202edisk")
    assert only(tree).model == "Evil\\x1b[31m \\u202edisk"


def test_no_sysfs_gives_no_disks(tmp_path: Path) -> None:
    assert disks.disks(tmp_path / "nowhere") == []


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=300), page=st.binary(max_size=40))
def test_any_bytes_give_a_disk_with_printable_text(tmp_path_factory: pytest.TempPathFactory, raw: bytes, page: bytes) -> None:
    tree = HostTree(tmp_path_factory.mktemp("garbage"))
    block = tree.sata("sda")
    for file in ("wwid", "model", "serial", "vendor"):
        tree.write(block / "device" / file, raw)
    tree.write(block / "size", raw)
    tree.write(block / "device/vpd_pg80", page)
    (found,) = disks.disks(tree.sys)
    assert found.key
    assert all(text.isprintable() for text in (found.key, found.model, found.serial))
