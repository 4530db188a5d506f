"""What several system tests stand on."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may enter, as /run/gpuwatch is."""
    folder = Path("/tmp") / f"gpuwatch-{tmp_path.name}-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)
