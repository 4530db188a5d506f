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


@pytest.mark.parametrize("text", ["0s", "0.25s", "1.5s", "90s", "2m", "7d", "1234.567s", "99999.999s", "315359999s", "3650d"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert quantity.in_units(quantity.duration(text)) == text


@pytest.mark.parametrize("text", ["0B", "16MiB", "16777217B", "123456789KiB", "1TiB", "1048576TiB"])
def test_a_size_is_written_as_it_is_read(text: str) -> None:
    assert quantity.in_units(quantity.size(text)) == text
