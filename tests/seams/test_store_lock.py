"""One daemon a store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.store.lock import LockedError, lock
from tests.fakes.until import PATIENCE

HOLD = """
import sys, pathlib
from gpuwatch.store.lock import lock
lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
input()
"""


def test_a_second_process_is_told_who_has_the_store_and_gets_it_when_that_one_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(LockedError) as refused:
            lock(path)
        assert str(refused.value) == f"{path.parent} is in use by another gpuwatch (process {first.pid})"
        first.kill()
        first.wait(PATIENCE)
    held = lock(path)
    assert held is not None
    os.close(held)


def test_a_folder_that_takes_no_file_is_not_locked_and_is_the_stores_to_tell(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert lock(tmp_path / "file" / "state.lock") is None
