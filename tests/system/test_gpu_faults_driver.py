"""The driver is away, broken or replaced under a running daemon: said once, told in three places, and over without a restart."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.gpu_server import GpuServer
from tests.fakes.nvml import FakeNvml
from tests.fakes.until import until

DRIVER = "535.154.05"


def not_loaded(nvml: FakeNvml) -> None:
    """The kernel module is not loaded."""
    nvml.unload()


def mismatch(nvml: FakeNvml) -> None:
    """The package was upgraded and the module was not reloaded."""
    nvml.init(18)


def no_nodes(nvml: FakeNvml) -> None:
    """The module is loaded, and nobody has made its nodes."""
    nvml.nodes(there=False)
    nvml.init(4)


def access_lost(nvml: FakeNvml) -> None:
    """The device cgroup of a container was taken away: nvmlInit answers "Unknown Error"."""
    nvml.init(999)


SPOILT = [  # one of each kind; all of them in tests/seams/test_nvml_driver.py
    (FakeNvml.uninstall, "no_library", "is not installed"),
    (mismatch, "version_mismatch", "reboot, or reload the nvidia modules"),
    (no_nodes, "no_nodes", "are not there yet; they are waited for for up to 120 s"),
    (access_lost, "access_lost", "recreate it"),
]


@pytest.mark.parametrize(("spoil", "state", "words"), SPOILT, ids=[state for _, state, _ in SPOILT])
def test_a_driver_that_is_not_there_is_named_in_three_places_and_picked_up_when_it_comes(
    tmp_path: Path, spoil: Callable[[FakeNvml], None], state: str, words: str
) -> None:
    """utkuozdemir/nvidia_gpu_exporter#65: started before the driver at boot, never recovered."""
    server = GpuServer(tmp_path, gpus=2)
    spoil(server.nvml)
    waits = state == "no_nodes"  # for two minutes, which are crossed in tests/seams/test_nvml_nodes.py
    with server:
        found = server.read_nvml()["driver"]["fault"]
        assert (found["kind"], words in found["words"]) == (state, True), found
        page = server.until_driver(state)
        assert page.all("gpuwatch_gpu_up") == []  # none was ever seen, and none is made up
        assert page.value("gpuwatch_gpus_visible", source="nvml") is None
        assert (page.value("gpuwatch_driver_version_mismatch") == 1) == (state == "version_mismatch")
        server.daemon.until(lambda page: page.all("gpuwatch_host_memory_available_bytes"))
        server.answers_quickly()
        (line,) = [reason for reason in server.until_not_ready() if reason.startswith(f"driver {state}: ")]
        assert words in line
        status = server.daemon.status()
        told = status["driver"]
        assert (told["state"], words in told["words"], told["waits"]) == (state, True, waits), told
        assert [line.startswith(f"driver {state}: ") for line in status["troubles"]] == [True][waits:]
        server.nvml.install("535")
        server.nvml.load(DRIVER)
        server.wait_up(2)
        assert server.ready() == (200, ["ready"])
        assert server.daemon.page().all("gpuwatch_alert_state", rule="gpu_dropped") == []
    said = (server.said(rf"{'INFO' if waits else 'WARNING'} gpuwatch-nvml: .*{words}"), server.said("NVML is initialised"))
    assert said == (1, 1), server.daemon.said()
    assert server.said("WARNING gpuwatch-nvml") == (not waits), server.daemon.said()


@pytest.mark.parametrize(
    ("spoil", "state", "line"),
    [
        (not_loaded, "not_loaded", "WARNING gpuwatch-nvml: .* the nvidia kernel module is not loaded"),
        (no_nodes, "no_nodes", "INFO gpuwatch-nvml: .* are waited for for up to 120 s"),
    ],
)
def test_a_driver_that_goes_away_under_us_costs_no_gpu_its_name(
    tmp_path: Path, spoil: Callable[[FakeNvml], None], state: str, line: str
) -> None:
    with GpuServer(tmp_path, gpus=2) as server:
        server.wait_up(2)
        spoil(server.nvml)
        server.nvml.uninitialise()
        page = server.until_driver(state)
        page = server.daemon.until(lambda page: [value for _, value in page.all("gpuwatch_gpu_up")] == [0, 0])
        assert [page.state("gpuwatch_gpu_down_reason", "reason", gpu=str(gpu)) for gpu in (0, 1)] == ["driver", "driver"]
        page = server.daemon.until(lambda page: server.series(page, 0) | server.series(page, 1) == set())
        assert page.all("gpuwatch_alert_state", rule="gpu_dropped") == []
        server.nvml.load(DRIVER)
        server.wait_up(2)
    said = (server.said(line), server.said("WARNING gpuwatch-nvml"))
    assert said == (1, int(state == "not_loaded")), server.daemon.said()
    assert server.said("NVML is initialised") == 2, server.daemon.said()  # at the start, and once again


