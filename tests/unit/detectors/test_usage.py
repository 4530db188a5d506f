"""What each user and job has had of each GPU, told beat by beat."""

from types import MappingProxyType

import msgspec
import pytest

from gpuwatch.catalogue import process as catalogue
from gpuwatch.catalogue.gpu import GPU, MEMORY_SIZE, POWER, UTILIZATION
from gpuwatch.catalogue.mig import MIG, MIG_MEMORY_SIZE, MIG_SM_ACTIVE
from gpuwatch.catalogue.process import GPU_IDLE_ALLOCATED, GPU_PROCESSES, JOB_GPU, PROCESS_GPU, USER_GPU
from gpuwatch.detectors import Runner
from gpuwatch.detectors.usage import KEPT, LINGER, OTHER, Account, Book, State, Usage
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.model.view import Entry, View
from tests.fakes.crowd_view import GIB, uuid

START = 1_700_000_000.0
USER = {
    "memory": catalogue.USER_GPU_MEMORY,
    "busy": catalogue.USER_GPU_BUSY,
    "held": catalogue.USER_GPU_HELD,
    "idle": catalogue.USER_GPU_IDLE,
    "energy": catalogue.USER_GPU_ENERGY,
}
JOB = {"held": catalogue.JOB_GPU_HELD, "memory": catalogue.JOB_GPU_MEMORY}


