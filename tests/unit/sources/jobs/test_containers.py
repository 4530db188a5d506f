"""Names of containers and pods from the files of their runtimes, and of users."""

import json
import os
from pathlib import Path

import pytest

from gpuwatch.sources.jobs import containers, owners, storage
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.home import Home
from tests.fakes.host import HostTree

ID = "0123456789abcdef" * 4
UID = "5f0c2a7e-9d1b-4c53-8a4e-0123456789ab"
DOCKER = Home("docker", ID[:12], ID, marker=ID)
POD = Home("kubernetes", UID, ID, UID, marker=UID)
PODMAN = Home("podman", ID[:12], ID, marker=ID)
SECRET = "hunter2-token"


def found(tree: HostTree, home: Home) -> Named:
    """Return what a home is called on this host."""
    return containers.find(tree.root, home)[0]


def docker(tree: HostTree, folder: str = "var/lib/docker") -> Path:
    """Write what Docker keeps of a container, a secret in its environment."""
    state = {"ID": ID, "Name": "/aoi-infer-2", "Args": [SECRET], "Config": {"Env": [f"TOKEN={SECRET}"], "Image": "aoi:7"}}
    return tree.write(tree.root / folder / "containers" / ID / "config.v2.json", json.dumps(state))


def bundle(tree: HostTree, folder: str, **annotations: str) -> Path:
    """Write what a runtime was started with."""
    state = {
        "process": {"args": [SECRET], "env": [SECRET]},
        "annotations": {name.replace("__", "/"): text for name, text in annotations.items()},
    }
    return tree.write(tree.root / folder / "config.json", json.dumps(state))


@pytest.mark.parametrize("folder", ["var/lib/docker", "var/snap/docker/common/var-lib-docker"])
def test_docker_s_own_file_names_a_container_and_nothing_else_of_it_is_kept(tree: HostTree, folder: str) -> None:
    docker(tree, folder)
    assert Named("aoi-infer-2") == found(tree, DOCKER)


def test_docker_s_files_are_found_where_its_configuration_puts_them(tree: HostTree) -> None:
    docker(tree, "data/docker")
    assert found(tree, DOCKER).name == ""
    tree.write(tree.root / "etc/docker/daemon.json", '{"data-root": "/data/docker", "runtimes": {"nvidia": {"path": "x"}}}')
    assert found(tree, DOCKER).name == "aoi-infer-2"


@pytest.mark.parametrize("place", ["run/containerd", "run/k3s/containerd"])
def test_containerd_names_pod_and_container(tree: HostTree, place: str) -> None:
    keys = {
        "io.kubernetes.cri.container-name": "infer",
        "io.kubernetes.cri.sandbox-name": "aoi-7f",
        "io.kubernetes.cri.sandbox-namespace": "lab",
    }
    bundle(tree, f"{place}/io.containerd.runtime.v2.task/k8s.io/{ID}", **keys)
    assert Named("infer", "aoi-7f", "lab") == found(tree, POD)


def test_cri_o_names_pod_and_container(tree: HostTree) -> None:
    keys = {"io.kubernetes.container.name": "infer", "io.kubernetes.pod.name": "aoi-7f", "io.kubernetes.pod.namespace": "lab"}
    bundle(tree, f"run/containers/storage/overlay-containers/{ID}/userdata", **keys)
    assert Named("infer", "aoi-7f", "lab") == found(tree, POD)


def test_nerdctl_names_its_container(tree: HostTree) -> None:
    bundle(
        tree, f"run/containerd/io.containerd.runtime.v2.task/default/{ID}", nerdctl__name="infer", nerdctl__namespace="default"
    )
    assert found(tree, Home("containerd", ID[:12], ID, marker=ID)).name == "infer"


def test_podman_names_its_container(tree: HostTree) -> None:
    listed = [{"id": "f" * 64, "names": ["other"]}, {"id": ID, "names": ["infer"], "metadata": SECRET}]
    tree.write(tree.root / storage.PODMAN / "overlay-containers/containers.json", json.dumps(listed))
    assert Named("infer") == found(tree, PODMAN)


ANN = "home/ann"
OF_ANN = {
    "podman": Home("podman", ID[:12], ID, marker=ID, uid="1001"),
    "docker": Home("docker", ID[:12], ID, marker=ID, uid="1001"),
}


@pytest.fixture
def ann(tree: HostTree) -> HostTree:
    """A host with a user."""
    tree.write(tree.root / "etc/passwd", "root:x:0:0::/root:/bin/sh\nann:x:1001:1001:Ann:/home/ann:/bin/sh\n")
    (tree.root / ANN).mkdir(parents=True)
    return tree


def listed(tree: HostTree, file: str, name: str = "infer") -> Path:
    """Write a list of podman's with this container."""
    return tree.write(tree.root / file, json.dumps([{"id": ID, "names": [name], "metadata": SECRET}]))


@pytest.mark.parametrize("name", ["overlay-containers/containers.json", "vfs-containers/volatile-containers.json"])
def test_a_podman_without_root_is_asked_in_its_user_s_home(ann: HostTree, name: str) -> None:
    listed(ann, f"{ANN}/{storage.PODMAN_HOME}/{name}")
    assert Named("infer") == found(ann, OF_ANN["podman"])


