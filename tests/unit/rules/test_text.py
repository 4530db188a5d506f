"""The texts of alerts."""

import pytest

from gpuwatch.catalogue.disk import DISK
from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.metric import Subject
from gpuwatch.model.target import Target
from gpuwatch.rules.text import lasted, template, where


@pytest.mark.parametrize(
    ("subject", "key", "labels", "info", "expected"),
    [
        (GPU, "GPU-1", {"gpu": "5"}, {}, "GPU 5"),
        (
            GPU,
            "GPU-1",
            {"gpu": "5"},
            {"label": "slot 3", "pci_bus_id": "0000:65:00.0", "name": "NVIDIA A40", "serial": "1320", "numa_node": "0"},
            "GPU 5 (slot 3, 0000:65:00.0, NVIDIA A40, serial 1320)",
        ),
        (GPU, "GPU-1", {"gpu": "5"}, {"name": "NVIDIA GeForce RTX 3090", "serial": ""}, "GPU 5 (NVIDIA GeForce RTX 3090)"),
        (GPU, "GPU-1", {}, {"name": "A40\x00\u2066"}, "GPU GPU-1 (A40\\x00\\u2066)"),
        (GPU, "0000:3f:00.0", {"gpu": "0000:3f:00.0"}, {"pci_bus_id": "0000:3f:00.0"}, "GPU 0000:3f:00.0"),
        (DISK, "wwn-1", {"device": "nvme0n1"}, {}, "disk nvme0n1"),
    ],
)
def test_where_names_the_thing_so_that_it_is_found(
    subject: Subject, key: str, labels: dict[str, str], info: dict[str, str], expected: str
) -> None:
    assert where(Target(subject=subject, key=key, labels=labels, info=info)) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (21_840, "6 h 4 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_has_two_units(seconds: float, expected: str) -> None:
    assert lasted(seconds) == expected


def test_what_is_not_known_is_said() -> None:
    text = template("{where} at {value:.0f} C ({ratio:.1%}), {{limit}} {threshold}", {"where", "value", "ratio", "threshold"})
    assert text.fill({"ratio": 0.253, "threshold": 85.0}, {"where": "GPU 5"}) == "GPU 5 at unknown C (25.3%), {limit} 85"