class Host:
    """GPUs and who is on them, judged once a second."""

    def __init__(self, users: int = 3, jobs: int = 3) -> None:
        self.detector = Usage(1.0, users, jobs)
        self.state = State()
        self.wall, self.mono = START, 500.0
        self.is_saved = True  # after every beat
        self.utilization: float | None = 0.5
        self.power: float | None = 300.0
        self.people: list[tuple[str, str, int, str, dict[str, float | None]]] = []
        self.kinds = "compute"
        self.listed = 0.0  # by the driver, beyond those whom anybody has looked at
        self.ids: dict[str, str] = {}  # of jobs, by name
        self.instances: dict[str, tuple[float | None, float | None]] = {}  # of the first GPU: memory in GiB, use
        self.said: list[Reading] = []

    def on(self, user: str, job: str, gpu: int = 0, instance: str = "", **values: float | None) -> "Host":
        """Have a process on a GPU: `memory` in GiB, `share`."""
        self.people.append((user, job, gpu, instance, values))
        return self

    def empty(self) -> "Host":
        """Have nobody on the GPUs."""
        self.people = []
        return self

    def go_on(self, seconds: int) -> "Host":
        """Let time pass."""
        for _ in range(seconds):
            self.beat(1.0)
        return self

    def beat(self, passed: float, *, fresh: bool = True) -> None:
        """Judge once, after so many seconds."""
        self.wall += passed
        self.mono += passed
        at = self.wall if fresh else self.wall - passed
        entries = dict(self.gpu(number, at) for number in range(2))
        for pid, (user, job, gpu, instance, values) in enumerate(self.people):
            labels = {"pid": str(pid), "job": job, "gpu": str(gpu), "uuid": uuid(gpu)}
            info = {"kinds": self.kinds, "scheduler": "docker", "key": f"docker/{self.ids.get(job, job)}"}
            info |= {"user": user, "uid": user.encode().hex(), "users": "ann,bob"} if user else {}
            info |= {"gi": instance} if instance else {}
            target = Target(subject=PROCESS_GPU, key=f"{uuid(gpu)}/{pid}", labels=labels, info=info)
            memory, share = values.get("memory", 1.0), values.get("share", 0.5)
            numbers: dict[Metric, float] = {}
            if memory is not None:
                numbers[catalogue.PROCESS_GPU_MEMORY] = memory * GIB
            if share is not None:
                numbers[catalogue.PROCESS_GPU_UTILIZATION] = share
            entries |= [entry(target, "jobs", Tier.NORMAL, at, numbers)]
        for name, (size, active) in self.instances.items():
            part = Target(subject=MIG, key=f"{uuid(0)}/{name}", labels={"gpu": "0", "uuid": uuid(0), "gpu_instance": name})
            found = {MIG_MEMORY_SIZE: None if size is None else size * GIB, MIG_SM_ACTIVE: active}
            entries |= [
                entry(part, "nvml", Tier.NORMAL, at, {metric: value for metric, value in found.items() if value is not None})
            ]
        view = View(self.wall, MappingProxyType(entries), mono=self.mono)
        self.state, findings = self.detector.step(self.state, view, self.wall)
        if self.is_saved:
            self.detector.written = self.copy()
            self.state, findings = self.detector.step(self.state, view, self.wall)  # the same reading is counted once
        self.said = list(findings.readings)

    def gpu(self, number: int, at: float) -> tuple[Target, Entry]:
        """Return what a GPU answers."""
        target = Target(subject=GPU, key=uuid(number), labels={"gpu": str(number), "uuid": uuid(number)})
        listed = self.listed or float(sum(gpu == number for _, _, gpu, *_ in self.people))
        values = {UTILIZATION: self.utilization, POWER: self.power, MEMORY_SIZE: 40.0 * GIB, GPU_PROCESSES["compute"]: listed}
        return entry(target, "nvml", Tier.FAST, at, {metric: value for metric, value in values.items() if value is not None})

    def copy(self) -> State:
        """Return the state as the store has it."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=State)

    def restart(self, kept: State | None = None) -> None:
        """Have the daemon restarted: what was stored is all that is known."""
        self.detector = Usage(1.0, self.detector.users, self.detector.jobs)
        self.state = kept or self.copy()
        self.detector.written = self.copy()

    def user(self, name: str, what: str, gpu: int = 0) -> float | None:
        """Return what is said of a user."""
        return self.value(USER_GPU, {"user": name, "gpu": str(gpu)}, USER[what])

    def job(self, name: str, what: str, gpu: int = 0) -> float | None:
        """Return what is said of a job."""
        return self.value(JOB_GPU, {"job": name, "gpu": str(gpu)}, JOB[what])

    def value(self, subject: Subject, labels: dict[str, str], metric: Metric) -> float | None:
        """Return one number, None where it is not said."""
        found = [one for one in self.said if one.target.subject is subject and labels.items() <= one.target.labels.items()]
        assert len(found) <= 1
        return found[0].values.get(metric) if found else None

    def names(self, subject: Subject, label: str) -> set[str]:
        """Return who is told of."""
        return {one.target.labels[label] for one in self.said if one.target.subject is subject}


def entry(target: Target, source: str, tier: Tier, at: float, values: dict[Metric, float]) -> tuple[Target, Entry]:
    """Return a target with one reading."""
    reading = Reading(source=source, tier=tier, target=target, at=at, took=0.0, values=values)
    return target, Entry(target, values, {}, (reading,))


def test_a_user_and_a_job_hold_a_gpu_for_as_long_as_they_have_a_process_on_it() -> None:
    host = Host().on("ann", "train", memory=10.0, share=0.4).go_on(61)
    found = tuple(host.user("ann", what) for what in ("held", "busy", "idle", "energy", "memory"))
    assert pytest.approx((60.0, 24.0, 0.0, 60 * 300.0, 10.0 * GIB)) == found
    assert (host.job("train", "held"), host.job("train", "memory")) == (60.0, 10.0 * GIB)
    host.empty().go_on(100)
    assert (host.user("ann", "held"), host.user("ann", "memory")) == (60.0, 0.0)


def test_two_processes_of_one_user_hold_a_gpu_once() -> None:
    host = Host().on("ann", "a", share=0.3).on("ann", "b", share=0.2).go_on(11)
    assert pytest.approx((10.0, 5.0, 2.0 * GIB)) == tuple(host.user("ann", what) for what in ("held", "busy", "memory"))
    assert (host.job("a", "held"), host.job("b", "held")) == (10.0, 10.0)


def test_energy_is_shared_by_use_else_equally() -> None:
    host = Host().on("ann", "a", share=0.3).on("bob", "b", share=0.1).go_on(11)
    assert pytest.approx((2250.0, 750.0)) == (host.user("ann", "energy"), host.user("bob", "energy"))
    host = Host().on("ann", "a", share=None).on("bob", "b", share=0.1).go_on(11)
    assert pytest.approx((1500.0, 1500.0)) == (host.user("ann", "energy"), host.user("bob", "energy"))


def test_use_that_no_sample_tells_is_that_of_the_gpu_where_one_user_has_it_alone() -> None:
    host = Host().on("ann", "a", share=None).go_on(11)
    assert pytest.approx(5.0) == host.user("ann", "busy")
    host.on("bob", "b", share=0.2).go_on(10)
    assert pytest.approx((5.0, 2.0)) == (host.user("ann", "busy"), host.user("bob", "busy"))


def test_a_gpu_that_is_held_and_does_nothing_is_idle_while_allocated() -> None:
    host = Host().on("ann", "a")
    host.utilization = 0.0
    host.go_on(31)
    gpu = {"gpu": "0"}
    assert (host.user("ann", "idle"), host.value(GPU, gpu, GPU_IDLE_ALLOCATED)) == (30.0, 30.0)
    assert host.value(GPU, {"gpu": "1"}, GPU_IDLE_ALLOCATED) == 0.0
    host.utilization = None  # a parent with MIG instances: nobody knows
    host.go_on(10)
    assert (host.user("ann", "idle"), host.user("ann", "held")) == (30.0, 40.0)


def test_a_desktop_holds_nothing() -> None:
    host = Host().on("ann", "a")
    host.kinds = "graphics"
    assert set() == host.go_on(5).names(USER_GPU, "user") | host.names(JOB_GPU, "job")


def test_who_may_not_be_named_has_no_account() -> None:
    host = Host().on("", "a").go_on(5)
    assert (set(), {"a"}) == (host.names(USER_GPU, "user"), host.names(JOB_GPU, "job"))


def test_a_reading_is_counted_once_and_a_gap_or_a_step_back_not_at_all() -> None:
    host = Host().on("ann", "a").go_on(11)
    host.beat(0.5, fresh=False)
    assert host.user("ann", "held") == 10.0
    host.beat(3600.0)
    host.beat(-7200.0)
    assert host.user("ann", "held") == 10.0
    host.go_on(5)
    assert host.user("ann", "held") == 15.0


def test_the_accounts_survive_a_restart() -> None:
    host = Host().on("ann", "train").go_on(11)
    host.restart()
    host.beat(120.0)
    host.go_on(10)
    assert (host.user("ann", "held"), host.job("train", "held")) == (20.0, 20.0)


def test_a_memory_that_is_not_known_of_all_is_not_told() -> None:
    host = Host().on("ann", "a").on("ann", "b", memory=None).go_on(3)
    assert (host.user("ann", "memory"), host.user("ann", "held")) == (None, 2.0)


def test_the_fourth_user_of_a_gpu_is_counted_with_the_others_and_nothing_ever_falls() -> None:
    host = Host(users=2, jobs=64).on("ann", "a").on("bob", "b").on("cat", "c").on("dan", "d").go_on(11)
    assert {"ann", "bob", OTHER} == host.names(USER_GPU, "user")
    assert (host.user("ann", "held"), host.user(OTHER, "held")) == (10.0, 20.0)
    assert host.user(OTHER, "memory") == 2.0 * GIB
    before = {name: host.user(name, "held") or 0.0 for name in ("ann", "bob", OTHER)}
    for name in ("cat", "ann", "dan", "bob", "eve") * 3:
        host.empty().on(name, name).go_on(7)
        after = {each: host.user(each, "held") for each in before}
        assert all(value is None or value >= before[each] for each, value in after.items()), after
        before |= {each: value for each, value in after.items() if value is not None}


def test_each_gpu_has_accounts_of_its_own() -> None:
    host = Host(users=1).on("ann", "a", 0).on("bob", "b", 1).go_on(11)
    assert (host.user("ann", "held", 0), host.user("bob", "held", 1)) == (10.0, 10.0)


def test_a_job_that_is_gone_is_told_for_ten_minutes() -> None:
    host = Host().on("ann", "train").go_on(11)
    host.empty().go_on(int(LINGER) - 5)
    assert host.job("train", "held") == 10.0
    host.go_on(20)
    assert host.job("train", "held") is None
    assert host.user("ann", "held") == 10.0
    host.on("ann", "train").go_on(11)
    assert host.job("train", "held") == 21.0


@pytest.mark.parametrize("step", [25.0, 2 * LINGER, -2 * LINGER, -2.0])
def test_a_wall_clock_that_steps_is_no_time_that_anybody_held_a_gpu(step: float) -> None:
    host = Host().on("ann", "train").go_on(11)
    host.wall += step
    host.go_on(10)
    assert (host.user("ann", "held"), host.user("ann", "energy")) == (20.0, 20 * 300.0)
    host.empty().go_on(5)
    host.wall += step
    assert host.go_on(5).names(JOB_GPU, "job") == {"train"}
    assert host.go_on(int(LINGER)).names(JOB_GPU, "job") == set()


def test_a_thousand_jobs_cost_no_more_than_a_few() -> None:
    host = Host()
    for number in range(1000):
        host.empty().on("ann", f"job-{number}").beat(1.0)
    assert len(host.names(JOB_GPU, "job")) <= 4
    assert len(host.state.gpus[uuid(0)].jobs) <= KEPT
    assert host.user("ann", "held") == 999.0


def test_a_job_of_several_users_is_told_as_theirs_and_each_has_his_own_account() -> None:
    host = Host().on("ann", "shared", share=0.3).on("bob", "shared", share=0.1).go_on(11)
    assert pytest.approx((10.0, 10.0, 3.0, 1.0)) == (
        host.user("ann", "held"),
        host.user("bob", "held"),
        host.user("ann", "busy"),
        host.user("bob", "busy"),
    )
    (job,) = [one.target for one in host.said if one.target.subject is JOB_GPU]
    assert job.info["user"] == "ann,bob"


def test_a_container_that_is_made_anew_under_its_name_goes_on_in_the_same_series() -> None:
    host = Host().on("ann", "train")
    host.ids["train"] = "0123"
    host.go_on(11)
    host.ids["train"] = "4567"
    host.go_on(10)
    assert host.job("train", "held") == 20.0  # and `job` finds one series


def test_a_name_that_comes_late_takes_the_account_along() -> None:
    host = Host().on("ann", "0123")
    host.go_on(11)
    host.ids["train"] = "0123"
    host.empty().on("ann", "train").go_on(10)
    assert (host.job("train", "held"), host.job("0123", "held")) == (20.0, None)


def divided(active: float | None, size: float | None = 5.0, utilization: float | None = None) -> Host:
    """Return a card of 40 GiB in seven instances with a tenant each."""
    host = Host(users=8, jobs=8)
    host.utilization = utilization
    for number in range(7):
        host.instances[str(number)] = size, active
        host.on(f"u{number}", f"j{number}", instance=str(number), memory=4.0, share=None)
    return host


@pytest.mark.parametrize(("size", "each"), [(5.0, 12.5), (None, 100 / 7)])
def test_the_tenants_of_a_divided_gpu_do_not_hold_more_than_the_gpu(size: float | None, each: float) -> None:
    host = divided(None, size).go_on(101)
    assert pytest.approx([each] * 7) == [host.user(f"u{number}", "held") for number in range(7)]
    assert pytest.approx([each] * 7) == [host.job(f"j{number}", "held") for number in range(7)]
    assert pytest.approx([100 * 300 / 7] * 7) == [host.user(f"u{number}", "energy") for number in range(7)]


def test_use_of_an_instance_that_is_not_told_is_absent_and_not_0() -> None:
    host = divided(None).go_on(101)
    assert (host.user("u0", "busy"), host.user("u0", "idle")) == (None, None)
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) is None


def test_what_an_instance_does_is_that_of_its_tenant() -> None:
    host = divided(0.4)
    host.instances["3"] = 5.0, 0.0
    host.go_on(101)
    assert pytest.approx((5.0, 0.0)) == (host.user("u0", "busy"), host.user("u0", "idle"))
    assert pytest.approx((0.0, 12.5)) == (host.user("u3", "busy"), host.user("u3", "idle"))
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) == 0.0
    assert pytest.approx((0.0, 5000.0)) == (host.user("u3", "energy"), host.user("u0", "energy"))
    host.instances = dict.fromkeys(host.instances, (5.0, 0.0))
    host.go_on(10)
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) == 10.0


def test_a_tenant_of_two_instances_holds_both_and_of_two_tenants_of_one_nobody_s_use_is_known() -> None:
    host = divided(0.4).on("u0", "j9", instance="1", share=None).go_on(101)
    assert (host.user("u0", "held"), host.user("u1", "held")) == (25.0, 12.5)
    assert [None, None, pytest.approx(5.0)] == [host.user(f"u{number}", "busy") for number in range(3)]


@pytest.mark.parametrize("killed_after", [1, 5, 59, 61, 119])
def test_no_sum_that_was_told_falls_over_a_kill(killed_after: int) -> None:
    host = Host().on("ann", "train")
    host.is_saved, kept = False, State()
    host.detector.written = State()
    told = [0.0]
    for second in range(1, 400):
        if second == 200 + killed_after:
            host.restart(kept)
        host.go_on(1)
        told.append(host.user("ann", "held") or 0.0)
        if second % 60 == 0:
            kept = host.copy()
            host.detector.written = host.copy()
    assert told == sorted(told)
    assert told[-1] >= 399 - 2 * 60 - 3  # the last minute before the kill, and the one that is not saved yet


def test_no_sum_is_told_before_it_is_known_what_is_on_disk() -> None:
    host = Host().on("ann", "train")
    host.is_saved = False
    host.go_on(20)
    assert (host.user("ann", "held"), host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED)) == (None, None)
    assert host.user("ann", "memory") == GIB


def test_a_series_that_two_accounts_have_had_does_not_fall_before_it_is_saved() -> None:
    host = Host().on("ann", "train")
    host.ids["train"] = "0123"
    host.go_on(101)
    host.ids = {"4567": "4567"}
    host.empty().on("ann", "4567").go_on(10)
    host.is_saved, host.ids = False, {"train": "4567"}
    host.empty().on("ann", "train").go_on(1)
    assert host.job("train", "held") == 100.0
    host.is_saved = True
    host.go_on(1)
    assert host.job("train", "held") == 112.0


def test_what_a_user_has_is_not_known_until_somebody_has_looked_who_is_on_the_gpu() -> None:
    host = Host().on("ann", "train", memory=20.0).go_on(10)
    host.restart()
    host.listed, people = 1.0, host.people
    host.empty().go_on(5)
    assert (host.user("ann", "memory"), host.user("ann", "held")) == (None, 9.0)
    host.people = people
    host.go_on(5)
    assert (host.user("ann", "memory"), host.user("ann", "held")) == (20.0 * GIB, 14.0)
    host.listed = 0.0
    host.empty().go_on(5)
    assert (host.user("ann", "memory"), host.user("ann", "held")) == (0.0, 14.0)
    host.people, host.kinds, host.listed = people, "graphics", 1.0  # which is nobody's work
    host.go_on(5)
    assert (host.user("ann", "memory"), host.user("ann", "held")) == (0.0, 14.0)


def test_the_energy_of_a_card_that_tells_no_power_is_not_known() -> None:
    host = Host().on("ann", "train")
    host.power = None
    host.go_on(5)
    assert (host.user("ann", "energy"), host.user("ann", "held")) == (None, 4.0)
    host.power = 300.0
    host.go_on(2)
    assert host.user("ann", "energy") == 600.0


def test_books_in_which_the_wall_clock_stands_are_not_gone_on_with() -> None:
    """Version 1: an account that was seen "in the future" of our own clock would have its series for ever."""
    books = State({uuid(0): Book(START, START, jobs={"1": Account({"job": "train"}, seen=START, held=5.0)})})
    runner = Runner([Usage(1.0, 3, 3)])
    runner.restore({"usage": (1, msgspec.msgpack.encode(books))}.get)
    assert runner.states["usage"] == State()
