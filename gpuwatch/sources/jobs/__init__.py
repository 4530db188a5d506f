"""Whose work is on the GPUs: owner, command, job, loaders, and what they use of the CPU. A thread of the daemon reads it.

/proc and cgroup files do not block. Names may: those of users (LDAP) and of containers (files on a disk) are looked up in
threads of their own (`lookups.py`), and numbers stand in their place until they come. NVML's lists come from the board.

A further runtime or scheduler: its pattern in `home.py`, and where its names are in `containers.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from gpuwatch.catalogue.own import OWN, QUEUE, QUEUE_DROPPED
from gpuwatch.catalogue.process import (
    HOLDER,
    HOLDER_MEMORY,
    HOLDER_UTILIZATION,
    JOB,
    JOB_CPU,
    JOB_CPU_ALLOWED,
    JOB_CPU_THROTTLED,
    JOB_GPU_ACCESS_MISSING,
    PROCESS_GPU,
    PROCESS_GPU_MEMORY,
    PROCESS_GPU_UTILIZATION,
    PROCESSES_DROPPED,
)
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs import containers, devices, owners
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.following import SOURCE, Following, labels_of
from gpuwatch.sources.jobs.home import Home
from gpuwatch.sources.jobs.limits import Hierarchies, cores
from gpuwatch.sources.jobs.listed import alone, heaps, identity, largest
from gpuwatch.sources.jobs.lookups import Lookups
from gpuwatch.sources.jobs.naming import Naming, secret
from gpuwatch.sources.jobs.process import Process
from gpuwatch.sources.jobs.roll import Caller, Job, Roll, everybody, largest_jobs
from gpuwatch.sources.jobs.spent import Groups, Spent
from gpuwatch.sources.jobs.threads import Threads
from gpuwatch.sources.look import Look
from gpuwatch.sources.source import Answer, Source

MOVED = {HOLDER_MEMORY: PROCESS_GPU_MEMORY, HOLDER_UTILIZATION: PROCESS_GPU_UTILIZATION}


class Jobs:
    """The processes on the GPUs. Used by one thread."""

    def __init__(self, config: Config, clock: Clock, view: Callable[[], View]) -> None:
        self._config, self._clock, self._view = config, clock, view
        self._proc, self._sys = config.paths.proc, config.paths.sys
        self._root, self._dev = Path(config.paths.root), Path(config.paths.dev)
        self._users: Lookups[int, str] = Lookups("user names", partial(owners.find, self._root), clock)
        self._names: Lookups[Home, Named] = Lookups("container names", partial(containers.find, self._root), clock)
        naming = Naming(config.privacy.users, secret(self._root), self._users.get)
        self._caller = Caller(self._proc, self._names.get, naming, config.processes.limit)
        self._hierarchies = Hierarchies(self._sys)
        self._spent = Spent(self._hierarchies)
        self._online: frozenset[int] = frozenset()
        self._threads = Threads(self._proc)
        self._thorough = True  # in the next normal round
        self._following = Following(self._proc, clock)
        self._told: dict[Target, None] = {}

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:  # noqa: ARG002 - nothing here can hang
        """Read what belongs to this tier."""
        if tier is Tier.FAST:
            self._following.ask(answer)
        elif tier is Tier.NORMAL:
            self._call(answer)
        else:
            self._thorough = True
        answer.done()

    def close(self) -> None:
        """Let go of the threads that look names up, and of the files that are kept."""
        self._following.close()
        self._users.close()
        self._names.close()

    def _call(self, answer: Answer) -> None:
        """Find out who is there, and tell of all of them but what changes fast."""
        self._users.begin()
        self._names.begin()
        self._hierarchies.begin()
        self._online = cores(sysfs.fact(f"{self._sys}/devices/system/cpu/online"))
        # Before 5.14 it was always counted.
        self._following.accounted = sysfs.fact(f"{self._proc}/sys/kernel/task_delayacct") != "0"
        holders = [entry for entry in self._view().of(HOLDER) if entry.readings]
        memory, limit = largest(holders), self._config.processes.limit
        chosen = dict.fromkeys(islice(memory, limit))  # in order: nothing may hang on that of a set
        # Who is beyond is accounted all the same: what users and jobs have is what all their processes have.
        beyond = list(islice(memory, limit, None))
        wanted, rest = ({pid: ticks for pid, ticks in some if ticks is not None} for some in (chosen, beyond))
        roll = self._caller.call(wanted, rest, thorough=self._thorough, seen=self._following.seen)
        is_thorough, self._thorough = self._thorough, False
        facts = {job.key: facts_of(job) for job in roll.jobs.values()}
        single, others = list[Entry](), list[Entry]()
        for entry in holders:
            (single if identity(entry) in chosen else others).append(entry)
        told = [
            *(self._held(entry, roll, facts) for entry in single),
            *(heap.reading(SOURCE) for heap in heaps(others, partial(whose, roll), partial(facts_of_rest, roll, facts))),
            *(self._job(job, facts[job.key]) for job in largest_jobs(roll.jobs.values(), memory, limit)),
        ]
        for reading in told:
            answer.reading(reading)
        now = dict.fromkeys(one.target for one in told)
        self._end([target for target in self._told if target not in now], Tier.NORMAL, answer)
        self._told = now
        self._take(roll, facts, single, answer)
        if is_thorough:
            self._look_at_threads(roll, answer)
        self._following.seen = set()
        dropped = len(beyond) + roll.dropped + self._threads.dropped
        answer.reading(self._reading(Target(subject=OWN, key=""), {PROCESSES_DROPPED: float(dropped)}))
        for what, count in ((one.what, one.dropped) for one in (self._users, self._names)):
            queue = Target(subject=QUEUE, key=what, labels={"queue": what})
            answer.reading(self._reading(queue, {QUEUE_DROPPED: float(count)}))

    def _take(self, roll: Roll, facts: Mapping[str, Mapping[str, str]], holders: Iterable[Entry], answer: Answer) -> None:
        """Take on those whose CPU is followed from now on; those who are no longer among them are over."""
        known: dict[tuple[str, int | None], dict[str, str]] = {}  # the facts of those of one job and one owner

        def facts_for(one: Process, job: Job) -> dict[str, str]:
            found = known.get((job.key, one.uid))
            if found is None:
                found = known[job.key, one.uid] = owned(facts[job.key], one, job)
            return found

        self._following.take(everybody(roll.jobs.values()), alone(holders), facts_for, answer)

    def _look_at_threads(self, roll: Roll, answer: Answer) -> None:
        """Tell of the threads of those on GPUs: they may load the data themselves."""
        at = self._clock.wall()
        for pid, found in self._threads.look(roll.gpus.values(), self._clock.mono()).items():
            target = self._following.target(pid)
            if target is not None:
                values, absent = found.values, found.absent
                answer.reading(
                    Reading(source=SOURCE, tier=Tier.SLOW, target=target, at=at, took=0.0, values=values, absent=absent)
                )

    def _held(self, entry: Entry, roll: Roll, facts: Mapping[str, Mapping[str, str]]) -> Reading:
        """Return what NVML says of one process on one GPU, with its name and job."""
        pid, _ = identity(entry)
        labels, info = entry.target.labels, dict(entry.target.info)
        job = roll.of.get(pid)
        one = roll.gpus.get(pid)
        if one is None or job is None:  # not visible from here, or just ended
            own = {"pid": str(pid), "start": "", "command": "", "job": "", "role": "gpu"}
            key = entry.target.key
        else:
            own = labels_of(one, job, "gpu")
            key = f"{labels['uuid']}/{labels['gi']}/{labels['ci']}/{one.key}"
            info |= owned(facts[job.key], one, job)
        info |= {"gi": labels["gi"]} if labels["gi"] else {}
        target = Target(subject=PROCESS_GPU, key=key, labels=own | {name: labels[name] for name in ("gpu", "uuid")}, info=info)
        return Reading(
            source=SOURCE,
            tier=Tier.NORMAL,
            target=target,
            at=entry.readings[0].at,
            took=0.0,
            values={MOVED[metric]: value for metric, value in entry.values.items()},
            absent={MOVED[metric]: why for metric, why in entry.absent.items()},
        )

    def _job(self, job: Job, facts: Mapping[str, str]) -> Reading:
        """Return what a job has used of the CPU, and may use."""
        groups = job.groups
        target = Target(subject=JOB, key=job.key, labels={"scheduler": job.scheduler, "job": job.name}, info=facts)
        look = Look(SOURCE, Tier.NORMAL, target, self._clock)
        if job.home.marker:
            look.take(JOB_CPU, lambda: self._spent.cpu(job.key, groups))
            look.take(JOB_CPU_THROTTLED, lambda: self._spent.throttled(job.key, groups))
        else:  # a session has other work in it
            look.lack((JOB_CPU, JOB_CPU_THROTTLED), Absence.UNSUPPORTED)
        look.take(JOB_CPU_ALLOWED, lambda: self._allowed(job, groups))
        if job.home.container:
            look.take(JOB_GPU_ACCESS_MISSING, lambda: self._missing(groups))
        return look.reading()

    def _missing(self, groups: Groups) -> float | None:
        """Return 1 where the device rules of one of a job's containers lack the GPUs, None where that cannot be told of any."""
        found = [devices.missing(self._hierarchies, self._root, self._dev, home, paths) for home, paths in groups]
        return max((number for number in found if number is not None), default=None)

    def _allowed(self, job: Job, groups: Groups) -> float | None:
        """Return the cores that a job may use: its affinity and cpusets, as far as they are online, up to its quotas."""
        mine = frozenset[int]().union(*(one.cpus for one in (*job.on_gpus, *job.loaders)))
        sets = [self._hierarchies.cpus(paths, home.marker) for home, paths in groups]
        limited = frozenset[int]().union(*(cpus for cpus in sets if cpus)) if all(sets) else None
        for limit in (limited, self._online):
            mine = (mine & limit or mine) if limit else mine
        find = self._hierarchies
        quotas = {find.place(paths, "cpu", home.marker): find.quota(paths, home.marker) for home, paths in groups}
        quota = None if None in quotas.values() else sum(amount for amount in quotas.values() if amount is not None)
        known = [amount for amount in (float(len(mine)), quota) if amount]
        return min(known, default=None)

    def _end(self, targets: Iterable[Target], tier: Tier, answer: Answer) -> None:
        """Say that these are over."""
        for target in targets:
            answer.reading(self._reading(target, {}, tier))

    def _reading(self, target: Target, values: dict[Metric, float], tier: Tier = Tier.NORMAL) -> Reading:
        return Reading(source=SOURCE, tier=tier, target=target, at=self._clock.wall(), took=0.0, values=values)


