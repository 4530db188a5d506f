"""One of eight GPUs in trouble: the other seven go on, the page answers, and the log says it once at each end."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.daemon import Page
from tests.fakes.gpu_server import PACE, WATCHFUL, GpuServer
from tests.fakes.receiver import Receiver
from tests.fakes.until import until

KINDS = {15: "lost", 16: "reset_required", 999: "unknown_error"}
CLOSED = [  # code of nvmlDeviceGetHandleByIndex, kind of the fault, words of it
    (1, "unknown_error", "(1)"),
    (4, "no_permission", "check the mode of its /dev/nvidia* node"),
    (8, "unknown_error", "power cable"),
    (9, "unknown_error", "(9)"),
    (11, "unknown_error", "interrupts"),
    (14, "unknown_error", "InfoROM"),
    (15, "lost", "power cycle"),
    (16, "reset_required", "nvidia-smi --gpu-reset"),
    (17, "unknown_error", "(17)"),
    (999, "unknown_error", "(999)"),
]
LOST = {1: 15, 3: 999, 6: 16}
OTHERS = [0, 1, 2, 3, 4, 6, 7]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """The receiver of messages."""
    with Receiver() as found:
        yield found


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuServer]:
    """A server whose driver was upgraded. Its own numbers follow within ten seconds, while other tests run."""
    with GpuServer(tmp_path_factory.mktemp("upgraded")) as server:
        names = {card: server.series(server.wait_up(8), card) for card in range(8)}
        (first,) = [pid for pid, name in server.daemon.workers().items() if name == "gpuwatch-nvml"]
        server.nvml.install("550")
        server.nvml.load("550.90.07")
        server.daemon.until(lambda page: page.all("gpuwatch_driver_info", driver_version="550.90.07"))
        page = server.daemon.until(lambda page: all(names[card] <= server.series(page, card) for card in range(8)))
        assert len(page.all("gpuwatch_driver_info")) == 1
        assert [value for _, value in page.all("gpuwatch_gpu_up")] == [1] * 8
        server.moves(range(8))
        (second,) = [pid for pid, name in server.daemon.workers().items() if name == "gpuwatch-nvml"]
        assert first != second
        yield server


def down(card: int) -> Callable[[Page], bool]:
    """Return whether a page shows this card as down."""
    return lambda page: page.value("gpuwatch_gpu_up", gpu=str(card)) == 0


def test_gpus_that_are_lost_under_us_are_listed_as_lost_and_cost_nobody_else_a_series(
    tmp_path: Path, upgraded: GpuServer
) -> None:
    """XuehaiPan/nvitop#139: the library dies when a dead handle is used again and again."""
    others = [card for card in range(8) if card not in LOST]
    with GpuServer(tmp_path) as server:
        before = server.wait_up(8)
        names = {card: server.series(before, card) for card in range(8)}
        for card, code in LOST.items():
            server.nvml.lose(card, code)
        for card, code in LOST.items():
            page = server.daemon.until(down(card))
            assert page.state("gpuwatch_gpu_down_reason", "reason", gpu=str(card)) == KINDS[code]
            if code == 999:  # it may be a moment's trouble, so each tier finds out for itself
                page = server.daemon.until(lambda page, card=card: server.series(page, card) == set())  # type: ignore[misc]
            assert server.series(page, card) == set()
        assert {card: server.nvml.dead_uses(card) <= 3 for card in (1, 6)} == {1: True, 6: True}
        server.moves(others)
        page = server.answers_quickly()
        assert {card: names[card] - server.series(page, card) for card in others} == {card: set() for card in others}
        status, (first, *lines) = server.ready()
        assert (status, first) == (200, "ready")
        assert len([line for line in lines if line.startswith("GPU ")]) == len(LOST)
        read = server.read_nvml()
        for card, code in LOST.items():
            uuid = server.nvml.uuid(card)
            assert len([line for line in lines if line.startswith(f"GPU {card} {uuid}: ")]) == 1
            fault = read[f"gpu {uuid}"]["fault"]
            assert (fault["kind"], fault["code"]) == (KINDS[code], code)
            server.nvml.find(card)
        server.wait_up(8)
        server.daemon.until(lambda page: all(names[card] <= server.series(page, card) for card in range(8)))
    for card in LOST:
        lines = [line for line in server.lines() if f"GPU {card} " in line]
        assert ["answers again" in line for line in lines] == [False, True], lines
    assert server.said("gpuwatch-nvml ") == 0, server.daemon.said()  # its process was not touched


