"""A folder of the store in a test: stores that are opened on it one after another, and what they are filled with."""

import math
from pathlib import Path

from gpuwatch import config
from gpuwatch.catalogue import gpu
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.past import UnreadableError
from gpuwatch.store import Memory, Store
from gpuwatch.store.migrations import Layout
from tests.fakes.store_nouns import delivery, incident, round_of, silence, told
from tests.fakes.until import PATIENCE, until


class Home:
    """Opens stores in one folder; `close` stops them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stores: list[Store] = []

    def __call__(self, machine: str = "machine-1", **layouts: Layout) -> Store:
        """Return a new store, not started."""
        options = config.Store(url=f"sqlite:///{self._folder / 'gpuwatch.db'}")
        self._stores.append(Store(options, machine, SystemClock(), **layouts))
        return self._stores[-1]

    def close(self) -> None:
        """Stop all stores; each must get what it has onto its disk."""
        for store in self._stores:
            assert store.stop(10)


def run(store: Store) -> list[str]:
    """Start a store that finds nothing wrong; returns its notes."""
    notes = store.start()
    until(lambda: store._writer.history.ready)
    assert store.problem() == ""
    return notes


def fill(store: Store) -> None:
    """Commit two incidents, a delivery and a silence, and store two rounds."""
    ticket = store.commit([incident(1), incident(2)], [told(1)], [delivery(1)], [silence(1)])
    blob = store.save_state("engine", 3, b"state")
    store._rounds.put(round_of(1))
    store._rounds.put(round_of(2))
    store._writer.wake()
    assert ticket.wait(PATIENCE)
    assert blob.wait(PATIENCE)
    until(lambda: len(powers(store)) == 16)


def powers(store: Store) -> list[float]:
    """Return the stored values of power; none while the history is being made anew."""
    try:
        return [row.values[gpu.POWER] for row in store.rows(gpu.GPU, [gpu.POWER], -math.inf, math.inf)]
    except UnreadableError:
        return []


FILLED = Memory(incidents=[incident(1), incident(2)], told=[told(1)], deliveries=[delivery(1)], silences=[silence(1)])


def fill_more(store: Store) -> None:
    """Show that a store takes both kinds of rows."""
    before = len(powers(store))
    store._rounds.put(round_of(50))
    assert store.commit([incident(50)]).wait(PATIENCE)
    until(lambda: len(powers(store)) == before + 8)
