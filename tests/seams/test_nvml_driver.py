"""The driver as a whole: every way in which NVML does not start, or stops, has a state of its own and a way back."""

import importlib.util
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.catalogue.gpu import DRIVER_MISMATCH, GPU, PCIE_THROUGHPUT
from gpuwatch.model.reading import Absence, Tier
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import SYSTEM
from tests.fakes.nvml_worker import NvmlWorker, Round, fault_of
from tests.fakes.until import until


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
    ("spoil", "state", "code", "words"),
    [
        (FakeNvml.uninstall, "no_library", 12, "is not installed"),
        (unload, "not_loaded", 9, "modprobe nvidia"),
        (nouveau, "nouveau", 9, "blacklist nouveau"),
        (no_nodes, "no_nodes", 4, "are not there yet; they are waited for for up to 120 s"),
        (lambda fake: fake.init(18), "version_mismatch", 18, "reboot, or reload the nvidia modules"),
        (lambda fake: fake.init(4), "no_permission", 4, "check the mode"),
        (lambda fake: fake.init(999), "access_lost", 999, "recreate it"),
        (lambda fake: fake.init(20), "failed", 20, "nvmlInit answers"),
    ],
)
def test_each_way_in_which_nvml_does_not_start_is_a_state_and_ends_without_a_new_process(
    fake: FakeNvml, spoil: Callable[[FakeNvml], None], state: str, code: int, words: str
) -> None:
    spoil(fake)
    with closing(NvmlWorker(fake)) as worker:
        first = worker.survey()
        assert (state, (state, code)) == (first.state, fault_of(first.driver))
        assert first.driver.fault is not None
        assert words in first.driver.fault.words
        assert first.visible is Absence.FAILED
        assert first.driver.values[DRIVER_MISMATCH] == (state == "version_mismatch")
        assert worker.ask().readings == []
        fake.install("535")
        fake.nodes()
        fake.load("535.154.05")
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
        worker.until(Tier.FAST, lambda round_: len(round_.readings) == 2)
        assert worker.restarts == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("print 'python 2'\n", "SyntaxError"),
        ("raise OSError('odd')\n", "OSError: odd"),
        ("x = 1\n", "is not nvidia-ml-py"),
        ("raise SystemExit('odd')\n", "SystemExit: odd"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("class Odd(BaseException):\n    __str__ = None\nraise Odd\n", "Odd: <"),
        ("def __getattr__(name):\n    raise SystemExit(name)\n", "SystemExit: NVMLError"),
        ("__spec__ = None\n", "is not nvidia-ml-py"),
    ],
)
def test_a_broken_module_of_that_name_is_named_by_its_file_and_taken_when_it_is_mended(
    fake: FakeNvml, tmp_path: Path, content: str, words: str
) -> None:
    """nicolargo/glances#1097: three packages fight for the name pynvml."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/pynvml.py").write_text(content)
    with closing(NvmlWorker(fake, environment={"PYTHONPATH": str(tmp_path / "path")})) as worker:
        found = worker.survey()
        assert found.state == "failed"
        assert found.driver.fault is not None
        assert str(tmp_path / "path/pynvml.py") in found.driver.fault.words
        assert words in found.driver.fault.words
        worker.survey()
        shadow(tmp_path / "path", "")
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
        assert worker.restarts == []
        assert (worker.log().count(words), worker.log().count("NVML is initialised")) == (1, 1), worker.log()


def test_a_package_of_that_name_is_taken_anew_with_all_its_parts(fake: FakeNvml, tmp_path: Path) -> None:
    """As PyPI's `pynvml` was one: its __init__ takes all from a part of its own, which stays imported by itself."""
    package = tmp_path / "path/pynvml"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from pynvml.nvml import *\n")
    (package / "nvml.py").write_text("x = 1\n")
    with closing(NvmlWorker(fake, environment={"PYTHONPATH": str(package.parent)})) as worker:
        assert worker.survey().state == "failed"
        shadow(package, "", name="nvml.py")  # "*" takes nothing private
        worker.until(Tier.NORMAL, lambda _: "it lacks _nvmlGetFunctionPointer" in worker.log())
        (package / "__init__.py").write_text("from pynvml.nvml import *\nfrom pynvml.nvml import _nvmlGetFunctionPointer\n")
        worker.until(Tier.FAST, lambda round_: bool(round_.gpu(fake.uuid(0)).values))


