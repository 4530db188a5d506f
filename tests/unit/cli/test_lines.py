"""One line of an event, and one column of numbers."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gpuwatch.cli.happened import line
from gpuwatch.cli.history import page
from gpuwatch.export.events import Told
from gpuwatch.export.history import HistoryDocument, Line

XID = Told(
    at=0.0,
    source="nvml",
    kind="xid",
    name="GPU fell off the PCIe bus",
    severity="critical",
    subject="gpu",
    key="GPU-1",
    gpu="0",
    code=79,
    count=1,
    words="Xid 79: GPU fell off the PCIe bus",
    facts={},
)


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("Xid 79: GPU fell off the PCIe bus", "Xid 79: GPU fell off the PCIe bus"),
        ("GPU fell off the PCIe bus", "Xid 79: GPU fell off the PCIe bus"),
        ("", "Xid 79: GPU fell off the PCIe bus"),
        ("NVRM: Xid (PCI:0000:65:00): 79", "Xid 79: GPU fell off the PCIe bus | NVRM: Xid (PCI:0000:65:00): 79"),
    ],
)
def test_what_an_event_is_is_said_once(words: str, end: str) -> None:
    assert line(replace(XID, words=words), "now") == f"now  critical  GPU 0  {end}"


def column(unit: str, values: Sequence[float | None]) -> list[str]:
    """Return the values of a table of one series, as they are written."""
    points = [(10.0 * number, value) for number, value in enumerate(values)]
    series = Line("gpu", "u", {"gpu": "0"}, "m", "gpuwatch_gpu_m", {}, unit, "gauge", "mean", points)
    return [text.split("  ")[-1].strip() for text in list(page("m", HistoryDocument("1", 0, 9, 10, 0, [series], [], ())))[2:]]


@pytest.mark.parametrize(
    ("unit", "values", "written"),
    [
        ("watts", [30.0, 30.5, 30.25, None], ["30.00", "30.50", "30.25", "-"]),
        ("watts", [200.0, 0.0], ["200", "0"]),
        ("ratio", [1.0, 1 / 3], ["1.00000", "0.33333"]),
        ("watts", [123456.789, 0.5], ["123457", "0.5"]),
        ("", [12345678.25, 1.0], ["12345678", "1"]),
        ("bytes", [0.0, 512.0 * 2**20, 3.0 * 2**30], ["0 B", "512.00 MiB", "3.00 GiB"]),
        ("bytes", [0.0, 4096.0, 17.0, 0.25], ["0 B", "4.00 KiB", "17 B", "0.25 B"]),
        ("bytes", [80.0 * 2**30, 5.0 * 2**20, -2048.0, 1.5 * 2**40], ["80.00 GiB", "5.00 MiB", "-2.00 KiB", "1.50 TiB"]),
        ("ratio", [1.0, 2e-9, -3e-7], ["1", "2e-09", "-3e-07"]),
    ],
)
def test_the_numbers_of_a_column_have_as_many_decimals_and_only_nothing_reads_0(
    unit: str, values: list[float | None], written: list[str]
) -> None:
    assert column(unit, values) == written
