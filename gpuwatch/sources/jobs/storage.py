"""Where Docker and podman keep their containers on this host: root's, and those of users who run them without root.

Their configuration may put it anywhere. A user's is below his home, which only he and root may enter, and which may be a mount
that hangs: who asks has a thread that may be lost (`lookups.py`).
"""

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from gpuwatch import toml
from gpuwatch.sources.jobs import foreign, owners

DOCKER = ("var/lib/docker", "var/snap/docker/common/var-lib-docker")
DOCKER_HOME = ".local/share/docker"
PODMAN = "var/lib/containers/storage"
PODMAN_HOME = ".local/share/containers/storage"
STORAGE = ("etc/containers/storage.conf", "usr/share/containers/storage.conf")
DRIVERS = ("overlay", "vfs", "btrfs", "zfs")  # of podman's storage; without root vfs where the kernel is older than 5.13
LISTS = ("containers.json", "volatile-containers.json")  # the second: of `podman run --rm` (containers/storage)


class Daemon(msgspec.Struct, rename="kebab"):
    """/etc/docker/daemon.json."""

    data_root: str = ""
    graph: str = ""  # what it was called before 17.05


def docker(root: Path, uid: str) -> Iterator[Path]:
    """Yield where Docker may keep its containers; `uid` is "" for root's."""
    home = folder(root, uid)
    if uid and home is None:
        return
    file = root / "etc/docker/daemon.json" if home is None else home / ".config/docker/daemon.json"
    try:
        said = foreign.document(file, uid, Daemon, foreign.SETTINGS)
    except OSError:
        said = Daemon()
    for place in (said.data_root, said.graph, *(DOCKER if home is None else ())):
        if place:
            yield root / place.lstrip("/")
    if home is not None:
        yield home / DOCKER_HOME


def podman(root: Path, uid: str) -> Iterator[Path]:
    """Yield the lists of containers that podman may keep; `uid` is "" for root's."""
    home = folder(root, uid)
    if uid and home is None:
        return
    name = "graphroot" if home is None else "rootless_storage_path"
    stores = [root / place.lstrip("/") for file in STORAGE for place in said_in(root / file, "", (name,), root, uid)]
    if home is not None:
        his = home / ".config/containers/storage.conf"
        stores += [root / place.lstrip("/") for place in said_in(his, uid, ("graphroot", "rootless_storage_path"), root, uid)]
    stores.append(root / PODMAN if home is None else home / PODMAN_HOME)
    for store in dict.fromkeys(stores):
        for driver in DRIVERS:
            for name in LISTS:
                yield store / f"{driver}-containers" / name


def folder(root: Path, uid: str) -> Path | None:
    """Return the home folder of a user, None where it is not known."""
    found = owners.home(root, int(uid)) if uid else ""
    return root / found.lstrip("/") if found.startswith("/") else None


def said_in(file: Path, owner: str, names: Collection[str], root: Path, uid: str) -> Iterator[str]:
    """Yield the paths that a storage.conf gives under these names, with what podman fills in; `owner` is "" for root's file."""
    try:
        table = toml.modest(foreign.raw(file, owner, foreign.SETTINGS)).get("storage", {})
    except (OSError, toml.TableError):
        return
    for name in names:
        place = table.get(name) if isinstance(table, dict) else None
        if isinstance(place, str) and place:
            home = owners.home(root, int(uid)) if uid else "/root"
            user = owners.listed(root, int(uid)) if uid else "root"
            yield place.replace("$HOME", home).replace("$UID", uid or "0").replace("$USER", user)
