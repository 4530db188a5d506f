"""Durations and sizes are read with their units, and never without."""

import pytest

from gpuwatch.model import quantity


def test_durations_and_sizes_have_units() -> None:
    assert [quantity.duration(text) for text in ("500ms", "10s", "2m", "4h", "7d", "1.5s")] == [0.5, 10, 120, 14400, 604800, 1.5]
    assert [quantity.size(text) for text in ("1B", "1.5KiB", "512MiB", "2GiB")] == [1, 1536, 512 << 20, 2 << 30]
    for wrong in ("", "5", "5 s", "-1s", "1e3s", "s"):
        with pytest.raises(ValueError, match="expected a duration"):
            quantity.duration(wrong)
    for wrong in ("2GB", "2", "GiB"):
        with pytest.raises(ValueError, match="expected a size"):
            quantity.size(wrong)