def shadow(folder: Path, more: str, name: str = "pynvml.py") -> dict[str, str]:
    """Put nvidia-ml-py with something more first on the module path; return the environment for it."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{name}.new"
    fresh.write_text(f"exec(compile(open({spec.origin!r}).read(), 'real', 'exec'))\n{more}")
    fresh.replace(folder / name)  # whole, whenever it is imported
    return {"PYTHONPATH": str(folder)}


def test_an_old_module_is_refused_rather_than_called_with_what_it_does_not_take(fake: FakeNvml, tmp_path: Path) -> None:
    """The package `pynvml` before 12 shadows nvidia-ml-py; in its older releases memory has no version 2."""
    old = "memory = nvmlDeviceGetMemoryInfo\ndef nvmlDeviceGetMemoryInfo(handle):\n    return memory(handle)\ndel nvmlMemory_v2\n"
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", old))) as worker:
        found = worker.survey()
    assert found.state == "failed"
    assert found.driver.fault is not None
    assert "is too old: it lacks nvmlMemory_v2" in found.driver.fault.words


@pytest.mark.parametrize("error", ["TypeError", "SystemExit"])
def test_a_bug_met_while_one_gpu_is_opened_costs_that_gpu_alone(fake: FakeNvml, tmp_path: Path, error: str) -> None:
    odd = (
        "minor = nvmlDeviceGetMinorNumber\ndef nvmlDeviceGetMinorNumber(handle):\n"
        f"    number = minor(handle)\n    if number == 1:\n        raise {error}('odd')\n    return number\n"
    )
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", odd))) as worker:
        found = worker.until(Tier.FAST, lambda round_: len(round_.of(GPU)) == 2)
        assert fault_of(found.gpu(fake.uuid(0))) == ("", None)
        assert fault_of(found.gpu(fake.uuid(1))) == ("unknown_error", 999)
        until(lambda: "a bug in nvml-gpu-1" in worker.log())  # the reading does not wait for it


def raising(function: str, gate: Path) -> str:
    """Return what makes a function of pynvml raise while that file is there."""
    return (
        f"import os\n_{function} = {function}\ndef {function}(*arguments):\n"
        f"    if os.path.exists({str(gate)!r}):\n        raise SystemExit(os.urandom(8).hex())\n"
        f"    return _{function}(*arguments)\n"
    )


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("nvmlDeviceGetUtilizationRates", "a bug in nvml-gpu-"),
        ("nvmlDeviceGetCount", "a bug in nvml-session"),
        ("nvmlInit", "a bug in nvml-session"),
        ("nvmlDeviceGetPcieThroughput", "a bug in the PCIe samples"),
    ],
)
def test_pynvml_that_raises_systemexit_ends_no_thread_and_is_said_once(
    fake: FakeNvml, tmp_path: Path, function: str, where: str
) -> None:
    """What is raised has another text each time, as an error with an address in it has."""
    gate = tmp_path / "gate"
    fake.set(0, utilization=90)
    throughput = PCIE_THROUGHPUT["transmit"]
    with closing(NvmlWorker(fake, environment=shadow(tmp_path / "path", raising(function, gate)), buggy=True)) as worker:
        if function != "nvmlInit":
            worker.warm()
        gate.touch()
        threads = 2 if where == "a bug in nvml-gpu-" else 1

        def said(_: Round) -> bool:
            worker.ask()
            return worker.log().count(where) == threads

        worker.until(Tier.NORMAL, said)
        told = Tier.NORMAL if threads == 1 else Tier.FAST
        if function != "nvmlInit":  # which has a driver's state to say it
            worker.until(told, lambda found: any("SystemExit" in words for words in found.bugs))
        for _ in range(4):
            worker.ask()
            assert worker.survey().state == ("failed" if function == "nvmlInit" else "ok")
        gate.unlink()

        def whole(found: Round) -> bool:
            fast = worker.ask()
            sampled = found.of(GPU).get(fake.uuid(0))
            return (
                len(fast.readings) == 2
                and all(one.values for one in fast.readings)
                and throughput in (sampled or fast.readings[0]).values
            )

        worker.until(Tier.NORMAL, whole)
        worker.until(told, lambda found: not found.bugs)
        if "PCIe" in where:
            worker.until(Tier.NORMAL, lambda _: worker.log().count("the PCIe samples are whole again") == 1)
        assert (worker.log().count(where), worker.log().count("Traceback")) == (threads, threads), worker.log()


def test_a_driver_that_comes_late_is_picked_up_as_soon_as_its_module_is_loaded(fake: FakeNvml) -> None:
    """utkuozdemir/nvidia_gpu_exporter#65: started before the driver at boot, never recovered."""
    fake.unload()
    with closing(NvmlWorker(fake, normal=60.0)) as worker:  # back-off: half a minute, but the module is seen to come
        assert worker.survey().state == "not_loaded"
        assert worker.survey().state == "not_loaded"
        assert fake.calls("nvmlInitWithFlags") == 1
        fake.load("535.154.05")
        assert worker.survey().state == "ok"
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
        assert worker.survey().state == "ok"
        assert worker.restarts == []


