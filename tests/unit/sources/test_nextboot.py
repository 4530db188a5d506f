"""What the next boot will find: hosts as distributions leave them, with a module, without one, and in between."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import DRIVER_LIBRARY, DRIVER_LIBRARY_CHANGED, NEXT_BOOT, NEXT_BOOT_DRIVER_MISSING
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources import installers, nextboot
from gpuwatch.sources.nextboot import kernels
from tests.fakes.clock import FakeClock
from tests.fakes.host import Answers, HostTree

OLD, NEW = "5.15.0-122-generic", "5.15.0-139-generic"
FEDORA = "6.8.5-301.fc40.x86_64"
VERSION = "535.154.05"
ELF64, ELF32 = b"\x7fELF\x02\x01\x01", b"\x7fELF\x01\x01\x01"
LATER = 3600.0
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Disk(HostTree):
    """A host with one GPU and its driver, and what its packages put on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kernel().gpu("0000:65:00.0")
        self.files(self.sys / "module/nvidia", version=VERSION)
        self.install(OLD, "kernel/drivers/video/nvidia.ko")

    def install(self, release: str, *modules: str, listed: bool = True, image: bool = True) -> Path:
        """Add a kernel, with modules beside its own; depmod has run, or not."""
        if image:
            self.write(self.root / f"boot/vmlinuz-{release}", "MZ")
        folder = self.root / "lib/modules" / release
        self.write(folder / "modules.builtin", "kernel/fs/ext4/ext4.ko\n")
        self.write(folder / "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", "")
        for module in modules:
            self.write(folder / module, "")
        names = ["kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", *(modules if listed else ())]
        self.write(folder / "modules.dep", "".join(f"{name}: kernel/x.ko\n" for name in names))
        return folder

    def library(self, version: str, folder: str = LIBRARIES, head: bytes = ELF64) -> None:
        """Add NVML's library as a package does, and its link."""
        self.write(self.root / folder / f"libnvidia-ml.so.{version}", head)
        (self.root / folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")

    def ask(self, *, after: float = LATER, skip: frozenset[str] = frozenset(), tier: Tier = Tier.SLOW) -> Answers:
        """Ask once, so many seconds after all this was put there."""
        answers = Answers()
        nextboot.source(self.config, FakeClock(wall=time.time() + after)).ask(tier, skip, answers)
        assert answers.ends == 1
        return answers

    def said(self, subject: Subject, metric: Metric, *, after: float = LATER) -> float | Absence:
        """Return the value, or why there is none."""
        reading = self.ask(after=after).of(subject)
        return reading.values[metric] if metric in reading.values else reading.absent[metric]

    def missing(self, *, after: float = LATER) -> float | Absence:
        """Return whether the next boot lacks the driver."""
        return self.said(NEXT_BOOT, NEXT_BOOT_DRIVER_MISSING, after=after)

    def changed(self) -> float | Absence:
        """Return whether the library on disk fits."""
        return self.said(DRIVER_LIBRARY, DRIVER_LIBRARY_CHANGED)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A host as it was before the upgrade."""
    return Disk(tmp_path)


def test_a_host_that_boots_what_it_runs_loses_nothing(disk: Disk) -> None:
    reading = disk.ask().of(NEXT_BOOT)
    assert reading.values == {NEXT_BOOT_DRIVER_MISSING: 0.0}
    assert reading.target.info == {"running_kernel": OLD, "next_kernel": OLD, "chosen_by": "newest"}


def test_a_new_kernel_without_the_module_of_a_runfile_is_told_at_once_with_both_kernels(disk: Disk) -> None:
    disk.install(NEW)
    reading = disk.ask(after=0.0).of(NEXT_BOOT)
    assert reading.values == {NEXT_BOOT_DRIVER_MISSING: 1.0}
    assert reading.target.info == {"running_kernel": OLD, "next_kernel": NEW, "chosen_by": "newest"}


def test_the_newest_kernel_is_so_by_its_number_and_not_by_its_letters(disk: Disk) -> None:
    disk.install("5.15.0-99-generic", "updates/dkms/nvidia.ko")
    disk.install("5.4.0-200-generic", "updates/dkms/nvidia.ko")
    assert disk.ask().of(NEXT_BOOT).target.info["next_kernel"] == OLD


@pytest.mark.parametrize(
    "module",
    [
        "updates/dkms/nvidia.ko",  # DKMS on Ubuntu 20.04 and 22.04
        "updates/dkms/nvidia.ko.zst",  # on Ubuntu 24.04
        "kernel/nvidia-535/nvidia.ko",  # linux-modules-nvidia of Ubuntu
        "updates/dkms/nvidia-current.ko.xz",  # DKMS on Debian
        "updates/dkms/nvidia-tesla-470.ko",
        "updates/dkms/nvidia-legacy-390xx.ko",
        "extra/nvidia.ko.xz",  # DKMS on Fedora
        "extra/nvidia/nvidia.ko.xz",  # akmods
        "extra/drivers/video/nvidia/nvidia.ko",  # precompiled, RHEL
        "kernel/drivers/video/nvidia.ko.gz",
    ],
)
@pytest.mark.parametrize("listed", [True, False], ids=["depmod ran", "depmod did not run yet"])
def test_the_module_is_found_wherever_a_distribution_puts_it(disk: Disk, module: str, listed: bool) -> None:
    disk.install(NEW)
    assert disk.missing() == 1.0
    disk.install(NEW, module, listed=listed)
    assert disk.missing() == 0.0


@pytest.mark.parametrize("module", ["nvidia-uvm.ko", "nvidia-current-drm.ko", "nvidiafb.ko", "nvidia.ko.bak"])
def test_a_module_beside_it_is_not_the_driver(disk: Disk, module: str) -> None:
    disk.install(NEW, f"updates/dkms/{module}")
    assert disk.missing() == 1.0


def test_a_list_that_names_a_file_that_is_gone_proves_nothing(disk: Disk) -> None:
    (disk.install(NEW, "updates/dkms/nvidia.ko") / "updates/dkms/nvidia.ko").unlink()
    assert disk.missing() == 1.0


def test_a_module_that_is_a_link_to_that_of_another_kernel_counts_while_that_is_there(disk: Disk) -> None:
    """RHEL's weak-updates: a whole path, which begins at the root of that host."""
    folder = disk.install(NEW)
    (folder / "weak-updates").mkdir()
    (folder / "weak-updates/nvidia.ko.xz").symlink_to(f"/lib/modules/{OLD}/extra/nvidia.ko.xz")
    assert disk.missing() == 1.0
    disk.install(OLD, "extra/nvidia.ko.xz")
    assert disk.missing() == 0.0


def test_it_is_over_when_the_kernel_is_removed_whatever_dkms_leaves_behind(disk: Disk) -> None:
    folder = disk.install(NEW)
    assert disk.missing() == 1.0
    (disk.root / f"boot/vmlinuz-{NEW}").unlink()
    assert disk.missing() == 0.0
    for file in (disk.root / "boot").iterdir():  # and where /boot says nothing
        file.unlink()
    (folder / "modules.builtin").unlink()
    assert disk.missing() == 0.0


def test_a_driver_that_was_uninstalled_under_the_running_kernel_is_missing_at_the_next_boot(disk: Disk) -> None:
    (disk.root / f"lib/modules/{OLD}/kernel/drivers/video/nvidia.ko").unlink()
    assert disk.missing() == 1.0


def test_a_kernel_of_which_no_modules_are_there_has_no_driver(disk: Disk) -> None:
    disk.write(disk.root / f"boot/vmlinuz-{NEW}", "MZ")
    assert disk.missing() == 1.0


@pytest.mark.parametrize("builder", ["var/lib/dkms/nvidia/535.154.05/source", "usr/src/akmods/nvidia-kmod.latest"])
def test_what_builds_the_module_for_a_new_kernel_gets_a_quarter_of_an_hour(disk: Disk, builder: str) -> None:
    disk.write(disk.root / builder, "")
    disk.install(NEW)
    assert [disk.missing(after=seconds) for seconds in (0.0, 890.0, 1000.0)] == [Absence.EMPTY, Absence.EMPTY, 1.0]
    assert disk.missing(after=-3600.0) == 1.0  # put there by a clock that was ahead: nobody knows when
    disk.install(NEW, "updates/dkms/nvidia.ko")
    assert disk.missing(after=0.0) == 0.0


HOLD = "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); sys.stdin.read()"


def test_nothing_is_said_while_the_lock_of_dpkg_is_held_but_that_all_is_well(disk: Disk) -> None:
    lock = disk.write(disk.root / installers.LOCK, "")
    disk.install(NEW)
    disk.library("550.90.07")
    held = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        assert (disk.missing(), disk.changed()) == (Absence.EMPTY, Absence.EMPTY)
        disk.install(NEW, "updates/dkms/nvidia.ko")
        assert disk.missing() == 0.0
    finally:
        held.communicate(timeout=30)
    (disk.root / f"lib/modules/{NEW}/updates/dkms/nvidia.ko").unlink()
    assert (disk.missing(), disk.changed()) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("default", "environment"),
    [
        ("GRUB_DEFAULT=saved\n", f"saved_entry=gnulinux-advanced-00000000-1111>gnulinux-{OLD}-advanced-00000000-1111\n"),
        ("GRUB_DEFAULT=saved # as always\n", f"saved_entry=Advanced options for Ubuntu>Ubuntu, with Linux {OLD}\n"),
        (f'GRUB_DEFAULT=0\nGRUB_DEFAULT="Advanced options for Ubuntu>Ubuntu, with Linux {OLD}"\n', "saved_entry=0\n"),
        ("GRUB_DEFAULT=0\n", f"next_entry=gnulinux-{OLD}-advanced-00000000-1111\n"),
    ],
    ids=["saved id", "saved title", "configured title", "for one boot"],
)
def test_a_kernel_that_grub_was_told_by_name_boots_next(disk: Disk, default: str, environment: str) -> None:
    disk.install(NEW)
    disk.write(disk.root / "etc/default/grub", f"# comment\n{default}GRUB_TIMEOUT=5\n")
    disk.write(disk.root / "boot/grub/grubenv", f"# GRUB Environment Block\n{environment}{'#' * 600}")
    reading = disk.ask().of(NEXT_BOOT)
    assert reading.values == {NEXT_BOOT_DRIVER_MISSING: 0.0}
    assert reading.target.info == {"running_kernel": OLD, "next_kernel": OLD, "chosen_by": "grub"}


