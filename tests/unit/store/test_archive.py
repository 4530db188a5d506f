"""How much room the history may take."""

import pytest

from gpuwatch.store.archive import allowance

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("total", "free", "size", "cap", "allowed"),
    [
        (0, 900 * GIB, 1000 * GIB, None, 2 * GIB),  # the default on a large file system
        (0, 9 * GIB, 20 * GIB, None, 1 * GIB),  # a twentieth of a small one
        (0, 9 * GIB, 20 * GIB, 3 * GIB, 3 * GIB),  # the operator's word
        (500 * MIB, GIB, 1000 * GIB, None, 2 * GIB),  # 1 GiB free is enough
        (500 * MIB, GIB - 1, 1000 * GIB, None, 500 * MIB),  # less is not: it stays as it is
        (3 * GIB, GIB - 1, 1000 * GIB, None, 2 * GIB),  # and the cap holds all the same
        (MIB, GIB - 1, 1000 * GIB, None, 16 * MIB),  # a fresh history gets some hours
        (MIB, GIB - 1, 1000 * GIB, 8 * MIB, 8 * MIB),
    ],
)
def test_the_allowance_is_the_cap_unless_the_file_system_is_nearly_full(
    total: int, free: int, size: int, cap: int | None, allowed: int
) -> None:
    assert allowance(total, free=free, size=size, cap=cap) == allowed
