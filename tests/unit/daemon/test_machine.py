"""To which machine a store belongs."""

from pathlib import Path

import pytest

from gpuwatch.config import Config, Paths
from gpuwatch.daemon.building import machine


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ""),
        ({"etc/machine-id": "0123\n"}, "0123"),
        ({"var/lib/dbus/machine-id": "4567\n"}, "4567"),
        ({"etc/machine-id": "", "var/lib/dbus/machine-id": "4567\n"}, "4567"),
        ({"etc/machine-id": "0123\n", "sys/class/dmi/id/product_uuid": "ABCD-EF\n"}, "0123/abcd-ef"),
        ({"sys/class/dmi/id/product_uuid": "ABCD-EF\n"}, "/abcd-ef"),
    ],
)
def test_it_is_known_by_its_machine_id_and_its_board(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine(Config(paths=Paths(root=str(tmp_path), sys=str(tmp_path / "sys")))) == expected
