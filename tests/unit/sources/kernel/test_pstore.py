"""What the kernel left of a boot that died: both places, only what is new, and why it cannot be read."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.sources.kernel import pstore
from gpuwatch.sources.kernel.pstore import Dump, left

NOW = 1_700_000_000.0
XID = "<3>[  812.000001] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PANIC = "<0>[  812.100001] Kernel panic - not syncing: Fatal exception in interrupt"
TOO_MUCH = "{} holds more than is read ({} files are too many or too large)"
Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a file that was left at a time; returns it."""

    def write(name: str, *lines: str, at: float = NOW) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (at, at))
        return file

    return write


def found(folder: Path, since: float = NOW - 60) -> Dump:
    """Look below this folder."""
    return list(left(folder / "sys", folder, since))[-1]


def test_a_panic_is_told_with_the_errors_of_gpus_before_it(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/dmesg-efi-170000000001001", "Panic#1 Part1", PANIC)
    put("sys/fs/pstore/dmesg-efi-170000000002001", "Panic#1 Part2", XID, XID)
    assert found(tmp_path) == Dump("Kernel panic - not syncing: Fatal exception in interrupt", ("Xid 79 (0000:65:00.0)",))


def test_what_systemd_has_taken_away_is_found_in_its_folder_and_read_once(tmp_path: Path, put: Put) -> None:
    put("var/lib/systemd/pstore/6115/dmesg.txt", XID, PANIC)
    put("var/lib/systemd/pstore/6115/001/dmesg-erst-6115", "Panic#1 Part1", "<3>[1.0] NVRM: Xid (PCI:0000:66:00): 62, 0a5d")
    assert found(tmp_path).errors == ("Xid 79 (0000:65:00.0)",)


def test_parts_that_systemd_has_not_put_together_are_read_too(tmp_path: Path, put: Put) -> None:
    put("var/lib/systemd/pstore/6115/001/dmesg-erst-6115", "Panic#1 Part1", PANIC)
    assert found(tmp_path).crash.startswith("Kernel panic")


def test_what_an_older_crash_left_is_not_told_again(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/dmesg-erst-1", "Panic#1 Part1", PANIC, at=NOW - 86400)
    assert found(tmp_path) == Dump()


def test_a_machine_check_is_known(tmp_path: Path, put: Put) -> None:
    put(
        "sys/fs/pstore/dmesg-erst-1", "<0>[9.0] mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 0: be00000000800400"
    )
    assert found(tmp_path).has_machine_check


def test_a_kernel_without_pstore_has_nowhere_to_leave_anything(tmp_path: Path) -> None:
    assert found(tmp_path) == Dump(has_place=False)


@pytest.mark.parametrize(("backend", "expected"), [("(null)", False), ("efi_pstore", True)])
def test_a_pstore_with_nothing_behind_it_is_not_called_empty(tmp_path: Path, put: Put, backend: str, *, expected: bool) -> None:
    (tmp_path / "sys/fs/pstore").mkdir(parents=True)
    put("sys/module/pstore/parameters/backend", backend)
    assert found(tmp_path) == Dump(has_place=expected)


def test_what_systemd_took_away_counts_where_there_is_no_pstore_any_more(tmp_path: Path, put: Put) -> None:
    put("var/lib/systemd/pstore/6115/dmesg.txt", PANIC)
    assert found(tmp_path) == Dump(PANIC.partition("] ")[2])


def test_files_of_another_kind_are_left_alone(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/ftrace-ramoops-0", PANIC)
    assert found(tmp_path) == Dump()


@pytest.mark.parametrize("name", ["sys/fs/pstore/dmesg-efi-1.enc.z", "var/lib/systemd/pstore/6115/001/dmesg-erst-1.z"])
def test_a_dump_that_is_packed_was_left_by_a_kernel_that_died(tmp_path: Path, put: Put, name: str) -> None:
    file = put(name, "Panic#1 Part1", PANIC)
    assert found(tmp_path) == Dump(f"a dump that is packed and cannot be read ({file})")
    assert found(tmp_path, NOW + 60).crash == ""


def test_what_can_be_read_beside_a_packed_dump_says_more(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/dmesg-efi-1.enc.z", "Panic#1 Part2")
    put("sys/fs/pstore/dmesg-efi-2", "Panic#1 Part1", PANIC)
    assert found(tmp_path).crash.startswith("Kernel panic")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00" * 5000])
def test_junk_is_nothing(tmp_path: Path, put: Put, content: bytes) -> None:
    put("sys/fs/pstore/dmesg-erst-1").write_bytes(content)
    assert found(tmp_path, 0) == Dump()


def test_of_thousands_of_files_a_bounded_number_is_read(tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def count(path: str, *args: int) -> int:
        opened.append(str(path))
        return real(path, *args)

    for n in range(400):
        put(f"sys/fs/pstore/dmesg-efi-{n:04}", "nothing")
    monkeypatch.setattr("os.open", count)  # the edge: how many files are opened
    dump = found(tmp_path)
    assert len([path for path in opened if "dmesg-efi" in path]) == pstore.FILES
    assert dump == Dump(problem=TOO_MUCH.format(f"{tmp_path}/sys/fs/pstore", pstore.ENTRIES - pstore.FILES))


def test_a_dump_among_much_junk_is_found_at_once_and_what_is_not_read_is_said(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/dmesg-erst-99", PANIC)
    for n in range(20):
        put(f"sys/fs/pstore/dmesg-erst-{n:02}", at=NOW + 1).write_bytes(b"<3>[1.0] " + b"A" * (1 << 20))
    first, *_, last = left(tmp_path / "sys", tmp_path, 0)
    panic = "Kernel panic - not syncing: Fatal exception in interrupt"
    assert (first, last) == (Dump(panic), Dump(panic, problem=TOO_MUCH.format(f"{tmp_path}/sys/fs/pstore", 20)))


def test_what_the_first_place_holds_is_known_before_the_second_is_looked_at(tmp_path: Path, put: Put) -> None:
    put("sys/fs/pstore/dmesg-erst-1", PANIC)
    looks = left(tmp_path / "sys", tmp_path, 0)
    assert next(looks).crash.startswith("Kernel panic")
    put("var/lib/systemd/pstore/6115/dmesg.txt", XID)
    assert [bool(dump.errors) for dump in looks] == [True, True]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, "may be read by root only (or with CAP_DAC_READ_SEARCH)"),
        (errno.EIO, "cannot be read: Input/output error"),
    ],
)
def test_a_place_that_cannot_be_read_is_said_and_the_other_is_read(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    put("sys/fs/pstore/dmesg-erst-1", PANIC)
    put("var/lib/systemd/pstore/6115/dmesg.txt", XID)
    real = os.listdir

    def refuse(path: str) -> list[str]:
        if str(path).endswith("fs/pstore"):
            raise OSError(code, os.strerror(code))
        return real(path)

    monkeypatch.setattr("os.listdir", refuse)  # root reads everything: the edge is the system call
    assert found(tmp_path) == Dump(errors=("Xid 79 (0000:65:00.0)",), problem=f"{tmp_path}/sys/fs/pstore {words}")


def test_the_recorded_dump_gives_the_verdict_of_its_index(tmp_path: Path, recorded: Path, put: Put) -> None:
    text = (recorded / "gpu/kmsg/pstore-erst-panic.txt").read_text()
    put("sys/fs/pstore/dmesg-erst-5943436743994900482", text)
    assert found(tmp_path) == Dump("sysrq: SysRq : Trigger a crash")
