"""Where the shipped files (alerts, systemd, later dashboards and runbooks) are."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder of shipped files called `name`, from a wheel or beside the package in a clone.

    Raises FileNotFoundError where the installation is incomplete.
    """
    for place in (PACKAGE / "_shipped" / name, PACKAGE.parent / name):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{name}: not shipped beside {PACKAGE}; the installation is incomplete, install gpuwatch again")
