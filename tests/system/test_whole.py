"""The whole: real numbers of this host beside eight fake GPUs, a real Prometheus that scrapes them, a receiver that is told."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwatch.client import Client
from tests.fakes.gpu_server import GpuServer
from tests.fakes.prometheus import Prometheus, free_port, prometheus, tool
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until

DROPPED = 3


@dataclass(frozen=True, slots=True)
class Whole:
    """All of it, at work: GPU 3 has dropped out."""

    server: GpuServer
    prometheus: Prometheus
    address: str

    def answer(self, expression: str) -> dict[str, float]:
        """Return what Prometheus answers, by the label `gpu` ("" where there is none)."""
        return {one["metric"].get("gpu", ""): float(one["value"][1]) for one in self.prometheus.query(expression)}

    def number(self, expression: str) -> float | None:
        """Return the one number that Prometheus answers, None where it has none."""
        found = self.prometheus.query(expression)
        return float(found[0]["value"][1]) if found else None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """Start it on this host's own /proc and /sys, let Prometheus scrape it, and let a GPU drop out."""
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        folder = tmp_path_factory.mktemp("whole")
        server = stack.enter_context(GpuServer(folder, receiver=receiver, listen=address, real_host=True))
        server.wait_up(8)  # before it is scraped for the first time
        job = f'{{ job_name: gpuwatch, static_configs: [ {{ targets: ["{address}"] }} ] }}'
        running = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), [job]))
        found = Whole(server, running, address)
        until(lambda: found.answer("gpuwatch_gpu_up") == {str(gpu): 1.0 for gpu in range(8)})
        server.nvml.lose(DROPPED)
        yield found


def test_prometheus_sees_one_gpu_drop_out_and_seven_stay(whole: Whole) -> None:
    expected = {str(gpu): float(gpu != DROPPED) for gpu in range(8)}
    until(lambda: whole.answer("gpuwatch_gpu_up") == expected)
    assert whole.answer('gpuwatch_gpu_down_reason{reason="lost"} == 1') == {str(DROPPED): 1.0}
    others = {gpu for gpu, up in expected.items() if up}
    until(lambda: set(whole.answer('gpuwatch_gpu_temperature_celsius{sensor="core"}')) == others)
    assert whole.number("gpuwatch_gpus_expected") == 8
    assert whole.number('min_over_time(up{job="gpuwatch"}[1m])') == 1


def test_prometheus_has_the_numbers_of_this_host(whole: Whole) -> None:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    size = int(next(line for line in lines if line.startswith("MemTotal:")).split()[1]) * 1024
    until(lambda: whole.number("gpuwatch_host_memory_size_bytes") == size)
    until(lambda: (whole.number("gpuwatch_host_memory_available_bytes") or 0) > 0)
    until(lambda: whole.number("sum(increase(gpuwatch_host_cpu_seconds_total[30s])) > 0") is not None)
    until(lambda: (whole.number("count(gpuwatch_filesystem_size_bytes)") or 0) > 0)


def test_the_alert_arrives_at_the_receiver(whole: Whole) -> None:
    message = whole.server.wait_message(lambda message: message["kind"] == "firing")
    (alert,) = message["alerts"]
    assert (alert["rule"], alert["severity"], alert["labels"]["gpu"]) == ("gpu_dropped", "critical", str(DROPPED))
    until(lambda: whole.answer('gpuwatch_alert_state{rule="gpu_dropped", state="firing"} == 1') == {str(DROPPED): 1.0})


def test_promtool_finds_nothing_to_complain_of_on_the_live_page(whole: Whole) -> None:
    page = Client(whole.address).get("/metrics").body
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=page, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
