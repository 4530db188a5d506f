"""What each user and job has had of each GPU, told beat by beat."""

import msgspec
import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import GPU_IDLE_ALLOCATED, JOB_GPU, USER_GPU
from gpuwatch.detectors import Runner
from gpuwatch.detectors.usage import KEPT, LINGER, OTHER, Account, Book, State, Usage
from tests.fakes.accounts import START, Host
from tests.fakes.crowd_view import GIB, uuid


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
