"""Counters of the kernel that are 32 bits wide, made to go on over their wraps."""

WIDTH = 1 << 32
STEP = 1 << 28  # the farthest that a counter moves between two looks: three days in milliseconds


class Unwrapped:
    """Follows counters by name. One that starts anew (a disk that was plugged in again) is given as it is."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # the last raw value, and what its wraps are worth

    def follow(self, name: str, raw: int) -> int:
        """Return the counter without its wraps, since we began to look."""
        before, worth = self._seen.get(name, (raw, 0))
        if raw < before:
            worth = worth + WIDTH if before < WIDTH and raw + WIDTH - before <= STEP else 0
        self._seen[name] = raw, worth
        return raw + worth

    def keep(self, names: frozenset[str]) -> None:
        """Forget all other counters."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
