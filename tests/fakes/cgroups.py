"""Processes and control groups of a fake host, in the layouts of the field.

host = HostTree(folder).kernel()
crowd = Crowd(host, "v1")              # v1 (Ubuntu 20.04), v2 (22.04), hybrid (v1 with controllers in v2's place beside it)
crowd.run(4711, "python", uid=1001, group=docker(ID, "cgroupfs"))
crowd.limit(docker(ID, "cgroupfs"), quota=4, cpus="0-7", used=12.5, throttled=1.5)
crowd.end(4711)
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.host import HostTree

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
CONTROLLERS = ("freezer", "devices", "cpu,cpuacct", "cpuset", "memory", "pids", "blkio")
PERIOD = 100_000
IDS = {letter: letter * 64 for letter in "0123456789abcdef"}


def docker(container: str, driver: str) -> str:
    """Return the group of a Docker container."""
    return f"/docker/{container}" if driver == "cgroupfs" else f"/system.slice/docker-{container}.scope"


def podman(container: str, driver: str = "systemd") -> str:
    """Return the group of the processes in a podman container of root's."""
    return f"/libpod_parent/libpod-{container}" if driver == "cgroupfs" else f"/machine.slice/libpod-{container}.scope/container"


def pod(uid: str, container: str, *, driver: str, runtime: str = "containerd", quality: str = "burstable") -> str:
    """Return the group of a container in a Kubernetes pod."""
    if driver == "cgroupfs":
        return f"/kubepods/{quality}/pod{uid}/{container}"
    head = "crio" if runtime == "crio" else "cri-containerd" if runtime == "containerd" else "docker"
    middle = f"kubepods-{quality}"
    return f"/kubepods.slice/{middle}.slice/{middle}-pod{uid.replace('-', '_')}.slice/{head}-{container}.scope"


def slurm(job: int, version: str, *, uid: int = 1001, node: str = "") -> str:
    """Return the group of a task of a Slurm job."""
    if version == "v2":
        return f"/system.slice/{node and node + '_'}slurmstepd.scope/job_{job}/step_0/user/task_0"
    return f"/slurm{node and '_' + node}/uid_{uid}/job_{job}/step_0"


def session(uid: int, number: int = 3) -> str:
    """Return the group of a login."""
    return f"/user.slice/user-{uid}.slice/session-{number}.scope"