def test_every_reason_for_which_a_gpu_cannot_be_opened_is_told_apart_and_ends_without_a_restart(tmp_path: Path) -> None:
    """nvml.md 1.3: in three places; the words tell them apart where the kind does not, and the page counts the codes."""
    server = GpuServer(tmp_path, gpus=1 + len(CLOSED))
    for card, (code, _, _) in enumerate(CLOSED):
        server.nvml.answer("nvmlDeviceGetHandleByIndex", code, gpu=card)
    with server:
        read = server.read_nvml()
        server.wait_up(1)
        server.daemon.until(lambda page: len(page.all("gpuwatch_gpu_up")) == 1 + len(CLOSED))
        page = server.daemon.until(
            lambda page: all(page.value("gpuwatch_nvml_errors_total", code=str(code)) for code, _, _ in CLOSED)
        )
        status, lines = server.ready()
        assert (status, lines[0]) == (200, "ready")
        assert len([line for line in lines if line.startswith("GPU ")]) == len(CLOSED)  # a probe that is late has a line, too
        for card, (code, kind, words) in enumerate(CLOSED):
            uuid = server.nvml.uuid(card)
            fault = read[f"gpu {uuid}"]["fault"]
            assert (fault["kind"], fault["code"], words in fault["words"]) == (kind, code, True), fault
            (line,) = [line for line in lines if uuid in line]
            assert line == f"GPU {card} {uuid}: {fault['words']}"
            assert page.state("gpuwatch_gpu_down_reason", "reason", uuid=uuid) == kind
            server.nvml.answer("nvmlDeviceGetHandleByIndex", 0, gpu=card)
        server.moves([len(CLOSED)])
        server.wait_up(1 + len(CLOSED))
    for card, (_, _, words) in enumerate(CLOSED):
        said = [line for line in server.lines() if f"GPU {card} " in line]
        assert [(words in line, "answers again" in line) for line in said] == [(True, False), (False, True)], said


def test_a_library_that_kills_its_process_twenty_times_costs_no_series_in_the_end(tmp_path: Path) -> None:
    with GpuServer(tmp_path, config=f'[sources.nvml]\n{PACE}\nbackoff = "50ms"\n') as server:
        names = {card: server.series(server.wait_up(8), card) for card in range(8)}
        server.nvml.lose(3)
        server.daemon.until(down(3))
        server.nvml.crash("nvmlInitWithFlags")
        server.nvml.crash("nvmlDeviceGetUtilizationRates")
        begun = server.nvml.calls("nvmlInitWithFlags")
        until(lambda: server.nvml.calls("nvmlInitWithFlags") >= begun + 20)
        server.answers_quickly()
        assert any(line.startswith("gpuwatch-nvml: ") for line in server.until_not_ready())
        server.nvml.crash("nvmlInitWithFlags", on=False)
        server.nvml.crash("nvmlDeviceGetUtilizationRates", on=False)
        server.wait_up(7)
        server.nvml.find(3)
        server.wait_up(8)
        server.moves(range(8))
        page = server.daemon.until(lambda page: all(names[card] <= server.series(page, card) for card in range(8)))
        assert {labels["gpu"] for labels, _ in page.all("gpuwatch_alert_state")} <= {"3"}
        until(lambda: server.said("GPU 3 .* answers again") == 1)
        assert list(server.daemon.workers().values()).count("gpuwatch-nvml") == 1
    said = (server.said("gpuwatch-nvml ended unasked"), server.said("gpuwatch-nvml answers again"))
    assert said == (1, 1), server.daemon.said()
    assert (server.said("GPU 3 .* is lost"), server.said("GPU . ")) == (1, 2), server.daemon.said()


