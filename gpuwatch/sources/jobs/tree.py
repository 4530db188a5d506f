"""The processes that feed a GPU process: those below it, and those beside it under a parent of the same job.

Bounded, whatever a fork bomb makes of it: so many processes below one, so many files a round; what is beyond is counted.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from gpuwatch.sources import processes, sysfs
from gpuwatch.sources.jobs import process
from gpuwatch.sources.jobs.process import Process

BELOW = 64  # loaders of one GPU process that are looked at
READS = 4000  # files of one round
SCANNED = 20_000  # processes that are looked at where the kernel lists no children (CONFIG_PROC_CHILDREN)
HIGHEST = 32  # steps up to the root of a tree
# Who starts work of all kinds: what runs beside a process under one of them has nothing to do with it.
NAMES = (
    "sh bash dash zsh fish ksh csh tcsh tmux screen sshd sshd-session login su sudo systemd init cron crond atd kthreadd "
    "containerd-shim conmon runc tini dumb-init docker-init catatonit supervisord s6-svscan slurmstepd slurmd "
    "jupyter-lab jupyter-noteboo jupyter-server jupyterhub-sing code-server node timeout xargs parallel make watch script"
)
LAUNCHERS = frozenset(NAMES.split())


class Budget(msgspec.Struct):
    """Files that a round may still read, and what it had to leave out."""

    reads: int = READS
    dropped: int = 0


class Children(msgspec.Struct):
    """Who the children of a process are, as the kernel lists them, else by everybody's parent."""

    proc: str
    every_thread: bool  # children of its other threads too: dear, and few programs fork there
    budget: Budget = msgspec.field(default_factory=Budget)
    leaves: Collection[int] = ()  # who had none at the last look: asked again only where every thread is
    without: set[int] = set()  # who has none now
    _scanned: dict[int, list[int]] | None = None

    def of(self, pid: int) -> list[int]:
        """Return the children of a process, at most those that the budget has room for."""
        found = [] if pid in self.leaves and not self.every_thread else self._ask(pid)
        if not found and self.budget.reads > 0:
            self.without.add(pid)
        return found

    def _ask(self, pid: int) -> list[int]:
        """Ask the kernel."""
        folder = f"{self.proc}/{pid}/task"
        if not self.every_thread:
            return self._listed(pid, [f"{folder}/{pid}"])
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)  # the way to each thread starts here
        except OSError:
            return []
        try:
            threads = sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor, which a Path cannot
            return self._listed(pid, threads[: max(1, self.budget.reads)], descriptor)
        except OSError:  # it ends just now
            return []
        finally:
            os.close(descriptor)

    def _listed(self, pid: int, threads: Iterable[str], folder: int | None = None) -> list[int]:
        """Return the children of a process that these threads have forked."""
        found: list[int] = []
        for thread in threads:
            if self.budget.reads <= 0:
                self.budget.dropped += 1
                break
            self.budget.reads -= 1
            try:
                words = process.small(f"{thread}/children", sysfs.LINE, folder).split()
            except OSError:
                if thread.endswith(str(pid)) and sysfs.exists(f"{self.proc}/{pid}/task/{pid}"):
                    return self._scan().get(pid, [])
                continue
            found += [int(word) for word in words if word.isdigit()]
        return found

    def _scan(self) -> dict[int, list[int]]:
        """Return the children of everybody, by looking at everybody once a round."""
        if self._scanned is None:
            self._scanned = {}
            numbers = processes.numbers(Path(self.proc))
            self.budget.dropped += max(0, len(numbers) - SCANNED)
            for number in numbers[:SCANNED]:
                found = process.stat(self.proc, int(number))
                if found is not None:
                    self._scanned.setdefault(found.parent, []).append(int(number))
        return self._scanned


def below(children: Children, pid: int, without: Collection[int]) -> list[int]:
    """Return the processes below one, the nearest first; those in `without` are left out with what is below them."""
    found: list[int] = []
    level = [pid]
    while level:
        following: list[int] = []
        for each in level:
            for child in children.of(each):
                if child in without or child in found:
                    continue
                if len(found) >= BELOW:
                    children.budget.dropped += 1
                    continue
                found.append(child)
                following.append(child)
        level = following
    return found


def beside(children: Children, one: Process, parent: Process | None, without: Collection[int]) -> list[int]:
    """Return the processes beside one that belong to its work, with those below them."""
    if parent is None or parent.home != one.home or is_launcher(parent.comm):
        return []
    found: list[int] = []
    for child in children.of(parent.pid):
        if child not in without and child != one.pid and len(found) < BELOW:
            found += [child, *below(children, child, without)]
    return found[:BELOW]


def is_launcher(comm: str) -> bool:
    """Say whether a process starts work of all kinds."""
    return comm.partition(":")[0] in LAUNCHERS  # "tmux: server"
