"""The processes on GPUs, as the worker reads them from the fake library and from /proc."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import (
    GPU_PROCESSES,
    GPU_PROCESSES_DROPPED,
    GPU_PROCESSES_HIDDEN,
    HOLDER,
    HOLDER_MEMORY,
    HOLDER_UTILIZATION,
)
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.sources.nvml import verdicts
from gpuwatch.sources.nvml.processes import LIMIT, LISTS
from tests.fakes.cgroups import Crowd
from tests.fakes.host import HostTree
from tests.fakes.nvml import FakeNvml, Process
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of

GIB = 1 << 30
COMPUTE = GPU_PROCESSES["compute"]
UTILIZATION = "nvmlDeviceGetProcessUtilization"


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two cards and the newest driver."""
    return FakeNvml(tmp_path, gpus=2, driver="595.71.05")


@pytest.fixture
def crowd(fake: FakeNvml) -> Crowd:
    """The host's processes."""
    return Crowd(HostTree(fake.path).kernel())


@pytest.fixture
def worker(fake: FakeNvml, crowd: Crowd) -> Iterator[NvmlWorker]:
    """A worker that has read everything once; the crowd is there before it."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        yield worker


def told(round_: Round, fake: FakeNvml, gpu: int = 0) -> dict[str, Reading]:
    """Return the processes on a GPU that something is said of, by pid."""
    found = [one for one in round_.of(HOLDER).values() if one.target.labels["uuid"] == fake.uuid(gpu)]
    return {one.target.labels["pid"]: one for one in found if one.values or one.absent}


def ended(round_: Round) -> set[str]:
    """Return the pids that are said to be over."""
    return {one.target.labels["pid"] for one in round_.of(HOLDER).values() if not (one.values or one.absent)}


def counts(round_: Round, fake: FakeNvml, gpu: int = 0) -> tuple[float | None, ...]:
    """Return how many processes of each kind, hidden and dropped ones are said of a GPU."""
    values = round_.gpu(fake.uuid(gpu)).values
    return tuple(values.get(metric) for metric in (*GPU_PROCESSES.values(), GPU_PROCESSES_HIDDEN, GPU_PROCESSES_DROPPED))


def test_three_lists_become_one(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    for pid in (100, 101, 102):
        crowd.run(pid, began=pid * 10)
    fake.processes(
        0,
        [
            Process(100, 2 * GIB, ("compute", "graphics"), share=40),
            Process(101, GIB, ("mps", "compute")),
            Process(102, 1, ("graphics",)),
        ],
    )
    round_ = worker.ask(Tier.NORMAL)
    found = told(round_, fake)
    assert counts(round_, fake) == (2, 2, 1, 0, 0)
    assert {pid: one.target.info["kinds"] for pid, one in found.items()} == {
        "100": "compute,graphics",
        "101": "compute,mps",
        "102": "graphics",
    }
    assert found["100"].values == {HOLDER_MEMORY: 2.0 * GIB, HOLDER_UTILIZATION: 0.4}
    assert {"pid": "100", "ticks": "1000", "gpu": "0", "uuid": fake.uuid(0), "gi": "", "ci": ""} == found["100"].target.labels
    assert found["101"].values[HOLDER_UTILIZATION] == 0.0  # the driver gives rows to those alone that ran a kernel
    assert counts(round_, fake, 1) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("driver", ["470.256.02", "535.154.05"])
def test_every_driver_s_lists_are_read(tmp_path: Path, driver: str) -> None:
    fake = FakeNvml(tmp_path, gpus=1, driver=driver)
    Crowd(HostTree(fake.path).kernel()).run(100)
    fake.processes(0, [Process(100, GIB, share=70)])
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        found = told(worker.ask(Tier.NORMAL), fake)
    assert {HOLDER_MEMORY: float(GIB), HOLDER_UTILIZATION: 0.7} == found["100"].values


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_rows_of_another_size_than_the_driver_promises_are_understood(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker, stride: int
) -> None:
    for pid in (100, 101, 102):
        crowd.run(pid)
    fake.processes(0, [Process(100, GIB), Process(101, 2 * GIB), Process(102, 3 * GIB)], stride=stride)
    found = {pid: one.values[HOLDER_MEMORY] for pid, one in told(worker.ask(Tier.NORMAL), fake).items()}
    assert {"100": float(GIB), "101": 2.0 * GIB, "102": 3.0 * GIB} == found


def test_a_list_that_makes_no_sense_is_left_out_and_said_once(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    fake.processes(0, [Process(100, 1 << 45)])
    fake.processes(1, [Process(101, GIB)])
    crowd.run(101)
    for _ in range(3):
        round_ = worker.ask(Tier.NORMAL)
        assert (told(round_, fake), round_.gpu(fake.uuid(0)).absent[COMPUTE]) == ({}, Absence.FAILED)
    assert {"101"} == set(told(round_, fake, 1))
    assert worker.log().count("makes no sense") == 1
    assert round_.gpu(fake.uuid(0)).fault is None


def test_memory_that_is_not_available_is_unknown_and_never_a_number(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100, -1, share=10)])
    found = told(worker.ask(Tier.NORMAL), fake)["100"]
    assert (found.values, found.absent) == ({HOLDER_UTILIZATION: 0.1}, {HOLDER_MEMORY: Absence.UNSUPPORTED})


def test_a_process_that_is_gone_is_said_to_be_over_once(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100)])
    worker.ask(Tier.NORMAL)
    fake.processes(0, [])
    assert {"100"} == ended(worker.ask(Tier.NORMAL))
    assert set() == ended(worker.ask(Tier.NORMAL))


def test_a_number_that_is_used_again_is_another_process(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100, began=1000)
    fake.processes(0, [Process(100)])
    worker.ask(Tier.NORMAL)
    crowd.run(100, "cc1plus", began=5000)
    readings = worker.ask(Tier.NORMAL).of(HOLDER)
    assert {("1000", False), ("5000", True)} == {(one.target.labels["ticks"], bool(one.values)) for one in readings.values()}


def test_a_process_that_ends_between_the_list_and_proc_costs_nothing(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(101)
    fake.processes(0, [Process(100), Process(101)])
    round_ = worker.ask(Tier.NORMAL)
    assert {"101"} == set(told(round_, fake))
    fake.processes(0, [Process(101)])
    assert (set(), {"101"}) == (ended(worker.ask(Tier.NORMAL)), set(told(worker.ask(Tier.NORMAL), fake)))


def test_one_that_stays_listed_and_is_not_there_is_told_as_gone(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    fake.processes(0, [Process(100)])
    worker.ask(Tier.NORMAL)
    found = told(worker.ask(Tier.NORMAL), fake)["100"]
    assert (found.target.info["unseen"], found.target.labels["ticks"]) == ("gone", "")


def test_in_a_container_without_the_host_s_processes_they_are_counted_and_not_judged(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker
) -> None:
    crowd.run(2, "nginx")  # the second process of this namespace is not the kernel's
    crowd.run(10734)  # another one that has the number here
    fake.processes(0, [Process(10734, 160 << 20)])
    round_ = worker.ask(Tier.NORMAL)
    found = told(round_, fake)["10734"]
    assert (found.target.info["unseen"], found.target.labels["ticks"]) == ("namespace", "")
    assert float(160 << 20) == found.values[HOLDER_MEMORY]
    assert (counts(round_, fake), fault_of(round_.gpu(fake.uuid(0)))) == ((1, 0, 0, 1, 0), ("", None))


@pytest.mark.parametrize("function", LISTS.values())
def test_a_list_that_fails_once_costs_its_count_once_and_ends_nobody(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker, function: str
) -> None:
    for pid in (100, 101):
        crowd.run(pid)
    everywhere = tuple(LISTS)
    fake.processes(0, [Process(100, kinds=everywhere)])
    fake.processes(1, [Process(101, kinds=everywhere)])
    whole = worker.ask(Tier.NORMAL)
    kind = next(kind for kind, name in LISTS.items() if name == function)
    for code in (2, 4, 6, 10, 17, 21, 25, 27, 999, 4711):
        fake.fail(function, code, gpu=0)
        found = worker.ask(Tier.NORMAL)
        assert not fake.failing(function, gpu=0)
        reading = found.gpu(fake.uuid(0))
        assert {GPU_PROCESSES[kind]} == set(whole.gpu(fake.uuid(0)).values) - set(reading.values), code
        assert verdicts.absence(code) == reading.absent[GPU_PROCESSES[kind]]
        assert (set(), {"100"}, {"101"}) == (ended(found), set(told(found, fake)), set(told(found, fake, 1)))
        assert counts(whole, fake) == counts(worker.ask(Tier.NORMAL), fake)


def test_a_process_is_not_over_where_the_list_that_it_was_in_fails(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100)])
    worker.ask(Tier.NORMAL)
    fake.fail(LISTS["compute"], 999, gpu=0)
    round_ = worker.ask(Tier.NORMAL)
    assert (set(), {}) == (ended(round_), told(round_, fake))
    fake.processes(0, [])
    assert {"100"} == ended(worker.ask(Tier.NORMAL))


def test_a_list_that_hangs_costs_its_gpu_and_nobody_s_processes_end(fake: FakeNvml, crowd: Crowd) -> None:
    for pid in (100, 101):
        crowd.run(pid)
    fake.processes(0, [Process(100)])
    fake.processes(1, [Process(101)])
    with closing(NvmlWorker(fake, deadline=1.2)) as worker:
        worker.warm()
        worker.ask(Tier.NORMAL)
        fake.hang(0, LISTS["compute"])
        round_ = worker.ask(Tier.NORMAL)
        assert ([fake.uuid(0)], {"101"}) == (round_.busy, set(told(round_, fake, 1)))
        fake.release(0, LISTS["compute"])
        worker.until(Tier.NORMAL, lambda round_: set(told(round_, fake)) == {"100"})


@pytest.mark.parametrize("code", [3, 13, 26])
def test_a_list_that_this_gpu_does_not_have_is_not_asked_for_again(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker, code: int
) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100)])
    fake.answer(LISTS["mps"], code, gpu=0)
    first = worker.ask(Tier.NORMAL)
    assert Absence.UNSUPPORTED is first.gpu(fake.uuid(0)).absent[GPU_PROCESSES["mps"]]
    before = fake.calls(LISTS["mps"], gpu=0)
    second = worker.ask(Tier.NORMAL)
    assert (before, {"100"}) == (fake.calls(LISTS["mps"], gpu=0), set(told(second, fake)))
    fake.processes(0, [])
    assert {"100"} == ended(worker.ask(Tier.NORMAL))


def test_a_lost_gpu_loses_its_processes_and_no_call_is_made(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100)])
    worker.until(Tier.NORMAL, lambda found: COMPUTE in found.of(GPU, Tier.NORMAL)[fake.uuid(0)].values)
    fake.fail(LISTS["graphics"], 15, gpu=0)
    round_ = worker.until(Tier.NORMAL, lambda found: COMPUTE in found.of(GPU, Tier.NORMAL)[fake.uuid(0)].absent)
    reading = round_.of(GPU, Tier.NORMAL)[fake.uuid(0)]
    assert (fault_of(reading), reading.absent[COMPUTE]) == (("lost", 15), Absence.LOST)
    assert set() == ended(round_)


def test_use_is_taken_from_new_and_true_samples_only(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    for pid in (100, 101, 102, 103):
        crowd.run(pid)
    stale, junk = Process(101, share=30, sampled=1_000_000), Process(102, share=250)
    fake.processes(0, [Process(100, share=55), stale, junk, Process(103)])
    found = told(worker.ask(Tier.NORMAL), fake)
    shares = {pid: one.values.get(HOLDER_UTILIZATION) for pid, one in found.items()}
    assert shares == {"100": 0.55, "101": None, "102": None, "103": 0.0}  # no row at all: it ran no kernel (nvml.h)
    assert tuple(found[pid].absent[HOLDER_UTILIZATION] for pid in ("101", "102")) == (Absence.EMPTY, Absence.EMPTY)


@pytest.mark.parametrize("bad", [Process(100, share=30, sampled=1_000_000), Process(100, share=250)])
def test_a_list_without_one_good_sample_says_of_nobody_that_he_was_idle(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker, bad: Process
) -> None:
    for pid in (100, 101):
        crowd.run(pid)
    fake.processes(0, [bad, Process(101)])
    found = told(worker.ask(Tier.NORMAL), fake)
    assert {pid: one.absent.get(HOLDER_UTILIZATION) for pid, one in found.items()} == {"100": Absence.EMPTY, "101": Absence.EMPTY}


@pytest.mark.parametrize("code", [6, 7, 10, 999])
def test_use_that_does_not_come_is_absent_and_the_rest_is_there(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker, code: int
) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100, share=55)])
    before = worker.ask(Tier.NORMAL).errors.get("6", 0)
    fake.fail(UTILIZATION, code, gpu=0)
    round_ = worker.ask(Tier.NORMAL)
    found = told(round_, fake)["100"]
    assert ({HOLDER_MEMORY: float(GIB)}, verdicts.absence(code if code != 7 else 6)) == (
        found.values,
        found.absent[HOLDER_UTILIZATION],
    )
    assert before == round_.errors.get("6", 0)  # nothing new is no error
    assert told(worker.ask(Tier.NORMAL), fake)["100"].values[HOLDER_UTILIZATION] == 0.55


def test_where_the_old_call_for_use_is_gone_the_new_one_is_asked(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    fake.processes(0, [Process(100, share=55)])
    fake.answer(UTILIZATION, 3, gpu=0)
    assert told(worker.ask(Tier.NORMAL), fake)["100"].values[HOLDER_UTILIZATION] == 0.55
    assert fake.calls("nvmlDeviceGetProcessesUtilizationInfo", gpu=0) == 1
    fake.answer("nvmlDeviceGetProcessesUtilizationInfo", 3, gpu=0)
    assert Absence.UNSUPPORTED is told(worker.ask(Tier.NORMAL), fake)["100"].absent[HOLDER_UTILIZATION]


def test_more_processes_than_a_call_has_room_for_are_read_and_the_largest_told(
    fake: FakeNvml, crowd: Crowd, worker: NvmlWorker
) -> None:
    for pid in range(1000, 1200):
        crowd.run(pid)
    fake.processes(0, [Process(pid, pid << 10, share=1) for pid in range(1000, 1200)])
    round_ = worker.ask(Tier.NORMAL)
    assert counts(round_, fake) == (200, 0, 0, 0, 200 - LIMIT)
    assert {str(pid) for pid in range(1200 - LIMIT, 1200)} == set(told(round_, fake))


def test_mig_instances_keep_their_processes_apart(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    crowd.run(100)
    crowd.run(101)
    fake.processes(0, [Process(100, gi=7, ci=0), Process(101, gi=8, ci=0)])
    found = told(worker.ask(Tier.NORMAL), fake)
    assert {pid: (one.target.labels["gi"], one.target.labels["ci"]) for pid, one in found.items()} == {
        "100": ("7", "0"),
        "101": ("8", "0"),
    }


def test_a_gpu_without_anybody_is_not_asked_for_use(fake: FakeNvml, crowd: Crowd, worker: NvmlWorker) -> None:
    worker.ask(Tier.NORMAL)
    assert fake.calls(UTILIZATION, gpu=0) == 0
