"""One daemon a store."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.store.lock import Claim, LockedError, lock
from tests.fakes.store_home import Home, fill, run
from tests.fakes.store_nouns import incident
from tests.fakes.until import PATIENCE, until

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


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A folder of its own for the store; all stores are stopped at the end."""
    found = Home(tmp_path / "state")
    yield found
    found.close()


@pytest.mark.parametrize("removed", ["lock", "folder"])
def test_a_store_whose_files_are_removed_under_it_takes_no_second_daemon_in(
    tmp_path: Path, home: Home, caplog: pytest.LogCaptureFixture, removed: str
) -> None:
    folder = tmp_path / "state"
    store = home()
    store.claim()
    run(store)
    fill(store)
    with caplog.at_level(logging.WARNING):
        if removed == "lock":
            (folder / "state.lock").unlink()
        else:
            shutil.rmtree(folder)
        ticket = store.commit([incident(3)])  # any write looks; without one it is done every 10 s
        until((folder / "state.lock").exists)
        until(lambda: store.problem() == "")
    assert ticket.wait(PATIENCE)
    with pytest.raises(LockedError) as refused:
        Claim(folder / "state.lock").take()
    assert str(refused.value) == f"{folder} is in use by another gpuwatch (process {os.getpid()})"
    said = [record.getMessage() for record in caplog.records]
    assert said.count(f"{folder / 'state.lock'} was removed or replaced: the store is locked anew") == 1


def test_a_store_that_another_daemon_was_let_into_writes_nothing_until_that_one_is_gone(tmp_path: Path, home: Home) -> None:
    folder = tmp_path / "state"
    store = home()
    store.claim()
    run(store)
    fill(store)
    other = lock(folder / "other.lock")
    assert other is not None
    (folder / "other.lock").replace(folder / "state.lock")  # the lock of one that came between its removal and our next look
    ticket = store.commit([incident(3)])
    why = f"cannot be used: {folder} is in use by another gpuwatch (process {os.getpid()})"
    until(lambda: store.problem() == f"the alert memory {why}; the history {why}")
    assert not ticket.wait(0)
    os.close(other)
    assert ticket.wait(PATIENCE)
    until(lambda: store.problem() == "")


def test_what_could_not_be_locked_at_the_start_is_locked_once_its_folder_takes_files(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")  # in the way of the folder
    claim = Claim(tmp_path / "state" / "state.lock")
    claim.take()
    (tmp_path / "state").unlink()
    claim.keep()
    with pytest.raises(LockedError):
        lock(tmp_path / "state" / "state.lock")


def test_a_claim_that_nobody_made_is_not_kept(tmp_path: Path) -> None:
    Claim(tmp_path / "state.lock").keep()
    assert list(tmp_path.iterdir()) == []
