"""Builds the fake libnvidia-ml.so.1 with gcc, once for each driver and state of its sources."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.fakes.until import PATIENCE

HERE = Path(__file__).resolve().parent
SOURCES = ("nvml.c", "nvml_cards.h", "nvml_events.h", "nvml_load.h", "nvml_mig.h", "nvml_processes.h", "nvml_state.h")


def library(profile: str) -> Path:
    """Build the library for one driver, or return the one built before."""
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", f"-DDRIVER={profile}"]
    content = b"".join((HERE / name).read_bytes() for name in SOURCES) + " ".join(flags).encode()
    folder = HERE / "build" / f"nvml-{profile}-{hashlib.sha256(content).hexdigest()[:12]}"
    made = folder / "libnvidia-ml.so.1"
    if not made.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as room:
            command = ["gcc", *flags, "-Wl,-soname,libnvidia-ml.so.1", "-o", f"{room}/{made.name}", str(HERE / "nvml.c")]
            subprocess.run(command, check=True, timeout=PATIENCE)
            (Path(room) / "libnvidia-ml.so").symlink_to(made.name)  # nvtop asks for this name first
            folder.mkdir(exist_ok=True)
            for built in Path(room).iterdir():
                built.replace(folder / built.name)
    return made
