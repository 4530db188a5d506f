"""The driver as a whole: every way in which NVML does not start, or stops, has a state of its own and a way back."""

import importlib.util
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import DRIVER_MISMATCH, GPU
from gpuwatch.model.reading import Absence, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import SYSTEM
from tests.fakes.nvml_worker import NvmlWorker, fault_of


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """Two cards."""
    return FakeNvml(tmp_path, gpus=2)


def unload(fake: FakeNvml) -> None:
    """The kernel module is not loaded."""
    fake.unload()


def nouveau(fake: FakeNvml) -> None:
    """The other driver has the cards."""
    fake.unload()
    fake.nouveau()


def no_nodes(fake: FakeNvml) -> None:
    """The module is loaded, nobody has made its nodes."""
    fake.nodes(there=False)
    fake.init(4)


@pytest.mark.parametrize(
    ("spoil", "state", "code"),
    [
        (FakeNvml.uninstall, "no_library", 12),
        (unload, "not_loaded", 9),
        (nouveau, "nouveau", 9),
        (no_nodes, "no_nodes", 4),
        (lambda fake: fake.init(18), "version_mismatch", 18),
        (lambda fake: fake.init(4), "no_permission", 4),
        (lambda fake: fake.init(999), "access_lost", 999),
        (lambda fake: fake.init(20), "failed", 20),
    ],
)
def test_each_way_in_which_nvml_does_not_start_is_a_state_and_ends_without_a_new_process(
    fake: FakeNvml, spoil: Callable[[FakeNvml], None], state: str, code: int
) -> None:
    spoil(fake)
    with closing(NvmlWorker(fake)) as worker:
        first = worker.ask(Tier.NORMAL)
        assert (state, (state, code)) == (first.state, fault_of(first.driver))
        assert first.visible is Absence.FAILED
        assert first.driver.values[DRIVER_MISMATCH] == (state == "version_mismatch")
        assert worker.ask().readings == []
        fake.install("535")
        fake.nodes()
        fake.load("535.154.05")
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
        assert len(worker.ask().readings) == 2
        assert worker.restarts == []


@pytest.mark.parametrize(
    ("content", "words"),
    [("print 'python 2'\n", "SyntaxError"), ("raise OSError('odd')\n", "OSError: odd"), ("x = 1\n", "is not nvidia-ml-py")],
)
def test_a_broken_module_of_that_name_is_named_by_its_file(fake: FakeNvml, tmp_path: Path, content: str, words: str) -> None:
    """nicolargo/glances#1097: three packages fight for the name pynvml."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/pynvml.py").write_text(content)
    with closing(NvmlWorker(fake, environment={"PYTHONPATH": str(tmp_path / "path")})) as worker:
        found = worker.ask(Tier.NORMAL)
    assert found.state == "failed"
    assert found.driver.fault is not None
    assert str(tmp_path / "path/pynvml.py") in found.driver.fault.words
    assert words in found.driver.fault.words


def shadow(folder: Path, more: str) -> dict[str, str]:
    """Put nvidia-ml-py with something more first on the module path; return the environment for it."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    folder.mkdir()
    (folder / "pynvml.py").write_text(f"exec(compile(open({spec.origin!r}).read(), 'real', 'exec'))\n{more}")
    return {"PYTHONPATH": str(folder)}


def test_an_old_module_is_refused_rather_than_called_with_what_it_does_not_take(fake: FakeNvml, tmp_path: Path) -> None:
    """The package `pynvml` before 12 shadows nvidia-ml-py; in its older releases memory has no version 2."""
    old = "memory = nvmlDeviceGetMemoryInfo\ndef nvmlDeviceGetMemoryInfo(handle):\n    return memory(handle)\ndel nvmlMemory_v2\n"
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", old))) as worker:
        found = worker.ask(Tier.NORMAL)
    assert found.state == "failed"
    assert found.driver.fault is not None
    assert "is too old: it lacks nvmlMemory_v2" in found.driver.fault.words


def test_a_bug_met_while_one_gpu_is_opened_costs_that_gpu_alone(fake: FakeNvml, tmp_path: Path) -> None:
    odd = (
        "minor = nvmlDeviceGetMinorNumber\ndef nvmlDeviceGetMinorNumber(handle):\n"
        "    number = minor(handle)\n    if number == 1:\n        raise TypeError('odd')\n    return number\n"
    )
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", odd))) as worker:
        found = worker.until(Tier.FAST, lambda round_: len(round_.of(GPU)) == 2)
        assert fault_of(found.gpu(fake.uuid(0))) == ("", None)
        assert fault_of(found.gpu(fake.uuid(1))) == ("unknown_error", 999)
        assert "a bug in nvml-gpu-1" in worker.log()


def test_a_driver_that_comes_late_is_picked_up_as_soon_as_its_module_is_loaded(fake: FakeNvml) -> None:
    """utkuozdemir/nvidia_gpu_exporter#65: started before the driver at boot, never recovered."""
    fake.unload()
    with closing(NvmlWorker(fake, normal=60.0)) as worker:  # back-off: half a minute, but the module is seen to come
        assert worker.ask(Tier.NORMAL).state == "not_loaded"
        assert worker.ask(Tier.NORMAL).state == "not_loaded"
        assert fake.calls("nvmlInitWithFlags") == 1
        fake.load("535.154.05")
        assert worker.ask(Tier.NORMAL).state == "ok"
        assert (fake.calls("nvmlInitWithFlags"), fake.inits) == (2, 1)


