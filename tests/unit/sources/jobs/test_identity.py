"""Who a process and a job are, and whose: whatever is looked up late, called alike, or set on the clock."""

import json
import re

import pytest

from gpuwatch.catalogue.process import JOB, PROCESS, PROCESS_GPU
from gpuwatch.model.target import Target
from gpuwatch.sources.jobs import containers
from tests.fakes.cgroups import Crowd, docker, session
from tests.fakes.crowd_view import GIB, holder
from tests.fakes.host import HostTree
from tests.fakes.until import until
from tests.fakes.watched_jobs import ID, Watched, name_container, one, over, told


def test_a_job_stays_the_same_while_its_name_is_looked_up_and_when_it_changes(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group=docker(ID, "systemd"))
    watched = Watched(tree)
    watched.board = [holder(4711)]
    found: list[Target] = []
    for name in ("", "aoi-infer-2", "aoi-infer-3"):
        if name:
            name_container(tree, name)
            watched.clock.forward(containers.GOOD_FOR + 1)
            until(lambda name=name: one(told(watched.ask(), JOB)).target.labels["job"] == name)  # type: ignore[misc] # bound
        answers = watched.ask()
        found.append(one(told(answers, JOB)).target)
        assert one(told(answers, PROCESS_GPU)).target.info["key"] == f"docker/{ID[:12]}"
        assert over(answers, JOB) == []
    assert {target.key for target in found} == {f"docker/{ID[:12]}"}
    assert [target.labels["job"] for target in found] == [ID[:12], "aoi-infer-2", "aoi-infer-3"]


def test_a_tree_of_processes_stays_the_same_job_when_its_top_runs_another_program(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, "sh", group=session(1001))
    watched = Watched(tree)
    watched.board = [holder(4711)]
    before = one(told(watched.ask(), JOB)).target
    crowd.run(4711, "python", group=session(1001))
    after = one(told(watched.ask(), JOB)).target
    assert (before, "python-4711") == (after, after.labels["job"])


def test_containers_that_are_called_alike_are_told_apart(tree: HostTree, crowd: Crowd) -> None:
    ids = {"a": "a" * 64, "b": "b" * 64}
    for pid, (namespace, container) in enumerate(ids.items(), 4711):
        crowd.run(pid, group=f"/system.slice/nerdctl-{container}.scope")
        bundle = tree.root / "run/containerd/io.containerd.runtime.v2.task" / namespace / container / "config.json"
        tree.write(bundle, json.dumps({"annotations": {"nerdctl/name": "train"}}))
    watched = Watched(tree)
    watched.board = [holder(4711), holder(4712)]
    assert {reading.target.labels["job"] for reading in told(watched.ask(), JOB)} == {f"train-{'a' * 12}", f"train-{'b' * 12}"}


@pytest.mark.parametrize("group", [docker(ID, "systemd"), "/system.slice/jupyterhub.service"])
@pytest.mark.parametrize("larger", [4711, 4712])
def test_each_process_of_a_job_has_its_own_owner_and_the_job_has_all(
    tree: HostTree, crowd: Crowd, group: str, larger: int
) -> None:
    crowd.run(4711, uid=1001, group=group)
    crowd.run(4712, uid=1002, group=group)
    crowd.run(4713, "pt_data_worker", parent=4712, uid=1001, group=group)
    watched = Watched(tree)
    watched.board = [holder(pid, memory=GIB * (1 + (pid == larger))) for pid in (4711, 4712)]
    answers = watched.ask()
    people = {
        target.labels["pid"]: (target.info["user"], target.info["uid"]) for target in (r.target for r in told(answers, PROCESS))
    }
    assert people == {"4711": ("ann", "1001"), "4712": ("bob", "1002"), "4713": ("ann", "1001")}
    held = {reading.target.labels["pid"]: reading.target.info for reading in told(answers, PROCESS_GPU)}
    assert {pid: (info["user"], info["uid"], info["users"]) for pid, info in held.items()} == {
        "4711": ("ann", "1001", "ann,bob"),
        "4712": ("bob", "1002", "ann,bob"),
    }
    job = one(told(answers, JOB)).target.info
    assert (job["user"], job.get("uid")) == ("ann,bob", None)


def test_of_many_users_of_a_job_three_are_named(tree: HostTree, crowd: Crowd) -> None:
    crowd.users(**{f"u{number}": 1000 + number for number in range(20)})
    for number in range(20):
        crowd.run(4711 + number, uid=1000 + number, group="/system.slice/jupyterhub.service")
    watched = Watched(tree)
    watched.board = [holder(4711 + number) for number in range(20)]
    assert one(told(watched.ask(), JOB)).target.info["user"] == "u0,u1,u10,and 17 more"


def test_a_clock_that_is_set_leaves_every_process_who_it_is(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group=session(1001))
    kinds = (PROCESS, PROCESS_GPU, JOB)
    stat = tree.proc / "stat"
    found = []
    for btime in (1_700_000_000, 1_700_003_600):  # and the daemon is started anew
        tree.write(stat, re.sub("btime [0-9]+", f"btime {btime}", stat.read_text()))
        watched = Watched(tree)
        watched.board = [holder(4711)]
        answers = watched.ask()
        found.append([one(told(answers, kind)).target for kind in kinds])
    assert found[0] == found[1]
    tree.write(tree.proc / "sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    answers = watched.ask()
    assert not {one(told(answers, kind)).target for kind in kinds} & set(found[0])
