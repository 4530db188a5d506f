"""Recorded pages of exporters: what is one of a dcgm-exporter is read as its index says, and what is none is said to be none."""

import csv
import re
from pathlib import Path

import pytest

from gpuwatch.catalogue import gpu
from gpuwatch.model.metric import Metric
from gpuwatch.sources.dcgm.exporter import gaps, wrong
from gpuwatch.sources.dcgm.fields import FIELDS, read_all
from gpuwatch.sources.dcgm.page import Page, parse, understood

NOT_DCGM = (
    "broken-empty-value.prom",
    "broken-text-in-page.prom",
    "node-exporter-hw-subset.prom",
    "non-dcgm-page.prom",
    "nvidia-gpu-exporter-demo-2gpu.prom",
    "nvme-textfile.prom",
)
OURS = {*NOT_DCGM, "dcgm-lost-gpu-gap.prom", "dcgm-mig-a30-pods.prom"}
REFERENCES = {"dcgm-1x-names.csv", "dcgm-default-counters.csv", "dcgm-field-catalogue.csv", "dcgm-all-field-names.txt"}
LISTS = {"dcgm-field-validation-rtx5090.json"}  # which fields a host answered: names again, no page
# Of other formats: not what an exporter's URL gives.
OTHERS = re.compile(r"smartctl-.*\.json|nvidia-gpu-exporter-(debug\.log|query\.csv)")


@pytest.fixture
def folder(recorded: Path) -> Path:
    """Where the pages are."""
    return recorded / "gpu" / "exporters"


def read(folder: Path, name: str) -> Page:
    """Read one page."""
    return parse((folder / name).read_text(encoding="utf-8"))


def values(page: Page) -> dict[str, dict[Metric, float]]:
    """Return the values by GPU."""
    return {key: read_all(understood(card.texts))[0] for key, card in page.cards.items()}


def test_every_recorded_file_is_read_here_or_is_no_page(folder: Path) -> None:
    with (folder / "index.csv").open(encoding="utf-8", newline="") as file:
        names = {row["file"] for row in csv.DictReader(file)}
    assert {name for name in names if not OTHERS.fullmatch(name)} == OURS | REFERENCES | LISTS


@pytest.mark.parametrize("name", NOT_DCGM)
def test_what_is_not_dcgms_is_said_and_gives_no_gpu(folder: Path, name: str) -> None:
    page = read(folder, name)
    fault = wrong(page)
    assert (fault.kind if fault else "", page.cards) == ("not_dcgm", {})


def test_a_gpu_that_has_vanished_leaves_a_gap_that_is_told(folder: Path) -> None:
    page = read(folder, "dcgm-lost-gpu-gap.prom")
    assert (wrong(page), gaps(page)) == (None, {"2"})
    assert [round(one[gpu.UTILIZATION] * 100) for one in values(page).values()] == [97, 96, 98]


def test_instances_that_share_a_uuid_with_their_gpu_are_not_taken_for_it(folder: Path) -> None:
    page = read(folder, "dcgm-mig-a30-pods.prom")
    assert (wrong(page), page.cards, list(page.divided.values()), gaps(page)) == (None, {}, ["0"], set())
    found = [(one.number, one.profile, read_all(understood(one.texts))[0]) for one in page.instances.values()]
    assert found == [
        ("1", "2g.12gb", {gpu.GRAPHICS_ACTIVE: 0.381124, gpu.PIPE_ACTIVE["tensor"]: 0.022137}),
        ("3", "1g.6gb", {gpu.GRAPHICS_ACTIVE: 0.0}),
    ]


def test_the_fields_of_a_default_exporter_are_understood(folder: Path) -> None:
    """But for those that are left out on purpose: the sticky Xid, a throughput that is called a counter, a licence."""
    text = (folder / "dcgm-default-counters.csv").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.startswith("DCGM_")]
    names = {name for name, kind, *_ in rows if kind != "label"}
    assert names - FIELDS.keys() == {
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    }


def test_the_names_of_1_x_are_understood(folder: Path) -> None:
    text = (folder / "dcgm-1x-names.csv").read_text(encoding="utf-8")
    names = {line.split(",")[0].strip() for line in text.splitlines() if line.startswith("dcgm_")}
    assert names - FIELDS.keys() == {
        "dcgm_pcie_tx_throughput",  # field 200, deprecated
        "dcgm_pcie_rx_throughput",
        "dcgm_xid_errors",
        "dcgm_nvlink_bandwidth_total",
    }


@pytest.mark.parametrize("name", ["dcgm-field-catalogue.csv", "dcgm-all-field-names.txt"])
def test_every_field_of_releases_2_to_4_5_that_we_take_is_one_of_dcgm(folder: Path, name: str) -> None:
    known = set(re.findall(r"DCGM_FI_\w+", (folder / name).read_text(encoding="utf-8")))
    ours = {field for field in FIELDS if field.startswith("DCGM_FI_") and not re.search(r"_(RATIO|WATTS|CELSIUS)$", field)}
    since_4_6 = {
        "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        "DCGM_FI_DEV_ROW_REMAP_FAILED",
        "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL",
        "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL",
    }
    assert ours - known - since_4_6 == set()
