"""What the schedule is told to do."""

from collections.abc import Sequence

from gpuwatch.daemon import ticking
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


def test_what_has_one_pace_is_done_together_slow_tiers_first_and_the_beat_after_what_it_judges() -> None:
    noted: list[tuple[str, Tier]] = []
    three = {Tier.FAST: 1.0, Tier.NORMAL: 10.0, Tier.SLOW: 60.0}
    found = ticking(
        [
            Asked(Noting("host", noted), three),
            Asked(Noting("nvml", noted), {**three, Tier.FAST: 2.0}),
            Asked(Noting("probe", noted), {Tier.SLOW: 60.0}),
            Asked(Noting("smart", noted), {Tier.SLOW: 600.0}, 5.0),
        ],
        lambda: noted.append(("beat", Tier.FAST)),
    )
    assert list(found) == [(60.0, 0.0), (600.0, 5.0), (10.0, 0.0), (1.0, 0.0), (2.0, 0.0)]
    for tick in found[60.0, 0.0] + found[600.0, 5.0] + found[2.0, 0.0] + found[1.0, 0.0]:
        tick()
    slow = [("host", Tier.SLOW), ("nvml", Tier.SLOW), ("probe", Tier.SLOW), ("smart", Tier.SLOW)]
    assert noted == [*slow, ("nvml", Tier.FAST), ("host", Tier.FAST), ("beat", Tier.FAST)]
