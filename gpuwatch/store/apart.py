"""The files that a store uses: two of them that are one would each be moved aside for the other at every start."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from gpuwatch.config import ConfigError
from gpuwatch.store.files import COMPANIONS


def check(history: Path | None, state: Path, lock: Path, *, is_named: bool) -> None:
    """Refuse a history, an alert memory and a lock of which two are one file; `is_named`: the second is by `[store] state`.

    Raises ConfigError. What SQLite puts beside a database counts as well, and so does a link, of either kind.
    """
    mine = [*names(history)] if history is not None else []
    others = [*names(state), lock]
    for one, other in (*product(mine, others), *product([lock], names(state))):
        if identities(one) & identities(other):
            where = str(one) if one == other else f"{one} and {other}"
            parts = "the history (store.url)" if one in mine else f"the lock {lock.name}"
            memory = f"the alert memory (store.state{'' if is_named else ': state.db beside the history'})"
            problem = f"{parts} and {memory} would be one file, {where}: expected another name"
            raise ConfigError("configuration", "store.state" if is_named else "store.url", problem)


def names(database: Path) -> Iterator[Path]:
    """Yield a database and what SQLite puts beside it."""
    for suffix in ("", *COMPANIONS):
        yield Path(f"{database}{suffix}")


def identities(path: Path) -> set[object]:
    """Return by what a file is known: where its name leads, and its inode where it is there."""
    known: set[object] = {os.path.realpath(path)}
    try:
        found = path.stat()
    except OSError:
        return known
    return known | {(found.st_dev, found.st_ino)}
