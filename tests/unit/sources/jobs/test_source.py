"""The processes on GPUs with owner, command, job and loaders, on fake hosts."""

import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from gpuwatch.catalogue import process as catalogue
from gpuwatch.catalogue.own import OWN, QUEUE, QUEUE_DROPPED
from gpuwatch.catalogue.process import JOB, PROCESS, PROCESS_GPU, PROCESSES_DROPPED
from gpuwatch.config import Privacy, Processes
from gpuwatch.model.reading import Absence, Tier
from gpuwatch.sources.jobs.tree import BELOW
from tests.fakes.cgroups import Crowd, docker, pod, session, slurm
from tests.fakes.crowd_view import GIB, holder, uuid
from tests.fakes.host import HostTree
from tests.fakes.watched_jobs import ID, SECRET, Watched, name_container, one, over, told

UID = "5f0c2a7e-9d1b-4c53-8a4e-0123456789ab"


def test_a_process_has_its_owner_command_job_and_gpu(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, "python", uid=1001, group=docker(ID, "systemd"), cpu=12.5, resident=GIB)
    name_container(tree)
    watched = Watched(tree)
    watched.board = [holder(4711, 3, memory=2 * GIB, at=77.0)]
    answers = watched.ask()
    held = one(told(answers, PROCESS_GPU))
    names = {"pid": "4711", "start": "1700000010", "command": "python", "job": "aoi-infer-2", "role": "gpu"}
    assert {**names, "gpu": "3", "uuid": uuid(3)} == held.target.labels
    facts = {"user": "ann", "uid": "1001", "scheduler": "docker", "container": "aoi-infer-2", "name": "aoi-infer-2"}
    assert {"kinds": "compute", "key": f"docker/{ID[:12]}", "users": "ann", **facts} == held.target.info
    assert (held.at, held.values) == (77.0, {catalogue.PROCESS_GPU_MEMORY: 2.0 * GIB, catalogue.PROCESS_GPU_UTILIZATION: 0.5})
    own = one(told(answers, PROCESS))
    assert {**names, "gpu": "3", "uuid": uuid(3)} == own.target.labels
    assert (12.5, float(GIB), 0.0) == tuple(
        own.values[metric] for metric in (catalogue.PROCESS_CPU, catalogue.PROCESS_RESIDENT, catalogue.PROCESS_BLOCKED)
    )
    assert one(told(answers, JOB)).target.labels == {"scheduler": "docker", "job": "aoi-infer-2"}


def test_a_container_without_a_readable_name_is_known_by_its_short_id_and_why(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group=docker(ID, "systemd"))
    watched = Watched(tree)
    watched.board = [holder(4711)]
    info = one(told(watched.ask(), PROCESS_GPU)).target.info
    assert (ID[:12], "no state file of a runtime names it") == (info["container"], info["why"])


@pytest.mark.parametrize(
    ("version", "group", "scheduler", "name"),
    [
        ("v1", docker(ID, "cgroupfs"), "docker", ID[:12]),
        ("hybrid", docker(ID, "systemd"), "docker", ID[:12]),
        ("v1", pod(UID, ID, driver="cgroupfs"), "kubernetes", UID),
        ("v2", pod(UID, ID, driver="systemd", runtime="crio"), "kubernetes", UID),
        ("v1", slurm(88213, "v1"), "slurm", "88213"),
        ("v2", slurm(88213, "v2"), "slurm", "88213"),
        ("v2", "/system.slice/train.service", "systemd", "train.service"),
        ("v2", session(1001), "session", "python-4711"),
    ],
)
def test_every_kind_of_job_is_told(tree: HostTree, version: str, group: str, scheduler: str, name: str) -> None:
    crowd = Crowd(tree, version)
    crowd.run(4000, "bash", group=group)
    crowd.run(4711, parent=4000, group=group)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert {"scheduler": scheduler, "job": name} == one(told(watched.ask(), JOB)).target.labels


