"""Names of containers and pods, from the files that their runtimes keep; never through a socket, which is as good as root.

Those files hold arguments and environments as well: nothing but the names is decoded, and nothing else is kept.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuwatch.model.escape import printable
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs import foreign, storage
from gpuwatch.sources.jobs.home import Home

GOOD_FOR = 3600.0  # seconds for which a name holds
UNKNOWN_FOR = 60.0  # seconds until a name that could not be read is tried again
CONTAINERD = "run/containerd/io.containerd.runtime.v2.task"
CRI = (f"{CONTAINERD}/k8s.io", "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io")
CRIO = "run/containers/storage/overlay-containers"
POD_LOGS = "var/log/pods"  # NAMESPACE_NAME_UID a pod (kubelet)
# Annotations that say name, pod and namespace: of containerd's CRI plugin, of CRI-O, of nerdctl
ANNOTATIONS = (
    ("io.kubernetes.cri.container-name", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace"),
    ("io.kubernetes.container.name", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"),
    ("nerdctl/name", "", "nerdctl/namespace"),
)


class Docker(msgspec.Struct, rename="pascal"):
    """config.v2.json."""

    name: str = ""


class Oci(msgspec.Struct):
    """config.json of an OCI bundle."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Podman(msgspec.Struct):
    """One container in podman's list."""

    id: str = ""
    names: list[str] = msgspec.field(default_factory=list)


class Named(msgspec.Struct, frozen=True):
    """What a container is called. `why` says in words why `name` is "" (and nothing else is known)."""

    name: str = ""
    pod: str = ""
    namespace: str = ""
    why: str = ""


def find(root: Path, home: Home) -> tuple[Named, float]:
    """Return the name of a home's container or pod, and for how long that holds.

    Of a user's own runtime only his own files are asked: what he calls his group must not give him another's name.
    """
    problems: list[str] = []
    for ask in (docker, podman) if home.uid else (docker, oci, podman, pod):
        try:
            found = ask(root, home)
        except PermissionError:
            whose = f" of user {home.uid}" if home.uid else ""
            problems.append(f"no permission for the runtime's state files{whose}")
        except OSError:
            continue
        else:
            if found is not None:
                return found, GOOD_FOR
    return Named(why=problems[0] if problems else "no state file of a runtime names it"), UNKNOWN_FOR


def docker(root: Path, home: Home) -> Named | None:
    """Ask Docker's own files."""
    denied = False
    for place in storage.docker(root, home.uid):
        try:
            found = foreign.document(place / "containers" / home.container / "config.v2.json", home.uid, Docker)
        except PermissionError:
            denied = True
        except OSError:
            continue
        else:
            if found.name:
                return Named(printable(found.name.lstrip("/")))
    if denied:
        raise PermissionError
    return None


def oci(root: Path, home: Home) -> Named | None:
    """Ask the bundle that the runtime was started with: containerd (Kubernetes, nerdctl), CRI-O."""
    denied = False
    for folder in bundles(root, home.container):
        try:
            annotations = foreign.document(folder / "config.json", home.uid, Oci).annotations
        except PermissionError:
            denied = True
        except OSError:
            continue
        else:
            for keys in ANNOTATIONS:
                name, of_pod, namespace = (printable(annotations.get(key, "")) for key in keys)
                if name or of_pod:
                    return Named(name, of_pod, namespace)
    if denied:
        raise PermissionError
    return None


def bundles(root: Path, container: str) -> Iterator[Path]:
    """Yield where the bundle of a container may be."""
    for place in CRI:
        yield root / place / container
    for namespace in sysfs.entries(root / CONTAINERD)[:32]:
        if namespace not in ("k8s.io", "moby"):
            yield root / CONTAINERD / namespace / container
    yield root / CRIO / container / "userdata"


def podman(root: Path, home: Home) -> Named | None:
    """Ask podman's lists."""
    if home.scheduler not in ("podman", "container"):
        return None
    denied = False
    for file in storage.podman(root, home.uid):
        try:
            listed = foreign.document(file, home.uid, list[Podman])
        except PermissionError:
            denied = True
        except OSError:
            continue
        else:
            names = next((one.names for one in listed if one.id == home.container), [])
            if names:
                return Named(printable(names[0]))
    if denied:
        raise PermissionError
    return None


def pod(root: Path, home: Home) -> Named | None:
    """Ask the names of the folders in which kubelet keeps the logs: everybody may read them."""
    if not home.pod:
        return None
    for name in sysfs.names(root / POD_LOGS):
        parts = name.split("_")
        if len(parts) == 3 and parts[2] == home.pod:
            return Named(pod=printable(parts[1]), namespace=printable(parts[0]))
    return None