def facts_of(job: Job) -> dict[str, str]:
    """Return the text facts of a job."""
    return job.info | {"scheduler": job.scheduler, "key": job.key}


def whose(roll: Roll, pid: int) -> tuple[str, str]:
    """Return the key of the job of one of the rest, and what its owner is called; "" where it cannot be seen from here."""
    job, one = roll.of.get(pid), roll.rest.get(pid)
    return ("", "") if job is None or one is None else (job.key, job.owner(one))


def facts_of_rest(roll: Roll, facts: Mapping[str, Mapping[str, str]], pid: int) -> tuple[str, Mapping[str, str]]:
    """Return the label of the job of one of the rest, and its text facts; none where it cannot be seen from here."""
    job, one = roll.of.get(pid), roll.rest.get(pid)
    return ("", {}) if job is None or one is None else (job.name, owned(facts[job.key], one, job))


def owned(facts: Mapping[str, str], one: Process, job: Job) -> dict[str, str]:
    """Return the text facts of a process: those of its job, whose users are `users`, and its own owner as `user`."""
    own = dict(facts)
    users, user = own.pop("user", ""), job.owner(one)
    if users:
        own["users"] = users
    if user:
        own["user"], own["uid"] = user, str(one.uid)
    return own


def source(config: Config, clock: Clock, view: Callable[[], View]) -> Source:
    """Return the processes on the GPUs as a source; `view` gives what the board knows, NVML's lists in it."""
    return Jobs(config, clock, view)