def test_a_driver_whose_end_is_met_by_the_event_wait_drops_no_gpu_until_the_next_look_at_it(tmp_path: Path) -> None:
    """The look at the driver itself is held: it is not that which says so before three odd answers of a GPU count as lost."""
    pace = 'every = "300ms"\nevery_normal = "3s"\nevery_slow = "6s"\ndeadline = "30s"'
    with GpuServer(tmp_path, gpus=4, pace=pace) as server:
        server.wait_up(4)
        looks = server.nvml.calls("nvmlDeviceGetCount")
        server.nvml.hang(None, "nvmlDeviceGetCount")
        until(lambda: server.nvml.calls("nvmlDeviceGetCount") > looks)
        server.nvml.unload()
        server.nvml.answer("nvmlEventSetWait", 9)
        server.until_driver("not_loaded")
        page = server.daemon.until(lambda page: [value for _, value in page.all("gpuwatch_gpu_up")] == [0] * 4)
        assert [page.state("gpuwatch_gpu_down_reason", "reason", gpu=str(card)) for card in range(4)] == ["driver"] * 4
        assert server.nvml.calls("nvmlDeviceGetCount") == looks + 1
        server.nvml.release(None, "nvmlDeviceGetCount")
        assert page.all("gpuwatch_alert_state", rule="gpu_dropped") == []
        server.nvml.answer("nvmlEventSetWait", 0)
        server.nvml.load(DRIVER)
        server.wait_up(4)
        assert server.daemon.page().all("gpuwatch_alert_state", rule="gpu_dropped") == []
    assert "gpu_dropped" not in server.daemon.said(), server.daemon.said()


def test_access_that_a_container_loses_is_not_eight_dead_gpus(tmp_path: Path) -> None:
    """NVIDIA/nvidia-docker#1730."""
    with GpuServer(tmp_path) as server:
        (Path(server.nvml.root) / ".dockerenv").touch()
        server.wait_up(8)
        server.nvml.answer_all(999)
        server.until_driver("access_lost")
        server.daemon.until(lambda page: sum(value for _, value in page.all("gpuwatch_gpu_up")) == 0)
        assert server.until_not_ready()[0].startswith("driver access_lost: ")
        server.nvml.answer_all(0)
        server.until_driver("ok")
        server.wait_up(8)
        assert server.daemon.page().all("gpuwatch_alert_state", rule="gpu_dropped") == []
    said = (server.said("access to the NVIDIA devices was lost"), server.said("the driver answers again"))
    assert said == (1, 1), server.daemon.said()


def test_nodes_that_are_gone_under_the_only_gpu_of_a_host_are_not_a_lost_card(tmp_path: Path) -> None:
    with GpuServer(tmp_path, gpus=1) as server:
        for code in (4, 999):
            server.wait_up(1)
            server.nvml.nodes(there=False)
            server.nvml.answer_all(code)
            server.until_driver("no_nodes")
            page = server.daemon.until(lambda page: page.value("gpuwatch_gpu_up", gpu="0") == 0)
            assert page.state("gpuwatch_gpu_down_reason", "reason", gpu="0") == "driver"
            server.nvml.nodes()
            server.nvml.answer_all(0)
        server.wait_up(1)
        assert server.daemon.page().all("gpuwatch_alert_state", rule="gpu_dropped") == []
    assert ["gpu_dropped" in server.daemon.said(), "power cycle" in server.daemon.said()] == [False, False], server.daemon.said()


def test_a_broken_module_pynvml_is_named_by_its_file_and_costs_the_gpus_until_it_is_mended(tmp_path: Path) -> None:
    """nicolargo/glances#1097: three packages fight for the name pynvml. One is for Python 2, one is another program."""
    with ExitStack() as stack:
        servers: dict[Path, GpuServer] = {}
        for name, content in (("old", "print 'for Python 2'\n"), ("other", "x = 1\n")):
            module = tmp_path / name / "path" / "pynvml.py"
            module.parent.mkdir(parents=True)
            module.write_text(content)
            server = GpuServer(tmp_path / name, gpus=2, environ={"PYTHONPATH": str(module.parent)})
            servers[module] = stack.enter_context(server)
        for module, server in servers.items():
            assert str(module) in server.read_nvml()["driver"]["fault"]["words"]
            server.until_driver("failed")
            server.daemon.until(lambda page: page.all("gpuwatch_host_memory_available_bytes"))
            (line,) = [line for line in server.until_not_ready() if line.startswith("driver ")]
            assert str(module) in line
            server.answers_quickly()
            assert server.said(str(module)) == 1, server.daemon.said()
            module.unlink()  # so that the right one is found
        for module, server in servers.items():
            server.wait_up(2)
            assert server.ready() == (200, ["ready"])
            said = (server.said(f"WARNING gpuwatch-nvml: .*{module}"), server.said("NVML is initialised"))
            assert said == (1, 1), server.daemon.said()
            assert server.said("WARNING gpuwatch-nvml") == 1, server.daemon.said()
            assert server.said("gpuwatch-nvml (ended|asked)") == 0, server.daemon.said()  # in the same process


def test_every_driver_gives_pcie_throughput_without_being_asked(tmp_path: Path) -> None:
    """operator.md 2: the owner's word, on by default from 470, and right."""
    name = "gpuwatch_gpu_pcie_throughput_bytes_per_second"
    with ExitStack() as stack:
        servers = []
        for driver in ("470.256.02", "535.154.05", "595.71.05"):
            (tmp_path / driver).mkdir()
            server = GpuServer(tmp_path / driver, gpus=2, driver=driver)
            for card in (0, 1):
                server.nvml.set(card, utilization=80, pcie_transmit_rate=1_200_000, pcie_receive_rate=12_000_000)
            servers.append(stack.enter_context(server))
        for server in servers:
            server.daemon.wait_ready()
            page = server.daemon.until(lambda page: len(page.all(name)) == 4)
            assert {labels["direction"]: value for labels, value in page.all(name, gpu="1")} == {
                "transmit": 1.2e9,
                "receive": 12e9,
            }
