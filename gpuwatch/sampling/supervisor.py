"""The collector of a source that stays in memory: one worker process, watched and replaced."""

from collections.abc import Callable, Sequence

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading
from gpuwatch.sampling import child
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.persistent import Persistent


class Supervisor(Crew):
    """Keeps one worker process running with these sources; `patience.deadline` is for the answer to one `ask`."""

    def __init__(
        self,
        name: str,  # of the process, at most 15 bytes: gpuwatch-nvml
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
        plan = Persistent(name, tuple(sources), patience)
        super().__init__(
            name,
            sources,
            config=config,
            post=post,
            happened=happened,
            clock=clock,
            plan=plan,
            spawn=spawn,
            find=find,
            hears=False,
        )
