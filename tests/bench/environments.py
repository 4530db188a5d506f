"""The Pythons that are measured: one with gpuwatch as an operator installs it, and one with nvitop-exporter."""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def gpuwatch() -> Path:
    """Return the Python of an environment with gpuwatch as users have it: httpx, for one, imports tools where it finds them."""
    declared = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return made(ROOT / ".venv-bench", ["-e", str(ROOT)], declared)


def nvitop() -> Path:
    """Return the folder of programs of an environment with nvitop-exporter."""
    return made(ROOT / ".venv-nvitop", ["nvitop-exporter"], "1").parent


def made(folder: Path, packages: list[str], stamp: str) -> Path:
    """Make an environment, unless it is there, and return its Python."""
    python, mark = folder / "bin/python", folder / ".prepared"
    if not mark.exists() or mark.read_text() != stamp:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True, timeout=600)
        subprocess.run([str(python), "-m", "compileall", "-q", str(ROOT / "gpuwatch")], check=True, timeout=120)
        mark.write_text(stamp)
    return python


def version(python: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    program = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
