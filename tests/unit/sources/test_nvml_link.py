"""When PCIe byte counters can be trusted: no wrap of 32 bits fits between two reads, or more than 32 bits were seen."""

import pytest

from gpuwatch.sources.nvml import link


@pytest.mark.parametrize(
    ("generation", "lanes", "gap", "expected"),
    [
        (4, 16, 2.0, False),  # 31.5 GB/s: wraps seven times a second
        (3, 16, 1.0, False),
        (3, 4, 1.0, True),  # 3.94e9 of 4.29e9 bytes
        (3, 4, 2.0, False),
        (1, 16, 1.0, True),  # 4.0e9
        (1, 16, 1.1, False),  # 4.4e9
        (2, 4, 2.0, True),
        (5, 16, 0.05, True),
        (5, 16, 0.1, False),
        (7, 1, 0.001, False),  # a generation that is newer than we are
        (None, 16, 1.0, False),
        (3, None, 1.0, False),
        (0, 0, 1.0, False),
    ],
)
def test_counters_are_trusted_only_where_no_wrap_fits_between_two_reads(
    generation: float | None, lanes: float | None, gap: float, expected: bool
) -> None:
    assert expected is link.trusted(generation, lanes, gap, wide=False)


def test_counters_that_have_shown_more_than_32_bits_are_trusted_on_any_link() -> None:
    assert link.trusted(5, 16, 10.0, wide=True)
    assert link.trusted(None, None, 10.0, wide=True)
