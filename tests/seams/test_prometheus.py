"""A real Prometheus scrapes the page and answers for it; promtool finds nothing to complain of."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from gpuwatch.catalogue import disk, gpu
from gpuwatch.client import Client, Unreachable
from gpuwatch.export.message import Response, Route
from gpuwatch.export.page import TEXT, Page
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from tests.fakes import page_view
from tests.fakes.web import Answers, serving, until

ODD = 'a"b\\c\nd {x="y"} 显卡 \x01\x7f\r\t\u2028 \udc80\0'
CONFIG = """
global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}
scrape_configs:
- job_name: gpuwatch
  static_configs: [ {{ targets: ["{address}"] }} ]
- job_name: text
  static_configs: [ {{ targets: ["{address}"] }} ]
  metrics_path: /text
"""


class Host(Answers):
    """A host with eight GPUs, one disk whose name is a trap, and numbers that test the format."""

    def view(self) -> View:
        """Return the view of this beat."""
        odd = Target(subject=disk.DISK, key="odd", labels={"device": ODD}, info={"model": ODD})
        numbers = {disk.TEMPERATURE: 1e-300, disk.POWER_ON: 2.0**53 - 1, disk.WEAR_USED: 0.1 + 0.2}
        entries = dict(page_view.big_host(self.beats).entries)
        entries[odd] = page_view.entry(odd, numbers)
        return View(time.time(), entries)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus that scrapes one gpuwatch."""

    client: Client
    host: Host

    def ask(self, path: str) -> Any:
        """Return the data of an API answer, None while there is none."""
        try:
            reply = self.client.get(path)
        except Unreachable:
            return None
        return json.loads(reply.body)["data"] if reply.status == 200 else None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of a query."""
        data = self.ask(f"/api/v1/query?query={quote(expression)}")
        return list(data["result"]) if data else []


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start gpuwatch's server and a Prometheus that has scraped it twice."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on this machine (Debian: apt install prometheus)")
    folder, host = tmp_path_factory.mktemp("prometheus"), Host()
    text = Route("/text", lambda _: Response(200, host.page.get(), TEXT))  # this Prometheus always prefers OpenMetrics
    with serving(folder, [text], host) as served:
        (folder / "prometheus.yml").write_text(CONFIG.format(address=served.address))
        port = free_port()
        command = [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            running = Prometheus(Client(f"127.0.0.1:{port}"), host)
            try:
                scraped = until(lambda: bool(running.query("count(count_over_time(up[1m]) >= 2) == 2")), 15)
                assert scraped, (folder / "log").read_text()
                yield running
            finally:
                process.terminate()
                process.wait(10)


def test_a_real_prometheus_takes_every_series_of_the_page(prometheus: Prometheus) -> None:
    targets = prometheus.ask("/api/v1/targets")["activeTargets"]
    assert [(found["health"], found["lastError"]) for found in targets] == [("up", "")] * 2
    lines = [line for line in prometheus.host.page.get().decode().split("\n") if line and line[0] != "#"]
    assert [int(found["value"][1]) for found in prometheus.query("scrape_samples_scraped")] == [len(lines)] * 2


def test_a_query_gives_the_numbers_of_the_view(prometheus: Prometheus) -> None:
    found = {
        series["metric"]["uuid"]: float(series["value"][1])
        for series in prometheus.query('gpuwatch_gpu_power_watts{job="gpuwatch"}')
    }
    assert found == {
        entry.target.key.split("/")[1]: entry.values[gpu.POWER] for entry in page_view.big_host(prometheus.host.beats).of(gpu.GPU)
    }


def test_odd_labels_and_numbers_arrive_unchanged(prometheus: Prometheus) -> None:
    written = ODD.replace("\udc80", "\\udc80").replace("\0", "\\x00")
    by_name = {}
    for series in prometheus.query('{__name__=~"gpuwatch_disk_.*", device!~"nvme.*"}'):
        assert series["metric"]["device"] == written
        by_name[series["metric"]["job"], series["metric"]["__name__"]] = float(series["value"][1])
    expected = {
        "gpuwatch_disk_info": 1.0,
        "gpuwatch_disk_temperature_celsius": 1e-300,
        "gpuwatch_disk_power_on_seconds_total": 2.0**53 - 1,
        "gpuwatch_disk_wear_used_ratio": 0.1 + 0.2,
    }
    assert by_name == {(job, name): value for job in ("gpuwatch", "text") for name, value in expected.items()}


def test_prometheus_knows_kind_unit_and_help_of_each_family(prometheus: Prometheus) -> None:
    metadata = prometheus.ask("/api/v1/metadata")
    assert {"type": "gauge", "help": gpu.POWER.help, "unit": "watts"} in metadata["gpuwatch_gpu_power_watts"]
    assert metadata["gpuwatch_gpu_energy_joules"] == [{"type": "counter", "help": gpu.ENERGY.help, "unit": "joules"}]
    assert [found["type"] for found in metadata["gpuwatch_gpu_energy_joules_total"]] == ["counter"]  # of the text format


def test_promtool_finds_nothing_to_complain_of_on_a_page_with_every_metric() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine (Debian: apt install prometheus)")
    page = Page(page_view.everything).get()
    done = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, timeout=15, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
