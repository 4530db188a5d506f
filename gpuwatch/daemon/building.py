"""Which sources are read on this host, how often, and how long their values count."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gpuwatch.config import Config, Simulated, Source
from gpuwatch.daemon.kept import Workers
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.view import View
from gpuwatch.sampling.board import Cadence
from gpuwatch.sampling.crew import Crew
from gpuwatch.sampling.events import Patience
from gpuwatch.sampling.local import Local
from gpuwatch.sampling.probe import Probe
from gpuwatch.sampling.supervisor import Supervisor
from gpuwatch.sources import host, jobs, kernel, sysfs
from gpuwatch.sources.dcgm.exporter import Exporter

NVML = "gpuwatch-nvml"  # the name of the process that holds the GPUs: `fuser -v /dev/nvidia*` explains itself
DCGM = "gpuwatch-dcgm"
IMITATOR = "gpuwatch-sim"  # the process that simulates a host
HOLDING = (NVML, DCGM)  # what has GPUs open, itself or by a program that it starts
KILLING = 5.0  # seconds beside a deadline in which what has missed it is killed and told of
JOBS = "jobs"
APART = 5.0  # seconds between the rounds of short-lived workers: two at a time would be the most memory that we ever hold
SIMULATED = ("nvml", "host", "smart", "filesystem", "pci", JOBS)  # sources that a simulated host imitates
PROBED = ("pci", "filesystem", "hwmon", "network", "infiniband", "services", "nextboot")


class Collector(Protocol):
    """What gets a source read."""

    name: str

    def start(self) -> None: ...

    def ask(self, tier: Tier) -> None: ...

    def stop(self, seconds: float) -> None: ...

    def readings(self, wall: float) -> Sequence[Reading]: ...

    def pids(self) -> Sequence[int]: ...

    def problem(self) -> str: ...


class Imitating:
    """The worker of a simulated host, which opens no GPU: it goes on, and tells all anew after a release as others do."""

    def __init__(self, name: str, ask: Callable[[Tier], None]) -> None:
        self.name, self._ask = name, ask

    def pause(self) -> None:
        """Let it be: it imitates more than GPUs."""

    def go_on(self) -> None:
        """Ask for all tiers, whose turns may be far."""
        for tier in Tier:
            self._ask(tier)

    def pids(self) -> list[int]:
        """Return nothing: none has a GPU open."""
        return []


class Asked(msgspec.Struct, frozen=True):
    """A collector, how often each tier of it is asked, and how long after the start it is asked first."""

    collector: Collector
    periods: Mapping[Tier, float]
    delay: float = 0.0


def collectors(
    config: Config,
    post: Callable[[Reading], None],
    happened: Callable[[Event], None],
    view: Callable[[], View],
    clock: Clock,
) -> list[Asked]:
    """Build what reads: a simulated host in place of everything, or every source that is on. `view` is what the board knows."""
    sources = config.sources

    def persistent(name: str, source: str, patience: Patience) -> Supervisor:
        return Supervisor(name, [source], config=config, post=post, happened=happened, clock=clock, patience=patience)

    def short(name: str, names: Sequence[str], deadline: float) -> Probe:
        patience = Patience(deadline)
        return Probe(name, names, config=config, post=post, happened=happened, clock=clock, patience=patience)

    if sources.simulated.enabled:
        return [Asked(persistent(IMITATOR, "simulated", Patience(sources.simulated.deadline)), three(sources.simulated))]
    found = []
    if sources.host.enabled:
        reader = host.source(config, clock)
        local = Local("host", reader, post=post, happened=happened, clock=clock, deadline=sources.host.deadline)
        found.append(Asked(local, three(sources.host)))
    if sources.kernel.enabled:
        reader = kernel.source(config, clock)
        local = Local("kernel", reader, post=post, happened=happened, clock=clock, deadline=sources.kernel.deadline)
        # Not the fast tier: where the log may not be read, everything else is as fresh as ever.
        found.append(Asked(local, {Tier.NORMAL: sources.kernel.every}))
    if sources.nvml.enabled:
        # The worker itself ends a round at its deadline, whatever its GPUs do: one that has not done so by twice that is lost.
        deadline, backoff = 2 * sources.nvml.deadline, sources.nvml.backoff
        patience = Patience(deadline, limit=backoff, steady=backoff)
        found.append(Asked(persistent(NVML, "nvml", patience), three(sources.nvml)))
    if sources.nvml.enabled and sources.jobs.enabled:
        reader = jobs.source(config, clock, view)
        local = Local(JOBS, reader, post=post, happened=happened, clock=clock, deadline=sources.jobs.deadline)
        found.append(Asked(local, three(sources.jobs)))
    if sources.probe.enabled:
        found.append(Asked(short("gpuwatch-probe", PROBED, sources.probe.deadline), {Tier.SLOW: sources.probe.every}))
    if sources.smart.enabled:
        found.append(Asked(short("gpuwatch-smart", ["smart"], sources.smart.deadline), {Tier.SLOW: sources.smart.every}, APART))
    if sources.dcgm.enabled and sources.dcgm.mode == "dmon":
        # The worker kills dcgmi at its deadline and says so; only a worker that does not get there is killed itself.
        found.append(Asked(short(DCGM, ["dcgm"], sources.dcgm.deadline + KILLING), {Tier.NORMAL: sources.dcgm.every}))
    elif sources.dcgm.enabled:  # one bounded GET, no device: a thread of the daemon will do
        page = Exporter(config, clock)
        local = Local("dcgm", page, post=post, happened=happened, clock=clock, deadline=sources.dcgm.deadline + KILLING)
        found.append(Asked(local, {Tier.NORMAL: sources.dcgm.every}))
    return found


def holding(found: Sequence[Asked]) -> list[Workers]:
    """Return what lets go of the GPUs."""
    crews = [one.collector for one in found if isinstance(one.collector, Crew)]
    return [Imitating(one.name, one.ask) if one.name == IMITATOR else one for one in crews if one.name in (*HOLDING, IMITATOR)]


def three(source: Source | Simulated) -> dict[Tier, float]:
    """Return the periods of a source with three tiers."""
    return {Tier.SLOW: source.every_slow, Tier.NORMAL: source.every_normal, Tier.FAST: source.every}


def cadences(config: Config) -> dict[tuple[str, Tier], Cadence]:
    """Return how often each source is read and how long that may take: how long its values count."""
    sources = config.sources
    found: dict[tuple[str, Tier], Cadence] = {}
    if sources.simulated.enabled:
        tiered: dict[str, Source | Simulated] = dict.fromkeys(SIMULATED, sources.simulated)
    else:
        tiered = {"nvml": sources.nvml, "host": sources.host, JOBS: sources.jobs}
        for name in PROBED:
            found[name, Tier.SLOW] = Cadence(sources.probe.every, sources.probe.deadline)
        found["smart", Tier.SLOW] = Cadence(sources.smart.every, sources.smart.deadline)
        found["kernel", Tier.NORMAL] = Cadence(sources.kernel.every, sources.kernel.deadline)
        found["dcgm", Tier.NORMAL] = Cadence(sources.dcgm.every, sources.dcgm.deadline)
    for name, source in tiered.items():
        for tier, period in three(source).items():
            found[name, tier] = Cadence(period, source.deadline)
    return found


def machine(config: Config) -> str:
    """Return to which machine the store belongs: machine-id and DMI uuid, joined by "/"; a part that cannot be read is "".

    A disk that was copied to other hosts carries its machine-id along; the DMI uuid does not move, and only root may read it.
    """
    root = Path(config.paths.root)
    machine_id = sysfs.fact(root / "etc/machine-id") or sysfs.fact(root / "var/lib/dbus/machine-id")
    board = sysfs.fact(Path(config.paths.sys) / "class/dmi/id/product_uuid").lower()
    return f"{machine_id}/{board}" if board else machine_id
