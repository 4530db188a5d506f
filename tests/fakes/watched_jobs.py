"""The source of processes and jobs on a fake host whose board the test writes, and what it answers."""

import json
from collections.abc import Iterable

from gpuwatch.config import Config
from gpuwatch.model.metric import Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import jobs
from tests.fakes.clock import FakeClock
from tests.fakes.crowd_view import seen
from tests.fakes.host import Answers, HostTree

ID = "0123456789abcdef" * 4
SECRET = "hunter2-token"


class Watched:
    """The source on a fake host, whose board the test writes."""

    def __init__(self, tree: HostTree, config: Config | None = None) -> None:
        self.config = config or tree.config
        self.clock = FakeClock()
        self.board: list[Reading] = []
        self.source = jobs.source(self.config, self.clock, lambda: seen(*self.board))

    def ask(self, *tiers: Tier) -> Answers:
        """Ask for these tiers, the normal one unless said; returns all answers."""
        answers = Answers()
        for tier in tiers or (Tier.NORMAL,):
            self.source.ask(tier, frozenset(), answers)
        return answers


def told(answers: Answers, subject: Subject) -> list[Reading]:
    """Return the readings of a subject that say something."""
    return [one for one in answers.readings if one.target.subject is subject and (one.values or one.absent)]


def over(answers: Answers, subject: Subject) -> list[Target]:
    """Return the targets that are said to be over."""
    return [one.target for one in answers.readings if one.target.subject is subject and not (one.values or one.absent)]


def one(readings: Iterable[Reading]) -> Reading:
    """Return the only one."""
    (found,) = readings
    return found


def name_container(tree: HostTree, name: str = "aoi-infer-2") -> None:
    """Have Docker name the container."""
    state = {"Name": f"/{name}", "Config": {"Env": [SECRET]}}
    tree.write(tree.root / f"var/lib/docker/containers/{ID}/config.v2.json", json.dumps(state))
