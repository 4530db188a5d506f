"""The collector of sources that touch devices and mounts: a fresh worker process for each round."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading
from gpuwatch.sampling import child
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.rounds import Rounds


class Stuck(NamedTuple):
    """An item (a mount, a disk, a sensor) that does not return, and since when (wall clock)."""

    source: str
    item: str
    since: float


class Probe(Crew):
    """Reads these sources round by round; `patience.deadline` is from one sign of life to the next."""

    def __init__(
        self,
        name: str,  # of the process, at most 15 bytes: gpuwatch-probe
        sources: Sequence[str],
        *,
        config: Config,
        post: Callable[[Reading], None],
        happened: Callable[[Event], None],
        clock: Clock,
        patience: Patience,
        spawn: child.Spawn = child.worker,
        find: child.Find = child.orphans,
    ) -> None:
        self._rounds = Rounds(name, tuple(sources), patience)
        super().__init__(
            name,
            sources,
            config=config,
            post=post,
            happened=happened,
            clock=clock,
            plan=self._rounds,
            spawn=spawn,
            find=find,
            hears=True,
        )

    def stuck(self) -> tuple[Stuck, ...]:
        """Return what does not return; the sources say the same in their readings where they can."""
        shift = self._clock.wall() - self._clock.mono()
        return tuple(Stuck(source, item, since + shift) for (source, item), since in self._rounds.stuck().items())