class Crowd:
    """The processes of a host and their control groups."""

    def __init__(self, host: HostTree, version: str = "v2", cores: int = 32) -> None:
        self.host, self.version = host, version
        self.top = host.sys / "fs/cgroup"
        self.top.mkdir(parents=True, exist_ok=True)
        if version == "v2":
            host.write(self.top / "cgroup.controllers", "cpuset cpu io memory pids\n")
        else:
            for name in CONTROLLERS:
                (self.top / name).mkdir()
            for name in ("cpu", "cpuacct"):
                (self.top / name).symlink_to("cpu,cpuacct")
            if version == "hybrid":
                (self.top / "unified").mkdir()
        host.write(host.sys / "devices/system/cpu/online", f"0-{cores - 1}\n")
        self.cores = cores
        self.run(1, "systemd", parent=0, uid=0, group="/init.scope")
        self.run(2, "kthreadd", parent=0, uid=0, group="/")

    def run(
        self,
        pid: int,
        comm: str = "python",
        *,
        parent: int = 1,
        uid: int = 1001,
        group: str = "/",
        began: int = 1000,  # ticks since the boot
        cpu: float = 1.0,
        resident: int = 4096 * PAGE,
        io_wait: float = 0.0,
        state: str = "S",
        cpus: str = "",
        argv: Sequence[str] = (),
        threads: Sequence[int] = (),
        text: str | None = None,
    ) -> None:
        """Have a process; `text` is its cgroup file where that is none of the usual layouts."""
        folder = self.host.proc / str(pid)
        places = {1: parent, 17: 1, 19: began, 21: resident // PAGE, 39: int(io_wait * TICK)}
        self._stat(pid, comm, [state, *(str(places.get(place, 0)) for place in range(1, 50))], cpu)
        self.host.write(folder / "comm", f"{comm[:15]}\n")
        users = "\t".join([str(uid)] * 4)  # real, effective, saved, of file access
        allowed = cpus or f"0-{self.cores - 1}"
        self.host.write(folder / "status", f"Name:\t{comm}\nPid:\t{pid}\nUid:\t{users}\nCpus_allowed_list:\t{allowed}\n")
        self.host.write(folder / "cgroup", self.member(group) if text is None else text)
        self.host.write(folder / "cmdline", "\0".join(argv or (comm,)) + "\0")
        self.host.write(folder / "environ", "TOKEN=" + "\0".join(argv) + "\0")
        for thread in (pid, *threads):
            self._add_child(folder / f"task/{thread}/children", None)
        self._add_child(self.host.proc / str(parent) / f"task/{parent}/children", pid)

    def spend(self, pid: int, cpu: float) -> None:
        """Have a process used so many seconds of CPU by now."""
        head, _, tail = (self.host.proc / str(pid) / "stat").read_text().rpartition(") ")
        self._stat(pid, head.partition("(")[2], tail.split(), cpu)

    def _stat(self, pid: int, comm: str, fields: list[str], cpu: float) -> None:
        """Write the stat file of a process."""
        fields[11] = str(int(cpu * TICK))
        self.host.write(self.host.proc / str(pid) / "stat", f"{pid} ({comm}) {' '.join(fields)}\n")

    def end(self, pid: int) -> None:
        """Have a process end; who has its stat file open reads nothing any more (the kernel says ESRCH)."""
        (self.host.proc / str(pid) / "stat").write_bytes(b"")
        shutil.rmtree(self.host.proc / str(pid))
        for listing in self.host.proc.glob("*/task/*/children"):
            words = [word for word in listing.read_text().split() if word != str(pid)]
            listing.write_text(" ".join(words))

    def member(self, group: str) -> str:
        """Return the cgroup file of a process in this group."""
        if self.version == "v2":
            return f"0::{group}\n"
        is_slurm = group.startswith("/slurm")
        lines = [
            f"{number}:{name}:{'/' if is_slurm and name in ('cpu,cpuacct', 'pids', 'blkio') else group}"
            for number, name in enumerate(CONTROLLERS, 2)
        ]
        systemd = "/system.slice/slurmd.service" if is_slurm else group
        unified = group if self.version == "hybrid" and not is_slurm else "/system.slice/containerd.service"
        return "\n".join([*reversed(lines), f"1:name=systemd:{systemd}", f"0::{unified}", ""])

    def limit(self, group: str, *, quota: float | None = None, cpus: str = "", used: float = 0.0, throttled: float = 0.0) -> None:
        """Give a group a quota in cores and a cpuset, and say what it has used and lost (seconds)."""
        write = self.host.write
        if self.version == "v2":
            folder = self.folder(group)
            write(folder / "cpu.max", f"{'max' if quota is None else int(quota * PERIOD)} {PERIOD}\n")
            write(folder / "cpuset.cpus.effective", f"{cpus or f'0-{self.cores - 1}'}\n")
            write(
                folder / "cpu.stat",
                f"usage_usec {int(used * 1e6)}\nuser_usec 1\nsystem_usec 1\nnr_periods 10\nnr_throttled 3\n"
                f"throttled_usec {int(throttled * 1e6)}\n",
            )
            return
        folder = self.folder(group, "cpu,cpuacct")
        write(folder / "cpu.cfs_quota_us", f"{-1 if quota is None else int(quota * PERIOD)}\n")
        write(folder / "cpu.cfs_period_us", f"{PERIOD}\n")
        write(folder / "cpu.stat", f"nr_periods 10\nnr_throttled 3\nthrottled_time {int(throttled * 1e9)}\n")
        write(folder / "cpuacct.usage", f"{int(used * 1e9)}\n")
        write(self.folder(group, "cpuset") / "cpuset.cpus", f"{cpus or f'0-{self.cores - 1}'}\n")

    def folder(self, group: str, controller: str = "") -> Path:
        """Return the folder of a group."""
        return self.top / controller / group.lstrip("/")

    def users(self, **numbers: int) -> None:
        """Write the passwd file: `name = uid`."""
        everybody = {"root": 0, **numbers}
        lines = [f"{name}:x:{uid}:{uid}:{name}:/home/{name}:/bin/bash" for name, uid in everybody.items()]
        self.host.write(self.host.root / "etc/passwd", "\n".join(lines) + "\n")

    @staticmethod
    def _add_child(listing: Path, pid: int | None) -> None:
        """Write a thread's list of children, and add one."""
        listing.parent.mkdir(parents=True, exist_ok=True)
        words = listing.read_text().split() if listing.exists() else []
        if pid is not None and str(pid) not in words:
            words.append(str(pid))
        listing.write_text(" ".join(words))
