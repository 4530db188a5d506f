"""Things are told as people count them."""

import pytest

from gpuwatch.model.order import natural, place_of


@pytest.mark.parametrize(
    "told",
    [
        ["0", "2", "10", "missing-1", "missing-10"],
        ["nvme0n1", "nvme2n1", "nvme10n1", "sda"],
        ["7", "0000:10:00.0", "00000000:2A:00.0", "0000:9f:00.0", "0000:a0:00.0", "eth0"],
        ["", "a", "a\udcff1", "é"],
        ["9" * 18, "9" * 5000],
    ],
)
def test_numbers_count_as_numbers_and_addresses_as_addresses(told: list[str]) -> None:
    assert sorted([*told[1::2], *told[::2]], key=natural) == told


def test_the_first_label_decides_and_the_next_where_it_is_equal() -> None:
    labels = [{"gpu": "2", "link": "9"}, {"gpu": "2", "link": "11"}, {"gpu": "10", "link": "0"}]
    assert sorted([*labels[1:], labels[0]], key=place_of) == labels
