"""The tables of dcgmi are read by their heads; a row that does not fit them is none."""

import random

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence
from gpuwatch.sources.dcgm.fields import read_all
from gpuwatch.sources.dcgm.table import cards, rows
from tests.fakes.dcgm_page import UUIDS
from tests.fakes.dcgmi import listing

DMON = """\
#Entity   SMACT        SMOCC        PCITX
ID
GPU 0     0.501        0.061        1234567890.000
GPU-I 21  0.900        0.800        99.000
GPU 1     N/A          0.000        12345678901...
"""


def values(text: str) -> dict[str, dict[Metric, float]]:
    """Return the values by number."""
    return {index: read_all(row)[0] for index, row in rows(text).items()}


def test_a_row_gives_the_values_under_their_heads() -> None:
    expected = {
        "0": {gpu.SM_ACTIVE: 0.501, gpu.SM_OCCUPANCY: 0.061, gpu.PCIE_THROUGHPUT["transmit"]: 1234567890.0},
        "1": {gpu.SM_OCCUPANCY: 0.0},
    }
    assert expected == values(DMON)


def test_what_dcgm_does_not_know_is_absent() -> None:
    assert read_all(rows(DMON)["1"])[1] == {gpu.SM_ACTIVE: Absence.EMPTY}


def test_the_head_of_older_releases_is_understood() -> None:
    text = "# Entity  TENSO  DRAMA\n      Id\n    GPU 0  0.250  0.125\n"
    assert values(text) == {"0": {gpu.PIPE_ACTIVE["tensor"]: 0.25, gpu.DRAM_ACTIVE: 0.125}}


def test_columns_come_in_any_order_and_unknown_ones_are_left_out() -> None:
    text = "#Entity  FBUSD  DRAMA  SMACT\nID\nGPU 0  100  0.125  0.5\n"
    assert values(text) == {"0": {gpu.DRAM_ACTIVE: 0.125, gpu.SM_ACTIVE: 0.5}}


def test_a_later_head_counts_for_the_rows_below_it() -> None:
    text = "#Entity SMACT DRAMA\nID\nGPU 0 0.1 0.2\n#Entity DRAMA SMACT\nID\nGPU 1 0.3 0.4\n"
    assert values(text) == {
        "0": {gpu.SM_ACTIVE: 0.1, gpu.DRAM_ACTIVE: 0.2},
        "1": {gpu.DRAM_ACTIVE: 0.3, gpu.SM_ACTIVE: 0.4},
    }


@pytest.mark.parametrize("row", ["GPU 0 0.1", "GPU 0 0.1 0.2 0.3 0.4", "GPU x 0.1 0.2 0.3", "GPU", "0.1 0.2 0.3", "Error: no"])
def test_a_row_that_does_not_fit_its_head_is_none(row: str) -> None:
    assert values(f"#Entity SMACT SMOCC DRAMA\nID\n{row}\n") == {}


def test_rows_without_a_head_are_none() -> None:
    assert values("GPU 0 0.1 0.2 0.3\n") == {}


def test_the_last_row_that_has_values_counts() -> None:
    head = "#Entity SMACT\nID\n"
    assert [
        values(f"{head}GPU 0 N/A\nGPU 0 0.5\n"),
        values(f"{head}GPU 0 0.4\nGPU 0 0.5\n"),
        values(f"{head}GPU 0 0.5\nGPU 0 N/A\n"),
    ] == [{"0": {gpu.SM_ACTIVE: 0.5}}] * 3


def test_the_list_gives_every_gpu_its_uuid_and_place() -> None:
    text = listing({"0": UUIDS[0], "3": UUIDS[3]})["text"]
    found = cards(text)
    assert [(index, card.key, card.info) for index, card in found.items()] == [
        ("0", UUIDS[0], {"name": "NVIDIA A100-SXM4-40GB", "pci_bus_id": "0000:07:00.0"}),
        ("3", UUIDS[3], {"name": "NVIDIA A100-SXM4-40GB", "pci_bus_id": "0000:0a:00.0"}),
    ]


def test_a_list_cut_at_any_byte_never_gives_a_gpu_another_name() -> None:
    text = listing({"0": UUIDS[0], "1": UUIDS[1]})["text"]
    for end in range(len(text)):
        for index, card in cards(text[:end]).items():
            assert (card.key, card.info["pci_bus_id"]) == (UUIDS[int(index)], f"0000:0{int(index) + 7}:00.0")


def test_a_table_cut_at_any_byte_gives_a_part_of_the_whole() -> None:
    whole = values(DMON)
    for end in range(len(DMON)):
        assert all(some.items() <= whole[index].items() for index, some in values(DMON[:end]).items())


def test_junk_is_neither_table_nor_list() -> None:
    dice = random.Random(3)
    for _ in range(300):
        text = dice.randbytes(1000).decode("utf-8", "replace")
        assert (rows(text), cards(text)) == ({}, {})
