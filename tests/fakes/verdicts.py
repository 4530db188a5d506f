"""What the shipped rules say of readings that go on as they are."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuwatch import detectors, shipped
from gpuwatch.config import Config
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.rules.engine import Engine
from gpuwatch.rules.load import load
from gpuwatch.sampling.board import Board

EVERY = {Tier.FAST: 5, Tier.NORMAL: 10, Tier.SLOW: 60}  # seconds
START = 1_700_000_000.0


def alerts(readings: Sequence[Reading], seconds: int = 180, before: Sequence[Reading] = ()) -> set[tuple[str, str, str]]:
    """Return (rule, severity, gpu) of what was told within that time, in which nothing changes; `before` was so a minute long."""
    board = Board({})
    runner = detectors.Runner(detectors.build(Config(), None))
    engine = Engine(load(shipped.folder("alerts"), {}, "gpuwatch.toml"))
    told: set[tuple[str, str, str]] = set()
    for now in range(-60 if before else 0, seconds, EVERY[Tier.FAST]):
        wall, mono = START + now, 1000.0 + now
        for reading in before if now < 0 else readings:
            if now % EVERY[reading.tier] == 0:
                board.post(replace(reading, at=wall), mono)
        found = runner.run(board.view(wall, mono), wall)
        for reading in found.readings:
            board.post(reading, mono)
        for one in engine.beat(board.view(wall, mono), mono, found.evidence):
            told.add((one.rule, one.severity.value, one.target.labels.get("gpu", "")))
    return told
