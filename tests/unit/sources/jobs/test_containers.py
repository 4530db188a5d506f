"""Names of containers and pods from the files of their runtimes, and of users."""

import json
from pathlib import Path

import pytest

from gpuwatch.sources.jobs import containers, owners
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
    tree.write(tree.root / containers.PODMAN, json.dumps(listed))
    assert Named("infer") == found(tree, PODMAN)


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