def test_a_new_kernel_module_asks_for_a_new_process(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.load("550.90.07")
        worker.survey()
        worker.survey()
        assert worker.restarts == ["driver_change"]


def test_a_mismatch_that_comes_while_we_run_asks_for_a_new_process(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        fake.init(18)
        fake.answer("nvmlDeviceGetUtilizationRates", 18)
        found = worker.until(Tier.FAST, lambda _: bool(worker.restarts))
        assert worker.restarts == ["driver_change"]
        assert worker.survey().state == "version_mismatch"
        assert all(not one.values for one in found.readings if one.target.key)


def test_a_library_that_was_replaced_on_disk_is_picked_up_by_a_new_process(fake: FakeNvml) -> None:
    fake.init(18)
    with closing(NvmlWorker(fake)) as worker:
        assert worker.survey().state == "version_mismatch"
        assert worker.restarts == []  # a new process would find the same
        fake.install("550")
        worker.until(Tier.NORMAL, lambda _: bool(worker.restarts))
        assert worker.restarts == ["driver_change"]


def test_a_new_process_after_a_driver_change_tells_the_new_version(fake: FakeNvml) -> None:
    for driver in ("535.154.05", "595.71.05"):
        fake.install(driver.partition(".")[0])
        fake.load(driver)
        with closing(NvmlWorker(fake)) as worker:
            info = worker.survey().driver.target.info
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
        assert min(worker.ask().took for _ in range(5)) < 0.3
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
        assert worker.survey().state == "access_lost"
        fake.answer_all(0)
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")


def test_a_count_that_fails_leaves_the_number_unknown_and_the_gpus_readable(fake: FakeNvml) -> None:
    with closing(NvmlWorker(fake)) as worker:
        worker.warm()
        for code in (2, 4, 6, 10, 15, 20, 999):
            fake.fail("nvmlDeviceGetCount", code, gpu=SYSTEM)
            found = worker.survey()
            assert isinstance(found.visible, Absence)
            assert not fake.failing("nvmlDeviceGetCount", gpu=SYSTEM)
            assert all(found.gpu(fake.uuid(gpu)).values for gpu in (0, 1))
        assert worker.survey().visible == 2


def test_init_is_called_once_and_shutdown_never(fake: FakeNvml) -> None:
    """netdata/netdata#14522: each start of a tool costs seconds and hangs old cards."""
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(20):
            worker.ask()
            worker.survey()
    assert (fake.calls("nvmlInitWithFlags"), fake.shutdowns) == (1, 0)


def test_a_change_of_the_driver_is_logged_once_at_each_end(fake: FakeNvml) -> None:
    fake.unload()
    with closing(NvmlWorker(fake)) as worker:
        for _ in range(6):
            worker.survey()
        fake.load("535.154.05")
        worker.until(Tier.NORMAL, lambda round_: round_.state == "ok")
        for _ in range(6):
            worker.survey()
        log = worker.log()
    assert (log.count("module is not loaded"), log.count("NVML is initialised")) == (1, 1), log