def test_a_count_that_goes_from_eight_to_seven_and_back_is_one_gpu_and_not_the_ones_behind_it(tmp_path: Path) -> None:
    with GpuServer(tmp_path, config=WATCHFUL) as server:
        server.wait_up(8)
        empty_for_one_poll(server)
        server.unplug(5)
        server.nvml.show(OTHERS)
        page = server.daemon.until(lambda page: page.value("gpuwatch_gpu_up", uuid=server.nvml.uuid(5)) == 0)
        assert page.value("gpuwatch_gpus_expected") == 8
        page = server.daemon.until(lambda page: page.value("gpuwatch_gpus_visible", source="nvml") == 7)
        server.moves(OTHERS)
        indexes = {labels["uuid"]: labels["gpu"] for labels, _ in server.daemon.page().all("gpuwatch_gpu_utilization_ratio")}
        assert indexes == {server.nvml.uuid(card): str(index) for index, card in enumerate(OTHERS)}
        until(lambda: [alert["labels"]["uuid"] for alert in server.daemon.status()["alerts"]] == [server.nvml.uuid(5)])
        server.plug(5)
        server.nvml.show(range(8))
        server.wait_up(8)
        until(lambda: server.daemon.status()["alerts"] == [])
    assert (server.said("GPU 5 .* is gone from NVML's list"), server.said("GPU 5 .* answers again")) == (1, 1)
    assert server.said("GPU . ") == 2, server.daemon.said()
    assert (server.said("NVML shows 7 GPUs, before it were 8"), server.said("NVML shows 8 GPUs, before it were 7")) == (1, 1)
    assert server.said("NVML shows") == 2, server.daemon.said()


def test_eight_gpus_gone_at_once_are_listed_and_are_one_message_until_all_are_back(tmp_path: Path, receiver: Receiver) -> None:
    with GpuServer(tmp_path, receiver=receiver) as server:
        names = {card: server.series(server.wait_up(8), card) for card in range(8)}
        server.nvml.show([])
        page = server.daemon.until(lambda page: sum(value for _, value in page.all("gpuwatch_gpu_up")) == 0)
        assert len(page.all("gpuwatch_gpu_up")) == 8
        server.answers_quickly()
        message = server.wait_message(lambda message: message["kind"] == "firing")
        assert sorted(alert["labels"]["gpu"] for alert in message["alerts"]) == [str(card) for card in range(8)]
        assert len(server.messages()) == 1
        server.nvml.show(range(8))
        server.wait_up(8)
        server.moves(range(8))
        server.daemon.until(lambda page: all(names[card] <= server.series(page, card) for card in range(8)))
        until(lambda: server.daemon.status()["alerts"] == [])
        assert server.ready() == (200, ["ready"])
        assert len(server.messages()) == 1  # that it is over is told in its turn, minutes later
    said = (server.said("NVML shows 0 GPUs, before it were 8"), server.said("NVML shows 8 GPUs, before it were 0"))
    assert (said, server.said("NVML shows")) == ((1, 1), 2), server.daemon.said()
    for card in range(8):
        lines = [line for line in server.lines() if f"GPU {card} " in line]
        assert [("is gone from NVML's list" in line, "answers again" in line) for line in lines] == [(True, False), (False, True)]


def empty_for_one_poll(server: GpuServer) -> None:
    """Have NVML's list empty when it is asked once (netdata/netdata#23207), and fail if that is told of anything."""
    for _ in range(2):
        polled = server.nvml.calls("nvmlDeviceGetCount")
        server.nvml.count_none()
        until(lambda polled=polled: server.nvml.calls("nvmlDeviceGetCount") >= polled + 2)  # type: ignore[misc] # its own
        assert [value for _, value in server.daemon.page().all("gpuwatch_gpu_up")] == [1] * 8
    server.moves(range(8))
    assert (server.daemon.status()["alerts"], server.said("GPU . ")) == ([], 0), server.daemon.said()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine (Debian: apt install prometheus)")
