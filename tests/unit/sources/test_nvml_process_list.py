"""Process lists and samples as drivers write them."""

import struct

import pytest

from gpuwatch.sources.nvml.process_list import INFO, SAMPLE, STRIDES, Record, Sample, samples, understood

GIB = 1 << 30
TOTAL = 48 * GIB
NONE = 0xFFFFFFFF
NOW = 1_700_000_000_000_000
PEOPLE = {4711, 4712, 4713}


def written(stride: int, *rows: tuple[int, int, int, int]) -> bytes:
    """Return what a driver writes whose rows have this size, into a buffer that is full of ones as ours is."""
    layout = {16: "<IxxxxQ", 24: "<IxxxxQII", 32: "<IxxxxQIIQ"}[stride]
    parts = [struct.pack(layout, *(*row, 0)[: {16: 2, 24: 4, 32: 5}[stride]]) for row in rows]
    return b"".join(parts) + b"\xff" * 4096


ROWS = ((4711, 10 * GIB, NONE, NONE), (4712, 20 * GIB, NONE, NONE), (4713, 3 * GIB, NONE, NONE))


@pytest.mark.parametrize("suffix", ["_v3", "_v2", ""])
@pytest.mark.parametrize("stride", [16, 24, 32])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_list_is_understood_in_every_layout_that_its_symbol_may_have(suffix: str, stride: int, count: int) -> None:
    found = understood(written(stride, *ROWS[:count]), count, STRIDES[suffix], TOTAL, PEOPLE.__contains__)
    whole = [Record(pid, memory) for pid, memory, _, _ in ROWS[:count]]
    # The first row is alike in all layouts; a layout that its symbol has never had is no list of processes.
    assert found == (whole if stride in STRIDES[suffix] or count == 1 else None)


def test_without_the_host_s_processes_the_layout_is_found_by_its_numbers() -> None:
    assert [one.pid for one in understood(written(32, *ROWS), 3, STRIDES["_v3"], TOTAL, None) or []] == [4711, 4712, 4713]


def test_small_memory_does_not_pass_for_a_process() -> None:
    """Read with 24 bytes a row the second row of 16 is made of numbers that could be a process (NVIDIA/go-nvml#21)."""
    rows = ((200, 2 << 20, NONE, NONE), (201, 3 << 20, NONE, NONE), (202, 2 << 20, NONE, NONE))
    found = understood(written(16, *rows), 3, STRIDES["_v3"], TOTAL, {200, 201, 202}.__contains__)
    assert [Record(200, 2 << 20), Record(201, 3 << 20), Record(202, 2 << 20)] == found


def test_numbers_that_could_be_processes_are_told_apart_by_their_instances() -> None:
    rows = ((1000, 2 << 20, NONE, NONE), (1001, 3 << 20, NONE, NONE))
    found = understood(written(16, *rows), 2, STRIDES["_v3"], TOTAL, None)
    assert [one.pid for one in found or []] == [1000, 1001]


def test_a_list_that_no_layout_makes_sense_of_is_none() -> None:
    assert understood(written(24, (4711, TOTAL + 1, NONE, NONE)), 1, STRIDES["_v3"], TOTAL, None) is None
    assert understood(written(24, (0, GIB, NONE, NONE)), 1, STRIDES["_v3"], TOTAL, None) is None
    assert understood(written(24, (5_000_000, GIB, NONE, NONE)), 1, STRIDES["_v3"], TOTAL, None) is None


def test_memory_that_is_not_available_is_none_and_instances_are_told() -> None:
    found = understood(written(24, (4711, 2**64 - 1, 7, 0), (4712, GIB, 7, 1)), 2, STRIDES["_v3"], TOTAL, PEOPLE.__contains__)
    assert [Record(4711, None, 7, 0), Record(4712, GIB, 7, 1)] == found


def test_the_newest_good_sample_of_each_process_counts() -> None:
    rows = (
        (4711, NOW - 9, 40),
        (4711, NOW - 5, 50),
        (4712, NOW - 20, 10),  # given before
        (4713, NOW - 4, 250),  # over 100
        (4714, NOW + 10**9, 10),  # from the future
        (0, NOW - 3, 10),
        (4715, NOW - 6, 30),  # good, and junk before and after it
        (4715, NOW - 5, 101),
        (4716, NOW - 6, 250),
        (4716, NOW - 7, 20),
    )
    raw = b"".join(SAMPLE.pack(pid, at, share, 0, 0, 0) for pid, at, share in rows)
    found, newest = samples(raw + b"\0" * 64, len(rows), SAMPLE, NOW - 10, NOW)
    assert {pid: sample.share for pid, sample in found.items()} == {
        4711: 0.5,
        4712: None,
        4713: None,
        4714: None,
        4715: 0.3,
        4716: 0.2,
    }
    assert found[4711] == Sample(4711, NOW - 5, 0.5)
    assert newest == NOW - 4


def test_both_structs_say_the_same() -> None:
    old = SAMPLE.pack(4711, NOW - 5, 50, 1, 2, 3)
    new = INFO.pack(NOW - 5, 4711, 50, 1, 2, 3, 4, 5)
    assert samples(old, 1, SAMPLE, NOW - 10, NOW) == samples(new, 1, INFO, NOW - 10, NOW)


def test_no_sample_leaves_the_time_to_ask_from() -> None:
    assert samples(b"", 0, SAMPLE, 77, NOW) == ({}, 77)
