"""Small files of the kernel, and a Reading while it is put together."""

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.catalogue.host import HOST, LOAD1, LOAD5
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.look import Look
from tests.fakes.clock import FakeClock


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.ENOENT, Absence.UNSUPPORTED),
        (errno.ENOTDIR, Absence.UNSUPPORTED),
        (errno.EOPNOTSUPP, Absence.UNSUPPORTED),
        (errno.EACCES, Absence.DENIED),
        (errno.EPERM, Absence.DENIED),
        (errno.ENODEV, Absence.LOST),
        (errno.ENXIO, Absence.LOST),
        (errno.EINVAL, Absence.EMPTY),
        (errno.ENODATA, Absence.EMPTY),
        (errno.EIO, Absence.FAILED),
        (errno.EMFILE, Absence.FAILED),
        (errno.EISDIR, Absence.FAILED),
        (None, Absence.FAILED),
    ],
)
def test_every_error_has_its_reason(code: int | None, why: Absence) -> None:
    assert why is sysfs.why(OSError(code, "x") if code else OSError("no number"))


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * size)
    assert len(sysfs.read(file)) == size
    assert len(sysfs.read(file, 4)) == min(size, 4)


def test_a_huge_file_is_read_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as stream:
        stream.truncate(3 << 30)  # sparse
    assert len(sysfs.read(file)) == sysfs.LIMIT
    assert sysfs.fact(file) == ""


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        sysfs.read(file)
    assert sysfs.fact(file) == ""


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is wanted
    for _ in range(20):
        with pytest.raises(IsADirectoryError):
            sysfs.read(tmp_path)
    assert before == len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count is wanted


@pytest.mark.parametrize("raw", [b"", b"x", b"1.5", b"9" * 21, b"0x10", b"nan"])
def test_what_is_no_whole_number_is_a_value_error(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(raw)
    with pytest.raises(ValueError, match=r"number|invalid literal"):
        sysfs.number(file)


@given(st.binary(max_size=60))
def test_text_of_a_device_is_printable_and_stripped(raw: bytes) -> None:
    text = sysfs.clean(raw)
    assert text.isprintable()
    assert text == text.strip()


def test_a_trait_that_a_device_lacks_is_empty_and_one_that_failed_raises(tmp_path: Path) -> None:
    assert sysfs.trait(tmp_path / "none") == ""
    assert sysfs.fact(tmp_path) == ""  # a folder fails with EISDIR
    with pytest.raises(IsADirectoryError):
        sysfs.trait(tmp_path)


def look(clock: FakeClock) -> Look:
    return Look("host", Tier.FAST, Target(subject=HOST, key=""), clock)


def raising(error: Exception) -> float:
    raise error


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda: None, Absence.EMPTY),
        (lambda: math.nan, Absence.FAILED),
        (lambda: math.inf, Absence.FAILED),
        (lambda: 10**400, Absence.FAILED),
        (lambda: raising(ValueError("garbage")), Absence.FAILED),
        (lambda: raising(PermissionError(errno.EACCES, "no")), Absence.DENIED),
    ],
)
def test_what_is_no_number_is_an_absence(clock: FakeClock, read: object, why: Absence) -> None:
    assert callable(read)
    one = look(clock)
    one.take(LOAD1, read)
    if why is not Absence.EMPTY:  # of several, one that is not there is left out
        one.take_all((LOAD5,), lambda: {LOAD5: read()})
        assert one.absent[LOAD5] is why
    reading = one.reading()
    assert dict(reading.values) == {}
    assert reading.absent[LOAD1] is why


def test_what_a_reader_of_several_does_not_give_is_unsupported(clock: FakeClock) -> None:
    one = look(clock)
    one.take_all((LOAD1, LOAD5), lambda: {LOAD1: 1.0})
    reading = one.reading()
    assert (dict(reading.values), dict(reading.absent)) == ({LOAD1: 1.0}, {LOAD5: Absence.UNSUPPORTED})


def test_a_reading_says_when_it_was_begun_and_how_long_it_took(clock: FakeClock) -> None:
    began = clock.wall()
    one = look(clock)
    clock.forward(2.5)
    reading = one.reading()
    assert (reading.at, reading.took) == (began, 2.5)