@pytest.mark.parametrize(
    ("default", "environment"),
    [
        ("GRUB_DEFAULT=0\n", f"saved_entry=gnulinux-{OLD}-advanced\n"),  # what was saved does not count
        ('GRUB_DEFAULT="1>2"\n', ""),
        ("GRUB_DEFAULT=saved\n", "saved_entry=gnulinux-5.15.0-100-generic-advanced\n"),  # a kernel that is gone
        ("GRUB_DEFAULT=saved\n", "saved_entry=gnulinux-5.15.0-122-generic.custom\n"),  # the name of another one
        ('GRUB_DEFAULT="saved\n', "saved_entry\n"),
        ("", ""),
    ],
)
def test_else_the_newest_does(disk: Disk, default: str, environment: str) -> None:
    disk.install(NEW)
    disk.write(disk.root / "etc/default/grub", default)
    disk.write(disk.root / "boot/grub/grubenv", environment)
    info = disk.ask().of(NEXT_BOOT).target.info
    assert (info["next_kernel"], info["chosen_by"]) == (NEW, "newest")


def test_fedora_boots_the_entry_that_it_saved_and_no_rescue_kernel(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    (disk.root / f"boot/vmlinuz-{OLD}").unlink()
    machine = "0123456789abcdef0123456789abcdef"
    disk.install(FEDORA, "extra/nvidia.ko.xz")
    disk.write(disk.root / f"boot/vmlinuz-0-rescue-{machine}", "MZ")
    disk.write(disk.root / f"boot/.vmlinuz-{FEDORA}.hmac", "")
    disk.write(disk.root / "etc/default/grub", "GRUB_DEFAULT=saved\n")
    disk.write(disk.root / "boot/grub2/grubenv", f"saved_entry={machine}-{FEDORA}\n")
    reading = disk.ask().of(NEXT_BOOT)
    assert (reading.values, reading.target.info["next_kernel"]) == ({NEXT_BOOT_DRIVER_MISSING: 0.0}, FEDORA)
    newer = FEDORA.replace("6.8.5-301", "6.8.11-300")
    disk.install(newer)
    disk.write(disk.root / "boot/grub2/grubenv", f"saved_entry={machine}-{newer}\n")
    assert disk.missing() == 1.0


def test_where_boot_cannot_be_listed_the_modules_tell_the_kernels(disk: Disk) -> None:
    """Root may list every folder, and tests may run as root: a file in its place cannot be listed by anybody."""
    disk.install(NEW)
    boot = disk.root / "boot"
    boot.rename(disk.root / "elsewhere")
    disk.write(boot, "")
    assert disk.missing() == 1.0


def test_modules_that_cannot_be_listed_are_no_missing_driver(disk: Disk) -> None:
    """A file in place of the folder: root, as whom tests may run, may list every folder."""
    disk.write(disk.root / f"boot/vmlinuz-{NEW}", "MZ")
    disk.write(disk.root / f"lib/modules/{NEW}", "")
    assert disk.missing() is Absence.UNSUPPORTED


def test_a_host_that_shows_no_kernels_is_not_judged(disk: Disk) -> None:
    (disk.root / f"boot/vmlinuz-{OLD}").unlink()
    (disk.root / f"lib/modules/{OLD}/modules.builtin").unlink()
    assert disk.missing() is Absence.UNSUPPORTED


@pytest.mark.parametrize("name", ["vmlinuz-5.15.0-200.dpkg-new", "vmlinuz-5.15.0-200.old", "vmlinuz", "initrd.img-9.9"])
def test_what_is_no_image_of_a_kernel_is_none(disk: Disk, name: str) -> None:
    disk.write(disk.root / "boot" / name, "")
    assert disk.missing() == 0.0


def test_a_library_of_another_version_than_the_module_is_told_with_its_version(disk: Disk) -> None:
    disk.library(VERSION)
    assert disk.changed() == 0.0
    (disk.root / LIBRARIES / "libnvidia-ml.so.1").unlink()
    disk.library("550.90.07")
    assert disk.changed() == 1.0
    assert disk.ask().of(DRIVER_LIBRARY).target.info == {"library_version": "550.90.07", "module_version": VERSION}


def test_the_linkers_folders_are_looked_at_in_its_order_and_those_of_32_bits_are_not_ours(disk: Disk) -> None:
    disk.write(disk.root / "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf # all\n\ninclude none/[\n/opt/last\n")
    disk.write(disk.root / "etc/ld.so.conf.d/i386-linux-gnu.conf", "/usr/lib/i386-linux-gnu\n")
    disk.write(disk.root / "etc/ld.so.conf.d/nvidia.conf", "/usr/lib64/nvidia\n")
    disk.library("550.1.1", LIBRARIES)
    disk.library(VERSION, "opt/last")
    assert disk.changed() == 0.0
    disk.library("470.1.1", "usr/lib/i386-linux-gnu", ELF32)
    disk.library("535.200.01", "usr/lib64/nvidia")
    assert disk.ask().of(DRIVER_LIBRARY).target.info["library_version"] == "535.200.01"


def test_a_library_behind_debians_alternatives_is_found(disk: Disk) -> None:
    disk.library("535.154.05", f"{LIBRARIES}/nvidia/current")
    (disk.root / "etc/alternatives").mkdir(parents=True)
    (disk.root / "etc/alternatives/glx--libnvidia-ml.so.1").symlink_to(f"/{LIBRARIES}/nvidia/current/libnvidia-ml.so.1")
    (disk.root / LIBRARIES / "libnvidia-ml.so.1").symlink_to("/etc/alternatives/glx--libnvidia-ml.so.1")
    assert disk.changed() == 0.0


def test_a_library_whose_version_cannot_be_told_is_not_judged(disk: Disk) -> None:
    assert disk.changed() is Absence.UNSUPPORTED
    link = disk.root / LIBRARIES / "libnvidia-ml.so.1"
    link.parent.mkdir(parents=True)
    link.symlink_to("libnvidia-ml.so.1")  # a circle
    assert disk.changed() is Absence.UNSUPPORTED
    link.unlink()
    disk.write(link, ELF64)
    assert disk.changed() is Absence.UNSUPPORTED


def gone(folder: Path) -> None:
    """Remove a tree of empty folders and files."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


@pytest.mark.parametrize("lost", ["module", "GPU", "bus"])
def test_a_host_without_a_loaded_driver_or_a_gpu_says_nothing(disk: Disk, lost: str) -> None:
    disk.install(NEW)
    disk.library("550.1.1")
    gone({"module": disk.sys / "module", "GPU": disk.sys / "bus/pci/devices/0000:65:00.0", "bus": disk.sys / "bus"}[lost])
    assert disk.ask().readings == []


@pytest.mark.parametrize("mark", nextboot.CONTAINER)
def test_a_container_says_nothing_of_its_host(disk: Disk, mark: str) -> None:
    disk.install(NEW)
    disk.write(disk.root / mark, "")
    assert disk.ask().readings == []


def test_it_looks_once_a_slow_round_and_what_hung_is_late_while_the_other_is_told(disk: Disk) -> None:
    disk.library(VERSION)
    assert [disk.ask(tier=tier).readings for tier in (Tier.FAST, Tier.NORMAL)] == [[], []]
    first = disk.ask(skip=frozenset({nextboot.KERNELS}))
    assert first.items == [nextboot.LIBRARY]
    assert first.of(NEXT_BOOT).absent == {NEXT_BOOT_DRIVER_MISSING: Absence.LATE}
    assert first.of(DRIVER_LIBRARY).values == {DRIVER_LIBRARY_CHANGED: 0.0}
    second = disk.ask(skip=frozenset({nextboot.LIBRARY}))
    assert second.of(DRIVER_LIBRARY).absent == {DRIVER_LIBRARY_CHANGED: Absence.LATE}
    assert second.of(NEXT_BOOT).values == {NEXT_BOOT_DRIVER_MISSING: 0.0}


def test_releases_are_in_the_order_of_sort_v() -> None:
    in_order = [
        "4.18.0-553.el8",
        "5.4.0-200-generic",
        "5.15.0-99-generic",
        "5.15.0-122-generic",
        "5.15.0-122-lowlatency",
        "6.8.5",
    ]
    assert sorted({*in_order}, key=kernels.order) == in_order
