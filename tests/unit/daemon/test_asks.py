"""What the schedule is told to ask."""

from collections.abc import Sequence

from gpuwatch.daemon import asks
from gpuwatch.daemon.building import Asked
from gpuwatch.model.reading import Reading, Tier


class Noting:
    """A collector that notes what it is asked."""

    def __init__(self, name: str, noted: list[tuple[str, Tier]]) -> None:
        self.name, self._noted = name, noted

    def start(self) -> None:
        """Nothing to start."""

    def ask(self, tier: Tier) -> None:
        """Note it."""
        self._noted.append((self.name, tier))

    def stop(self, seconds: float) -> None:
        """Nothing to stop."""

    def readings(self, wall: float) -> Sequence[Reading]:
        """Return nothing."""
        return []

    def pids(self) -> Sequence[int]:
        """Return nothing."""
        return []

    def problem(self) -> str:
        """Return that all is well."""
        return ""


def test_collectors_of_one_pace_are_asked_together_and_slow_tiers_first() -> None:
    noted: list[tuple[str, Tier]] = []
    three = {Tier.FAST: 1.0, Tier.NORMAL: 10.0, Tier.SLOW: 60.0}
    found = asks(
        [
            Asked(Noting("host", noted), three),
            Asked(Noting("nvml", noted), {**three, Tier.FAST: 2.0}),
            Asked(Noting("probe", noted), {Tier.SLOW: 60.0}),
        ]
    )
    assert list(found) == [(Tier.SLOW, 60.0), (Tier.NORMAL, 10.0), (Tier.FAST, 1.0), (Tier.FAST, 2.0)]
    for tick in found[Tier.SLOW, 60.0] + found[Tier.FAST, 2.0]:
        tick()
    assert noted == [("host", Tier.SLOW), ("nvml", Tier.SLOW), ("probe", Tier.SLOW), ("nvml", Tier.FAST)]
