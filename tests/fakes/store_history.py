"""An open history, without the thread that writes it."""

from pathlib import Path

from sqlalchemy import Select

from gpuwatch import config
from gpuwatch.catalogue import gpu
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.quantity import Duration, Size
from gpuwatch.store.archive import Archive, read
from gpuwatch.store.files import Database
from gpuwatch.store.history import Round
from gpuwatch.store.migrations import HISTORY_LAYOUT
from tests.fakes.store_nouns import gpu_target


class History:
    """Writes rounds and tidies, as the writing thread does."""

    def __init__(self, folder: Path, *, max_size: Size | None = None, keep_raw: Duration = Duration(7 * 86400)) -> None:  # noqa: B008 - a number
        chosen = config.Store(url=f"sqlite:///{folder / 'gpuwatch.db'}", max_size=max_size, keep_raw=keep_raw)
        self.database = Database(chosen.url, HISTORY_LAYOUT, "machine-1", SystemClock(), synchronous="OFF")
        self.archive = Archive(chosen, self.database)
        self.connection = self.database.open()
        self.database.upgrade(self.connection)
        self.archive.load(self.connection)

    def write(self, done: Round) -> None:
        """Store a round and tidy as the writing thread does."""
        self.archive.write(self.connection, done)
        while self.archive.tidy(self.connection):
            pass

    def powers(self) -> list[float]:
        """Return the power of the first GPU, in the order of time."""
        rows = read(self.connection, gpu.GPU, [gpu.POWER], -1e12, 1e12, key=gpu_target(0).key)
        return [row.values[gpu.POWER] for row in rows]

    def count(self, query: Select[tuple[int]]) -> int:
        """Return a number from the database."""
        with self.connection.begin():
            return self.connection.scalar(query) or 0
