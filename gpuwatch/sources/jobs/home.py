"""Where a process is at home, by its control groups: Slurm job, Kubernetes pod, container, systemd unit, or a login session.

Pure: the text of /proc/PID/cgroup -> Home. The layouts are those of cgroup v1, v2 and both at once, with the drivers `cgroupfs`
and `systemd`, as Docker, containerd, CRI-O, podman, LXC, kubelet and Slurm 20 to 24 make them.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

SYSTEMD, UNIFIED = "systemd", ""  # the named hierarchy of v1, and that of v2
SHORT = 12  # characters of a container id that people are shown
UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"  # 32: a static pod's
# Only from the root: what a user may delegate to himself below his own slice must not pass for another's job.
SLURM = re.compile(r"(?:/\.\.)*/(?:slurm[^/]*|system\.slice/(?:[^/]*_)?slurmstepd\.scope)/(?:uid_\d+/)?(job_(\d+))(?:/|$)")
POD = re.compile(rf"kubepods.*?pod({UID})")
# docker-ID.scope, cri-containerd-ID.scope, crio-ID, libpod-ID, ID, and SLICE:cri-containerd:ID of containerd with `cgroupfs`
CONTAINER = re.compile(r"(?:(?:.*:)?([a-z][a-z-]*)[-:])?([0-9a-f]{64})(?:\.scope)?")
USER = re.compile(r"(?:/\.\.)*/user\.slice/user-(\d{1,10})\.slice/")
LXC = re.compile(r"(?:/\.\.)*/lxc(?:/|\.payload[./])([^/]+)")
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
    """Whose work a process is. `marker` is in the name of the job's own control group, "" where it has none."""

    scheduler: str  # slurm, kubernetes, docker, podman, crio, containerd, container, lxc, systemd, session
    job: str = ""  # id within the scheduler; "" for a session, whose jobs are trees of processes
    container: str = ""
    pod: str = ""
    unit: str = ""
    marker: str = ""
    uid: str = ""  # of whose runtime it is a container, where that is not root's


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
    unit = unit_of(paths)
    for path in distinct:
        if slurm := SLURM.match(path):
            return Home("slurm", slurm[2], unit=unit, marker=slurm[1])
    container, runtime = container_of(distinct)
    for path in distinct:
        if pod := POD.search(path):
            return Home("kubernetes", pod[1].replace("_", "-"), container, pod[1].replace("_", "-"), marker=pod[1])
    if container:
        return Home(runtime, container[:SHORT], container, marker=container, uid=user_of(distinct, container))
    for path in distinct:
        if lxc := LXC.match(path):
            return Home("lxc", lxc[1], container=lxc[1], marker=lxc[1])
    return Home("systemd", unit, unit=unit, marker=unit) if unit else Home("session")


def container_of(paths: Iterable[str]) -> tuple[str, str]:
    """Return the id of the innermost container and its runtime, ("", "") where there is none."""
    for path in paths:
        parts = path.split("/")
        for position in reversed(range(len(parts))):
            found = CONTAINER.fullmatch(parts[position])
            if found and not (found[1] or "").endswith("conmon"):
                said = found[1] or parts[position - 1]
                return found[2], RUNTIMES.get(said, "container")
    return "", ""


def user_of(paths: Iterable[str], container: str) -> str:
    """Return whose rootless runtime a container belongs to, "" where it is root's."""
    uid = next((found[1] for path in paths if container in path and (found := USER.match(path))), "")
    return "" if uid == "0" else uid


def unit_of(paths: Mapping[str, str]) -> str:
    """Return the innermost systemd unit that stands for a piece of work, "" for what a person started by hand."""
    path = paths.get(SYSTEMD) or paths.get(UNIFIED) or ""
    is_users = path.startswith("/user.slice/")
    for part in reversed(path.split("/")):
        if not UNIT.fullmatch(part) or part in ENTRANCES:
            continue
        if part.startswith("user@"):
            return ""
        if part.endswith(".service"):
            return part
        if not is_users or part.startswith("run-"):  # systemd-run --scope; others in a user's slice are terminals and sessions
            return part
    return ""


def own_group(path: str, marker: str) -> str:
    """Return the path of the job's own group: up to the part that names it; "" where this hierarchy has none for it."""
    if not marker:
        return path
    parts = path.split("/")
    for position, part in enumerate(parts):
        if marker in part:
            return "/".join(parts[: position + 1])
    return ""
