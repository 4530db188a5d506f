"""Whose work a process is, from its control groups in every layout of the field."""

import pytest

from gpuwatch.sources.jobs.home import Home, groups, home, own_group
from tests.fakes.cgroups import Crowd, docker, pod, podman, session, slurm
from tests.fakes.host import HostTree

ID = "0123456789abcdef" * 4
UID = "5f0c2a7e-9d1b-4c53-8a4e-0123456789ab"
STATIC = "0123456789abcdef0123456789abcdef"
VERSIONS = ("v1", "v2", "hybrid")


def of(tree: HostTree, version: str, group: str) -> Home:
    """Return the home of a process in this group on a host with this version."""
    crowd = Crowd(tree, version)
    crowd.run(4711, group=group)
    return home(groups((tree.proc / "4711/cgroup").read_text()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_a_docker_container_is_known_by_its_id(tree: HostTree, version: str, driver: str) -> None:
    found = of(tree, version, docker(ID, driver))
    assert ("docker", ID[:12], ID) == (found.scheduler, found.job, found.container)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_a_podman_container_is_known_by_its_id(tree: HostTree, version: str, driver: str) -> None:
    found = of(tree, version, podman(ID, driver))
    assert (found.scheduler, found.container) == ("podman", ID)


ROOTLESS = "/user.slice/user-1001.slice/user@1001.service/user.slice"


@pytest.mark.parametrize(
    ("path", "scheduler", "uid"),
    [
        (f"{ROOTLESS}/libpod-{ID}.scope/container", "podman", "1001"),
        (f"{ROOTLESS}/docker-{ID}.scope", "docker", "1001"),
        (f"/user.slice/user-0.slice/session-1.scope/libpod_parent/libpod-{ID}", "podman", ""),  # root's own podman
        (f"/machine.slice/libpod-{ID}.scope", "podman", ""),
        (f"/system.slice/user.slice/user-1001.slice/docker-{ID}.scope", "docker", ""),  # only from the root
    ],
)
def test_a_container_of_a_runtime_without_root_is_its_user_s(path: str, scheduler: str, uid: str) -> None:
    found = home({"": path})
    assert (scheduler, ID[:12], ID, uid) == (found.scheduler, found.job, found.container, found.uid)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("runtime", ["containerd", "crio"])
@pytest.mark.parametrize("quality", ["burstable", "besteffort"])
def test_a_pod_is_known_by_its_uid_and_container(tree: HostTree, version: str, driver: str, runtime: str, quality: str) -> None:
    found = of(tree, version, pod(UID, ID, driver=driver, runtime=runtime, quality=quality))
    assert (found.scheduler, found.job, found.pod, found.container) == ("kubernetes", UID, UID, ID)


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",  # guaranteed
        f"/kubepods/pod{UID}/{ID}",
        # containerd with `cgroupfs` where kubelet has `systemd`
        f"/system.slice/containerd.service/kubepods-besteffort-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
        f"/docker/{'f' * 64}/kubelet/kubepods/burstable/pod{UID}/{ID}",  # a node that is a container (kind)
        f"/../../kubepods/burstable/pod{UID}/{ID}",  # seen from within a control group namespace
    ],
)
def test_a_pod_is_known_in_the_odd_places_too(path: str) -> None:
    found = home({"": path})
    assert (found.scheduler, found.job, found.container) == ("kubernetes", UID, ID)


def test_a_static_pod_has_a_uid_without_dashes() -> None:
    assert home({"": f"/kubepods/burstable/pod{STATIC}/{ID}"}).pod == STATIC


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("node", ["", "node07"])
def test_a_slurm_job_is_known_by_its_number(tree: HostTree, version: str, node: str) -> None:
    found = of(tree, version, slurm(88213, version, node=node))
    assert (found.scheduler, found.job, found.marker) == ("slurm", "88213", "job_88213")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_service_is_its_unit(tree: HostTree, version: str) -> None:
    found = of(tree, version, "/system.slice/aoi-infer.service")
    assert Home("systemd", "aoi-infer.service", unit="aoi-infer.service", marker="aoi-infer.service") == found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "path",
    [
        session(1001),
        "/system.slice/ssh.service",
        "/system.slice/cron.service",
        "/user.slice/user-1001.slice/user@1001.service/init.scope",
        "/user.slice/user-1001.slice/user@1001.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
        "/",
    ],
)
def test_what_a_person_started_by_hand_belongs_to_no_unit(tree: HostTree, version: str, path: str) -> None:
    assert Home("session") == of(tree, version, path)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/user.slice/user-1001.slice/user@1001.service/app.slice/train.service", "train.service"),
        ("/user.slice/user-1001.slice/user@1001.service/app.slice/run-u12.scope", "run-u12.scope"),
        ("/machine.slice/machine-lab.scope/payload", "machine-lab.scope"),
        ("/system.slice/system-jupyter.slice/jupyter@ann.service", "jupyter@ann.service"),
    ],
)
def test_a_unit_of_a_user_or_of_a_machine_is_a_unit(path: str, unit: str) -> None:
    assert unit == home({"": path}).job


@pytest.mark.parametrize("path", ["/lxc/lab", "/lxc.payload.lab", "/lxc.payload/lab", "/lxc/lab/user.slice/session-1.scope"])
def test_an_lxc_container_is_known_by_its_name(path: str) -> None:
    assert (home({"": path}).scheduler, home({"": path}).job) == ("lxc", "lab")


@pytest.mark.parametrize(
    "path",
    [
        "/user.slice/user-1001.slice/user@1001.service/slurm/uid_1/job_7/step_0",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/kubepods.slice/crio-conmon-{ID}.scope",
        "/docker/buildkit",
        f"/docker/{ID[:63]}",
    ],
)
def test_what_only_looks_like_a_job_is_none(path: str) -> None:
    found = home({"": path})
    assert (found.scheduler, found.container) in {("session", ""), ("systemd", "")}


def test_lines_that_are_none_are_left_out() -> None:
    assert groups("") == {}
    assert groups("garbage\n4:memory:/a:b\n::\n5:cpu\n6:cpu:relative\n") == {"memory": "/a:b"}
    assert groups("0::/x (deleted)\n") == {"": "/x"}


def test_the_group_of_a_job_ends_where_it_is_named() -> None:
    assert own_group("/slurm/uid_1001/job_7/step_0/task_0", "job_7") == "/slurm/uid_1001/job_7"
    assert own_group("/", "job_7") == ""
    assert own_group("/a/b", "") == "/a/b"
