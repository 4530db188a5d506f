"""Processes beyond the cap of single ones: whose they are, and what users and jobs have with them."""

import msgspec
import pytest

from gpuwatch.catalogue.gpu import GPU, POWER, UTILIZATION
from gpuwatch.catalogue.process import (
    JOB,
    JOB_GPU,
    JOB_GPU_HELD,
    PROCESS,
    PROCESS_GPU,
    PROCESS_GPU_MEMORY,
    REST,
    REST_MEMORY,
    REST_UTILIZATION,
    USER_GPU,
    USER_GPU_BUSY,
    USER_GPU_HELD,
    USER_GPU_MEMORY,
)
from gpuwatch.config import Processes
from gpuwatch.daemon.cards import users
from gpuwatch.detectors.usage import State, Usage
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry
from tests.fakes.cgroups import Crowd, docker, session
from tests.fakes.crowd_view import GIB, holder, seen, uuid
from tests.fakes.host import Answers, HostTree
from tests.fakes.until import until
from tests.fakes.watched_jobs import ID, Watched, one, over, told

ANN, BOB = range(100, 164), range(300, 316)  # pids


class Shared:
    """A GPU that two users share, ann with 64 processes of 2 GiB, the cap, and bob with 16 smaller ones in a container."""

    def __init__(self, tree: HostTree, crowd: Crowd) -> None:
        crowd.run(90, "bash", uid=1001, group=session(1001))
        for pid in ANN:
            crowd.run(pid, uid=1001, parent=90, group=session(1001))
        for pid in BOB:
            crowd.run(pid, uid=1002, group=docker(ID, "systemd"))
            crowd.run(pid + 1000, "pt_data_worker", uid=1002, parent=pid, group=docker(ID, "systemd"))
        crowd.limit(docker(ID, "systemd"), used=5)
        self.tree, self.crowd, self.watched = tree, crowd, Watched(tree)
        self.watched.board = [
            *(holder(pid, memory=2 * GIB, share=0.01) for pid in ANN),
            *(holder(pid, memory=GIB, share=0.02) for pid in BOB),
        ]

    def ask(self) -> Answers:
        """Ask until the names of both users are known, and return the last answers."""
        found = self.watched.ask()

        def is_known() -> bool:
            nonlocal found
            found = self.watched.ask()
            return {name(reading) for reading in told(found, PROCESS_GPU) + told(found, REST)} == {"ann", "bob"}

        until(is_known)
        return found


@pytest.fixture
def shared(tree: HostTree, crowd: Crowd) -> Shared:
    """The GPU."""
    return Shared(tree, crowd)


def name(reading: Reading) -> str:
    """Return whose a process is."""
    return reading.target.info.get("user", "")


def test_those_beyond_the_cap_are_told_together_by_owner_and_job(shared: Shared) -> None:
    rest = one(told(shared.ask(), REST))
    assert (rest.target.labels, rest.values) == (
        {"job": ID[:12], "gpu": "0", "uuid": uuid(0)},
        {REST_MEMORY: 16.0 * GIB, REST_UTILIZATION: pytest.approx(0.32)},
    )
    facts = {"kinds": "compute", "user": "bob", "uid": "1002", "key": f"docker/{ID[:12]}", "scheduler": "docker"}
    assert facts.items() <= rest.target.info.items()


def test_they_have_no_series_of_their_own_and_no_loaders(shared: Shared) -> None:
    answers = shared.ask()
    pids = {reading.target.labels["pid"] for subject in (PROCESS_GPU, PROCESS) for reading in told(answers, subject)}
    assert {str(pid) for pid in ANN} == pids


def test_a_job_of_those_beyond_the_cap_has_its_cpu_told(shared: Shared) -> None:
    jobs = {job.target.key: job.target.info.get("user") for job in told(shared.ask(), JOB)}
    assert jobs[f"docker/{ID[:12]}"] == "bob"
    assert len(jobs) == 64  # and no more jobs than processes that are looked at: those with the most memory together


