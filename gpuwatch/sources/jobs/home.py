"""Where a process is at home, by its control groups: Slurm job, Kubernetes pod, container, systemd unit, or a login session.

Pure: the text of /proc/PID/cgroup -> Home. The layouts are those of cgroup v1, v2 and both at once, with the drivers `cgroupfs`
and `systemd`, as Docker, containerd, CRI-O, podman, LXC, kubelet and Slurm 20 to 24 make them.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

SYSTEMD, UNIFIED = "systemd", ""  # the named hierarchy of v1, and that of v2
SHORT = 12  # characters of a container id that people are shown
UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # 32: a static pod's
ABOVE = r"(?:/\.\.)*"  # out of our own control group namespace
# Only from the root: what a user may delegate to himself below his own slice must not pass for another's job.
SLURM = re.compile(rf"{ABOVE}/(?:slurm[^/]*|system\.slice/(?:[^/]*_)?slurmstepd\.scope)/(?:uid_\d+/)?(job_(\d+))(?:/|$)")
# kubepods/QUALITY/podUID, kubepods-QUALITY-podUID.slice (a node in a container has `kubelet-` before it), SLICE:cri-containerd:ID
POD = re.compile(rf"/(?:kubepods/(?:[a-z]+/)?|(?:\w+-)*kubepods(?:-[a-z]+)?-)pod({UID})(?=[/.:]|$)")
# docker-ID.scope, cri-containerd-ID.scope, crio-ID, libpod-ID, ID, and SLICE:cri-containerd:ID of containerd with `cgroupfs`
CONTAINER = re.compile(r"(?:(?:.*:)?([a-z][a-z-]*)[-:])?([0-9a-f]{64})(?:\.scope)?")
USER = re.compile(r"/user\.slice/user-(\d{1,10})\.slice(?=/)")
LXC = re.compile(rf"{ABOVE}/lxc(?:/|\.payload[./])([^/]+)")
# What systemd-machined knows: a system of its own, with units that may be called as those of the host
MACHINE = re.compile(rf"{ABOVE}/machine\.slice/(?:machine-([^/]+)\.scope|systemd-nspawn@([^/]+)\.service)(?:/payload)?(?=/)")
NAMED = re.compile(rf"{UID}|[0-9a-f]{{64}}")  # markers that stand in a longer name
UNIT = re.compile(r"[^/]+\.(?:service|scope)")
RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "libpod_parent": "podman",
    "crio": "crio",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
}
# What starts processes for people: a process in one of these units belongs to a person's session, not to the unit.
ENTRANCES = frozenset(
    ("ssh.service", "sshd.service", "cron.service", "crond.service", "atd.service", "init.scope", "systemd-logind.service")
)


class Home(msgspec.Struct, frozen=True):
    """Whose work a process is. `marker` is in the name of the job's own control group, "" where it has none.

    Ids and names are those of one system: `machine` is the container or machine within whose own groups it lies, `uid` the user
    within whose slice. What lies there, he or its root may have called anything.
    """

    scheduler: str  # slurm, kubernetes, docker, podman, crio, containerd, container, lxc, systemd, session
    job: str = ""  # id within the scheduler; "" for a session, whose jobs are trees of processes
    container: str = ""  # its id; of LXC the name
    pod: str = ""
    unit: str = ""
    marker: str = ""
    uid: str = ""  # of a container: of whose runtime it is, where that is not root's
    machine: str = ""

    @property
    def within(self) -> tuple[str, ...]:
        """Where its id holds, "" for this host itself. Who may make groups below a unit may call them as a container."""
        unit = self.unit if self.container or self.pod else ""
        return tuple(f"{name}={text}" for name, text in (("in", self.machine), ("uid", self.uid), ("unit", unit)) if text)


def groups(text: str) -> dict[str, str]:
    """Return the control groups of a process by controller, as /proc/PID/cgroup has them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and number.isdecimal() and path.startswith("/"):
            for controller in controllers.split(","):
                found[controller.removeprefix("name=")] = path.removesuffix(" (deleted)")
    return found


