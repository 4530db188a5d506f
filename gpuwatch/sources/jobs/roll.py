"""Who is at work on the GPUs now: processes, the jobs that they belong to, and the loaders of each. Made once a normal round."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs import process, tree
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.home import SHORT, Home
from gpuwatch.sources.jobs.naming import Labels, Naming
from gpuwatch.sources.jobs.process import TICK, Process
from gpuwatch.sources.jobs.tree import Budget, Children

LOADERS = 4  # loaders that are followed for each process that may be
NAMED = 3  # users of a job that are named
INSIDE = Named(why="it is in another container or machine, whose files are not looked at")

Names = Callable[[Home], Named | None]


class Job(msgspec.Struct):
    """One job; `name` is what people are shown, `owners` what its users are called, by number."""

    scheduler: str
    key: str
    name: str
    home: Home
    named: Named
    gpus: list[Process] = []  # those with the most GPU memory first
    loaders: list[Process] = []
    owners: dict[int, str] = {}
    rest: list[Process] = []  # on GPUs as well, and beyond those that are followed
    top: Process | None = None  # of a session
    unit: str = ""

    @property
    def info(self) -> dict[str, str]:
        """The text facts of the job, without those that are not known."""
        home, named = self.home, self.named
        facts = {
            "user": self.users,
            "name": named.pod or named.name,
            "namespace": named.namespace,
            "container": (named.name or home.container[:SHORT]) if home.container else "",
            "unit": self.unit,
            "why": named.why,
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def on_gpus(self) -> list[Process]:
        """All of its GPU processes."""
        return [*self.gpus, *self.rest]

    @property
    def groups(self) -> list[tuple[Home, Mapping[str, str]]]:
        """The different control groups of its GPU processes."""
        # Those of one text are one object (`process.placed`).
        found = {id(one.groups): (one.home, one.groups) for one in self.on_gpus}
        return list(found.values())

    @property
    def users(self) -> str:
        """Whose GPU processes they are: one name, or several in order, with commas."""
        names = sorted({self.owner(one) for one in self.on_gpus} - {""})
        more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
        return ",".join(names[:NAMED] + more)

    def owner(self, one: Process) -> str:
        """Return what the user of one of its processes is called, "" where that is not known or not told."""
        return "" if one.uid is None else self.owners.get(one.uid, "")


class Roll(msgspec.Struct):
    """All of them. `jobs` by key; `of` says to which each belongs; `gpus` are on a GPU and followed, `rest` on one and not."""

    jobs: dict[str, Job] = {}
    of: dict[int, Job] = {}
    gpus: dict[int, Process] = {}
    rest: dict[int, Process] = {}
    dropped: int = 0


class Caller:
    """Calls the roll, and remembers who was there before. Used by one thread."""

    def __init__(self, proc: str, names: Names, naming: Naming, limit: int) -> None:
        self._proc, self._names, self._naming, self._limit = proc, names, naming, limit
        self._labels = Labels()
        self._boot: int | None = None
        self._boot_id = ""
        self._met: dict[int, Process] = {}
        self._round: dict[int, Process | None] = {}
        self._thorough = True
        self._leaves: set[int] = set()
        self._seen: Collection[int] = ()

    def call(self, wanted: Mapping[int, int], rest: Mapping[int, int], *, thorough: bool, seen: Collection[int]) -> Roll:
        """Return who is there of these processes (ticks by pid), with their jobs and loaders, in the order in which they come.

        Of the `rest` it is only asked whose they are: they are looked at in a thorough call, and when they are new.
        A thorough call looks at everything again: groups and users of those who were there, children of every thread.
        `seen` are those who were just seen to be still the ones of the last call: they are looked at in a thorough one.
        """
        self._round, self._thorough, self._seen = {}, thorough, seen
        roll = Roll()
        children = Children(self._proc, thorough, Budget(), self._leaves)
        for pid, ticks in wanted.items():
            if (one := self._meet(pid)) is not None and one.ticks == ticks:
                job = self._job(one, roll)
                job.gpus.append(one)
                roll.of[pid], roll.gpus[pid] = job, one
        for pid, ticks in rest.items():
            if (one := self._recall(pid, ticks)) is not None and one.ticks == ticks:
                job = self._job(one, roll)
                job.rest.append(one)
                roll.of[pid], roll.rest[pid] = job, one
        on_gpus = wanted.keys() | rest.keys()
        for one in roll.gpus.values():
            self._follow(one, roll, children, on_gpus)
        self._name(roll.jobs.values())
        roll.dropped += children.budget.dropped
        self._leaves = children.without - on_gpus  # loaders that fork none; a process on a GPU may begin to any time
        self._met = {pid: one for pid, one in self._round.items() if one is not None}
        return roll

    def _name(self, jobs: Collection[Job]) -> None:
        """Give jobs and their users the names that people are shown."""
        naming = self._naming
        for job in jobs:
            uids = {one.uid for one in (*job.on_gpus, *job.loaders) if one.uid is not None}
            job.owners = {uid: naming.user(uid) for uid in uids}
            job.named = naming.named(job.home, job.named, uids)
            job.unit = naming.unit(job.home, uids)
            job.name = naming.label(job.home, job.named, job.top, uids)
        labels = self._labels.tell_apart((job.key, job.scheduler, job.name) for job in jobs)
        for job in jobs:
            job.name = labels[job.key]

    def _follow(self, one: Process, roll: Roll, children: Children, gpus: Collection[int]) -> None:
        """Add the loaders of one GPU process to its job."""
        job = roll.of[one.pid]
        found = tree.below(children, one.pid, gpus)
        found += tree.beside(children, one, self._meet(one.parent), gpus)
        for pid in found:
            if pid in roll.of:
                continue
            if len(roll.of) - len(roll.rest) >= (1 + LOADERS) * self._limit:
                roll.dropped += 1
                continue
            loader = self._meet(pid)
            if loader is not None:
                roll.of[pid] = job
                job.loaders.append(loader)

    def _job(self, one: Process, roll: Roll) -> Job:
        """Return the job of a GPU process, made when it is the first."""
        home = one.home
        # A name is looked up and may change; who a job is may not. A session has no id: it is the top of a tree of processes.
        top = None if home.job else self._root(one)
        key = self._naming.key(home, top)
        job = roll.jobs.get(key)
        if job is None:
            job = roll.jobs[key] = Job(home.scheduler, key, "", home, self._named(home), top=top)
        elif home.container < job.home.container:  # of the containers of a pod the same, whoever has most memory now
            job.home, job.named = home, self._named(home)
        return job

    def _named(self, home: Home) -> Named:
        """Return what a container is called, as far as that is known by now."""
        if not home.container or home.scheduler == "lxc":
            return Named()
        return INSIDE if home.machine else self._names(home) or Named(why="its name is still looked for")

    def _recall(self, pid: int, ticks: int) -> Process | None:
        """Return one of the rest as it was: the driver's list has just said that this very process is there."""
        before = self._met.get(pid)
        if before is not None and before.ticks == ticks and not self._thorough:
            self._round.setdefault(pid, before)
        return self._meet(pid)

    def _root(self, one: Process) -> Process:
        """Return the top of the tree of processes that were started together."""
        top = one
        for _ in range(tree.HIGHEST):
            parent = self._meet(top.parent)
            if parent is None or parent.home != one.home or tree.is_launcher(parent.comm):
                break
            top = parent
        return top

    def _meet(self, pid: int) -> Process | None:
        """Return who a process is, looked up once a round; None where there is none."""
        if pid in self._round:
            return self._round[pid]
        before = self._met.get(pid)
        if before is not None and pid in self._seen and not self._thorough:
            self._round[pid] = before
            return before
        found = process.stat(self._proc, pid) if pid > 0 else None
        if found is None:
            self._round[pid] = None
            return None
        if before is None or before.ticks != found.ticks:
            one = process.meet(self._proc, pid, found, self._began(found.ticks), self._boot_id)
        elif self._thorough:
            one = process.meet(self._proc, pid, found, before.start, self._boot_id)
        else:
            one = process.again(before, found)
        self._round[pid] = one
        return one

    def _began(self, ticks: int) -> int:
        """Return a start time in seconds since 1970. It is kept: the kernel's boot time moves with the clock."""
        if self._boot is None:
            self._boot = boot(self._proc)
            self._boot_id = sysfs.fact(f"{self._proc}/sys/kernel/random/boot_id")
        return self._boot + ticks // TICK


def boot(proc: str) -> int:
    """Return when this host was booted, 0 where that is not told."""
    try:
        lines = sysfs.read(f"{proc}/stat").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(b"btime ")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def largest_jobs(jobs: Collection[Job], memory: Mapping[tuple[int, int | None], float], limit: int) -> list[Job]:
    """Return at most so many jobs: those with the most GPU memory together; `memory` is by pid and start of a process."""
    if len(jobs) <= limit:
        return list(jobs)
    return sorted(jobs, key=lambda job: -sum(memory.get((one.pid, one.ticks), 0.0) for one in job.on_gpus))[:limit]


def everybody(jobs: Iterable[Job]) -> list[tuple[Process, Job, str]]:
    """Return every process with its job and role."""
    return [(one, job, role) for job in jobs for role, ones in (("gpu", job.gpus), ("loader", job.loaders)) for one in ones]
