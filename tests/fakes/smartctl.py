"""Control of the fake smartctl: what it answers for each device, and what it was asked.

    fake = FakeSmartctl(tmp_path / "smartctl")
    fake.answers("sda", replay(json_file, text_file))          # always this
    fake.answers("nvme0n1", good, good, failing("...", 2))      # the third call and all later ones fail
    config: [sources.smart] smartctl = str(fake.program)

Answers are by kernel name; nvme0 answers as nvme0n1. A device without answers "is gone". `fake_disk` makes the sysfs folder
that lets `sources.disks` find a disk. Answers may be changed while a daemon runs; the count of calls goes on.
"""

import json
import sys as system
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEWLINE = "\n"
PROGRAM = Path(__file__).with_name("smartctl")
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of the fake, as it saw itself: `leads` says whether it leads a process group of its own."""

    name: str
    node: str
    argv: list[str]
    pid: int
    locale: str
    stdin: str
    leads: bool


class FakeSmartctl:
    """A folder with a smartctl in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "devices").mkdir(parents=True)
        self.program = folder / "smartctl"
        script = PROGRAM.read_text()
        self.program.write_text(f"#!{system.executable} -IS\n{script.partition(NEWLINE)[2]}")  # `python3` may be a slow wrapper
        self.program.chmod(0o755)

    def answers(self, device: str, *answers: Answer) -> None:
        """Set the answers of a device; the last one repeats."""
        new = self._folder / "devices" / f".{device}"
        new.write_text(json.dumps(answers))
        new.rename(self._folder / "devices" / f"{device}.json")

    def remove(self, device: str) -> None:
        """Let a device be gone."""
        (self._folder / "devices" / f"{device}.json").unlink()

    def calls(self, device: str = "") -> list[Call]:
        """Return all calls so far, or those on one device."""
        file = self._folder / "calls"
        found = [Call(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in found if device in ("", call.name)]

    def child(self) -> int | None:
        """Return the process that a hanging call with `child` left behind it, None as long as there is none."""
        file = self._folder / "child"
        return int(file.read_text() or 0) or None if file.exists() else None

    def document(self, name: str, tree: Mapping[str, Any], text: str = "") -> Answer:
        """Return an answer made of a JSON object (its exit status in it) and the text that goes with it."""
        file, lines = self._folder / f"{name}.json", self._folder / f"{name}.txt"
        file.write_text(json.dumps(tree, indent=1))
        lines.write_text(text)
        return replay(file, lines if text else None)


def replay(capture: Path, text: Path | None = None, *, status: int | None = None, delay: float = 0.0) -> Answer:
    """Answer with a capture: .json as it is (with `text` as smartctl.output where asked), .txt as a smartctl before 7.0.

    The exit status is the capture's own, for text 0, or the given one.
    """
    if capture.suffix == ".txt":
        return {"act": "replay", "text": str(capture), "status": status or 0, "delay": delay}
    found = status_of(capture) if status is None else status
    return {"act": "replay", "json": str(capture), "text": str(text) if text else "", "status": found, "delay": delay}


def status_of(capture: Path) -> int:
    """Return the exit status that a capture says it had, 0 where it is cut or does not say."""
    raw = capture.read_bytes().decode(errors="replace")
    try:
        return int(json.loads(raw[raw.index("{") :])["smartctl"]["exit_status"])
    except (ValueError, KeyError):
        return 0


def standby(awake: Answer) -> Answer:
    """Answer as a sleeping disk where asked with `-n`; a call without it wakes the disk and gets `awake`."""
    return {"act": "sleeping", "awake": awake}


def failing(message: str, status: int) -> Answer:
    """Answer with an error; `{node}` in the message is the device."""
    return {"act": "failing", "message": message, "status": status}


def denied() -> Answer:
    """Answer as to a process that may not open the device."""
    return failing("Smartctl open device: {node} failed: Permission denied", 2)


def gone() -> Answer:
    """Answer as for a device that was taken away."""
    return failing("Smartctl open device: {node} failed: No such device", 2)


def silent() -> Answer:
    """Answer as for a SATA disk without CAP_SYS_RAWIO: exit 0, no data, no message."""
    return {"act": "silent"}


def hang(*, child: bool = False, output: bool = False) -> Answer:
    """Never answer and ignore SIGTERM; with a child that holds the pipe too, or with a first byte of output."""
    return {"act": "hang", "child": child, "output": output}


def half(capture: Path) -> Answer:
    """Print half of a capture and die by SIGKILL."""
    return {"act": "half", "json": str(capture)}


def garbage(raw: bytes = b"\x00\xff{]", *, times: int = 1, status: int = 0) -> Answer:
    """Print these bytes so often; b"x" a few million times is a flood."""
    return {"act": "bytes", "hex": raw.hex(), "times": times, "status": status}


def fake_disk(
    sys: Path,
    name: str,
    *,
    vendor: str = "ATA",
    model: str = "",
    serial: str = "",
    rotational: bool = False,
    removable: bool = False,
) -> None:
    """Make the sysfs folder of one disk under `sys`/block: sdX is SATA (`vendor` "ATA") or SAS, nvmeXnY is NVMe."""
    block = sys / "block" / name
    (block / "queue").mkdir(parents=True)
    (block / "queue/rotational").write_text(f"{rotational:d}\n")
    (block / "removable").write_text(f"{removable:d}\n")
    (block / "size").write_text("1953525168\n")
    if name.startswith("nvme"):
        device = sys / "class/nvme" / name.rpartition("n")[0]
        device.mkdir(parents=True)
        (block / "device").symlink_to(device)
        (device / "serial").write_text(serial or f"N{name}")
    else:
        device = block / "device"
        device.mkdir()
        (device / "vendor").write_text(f"{vendor:<8}\n")
        page = (serial or f"S{name}").encode()
        (device / "vpd_pg80").write_bytes(bytes([0, 0x80, 0, len(page)]) + page)
    (device / "model").write_text((model or f"Disk {name}") + "\n")