def test_a_process_on_two_gpus_is_one_process_and_holds_both(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    watched = Watched(tree)
    watched.board = [holder(4711, 0), holder(4711, 1)]
    answers = watched.ask()
    assert [held.target.labels["gpu"] for held in told(answers, PROCESS_GPU)] == ["0", "1"]
    assert "gpu" not in one(told(answers, PROCESS)).target.labels


def test_loaders_are_those_below_and_beside_without_a_gpu(tree: HostTree, crowd: Crowd) -> None:
    group = slurm(7, "v2")
    crowd.run(100, "slurmstepd", group=group, uid=0)
    crowd.run(200, "torchrun", parent=100, group=group)
    for rank, pid in enumerate((300, 310)):
        crowd.run(pid, "python", parent=200, group=group)
        crowd.run(pid + 1, f"pt_data_worker{rank}", parent=pid, group=group)
    crowd.run(400, "feeder", parent=200, group=group)
    crowd.run(401, "decoder", parent=400, group=group)
    crowd.run(500, "other", parent=100, group=group)  # under a launcher: it has nothing to do with it
    watched = Watched(tree)
    watched.board = [holder(300, 0), holder(310, 1)]
    roles = {reading.target.labels["pid"]: reading.target.labels["role"] for reading in told(watched.ask(), PROCESS)}
    assert roles == {"300": "gpu", "310": "gpu", "301": "loader", "311": "loader", "400": "loader", "401": "loader"}


def test_loaders_of_another_thread_are_found_in_the_round_after_a_slow_one(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, threads=[4720])
    crowd.run(4800, "pt_data_worker", parent=4711)
    tree.write(tree.proc / "4711/task/4711/children", "")
    tree.write(tree.proc / "4711/task/4720/children", "4800 ")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert len(told(watched.ask(), PROCESS)) == 2
    assert len(told(watched.ask(Tier.NORMAL, Tier.SLOW, Tier.NORMAL, Tier.FAST), PROCESS)[-2:]) == 2


def test_a_kernel_that_lists_no_children_is_asked_for_everybody_s_parent(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    crowd.run(4800, "pt_data_worker", parent=4711)
    for listing in tree.proc.glob("*/task/*/children"):
        listing.unlink()
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert sorted(reading.target.labels["pid"] for reading in told(watched.ask(), PROCESS)) == ["4711", "4800"]


def test_a_fork_bomb_is_looked_at_in_part_and_counted(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    crowd.run(4800, parent=4711)
    tree.write(tree.proc / "4711/task/4711/children", " ".join(str(pid) for pid in range(4800, 34800)))
    watched = Watched(tree)
    watched.board = [holder(4711)]
    answers = watched.ask()
    assert len(told(answers, PROCESS)) <= 1 + BELOW
    dropped = one(reading for reading in answers.readings if reading.target.subject is OWN)
    assert dropped.values[PROCESSES_DROPPED] > 1000


def test_only_so_many_processes_are_told_those_with_the_most_memory(tree: HostTree, crowd: Crowd) -> None:
    for pid in range(100, 120):
        crowd.run(pid)
    watched = Watched(tree, msgspec.structs.replace(tree.config, processes=Processes(limit=4)))
    watched.board = [holder(pid, memory=pid * GIB) for pid in range(100, 120)]
    answers = watched.ask()
    assert {"116", "117", "118", "119"} == {reading.target.labels["pid"] for reading in told(answers, PROCESS_GPU)}
    assert one(reading for reading in answers.readings if reading.target.subject is OWN).values[PROCESSES_DROPPED] == 16.0


def test_only_so_many_loaders_are_followed_and_the_others_counted(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    for pid in range(4800, 4810):
        crowd.run(pid, "pt_data_worker", parent=4711)
    watched = Watched(tree, msgspec.structs.replace(tree.config, processes=Processes(limit=1)))
    watched.board = [holder(4711)]
    answers = watched.ask()
    assert sorted(reading.target.labels["role"] for reading in told(answers, PROCESS)) == ["gpu"] + ["loader"] * 4
    assert one(reading for reading in answers.readings if reading.target.subject is OWN).values[PROCESSES_DROPPED] == 6.0


@pytest.mark.parametrize("launcher", ["bash", "tmux: server", "jupyter-lab", "containerd-shim"])
def test_what_runs_beside_a_gpu_process_under_a_launcher_is_no_loader(tree: HostTree, crowd: Crowd, launcher: str) -> None:
    crowd.run(4000, launcher, group=session(1001))
    crowd.run(4711, parent=4000, group=session(1001))
    crowd.run(4712, "vim", parent=4000, group=session(1001))
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert [reading.target.labels["pid"] for reading in told(watched.ask(), PROCESS)] == ["4711"]


def test_what_runs_beside_a_gpu_process_for_another_job_is_no_loader(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4000, "supervise", group="/system.slice/lab.service")
    crowd.run(4711, parent=4000, group=docker(ID, "systemd"))
    crowd.run(4712, "web", parent=4000, group="/system.slice/lab.service")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert [reading.target.labels["pid"] for reading in told(watched.ask(), PROCESS)] == ["4711"]


def test_a_process_that_ended_is_over_at_the_next_look(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    before = watched.ask()
    crowd.end(4711)
    assert [one(told(before, PROCESS)).target] == over(watched.ask(Tier.FAST), PROCESS)
    watched.board = []
    after = watched.ask()
    assert [one(told(before, PROCESS_GPU)).target] == over(after, PROCESS_GPU)
    assert [one(told(before, JOB)).target] == over(after, JOB)
    assert not [target for subject in (PROCESS, PROCESS_GPU, JOB) for target in over(watched.ask(), subject)]


def test_a_number_that_is_another_process_by_now_is_not_taken_for_the_first(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, "python", began=1000)
    watched = Watched(tree)
    watched.board = [holder(4711, ticks=1000)]
    before = one(told(watched.ask(), PROCESS)).target
    crowd.run(4711, "cc1plus", uid=1002, began=9000)
    fast = watched.ask(Tier.FAST)
    assert ([], [before]) == (told(fast, PROCESS), over(fast, PROCESS))
    held = one(told(watched.ask(), PROCESS_GPU))
    assert (held.target.labels["command"], held.target.labels["job"]) == ("", "")
    assert "user" not in held.target.info


def test_what_cannot_be_seen_from_here_is_listed_by_its_number_and_has_no_owner(tree: HostTree, crowd: Crowd) -> None:
    watched = Watched(tree)
    watched.board = [holder(10734, ticks=None, memory=160 << 20)]
    answers = watched.ask()
    held = one(told(answers, PROCESS_GPU))
    assert (
        *(held.target.labels[name] for name in ("pid", "start", "command")),
        held.target.info["unseen"],
    ) == ("10734", "", "", "namespace")
    assert told(answers, PROCESS) + told(answers, JOB) == []


def test_a_process_that_ends_while_it_is_read_costs_only_itself(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    crowd.run(4712)
    watched = Watched(tree)
    watched.board = [holder(4711), holder(4712)]
    for name in ("cgroup", "status", "task/4711/children"):
        (tree.proc / "4711" / name).unlink()
    found = {reading.target.labels["pid"]: reading.target.labels["command"] for reading in told(watched.ask(), PROCESS_GPU)}
    assert found == {"4711": "python", "4712": "python"}


@pytest.mark.parametrize("content", ["", "4711 (py", "4711 (python) S 1", f"4711 (python) S {'x ' * 50}"])
def test_a_stat_file_that_makes_no_sense_is_no_process(tree: HostTree, crowd: Crowd, content: str) -> None:
    crowd.run(4711)
    tree.write(tree.proc / "4711/stat", content)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert told(watched.ask(), PROCESS) == []


def test_waiting_for_disks_is_told_only_where_the_kernel_counts_it(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, io_wait=3.5)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert one(told(watched.ask(), PROCESS)).values[catalogue.PROCESS_IO_WAIT] == 3.5  # before 5.14 it always does
    tree.write(tree.proc / "sys/kernel/task_delayacct", "0\n")
    watched.ask()
    assert Absence.UNSUPPORTED is one(told(watched.ask(Tier.FAST), PROCESS)).absent[catalogue.PROCESS_IO_WAIT]


def test_a_process_in_uninterruptible_sleep_is_blocked(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, state="D")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert one(told(watched.ask(), PROCESS)).values[catalogue.PROCESS_BLOCKED] == 1.0


@pytest.mark.parametrize(
    ("quota", "cpuset", "affinity", "online", "expected"),
    [
        (None, "", "", 32, 32),
        (4, "", "", 32, 4),
        (8, "0-3", "", 32, 4),
        (None, "0-7", "4-11", 32, 4),
        (2.5, "0-7", "0-7", 32, 2.5),
        (None, "", "0-127", 16, 16),  # a kernel that is ready for more cores than there are
    ],
)
def test_the_cores_that_a_job_may_use(
    tree: HostTree, *, quota: float | None, cpuset: str, affinity: str, online: int, expected: float
) -> None:
    crowd = Crowd(tree, "v2", cores=online)
    crowd.run(4711, group=docker(ID, "systemd"), cpus=affinity)
    crowd.limit(docker(ID, "systemd"), quota=quota, cpus=cpuset, used=12.5, throttled=1.5)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    values = one(told(watched.ask(), JOB)).values
    assert (expected, 12.5, 1.5) == tuple(
        values[metric] for metric in (catalogue.JOB_CPU_ALLOWED, catalogue.JOB_CPU, catalogue.JOB_CPU_THROTTLED)
    )


def test_a_session_has_no_cpu_of_its_own(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group=session(1001), cpus="0-3")
    crowd.limit(session(1001), used=99)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    job = one(told(watched.ask(), JOB))
    assert (job.values, job.absent[catalogue.JOB_CPU]) == ({catalogue.JOB_CPU_ALLOWED: 4.0}, Absence.UNSUPPORTED)


@pytest.mark.parametrize(("how", "user"), [("name", "ann"), ("uid", "1001"), ("off", None)])
def test_people_are_told_as_the_configuration_says(tree: HostTree, crowd: Crowd, how: str, user: str | None) -> None:
    crowd.run(4711, uid=1001)
    config = msgspec.structs.replace(tree.config, privacy=msgspec.convert({"users": how}, Privacy))
    watched = Watched(tree, config)
    watched.board = [holder(4711)]
    info = one(told(watched.ask(), PROCESS_GPU)).target.info
    assert (user, None if user is None else "1001") == (info.get("user"), info.get("uid"))


def test_no_argument_and_no_environment_is_read(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, group=docker(ID, "systemd"), argv=["python", "train.py", f"--token={SECRET}"])
    name_container(tree)
    for name in ("cmdline", "environ"):  # a read of either would hang, as that of a stuck process may
        (tree.proc / "4711" / name).unlink()
        os.mkfifo(tree.proc / "4711" / name)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    answers = watched.ask(Tier.NORMAL, Tier.SLOW, Tier.NORMAL, Tier.FAST)
    assert told(answers, PROCESS)
    assert SECRET not in repr(answers.readings)


def test_a_command_is_safe_to_print(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711, "a)\x1b[31m (")
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert one(told(watched.ask(), PROCESS)).target.labels["command"] == "a)\\x1b[31m ("


def test_a_host_without_anybody_on_its_gpus_is_no_error(tmp_path: Path) -> None:
    watched = Watched(HostTree(tmp_path))
    assert [reading.target.subject for reading in watched.ask(*Tier).readings] == [OWN, QUEUE, QUEUE]


def test_names_that_were_not_looked_up_for_want_of_room_are_counted(tree: HostTree, crowd: Crowd) -> None:
    watched = Watched(tree)
    counts = {reading.target.labels["queue"]: reading.values for reading in told(watched.ask(), QUEUE)}
    assert counts == {"user names": {QUEUE_DROPPED: 0.0}, "container names": {QUEUE_DROPPED: 0.0}}


def test_a_process_on_a_gpu_is_read_every_time_and_each_loader_every_second(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    for pid in range(4800, 4804):
        crowd.run(pid, "pt_data_worker", parent=4711)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    assert len(told(watched.ask(), PROCESS)) == 5  # at once when they are met
    watched.ask()
    rounds = [[reading.target.labels["pid"] for reading in told(watched.ask(Tier.FAST), PROCESS)] for _ in range(4)]
    assert [len(pids) for pids in rounds] == [3, 3, 3, 3]
    assert all("4711" in pids for pids in rounds)
    assert [sorted({*first, *second}) for first, second in pairwise(rounds)] == [["4711", "4800", "4801", "4802", "4803"]] * 3


def test_a_loader_that_forks_later_is_found_out_in_the_round_after_a_slow_one(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    crowd.run(4800, "pt_data_worker", parent=4711)
    watched = Watched(tree)
    watched.board = [holder(4711)]
    watched.ask()
    crowd.run(4810, "decoder", parent=4800)
    crowd.run(4801, "pt_data_worker", parent=4711)
    assert [reading.target.labels["pid"] for reading in told(watched.ask(), PROCESS)] == ["4801"]  # of the process itself at once
    assert [reading.target.labels["pid"] for reading in told(watched.ask(Tier.SLOW, Tier.NORMAL), PROCESS)] == ["4810"]


def test_the_instance_of_a_divided_gpu_is_told(tree: HostTree, crowd: Crowd) -> None:
    crowd.run(4711)
    watched = Watched(tree)
    watched.board = [holder(4711, instance="7")]
    assert one(told(watched.ask(), PROCESS_GPU)).target.info["gi"] == "7"