def test_nvml_that_loses_its_initialisation_is_initialised_again(fake: FakeNvml) -> None:
    """NVIDIA/gpu-monitoring-tools#188: old values for ever after the backend restarted."""
    with closing(NvmlWorker(fake)) as worker:
        whole = worker.warm()
        fake.init(20)
        fake.uninitialise()
        lost = worker.ask()
        assert [lost.gpu(fake.uuid(gpu)).values for gpu in (0, 1)] == [{}, {}]
        assert lost.state == "failed"  # the driver is blamed in the same round, so that no GPU is
        fake.init(0)
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok" and all(one.values for one in round_.of(GPU).values()))
        again = worker.ask()
        assert set(whole.gpu(fake.uuid(1)).values) == set(again.gpu(fake.uuid(1)).values)
        assert worker.ask(Tier.NORMAL).state == "ok"
        assert worker.restarts == []


def test_a_new_kernel_module_asks_for_a_new_process(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.load("550.90.07")
        worker.ask(Tier.NORMAL)
        worker.ask(Tier.NORMAL)
        assert worker.restarts == ["driver_change"]


def test_a_mismatch_that_comes_while_we_run_asks_for_a_new_process(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.init(18)
        fake.answer("nvmlDeviceGetUtilizationRates", 18)
        found = worker.until(Tier.FAST, lambda _: bool(worker.restarts))
        assert worker.restarts == ["driver_change"]
        assert worker.ask(Tier.NORMAL).state == "version_mismatch"
        assert all(not one.values for one in found.readings if one.target.key)


def test_a_library_that_was_replaced_on_disk_is_picked_up_by_a_new_process(fake: FakeNvml) -> None:
    fake.init(18)
    with closing(NvmlWorker(fake)) as worker:
        assert worker.ask(Tier.NORMAL).state == "version_mismatch"
        assert worker.restarts == []  # a new process would find the same
        fake.install("550")
        worker.until(Tier.NORMAL, lambda _: bool(worker.restarts))
        assert worker.restarts == ["driver_change"]


def test_a_new_process_after_a_driver_change_tells_the_new_version(fake: FakeNvml) -> None:
    for driver in ("535.154.05", "595.71.05"):
        fake.install(driver.partition(".")[0])
        fake.load(driver)
        with closing(NvmlWorker(fake)) as worker:
            info = worker.ask(Tier.NORMAL).driver.target.info
            expected = {"driver_version": driver, "module_version": driver, "nvml_version": f"12.{driver}"}
            assert expected | {"cuda_version": "12.2", "module_type": "proprietary"} == info


def test_an_init_that_hangs_is_told_and_holds_nothing_up(fake: FakeNvml) -> None:
    fake.hang(None, "nvmlInitWithFlags")
    with closing(NvmlWorker(fake, deadline=0.5)) as worker:
        worker.ask()
        found = worker.until(Tier.NORMAL, lambda round_: bool(round_.readings))
        assert found.state == "failed"
        assert found.driver.fault is not None
        assert "has not returned" in found.driver.fault.words
        assert worker.ask().took < 0.3
        fake.release(None, "nvmlInitWithFlags")
        worker.until(Tier.NORMAL, lambda round_: bool(round_.readings) and round_.state == "ok")


def test_all_gpus_out_of_reach_at_once_is_lost_access_and_not_lost_gpus(fake: FakeNvml) -> None:
    """NVIDIA/nvidia-docker#1730: a container loses its devices when systemd reloads on the host."""
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.answer_all(999)
        found = worker.until(Tier.FAST, lambda round_: any(one.target.subject.name == "driver" for one in round_.readings))
        assert found.state == "access_lost"
        assert {"unknown_error"} == {fault_of(one)[0] for one in found.readings if one.target.subject.name == "gpu"} - {""}
        assert worker.ask(Tier.NORMAL).state == "access_lost"
        fake.answer_all(0)
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")


def test_a_count_that_fails_leaves_the_number_unknown_and_the_gpus_readable(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        for code in (2, 4, 6, 10, 15, 20, 999):
            fake.fail("nvmlDeviceGetCount", code, gpu=SYSTEM)
            found = worker.ask(Tier.NORMAL)
            assert isinstance(found.visible, Absence)
            assert not fake.failing("nvmlDeviceGetCount", gpu=SYSTEM)
            assert all(found.gpu(fake.uuid(gpu)).values for gpu in (0, 1))
        assert worker.ask(Tier.NORMAL).visible == 2


def test_init_is_called_once_and_shutdown_never(fake: FakeNvml) -> None:
    """netdata/netdata#14522: each start of a tool costs seconds and hangs old cards."""
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(20):
            worker.ask()
            worker.ask(Tier.NORMAL)
    assert (fake.calls("nvmlInitWithFlags"), fake.shutdowns) == (1, 0)


def test_a_change_of_the_driver_is_logged_once_at_each_end(fake: FakeNvml) -> None:
    fake.unload()
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(6):
            worker.ask(Tier.NORMAL)
        fake.load("535.154.05")
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
        for _ in range(6):
            worker.ask(Tier.NORMAL)
        log = worker.log()
    assert (log.count("module is not loaded"), log.count("NVML is initialised")) == (1, 1), log
