"""A wall clock that is wrong, for a child process and its children; the monotonic clock stays the machine's. See wall.c."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall.c")


def build(folder: Path) -> Path:
    """Compile the library; once a test session."""
    library = folder / "wall.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


class WrongClock:
    """The wall clock of processes that run with `environ`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._file = folder / "wall"
        self._file.write_bytes(bytes(8))
        self.environ = {"LD_PRELOAD": str(library), "FAKE_WALL": str(self._file)}

    def by(self, seconds: int) -> None:
        """Let it be wrong by so many seconds, from now on."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
