"""To which machine a store belongs, and which boot this is: read at the start, which nothing may hold up."""

import os
from pathlib import Path

import pytest

from gpuwatch.config import Config, Paths
from gpuwatch.daemon.building import machine
from gpuwatch.daemon.remembering import boot_id
from gpuwatch.sources.host import facts


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


@pytest.mark.parametrize("kind", ["fifo", "huge", "bytes", "folder", "absent"])
def test_what_a_start_reads_may_be_anything(tmp_path: Path, kind: str) -> None:
    names = ("etc/machine-id", "etc/os-release", "sys/class/dmi/id/product_uuid", "proc/sys/kernel/random/boot_id")
    for name in names:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "fifo":
            os.mkfifo(file)
        elif kind == "huge":
            file.touch()
            os.truncate(file, 3 << 30)
        elif kind == "bytes":
            file.write_bytes(b"\xff\xfe\n")
        elif kind == "folder":
            file.mkdir()
    config = Config(paths=Paths(root=str(tmp_path), sys=str(tmp_path / "sys"), proc=str(tmp_path / "proc")))
    escaped = "\\xff\\xfe" if kind == "bytes" else ""
    assert (boot_id(config), machine(config)) == (escaped, f"{escaped}/{escaped}" if escaped else "")
    assert facts.target(config).info.get("boot_id", "") == escaped
