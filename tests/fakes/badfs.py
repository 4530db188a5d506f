"""A kernel whose files fail or hang, for a child process: see badfs.c."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("badfs.c")


def build(folder: Path) -> Path:
    """Compile the library; once a test session."""
    library = folder / "badfs.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class BadFiles:
    """Calls below a folder fail as told, in processes that run with `environ`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._rule, self._log = folder / "badfs.rule", folder / "badfs.rule.log"
        self._generation = 0
        self._rule.write_bytes(b"\n" * 4096)
        self.environ = {**os.environ, "LD_PRELOAD": str(library), "BADFS": str(self._rule)}
        self.work()

    def fail(self, call: str, below: Path, code: int, nth: int = 0) -> None:
        """Let the `nth` call (0: every one) of `open`, `read`, `list` or `statvfs` below a path fail with this errno."""
        self._generation += 1
        self._say(f"{self._generation} {call} {nth} {code} {below}")

    def hang(self, call: str, below: Path) -> None:
        """Let such a call never return."""
        self.fail(call, below, 0)

    def work(self) -> None:
        """Let everything through again."""
        self._generation += 1
        self._say(f"{self._generation} none 0 0 /")

    def faults(self) -> list[str]:
        """Return the calls that failed or hang, as `CALL PATH`."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def _say(self, text: str) -> None:
        with self._rule.open("r+b") as file:
            file.write(text.encode().ljust(4096, b"\n"))
