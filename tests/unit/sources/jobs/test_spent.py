"""The CPU of a job as one counter, whoever of it is on a GPU and whose memory is larger."""

import pytest

from gpuwatch.catalogue.process import JOB, JOB_CPU, JOB_CPU_ALLOWED, JOB_CPU_THROTTLED
from gpuwatch.model.reading import Absence
from tests.fakes.cgroups import Crowd, docker
from tests.fakes.crowd_view import GIB, holder
from tests.fakes.host import HostTree
from tests.fakes.watched_jobs import ID, Watched, one, told

POD = "5f0c2a7e_9d1b_4c53_8a4e_0123456789ab"


def sibling(letter: str) -> str:
    """Return the group of a container of a pod as containerd makes it with `cgroupfs` where kubelet has `systemd`."""
    return f"/system.slice/containerd.service/kubepods-burstable-pod{POD}.slice:cri-containerd:{letter * 64}"


class Pod:
    """A pod whose containers have groups side by side: a trainer with one, and a sidecar."""

    def __init__(self, tree: HostTree, crowd: Crowd) -> None:
        self.crowd = crowd
        crowd.run(4711, group=sibling("a"), cpus="0-7")
        crowd.run(4712, group=sibling("b"), cpus="0-7")
        self.watched = Watched(tree)

    def used(self, **seconds: float) -> "Pod":
        """Say what the containers have used by now."""
        for letter, used in seconds.items():
            self.crowd.limit(sibling(letter), quota=2, used=used, throttled=used / 10)
        return self

    def told(self, **memory: int) -> tuple[float, float, float]:
        """Return CPU, throttling and allowed cores with these on a GPU, `a` and `b`, with so much memory."""
        pids = {"a": 4711, "b": 4712}
        self.watched.board = [holder(pids[name], memory=size * GIB) for name, size in memory.items()]
        values = one(told(self.watched.ask(), JOB)).values
        return values[JOB_CPU], values[JOB_CPU_THROTTLED], values[JOB_CPU_ALLOWED]


def test_a_job_in_several_groups_has_the_same_cpu_whoever_has_most_memory(tree: HostTree, crowd: Crowd) -> None:
    pod = Pod(tree, crowd).used(a=9000, b=10)
    assert [pod.told(a=2, b=1), pod.told(a=1, b=2), pod.told(b=2, a=1)] == [(9010, 901, 4)] * 3


def test_a_container_that_leaves_the_gpu_and_one_that_ends_take_nothing_from_the_cpu_of_its_pod(
    tree: HostTree, crowd: Crowd
) -> None:
    pod = Pod(tree, crowd).used(a=9000, b=10)
    assert pod.told(a=1)[0] == 9010  # the same before and after the other one comes to a GPU
    assert pod.told(a=1, b=1)[0] == 9010
    assert pod.used(a=9001).told(b=1)[0] == 9011
    for file in crowd.folder(sibling("a")).iterdir():
        file.unlink()
    crowd.folder(sibling("a")).rmdir()
    assert pod.used(b=12).told(b=1)[:2] == pytest.approx((9013, 901.3))
    assert pod.used(b=13).told(b=1)[0] == 9014


def test_a_group_that_another_user_has_named_alike_adds_nothing_to_a_container(tree: HostTree, crowd: Crowd) -> None:
    own = f"/user.slice/user-1002.slice/user@1002.service/app.slice/docker-{ID}.scope"
    crowd.run(4711, uid=0, group=docker(ID, "systemd"))
    crowd.run(4712, uid=1002, group=own)
    crowd.limit(docker(ID, "systemd"), used=100)
    crowd.limit(own, used=9000)
    watched = Watched(tree)
    found = []
    for larger in (4711, 4712):
        watched.board = [holder(pid, memory=GIB * (1 + (pid == larger))) for pid in (4711, 4712)]
        found.append({job.target.key: job.values[JOB_CPU] for job in told(watched.ask(), JOB)})
    assert found == [{f"docker/{ID[:12]}": 100.0, f"docker/uid=1002/{ID[:12]}": 9000.0}] * 2


def test_a_unit_that_starts_again_begins_with_its_group(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group="/system.slice/train.service")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    found = []
    for used in (9000, 0.5, 2):
        crowd.limit("/system.slice/train.service", used=used)
        found.append(one(told(watched.ask(), JOB)).values[JOB_CPU])
    assert found == [9000, 0.5, 2]


def test_a_group_that_begins_again_takes_nothing_from_a_sum(tree: HostTree, crowd: Crowd) -> None:
    pod = Pod(tree, crowd).used(a=100, b=10)
    assert [pod.told(a=1, b=1)[0], pod.used(a=1).told(a=1, b=1)[0]] == [110, 111]


def test_a_group_that_cannot_be_read_for_once_costs_the_sum_nothing(tree: HostTree, crowd: Crowd) -> None:
    pod = Pod(tree, crowd).used(a=100, b=10)
    assert pod.told(a=1, b=1)[0] == 110
    crowd.host.write(crowd.folder(sibling("b")) / "cpu.stat", "garbage\n")
    assert pod.used(a=101).told(a=1, b=1)[0] == 111
    assert pod.used(b=20).told(a=1, b=1)[0] == 121
    for letter in "ab":
        crowd.host.write(crowd.folder(sibling(letter)) / "cpu.stat", "garbage\n")
    assert Absence.FAILED is one(told(pod.watched.ask(), JOB)).absent[JOB_CPU]
    assert pod.used(a=102, b=21).told(a=1, b=1)[0] == 123
