"""Who may read what the store writes, and what is no file at all."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.store.private import make_folder, name
from tests.fakes.store_home import Home, fill, run
from tests.fakes.until import PATIENCE, until

# A umask belongs to a process: in this one, other threads would write under it too.
STARTED = """
import os, sys
os.umask(int(sys.argv[1], 8))
from pathlib import Path
from tests.fakes.store_home import Home, fill, run
home = Home(Path(sys.argv[2]))
store = home()
store.claim()
run(store)
fill(store)
print("filled", flush=True)
input()
home.close()
"""
ROOT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_folders_and_files_have_their_modes_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    folder = tmp_path / "a" / "b" / "state"
    before = mode(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, umask, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "filled\n"
        found = {path.name: mode(path) for path in folder.iterdir()}
        child.communicate("\n", timeout=PATIENCE)
    names = {f"{name}.db{suffix}" for name in ("state", "gpuwatch") for suffix in ("", "-wal", "-shm")}
    assert found == dict.fromkeys({*names, "state.lock"}, 0o640)
    assert [mode(path) for path in (folder, folder.parent, folder.parent.parent)] == [0o750] * 3
    assert mode(tmp_path) == before


def test_files_that_all_could_read_are_taken_from_others_also_where_they_are_moved_aside(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = home()
    run(first)
    fill(first)
    assert first.stop(10)
    (tmp_path / "state.db").write_bytes(b"no database at all " * 500)
    for path in tmp_path.glob("*.db"):
        path.chmod(0o664)
    run(home())
    home.close()
    assert {
        path.name.partition("-")[0]: mode(path) for path in tmp_path.glob("*.db*") if not path.name.endswith(("-wal", "-shm"))
    } == {
        "gpuwatch.db": 0o660,
        "state.db": 0o640,
        "state.db.corrupt": 0o660,
    }


def fifo(path: Path) -> None:
    """Make a FIFO."""
    os.mkfifo(path)


def listening(path: Path) -> None:
    """Make a socket; its address has room for 108 bytes, so it is bound by way of a descriptor."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as bound:
            bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


@pytest.mark.parametrize(("make", "words"), [(fifo, "a FIFO"), (Path.mkdir, "a folder"), (listening, "a socket")])
@pytest.mark.parametrize(("name", "layout"), [("state.db", "alert memory"), ("gpuwatch.db", "history")])
def test_what_is_no_file_is_called_by_its_name_left_alone_and_got_over(
    tmp_path: Path, make: Callable[[Path], None], words: str, name: str, layout: str
) -> None:
    path = tmp_path / name
    home = Home(tmp_path)
    store = home()  # what is there by then is an error of the configuration
    make(path)
    try:
        store.start()
        until(lambda: store.problem() == f"the {layout} cannot be used: {path} is no regular file but {words}")
        assert not path.is_file()
        path.rmdir() if path.is_dir() else path.unlink()
        until(lambda: store.problem() == "")
    finally:
        home.close()


def test_a_folder_that_is_there_keeps_its_mode_and_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o755)
    make_folder(tmp_path / "there")
    assert mode(tmp_path / "there") == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file" / "below")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file")


CLOSED = """
import os, sys
from pathlib import Path
from tests.fakes.store_home import Home
import sqlalchemy.dialects.sqlite.pysqlite
if os.geteuid() == 0:
    os.setuid(65534)
store = Home(Path(sys.argv[1]))()
for note in store.start():
    print(note)
store.stop(0.1)
"""


@pytest.mark.parametrize("mode", [0o600, 0o000])
def test_an_empty_file_that_is_closed_to_us_is_not_called_lost_but_whose_it_is_and_what_to_do(mode: int) -> None:
    mine = os.geteuid()
    me = name(mine or 65534)
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: its parents let nobody else in
        Path(folder).chmod(0o777)
        path = Path(folder) / "state.db"
        path.touch()
        path.chmod(mode if mine == 0 else 0o000)
        done = subprocess.run(
            [sys.executable, "-c", CLOSED, folder], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if mine == 0:
            why = f"{path} is root's, and {me} may not read and write it: chown {me} {path}"
        else:
            why = f"{path} is closed to {me}, whose it is: chmod u+rw {path}"
        assert done.stderr.splitlines() == [f"the alert memory cannot be used: {why}; tried again until it answers"]
        (note,) = done.stdout.splitlines()
        assert note.startswith(f"started without the alert memory (the alert memory cannot be used: {why}): ")


def test_a_file_of_ours_that_is_closed_is_to_be_opened_again() -> None:
    """Root may read it all the same, so that this is asked of a child that is not."""
    script = """
import os, sys
from pathlib import Path
from gpuwatch.store.private import closed
if os.geteuid() == 0:
    os.setuid(65534)
path = Path(sys.argv[1]) / "state.db"
path.touch()
print(closed(path))
path.chmod(0)
print(closed(path))
print(closed(path.with_name("none.db")))
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", script, folder], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        me = name(os.geteuid() or 65534)
        assert done.stdout.splitlines() == [
            "",
            f"{folder}/state.db is closed to {me}, whose it is: chmod u+rw {folder}/state.db",
            "",
        ]
