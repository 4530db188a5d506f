"""A disk that fails, for a child process: writes and syncs below a folder fail or stall while a control file says so."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")


def build(folder: Path) -> Path:
    """Compile the library; once a test session."""
    library = folder / "disk.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


class FakeDisk:
    """Everything below `prefix` lies on it, for processes that run with `environ`."""

    def __init__(self, library: Path, prefix: Path, folder: Path) -> None:
        self._control, self._faults = folder / "disk.control", folder / "disk.faults"
        self.environ = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAKE_DISK_PREFIX": str(prefix),
            "FAKE_DISK_CONTROL": str(self._control),
            "FAKE_DISK_FAULTS": str(self._faults),
        }
        self.works()

    def fails(self, fault: str, call: str = "any", first: int = 1) -> None:
        """Let calls fail (`enospc`, `eio`) or hang (`stall`) from the `first` on: `write`, `sync` or `any`."""
        self._say(f"{fault} {call} {first}")

    def works(self) -> None:
        """Let everything through; what hangs goes on."""
        self._say("ok any 1")

    @property
    def faults(self) -> int:
        """How many calls failed or hung so far."""
        return self._faults.stat().st_size if self._faults.exists() else 0

    def _say(self, text: str) -> None:
        fresh = self._control.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._control)
