"""Clocks that a test turns by hand."""


class FakeClock:
    """Both clocks move together with `forward`; `step` moves the wall clock alone, as NTP or a person does."""

    def __init__(self, wall: float = 1_700_000_000.0, mono: float = 1_000.0) -> None:
        self._wall, self._mono = wall, mono

    def wall(self) -> float:
        """Return the wall clock."""
        return self._wall

    def mono(self) -> float:
        """Return the monotonic clock."""
        return self._mono

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self._wall += seconds
        self._mono += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock, without time passing."""
        self._wall += seconds
