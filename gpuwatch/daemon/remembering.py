"""What survives a restart: the states of detectors, and what the last run knew when it ended."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gpuwatch.catalogue import gpu
from gpuwatch.config import Config
from gpuwatch.detectors import Runner
from gpuwatch.detectors.reboot import Before
from gpuwatch.model.finding import Evidence
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading
from gpuwatch.model.target import Target
from gpuwatch.model.view import View

log = logging.getLogger("gpuwatch")

RUN = "run"  # the name of the mark: which boot, and whether it was left in order
VERSION = 1
LAST_SAMPLE = 600.0  # seconds before the end of the last run in which its last sample is looked for


class Row(Protocol):
    """One stored row."""

    @property
    def at(self) -> float: ...

    @property
    def values(self) -> Mapping[Metric, float]: ...


class Store(Protocol):
    """Where it is kept."""

    def load_state(self, name: str) -> tuple[int, bytes] | None: ...

    def save_state(self, name: str, version: int, blob: bytes) -> object: ...

    def rows(self, subject: Subject, metrics: Sequence[Metric], since: float, until: float) -> Sequence[Row]: ...


class Remembering:
    """The detectors, whose states are in the store."""

    def __init__(self, runner: Runner, store: Store) -> None:
        self._runner, self._store = runner, store
        runner.restore(lambda name: store.load_state(f"detector.{name}"))

    def run(self, view: View, wall: float) -> tuple[Sequence[Reading], Mapping[tuple[Target, Metric], Evidence]]:
        """Let every detector look at one beat."""
        return self._runner.run(view, wall)

    def save(self) -> None:
        """Hand the states to the store."""
        for name, version, blob in self._runner.dump():
            self._store.save_state(f"detector.{name}", version, blob)


def mark(store: Store, boot: str, wall: float, *, clean: bool) -> None:
    """Write which boot this is, and whether it is being left in order; the time is that of the mark."""
    store.save_state(RUN, VERSION, json.dumps({"boot_id": boot, "clean": clean, "at": wall}).encode())


def before(store: Store, wall: float) -> Before | None:
    """Return what was known when the last run ended; None on a first start, or where the mark cannot be read."""
    kept = store.load_state(RUN)
    if kept is None:
        return None
    try:
        known = json.loads(kept[1])
        boot, clean, at = str(known["boot_id"]), bool(known["clean"]), float(known["at"])
    except (ValueError, KeyError, TypeError):
        log.warning("the mark of the last run cannot be read; whether this reboot was asked for is not known")
        return None
    power, hottest = gpu.POWER, gpu.TEMPERATURE["core"]
    rows = [row for row in store.rows(gpu.GPU, [power, hottest], at - LAST_SAMPLE, wall) if row.values]
    if not rows:
        return Before(boot, clean, at)
    last = max(row.at for row in rows)
    powers = [row.values[power] for row in rows if row.at == last and power in row.values]
    temperatures = [row.values[hottest] for row in rows if row.at == last and hottest in row.values]
    return Before(boot, clean, max(at, last), sum(powers) if powers else None, max(temperatures, default=None))


def boot_id(config: Config) -> str:
    """Return the id of this boot; "" where the kernel does not say."""
    try:
        return (Path(config.paths.proc) / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
