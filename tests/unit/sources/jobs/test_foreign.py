"""Files of a runtime that a user has made to do harm: links to devices, keys without end, depth without bottom."""

import json
import os
import time
from pathlib import Path

import pytest

from gpuwatch.sources.jobs import containers, foreign, storage
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.home import Home
from tests.fakes.host import HostTree

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
UID = 1001
PODMAN = Home("podman", ID[:12], ID, marker=ID, uid=str(UID))
DOCKER = Home("docker", OTHER[:12], OTHER, marker=OTHER, uid=str(UID))
CONF = "home/ann/.config/containers/storage.conf"
DAEMON = "home/ann/.config/docker/daemon.json"
LIST = f"home/ann/{storage.PODMAN_HOME}/overlay-containers/containers.json"
STATE = f"home/ann/{storage.DOCKER_HOME}/containers/{OTHER}/config.v2.json"
FILES = {CONF: PODMAN, LIST: PODMAN, DAEMON: DOCKER, STATE: DOCKER}
NAMELESS = (Named(why="no state file of a runtime names it"), containers.UNKNOWN_FOR)
CPU = 2.0  # seconds; what is refused here took the parser ten and more
KEY = ".".join(["a"] * 32)


@pytest.fixture
def ann(tree: HostTree) -> HostTree:
    """A host with a user who has a container of podman and one of Docker."""
    tree.write(tree.root / "etc/passwd", "root:x:0:0::/root:/bin/sh\nann:x:1001:1001:Ann:/home/ann:/bin/sh\n")
    tree.write(tree.root / LIST, json.dumps([{"id": ID, "names": ["infer"]}]))
    tree.write(tree.root / STATE, '{"Name": "/infer"}')
    return tree


def put(tree: HostTree, file: str) -> Path:
    """Return where a file lies, with nothing there."""
    path = tree.root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


@pytest.mark.parametrize(
    "content",
    [
        ".".join(["a"] * 30_000) + "=1",
        "[" + ".".join(["a"] * 1_000) + "]\n" + "".join(f"k{number}=1\n" for number in range(7_000)),
        "x = {" + ".".join(["a"] * 30_000) + "=1}",
        f"[{KEY}]\n" + "".join(f"k{number}.{KEY[:-4]}=1\n" for number in range(700)),
        "a=[\n" + "{" + ",".join(f"k{number}.a.a=1" for number in range(12)) + "},\n" * 2_000,
        "x = " + "[\n" * 30_000,
        "[[a]]\n" * 10_000,
        "#" * (2 << 20),
    ],
    ids=["key", "heading", "inline", "lines", "tables", "deep", "array", "long"],
)
def test_no_configuration_of_a_user_costs_more_than_a_moment(ann: HostTree, content: str) -> None:
    ann.write(ann.root / CONF, content)
    began = time.thread_time()
    assert containers.find(ann.root, PODMAN)[0] == Named("infer")
    assert time.thread_time() - began < CPU


def test_a_configuration_as_distributions_ship_it_is_read(ann: HostTree) -> None:
    words = "# A comment that explains an option. See containers-storage.conf(5), e.g. for overlay.mountopt, and so on.\n"
    put(ann, LIST)
    ann.write(ann.root / "data/overlay-containers/containers.json", json.dumps([{"id": ID, "names": ["infer"]}]))
    ann.write(ann.root / CONF, words * 120 + '[storage]\ngraphroot = "/data"\n[storage.options.overlay]\nmountopt = "nodev"\n')
    assert containers.find(ann.root, PODMAN)[0] == Named("infer")


@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "link to a device", "link to a file", "folder", "link to itself"])
@pytest.mark.parametrize("file", FILES)
def test_only_a_regular_file_is_opened(ann: HostTree, monkeypatch: pytest.MonkeyPatch, file: str, kind: str) -> None:
    elsewhere = ann.root / "elsewhere"
    path = put(ann, file)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        if kind == "link to a fifo":
            os.mkfifo(elsewhere)
        elif kind == "link to a file":
            elsewhere.write_text("secret")
        path.symlink_to({"link to a device": Path("/dev/null"), "link to itself": path}.get(kind, elsewhere))
    real, opened = os.open, list[str]()

    def watched(name: str, flags: int, mode: int = 0) -> int:
        found = real(name, flags, mode)
        if not flags & os.O_PATH and Path(f"/proc/self/fd/{found}").readlink() in {path, elsewhere, Path("/dev/null")}:
            opened.append(str(name))
        return found

    monkeypatch.setattr("os.open", watched)  # the edge: what reaches the system
    named = containers.find(ann.root, FILES[file])
    assert opened == []
    assert named == (NAMELESS if file in {LIST, STATE} else (Named("infer"), containers.GOOD_FOR))


def test_a_file_that_was_put_in_the_place_of_another_meanwhile_is_not_opened(
    ann: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def swapped(name: str, flags: int, mode: int = 0) -> int:
        found = real(name, flags, mode)
        if flags & os.O_PATH and str(name).endswith(LIST):
            put(ann, LIST).symlink_to("/dev/null")
        return found

    monkeypatch.setattr("os.open", swapped)
    assert containers.find(ann.root, PODMAN)[0] == Named("infer")
    assert (ann.root / LIST).is_symlink()


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize(("owner", "name"), [(0, "infer"), (UID, "infer"), (UID + 1, "")])
def test_a_user_s_file_is_his_own_or_root_s(ann: HostTree, owner: int, name: str) -> None:
    os.chown(ann.root / LIST, owner, owner)
    assert containers.find(ann.root, PODMAN)[0].name == name


@pytest.mark.parametrize("content", ["[" * 500_000, '[{"x":' + "[" * 500_000, '{"x":' * 100_000, '[{"names":' + "[" * 900_000])
@pytest.mark.parametrize("file", [LIST, STATE])
def test_json_without_bottom_is_no_name_and_says_why(ann: HostTree, file: str, content: str) -> None:
    (ann.root / file).write_text(content)
    assert containers.find(ann.root, FILES[file]) == NAMELESS


@pytest.mark.parametrize(
    "content", ['{"x":' + "[" * 60_000, '{"data-root": "/a\\u0000b"}', '{"data-root": "/' + "a/" * 9_000 + '"}']
)
def test_a_docker_configuration_that_makes_no_sense_leaves_the_usual_place(ann: HostTree, content: str) -> None:
    ann.write(ann.root / DAEMON, content)
    assert containers.find(ann.root, DOCKER)[0] == Named("infer")


def test_a_state_file_that_is_too_large_is_not_read_by_half(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 101)
    with pytest.raises(OSError, match="larger than any"):
        foreign.raw(tmp_path / "x", str(os.getuid()), 100)
    assert foreign.raw(tmp_path / "x", "", 101) == b"x" * 101
