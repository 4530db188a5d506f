"""Which way of each Chain this GPU answers, and which calls fail again and again. State of one GPU, without I/O."""

from gpuwatch.model.reading import Absence
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.fields import Field
from gpuwatch.sources.nvml.readers import Call, Chain

DAY = 86400.0
GONE_FIELD = 600.0  # a number that was there may come back (MIG switched off, NVIDIA/DCGM#202): asked for more often


class Ways:
    """The present way of each chain. `version` changes whenever the answer of `present` may."""

    def __init__(self) -> None:
        self.version = 0
        self._position: dict[Chain, int] = {}
        self._until: dict[Chain, float] = {}
        self._worked: set[Chain] = set()
        self._streak: dict[Chain, int] = {}
        self._code: dict[Chain, int] = {}
        self._due = float("inf")

    def refresh(self, now: float) -> None:
        """Begin again with the first way of each chain that was given up long enough ago."""
        if now < self._due:
            return
        for chain in [chain for chain, until in self._until.items() if until <= now]:
            del self._until[chain]
            self._position.pop(chain, None)
            self.version += 1
        self._due = min(self._until.values(), default=float("inf"))

    def present(self, chain: Chain) -> Call | Field | None:
        """Return the way in use, None where this GPU and driver have none."""
        position = self._position.get(chain, 0)
        return chain.ways[position] if position < len(chain.ways) else None

    def worked(self, chain: Chain) -> None:
        """Note an answer."""
        self._worked.add(chain)
        if chain in self._streak:
            del self._streak[chain]

    def refused(self, chain: Chain, way: Call | Field, code: int, now: float) -> bool:
        """Note an error; return whether the chain has moved on to its next way, or to none."""
        if not permanent(way, code):
            if code in verdicts.SUSPECT:
                self._streak[chain] = self._streak.get(chain, 0) + 1
                self._code[chain] = code
            else:
                self._streak.pop(chain, None)
            return False
        self._position[chain] = self._position.get(chain, 0) + 1
        self._until[chain] = now + (GONE_FIELD if chain in self._worked else DAY)
        self._due = min(self._due, self._until[chain])
        self._streak.pop(chain, None)
        self.version += 1
        return True

    def failing(self, chains: tuple[Chain, ...]) -> tuple[Chain, int, int] | None:
        """Return a chain that worked and has failed often enough to be a fault, with its code and count."""
        if not self._streak:
            return None
        for chain in chains:
            count = self._streak.get(chain, 0)
            if count >= verdicts.ROW and chain in self._worked:
                return chain, self._code[chain], count
        return None


def permanent(way: Call | Field, code: int) -> bool:
    """Return whether this answer says that this way does not exist here, and will not."""
    if code in verdicts.PERMANENT or code == verdicts.ARGUMENT_VERSION_MISMATCH:
        return True
    # an id or enum that the driver does not know: it is older than we are
    return code == verdicts.INVALID_ARGUMENT and (isinstance(way, Field) or way.newer)


def why(code: int, way: Call | Field) -> Absence:
    """Return why a metric is absent whose last way answered with this code."""
    return Absence.UNSUPPORTED if permanent(way, code) else verdicts.absence(code)
