"""Every spelling of a PCI address is one address."""

import pytest

from gpuwatch.model.pci import address_of, spelled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:65:00.0", (0, 0x65, 0)),
        ("0000:65:00.0", (0, 0x65, 0)),
        ("0000:65:00", (0, 0x65, 0)),
        ("65:00.0", (0, 0x65, 0)),
        ("000A:0b:1F.0", (10, 11, 31)),
        ("10000:01:00.0", (0x10000, 1, 0)),
        ("N/A", None),
        ("", None),
        ("65", None),
    ],
)
def test_every_spelling_of_a_pci_address_is_one_address(text: str, expected: tuple[int, int, int] | None) -> None:
    assert expected == address_of(text)


def test_an_address_is_spelled_as_sysfs_does() -> None:
    assert [spelled(place) for place in ((0, 0x65, 0), (10, 11, 31), (0x10000, 1, 0))] == [
        "0000:65:00.0",
        "000a:0b:1f.0",
        "10000:01:00.0",
    ]