def test_a_podman_that_removes_its_containers_keeps_them_in_another_list(tree: HostTree) -> None:
    listed(tree, f"{storage.PODMAN}/overlay-containers/volatile-containers.json")
    assert Named("infer") == found(tree, PODMAN)


@pytest.mark.parametrize(
    ("conf", "line", "store"),
    [
        (f"{ANN}/.config/containers/storage.conf", 'graphroot = "/data/ann/podman"', "data/ann/podman"),
        ("etc/containers/storage.conf", 'rootless_storage_path = "/data/$USER-$UID"', "data/ann-1001"),
        ("etc/containers/storage.conf", 'rootless_storage_path = "$HOME/store"', f"{ANN}/store"),
    ],
)
def test_a_podman_without_root_is_found_where_its_configuration_puts_it(ann: HostTree, conf: str, line: str, store: str) -> None:
    listed(ann, f"{store}/overlay-containers/containers.json")
    assert found(ann, OF_ANN["podman"]).name == ""
    ann.write(ann.root / conf, f"[storage]\ndriver = 'overlay'\n{line}\n")
    assert found(ann, OF_ANN["podman"]).name == "infer"


def test_a_docker_without_root_is_asked_in_its_user_s_home_and_where_he_put_it(ann: HostTree) -> None:
    docker(ann, f"{ANN}/{storage.DOCKER_HOME}")
    assert Named("aoi-infer-2") == found(ann, OF_ANN["docker"])
    docker(ann, "data/docker").write_text('{"Name": "/other"}')
    ann.write(ann.root / ANN / ".config/docker/daemon.json", '{"data-root": "/data/docker"}')
    assert Named("other") == found(ann, OF_ANN["docker"])


def test_a_group_below_a_user_s_own_slice_is_never_named_by_root_s_files(ann: HostTree) -> None:
    docker(ann)
    listed(ann, f"{storage.PODMAN}/overlay-containers/containers.json")
    for home in OF_ANN.values():
        assert Named(why="no state file of a runtime names it") == found(ann, home)


def test_a_user_whose_home_is_not_known_has_containers_without_a_name(tree: HostTree) -> None:
    assert [found(tree, home).why for home in OF_ANN.values()] == ["no state file of a runtime names it"] * 2


@pytest.mark.parametrize("content", ["", "x = [", "[storage]\ngraphroot = 7\n", "storage = 1\n", '[storage]\ngraphroot = ""\n'])
def test_a_configuration_that_makes_no_sense_leaves_the_usual_place(ann: HostTree, content: str) -> None:
    listed(ann, f"{ANN}/{storage.PODMAN_HOME}/overlay-containers/containers.json")
    ann.write(ann.root / ANN / ".config/containers/storage.conf", content)
    assert Named("infer") == found(ann, OF_ANN["podman"])


def test_a_home_that_may_not_be_entered_is_the_reason(ann: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0) -> int:
        if "/home/ann/" in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr("os.open", refuse)  # root reads everything: the edge is the system call
    for home in OF_ANN.values():
        assert found(ann, home).why == "no permission for the runtime's state files of user 1001"


def test_the_folders_of_a_pod_s_logs_name_the_pod(tree: HostTree) -> None:
    (tree.root / "var/log/pods/lab_aoi-7f_0000").mkdir(parents=True)
    (tree.root / f"var/log/pods/lab_aoi-8a_{UID}").mkdir()
    assert Named(pod="aoi-8a", namespace="lab") == found(tree, POD)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"Name": 7}', "\xff", '{"Name": ""}', '{"Name": null}'])
def test_a_file_that_makes_no_sense_is_no_name(tree: HostTree, content: str) -> None:
    docker(tree).write_text(content, encoding="latin-1")
    assert Named(why="no state file of a runtime names it") == found(tree, DOCKER)


def test_a_file_without_end_is_no_name(tree: HostTree) -> None:
    docker(tree).write_text('{"Name": "/x", "Args": "' + "y" * (2 << 20) + '"}')
    assert found(tree, DOCKER).name == ""


def test_a_file_that_may_not_be_read_is_the_reason(tree: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, flags: int, mode: int = 0) -> int:
        raise PermissionError(13, "Permission denied")

    docker(tree)
    monkeypatch.setattr("os.open", refuse)  # root reads everything: the edge is the system call
    assert found(tree, DOCKER).why == "no permission for the runtime's state files"


def test_a_name_is_safe_to_print(tree: HostTree) -> None:
    docker(tree).write_text('{"Name": "/a\\u001b[31m\\nb"}')
    assert found(tree, DOCKER).name == r"a\x1b[31m\nb"


def test_users_are_named_by_the_passwd_file_of_the_host(tree: HostTree) -> None:
    tree.write(tree.root / "etc/passwd", "root:x:0:0::/root:/bin/sh\n+nis\nann:x:1001:1001:Ann:/home/ann:/bin/sh\nbad\n")
    assert [owners.find(tree.root, uid) for uid in (0, 1001)] == [("root", owners.GOOD_FOR), ("ann", owners.GOOD_FOR)]
    assert owners.find(tree.root, 4242) == ("4242", owners.UNKNOWN_FOR)


def test_the_name_service_is_asked_for_the_system_that_we_run_in_alone() -> None:
    assert owners.find(Path("/"), 0)[0] == "root"
    assert owners.find(Path("/"), 4000000001)[0] == "4000000001"