def test_users_and_jobs_have_what_all_their_processes_have(shared: Shared) -> None:
    answers = shared.ask()
    listed = [*told(answers, PROCESS_GPU), *told(answers, REST)]
    usage, state = Usage(1.0, 3, 3), State()
    target = Target(subject=GPU, key=uuid(0), labels={"gpu": "0", "uuid": uuid(0)})
    for second in range(1, 12):
        values: dict[Metric, float] = {UTILIZATION: 0.96, POWER: 300.0}
        gpu = Reading(source="nvml", tier=Tier.FAST, target=target, at=float(second), took=0.0, values=values)
        view = msgspec.structs.replace(seen(gpu, *listed, now=float(second)), mono=float(second))
        state, found = usage.step(state, view, float(second))
        usage.written = state

    def of(subject: Subject, **labels: str) -> Reading:
        return one(one for one in found.readings if one.target.subject is subject and labels.items() <= one.target.labels.items())

    ann, bob = (of(USER_GPU, user=user).values for user in ("ann", "bob"))
    assert (ann[USER_GPU_MEMORY], bob[USER_GPU_MEMORY]) == (128.0 * GIB, 16.0 * GIB)
    assert (ann[USER_GPU_HELD], bob[USER_GPU_HELD]) == (10.0, 10.0)
    assert (ann[USER_GPU_BUSY], bob[USER_GPU_BUSY]) == pytest.approx((6.4, 3.2))
    assert of(JOB_GPU, job="other").values[JOB_GPU_HELD] > 0
    board = {one.target: one for one in seen(*listed).entries.values()}
    told_of = {user["user"]: user["memory_bytes"] for user in users(list(board.values())) if user["user"] == "bob"}
    assert told_of == {"bob": 16.0 * GIB}


def test_whoever_has_the_most_is_called_by_a_command_although_those_beyond_the_cap_have_more() -> None:
    labels = {"job": "train", "gpu": "0", "uuid": uuid(0)}
    rest = Target(subject=REST, key="rest", labels=labels, info={"user": "ann"})
    small = Target(subject=PROCESS_GPU, key="small", labels={**labels, "pid": "7", "command": "python"}, info={"user": "ann"})
    (found,) = users([Entry(rest, {REST_MEMORY: 9.0 * GIB}, {}, ()), Entry(small, {PROCESS_GPU_MEMORY: GIB}, {}, ())])
    assert (found["command"], found["pids"], found["memory_bytes"]) == ("python", ["7"], 10.0 * GIB)


def test_what_is_not_known_of_one_of_them_is_not_known_of_all(shared: Shared) -> None:
    shared.watched.board[-1] = holder(BOB[-1], memory=None, share=0.5)
    rest = one(told(shared.ask(), REST))
    assert dict(rest.absent) == {REST_MEMORY: Absence.UNSUPPORTED}
    assert dict(rest.values) == {REST_UTILIZATION: pytest.approx(0.8)}


def test_they_are_over_when_they_are_gone_or_among_the_largest(shared: Shared) -> None:
    rest = one(told(shared.ask(), REST)).target
    shared.watched.board = [reading for reading in shared.watched.board if int(reading.target.labels["pid"]) in BOB]
    answers = shared.watched.ask()
    assert ([], [rest], 16) == (told(answers, REST), over(answers, REST), len(told(answers, PROCESS_GPU)))


def test_graphics_processes_and_those_that_cannot_be_seen_from_here_stay_apart(tree: HostTree, crowd: Crowd) -> None:
    for pid in (100, 200):
        crowd.run(pid, uid=1002, group=docker(ID, "systemd"))
    watched = Watched(tree, msgspec.structs.replace(tree.config, processes=Processes(limit=1)))
    watched.board = [
        holder(100, memory=9 * GIB),
        holder(200, memory=GIB),
        holder(200, 1, memory=GIB, kinds="graphics"),
        holder(200, 1, memory=GIB, instance="7"),
        holder(999, ticks=None, memory=GIB),
    ]
    found = told(watched.ask(), REST)
    places = {
        (one.target.labels["gpu"], one.target.info.get("gi"), one.target.info["kinds"], one.target.labels["job"]) for one in found
    }
    assert places == {
        ("0", None, "compute", ID[:12]),
        ("1", None, "graphics", ID[:12]),
        ("1", "7", "compute", ID[:12]),
        ("0", None, "compute", ""),
    }
    assert {one.target.labels["job"]: one.target.info.get("user") for one in found}[""] is None


def test_of_those_beyond_the_cap_nothing_is_read_again_until_a_thorough_look(shared: Shared) -> None:
    shared.ask()
    folder = shared.tree.proc / str(BOB[0])
    for file in ("stat", "status", "cgroup"):
        (folder / file).unlink()
    assert one(told(shared.watched.ask(), REST)).values[REST_MEMORY] == 16.0 * GIB
    answers = shared.watched.ask(Tier.SLOW, Tier.NORMAL)
    assert sorted((name(rest), rest.values[REST_MEMORY] / GIB) for rest in told(answers, REST)) == [("", 1.0), ("bob", 15.0)]


def test_a_number_that_is_another_process_by_now_is_nobody_s(shared: Shared) -> None:
    shared.ask()
    shared.crowd.run(BOB[0], "other", uid=1001, began=9000)
    shared.watched.board = [
        reading if reading.target.labels["pid"] != str(BOB[0]) else holder(BOB[0], ticks=500, memory=GIB)
        for reading in shared.watched.board
    ]
    assert {(name(rest), rest.values[REST_MEMORY] / GIB) for rest in told(shared.watched.ask(), REST)} == {("bob", 15), ("", 1)}