def home(paths: Mapping[str, str]) -> Home:
    """Say where these control groups belong to; what says most comes first."""
    distinct = list(dict.fromkeys(paths.values()))
    for path in distinct:
        if slurm := SLURM.match(path):
            return Home("slurm", slurm[2], unit=unit_of(paths).unit, marker=slurm[1])
    container, runtime, outside = container_of(distinct)
    for path in distinct:
        if pod := POD.search(path):
            uid = pod[1].replace("_", "-")
            return around(path[: pod.start()], Home("kubernetes", uid, container, uid, marker=pod[1]))
    if container:
        return around(outside, Home(runtime, container[:SHORT], container, marker=container))
    for path in distinct:
        if lxc := LXC.match(path):
            return Home("lxc", lxc[1], container=lxc[1], marker=path[: lxc.end()].rpartition("/")[2])
    return unit_of(paths)


def container_of(paths: Iterable[str]) -> tuple[str, str, str]:
    """Return the id of the innermost container, its runtime, and the path around it; ("", "", "") where there is none."""
    for path in paths:
        parts = path.split("/")
        for position in reversed(range(len(parts))):
            found = CONTAINER.fullmatch(parts[position])
            if found and not (found[1] or "").endswith("conmon"):
                said = found[1] or parts[position - 1]
                return found[2], RUNTIMES.get(said, "container"), "/".join(parts[:position])
    return "", "", ""


def around(path: str, inner: Home) -> Home:
    """Return a container or pod with what is around its control group: machine, user and unit."""
    machine, uid, rest = split(f"{path}/")
    if not machine and (lxc := LXC.match(path)):
        machine = lxc[1]
    outer = container_of([path])[0]
    return replace(inner, machine=machine or outer[:SHORT], uid="" if uid == "0" else uid, unit=unit_in(rest, is_users=bool(uid)))


def split(path: str) -> tuple[str, str, str]:
    """Return in which machine and in whose slice a control group is, "" for none, and its path from there."""
    machine = MACHINE.match(path)
    rest = path[machine.end() :] if machine else re.sub(rf"^{ABOVE}", "", path)
    user = USER.match(rest)
    name = (machine[1] or machine[2]).replace("\\x2d", "-") if machine else ""  # as systemd writes a dash
    return name, user[1] if user else "", rest[user.end() :] if user else rest


def unit_of(paths: Mapping[str, str]) -> Home:
    """Return the systemd unit that stands for a piece of work, a session for what a person started by hand."""
    path = paths.get(SYSTEMD) or paths.get(UNIFIED) or ""
    machine, uid, rest = split(path)
    unit = unit_in(rest, is_users=bool(uid))
    if machine and not unit:  # the machine itself is the piece of work
        machine, uid, unit = "", "", unit_in(path, is_users=False)
    return Home("systemd", unit, unit=unit, marker=unit, uid=uid, machine=machine) if unit else Home("session")


def unit_in(path: str, *, is_users: bool) -> str:
    """Return the unit of a control group, "" where it has none that stands for a piece of work.

    It is the outermost: units lie in slices and not in one another, and what is below a unit, that has made itself.
    """
    for part in path.split("/"):
        if not UNIT.fullmatch(part) or (is_users and part.startswith("user@")):
            continue
        # systemd-run --scope; other scopes in a user's slice are terminals and sessions
        is_work = part not in ENTRANCES and (part.endswith(".service") or not is_users or part.startswith("run-"))
        return part if is_work else ""
    return ""


def own_group(path: str, marker: str) -> str:
    """Return the path of the job's own group: up to the part that names it; "" where this hierarchy has none for it."""
    if not marker:
        return path
    parts, is_part = path.split("/"), bool(NAMED.fullmatch(marker))  # others are whole: "lab" is not in "lxc.payload.lab2"
    for position, part in enumerate(parts):
        if marker == part or (is_part and marker in part):
            return "/".join(parts[: position + 1])
    return ""