def test_odd_cards_among_good_ones_have_what_they_have_and_disturb_nobody(tmp_path: Path) -> None:
    """XuehaiPan/nvitop#168 (Orin), GB10, a GeForce with few fields, and one whose texts are garbage."""
    server = GpuServer(tmp_path, gpus=6)
    whole = server.daemon.file.read_text().replace("[http]\n", "[http]\ndetails = true\n")  # all that they have is on the page
    server.daemon.file.write_text(whole)
    for card, model in ((1, "GB10"), (2, "Orin"), (3, "RTX 3090")):
        server.unplug(card)
        server.nvml._fill(card, model)
        server.plug(card)
    server.nvml.load("580.95.05")
    server.nvml.text(4, name=b'\xff\xfe\x1b[31m"\n\\', serial=b"\x80\x81", vbios=b"\x01", part_number=b"\xc3\x28{}")
    own = {"gpuwatch_gpu_info", "gpuwatch_gpu_up", "gpuwatch_gpu_state", "gpuwatch_gpu_last_seen_timestamp_seconds"}
    own |= {"gpuwatch_gpu_errors_open", "gpuwatch_gpu_bus_drops_total"}
    own |= {"gpuwatch_xid_errors_total"}  # what the daemon counts itself, of every GPU
    memory = {f"gpuwatch_gpu_memory_{name}_bytes" for name in ("size", "used")}
    with server:
        server.daemon.wait_ready()
        page = server.daemon.until(lambda page: all(memory <= server.series(page, card) for card in (0, 3, 4, 5)))
        page = server.daemon.until(lambda page: len(page.all("gpuwatch_gpu_memory_unified")) == 6)
        page = server.daemon.until(lambda page: [value for _, value in page.all("gpuwatch_gpu_up")] == [1] * 6)
        page = server.daemon.until(lambda page: server.series(page, 5) == server.series(page, 0) == server.series(page, 4))
        names = {labels["gpu"]: labels["name"] for labels, _ in page.all("gpuwatch_gpu_info")}
        assert (names["4"], names["2"]) == ('\\xff\\xfe\\x1b[31m" \\', "Orin (nvgpu)")
        unified = {labels["gpu"] for labels, value in page.all("gpuwatch_gpu_memory_unified") if value == 1}
        assert unified == {"1", "2"}
        sizes = "gpuwatch_gpu_memory_size_bytes"
        page = server.daemon.until(lambda page: all(page.value(sizes, gpu=card) for card in ("1", "2")))
        assert {page.value(sizes, gpu=card) for card in ("1", "2")} == {page.value("gpuwatch_host_memory_size_bytes")}
        assert page.value("gpuwatch_gpu_memory_used_bytes", gpu="1") == 0  # its list of processes is empty; Orin has none
        shared = {f"gpuwatch_gpu_memory_{name}" for name in ("unified", "size_bytes")}
        page = server.daemon.until(lambda page: {name for name in page.names if page.all(name, gpu="2")} >= own | shared)
        assert {name for name in page.names if page.all(name, gpu="2")} == own | shared  # no 0 for what it does not say
        assert "gpuwatch_gpu_ecc_errors_total" not in server.series(page, 3)
        server.moves([0, 1, 3, 4, 5])
        assert server.ready() == (200, ["ready"])
        assert server.daemon.page().all("gpuwatch_alert_state") == []
        checked = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert server.said("WARNING gpuwatch-nvml") == 0, server.daemon.said()


def test_a_new_driver_is_picked_up_by_a_new_process_and_the_series_go_on(upgraded: GpuServer) -> None:
    restarts = "gpuwatch_collector_restarts_total"
    page = upgraded.daemon.until(lambda page: page.value(restarts, collector="nvml", reason="driver_change") == 1)
    assert page.all("gpuwatch_alert_state") == []
    upgraded.moves(range(8))
    said = (upgraded.said("gpuwatch-nvml asked to be replaced"), upgraded.said("gpuwatch-nvml answers again"))
    assert said == (1, 1), upgraded.daemon.said()
    assert upgraded.said("the kernel module went from 535.154.05 to 550.90.07") == 1, upgraded.daemon.said()
