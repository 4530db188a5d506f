"""Supervisors and probes on a stage, and what came of them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sampling.child import Find, Process, orphans
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.probe import Probe
from gpuwatch.sampling.supervisor import Supervisor
from tests.fakes.scripted import Stage
from tests.fakes.until import PATIENCE, until

Kind = TypeVar("Kind", Supervisor, Probe)
QUICK = Patience(deadline=1.0, start=20, grace=0.3, first=0.01, limit=0.05, steady=60)


class Scene:
    """Collectors on a stage, and the readings that came."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.came: list[Reading] = []
        self.told: list[Event] = []
        self.crews: list[Crew] = []

    def supervisor(
        self, *sources: str, patience: Patience = QUICK, spawn: Callable[[str], Process] | None = None, find: Find = orphans
    ) -> Supervisor:
        """Start a supervisor."""
        return self._started(Supervisor, "gpuwatch-test", sources, patience=patience, spawn=spawn, find=find)

    def probe(self, *sources: str, patience: Patience = QUICK, spawn: Callable[[str], Process] | None = None) -> Probe:
        """Start a probe."""
        return self._started(Probe, "gpuwatch-probe", sources, patience=patience, spawn=spawn, find=orphans)

    def _started(
        self,
        kind: type[Kind],
        name: str,
        sources: tuple[str, ...],
        *,
        patience: Patience,
        spawn: Callable[[str], Process] | None,
        find: Find,
    ) -> Kind:
        crew = kind(
            name,
            sources,
            config=self.stage.config,
            post=self.came.append,
            happened=self.told.append,
            clock=SystemClock(),
            patience=patience,
            spawn=spawn or self.stage.spawn,
            find=find,
        )
        self.crews.append(crew)
        crew.start()
        return crew

    def values(self, key: str, metric: Metric) -> list[float]:
        """Return the values of a metric that came for a target, in their order."""
        return [reading.values[metric] for reading in list(self.came) if reading.target.key == key and metric in reading.values]

    def beat(self, crew: Crew, is_true: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Ask again and again until something is true."""

        def asked() -> object:
            crew.ask(Tier.FAST)
            return is_true()

        until(asked, seconds)
