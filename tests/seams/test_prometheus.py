"""A real Prometheus scrapes the page and answers for it; promtool finds nothing to complain of."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpuwatch.catalogue import disk, gpu
from gpuwatch.export.message import Response, Route
from gpuwatch.export.page import TEXT, Page
from gpuwatch.model.target import Target
from gpuwatch.model.view import View
from tests.fakes import page_view
from tests.fakes.prometheus import Prometheus, prometheus, tool
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, serving, until

ODD = 'a"b\\c\nd {x="y"} 显卡 \x01\x7f\r\t\u2028 \udc80\0'


class Host(Answers):
    """A host with eight GPUs, one disk whose name is a trap, and numbers that test the format."""

    def view(self) -> View:
        """Return the view of this beat."""
        odd = Target(subject=disk.DISK, key="odd", labels={"device": ODD}, info={"model": ODD})
        numbers = {disk.TEMPERATURE: 1e-300, disk.POWER_ON: 2.0**53 - 1, disk.WEAR_USED: 0.1 + 0.2}
        entries = dict(page_view.big_host(self.beats).entries)
        entries[odd] = page_view.entry(odd, numbers)
        return View(time.time(), entries)


@dataclass(frozen=True, slots=True)
class Scraped:
    """A gpuwatch and the Prometheus that scrapes it."""

    prometheus: Prometheus
    host: Host


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Start gpuwatch's server and a Prometheus that has scraped it twice."""
    folder, host = tmp_path_factory.mktemp("prometheus"), Host()
    text = Route("/text", lambda _: Response(200, host.page.get(), TEXT))  # this Prometheus always prefers OpenMetrics
    with serving(folder, [text], host) as served:
        targets = f'static_configs: [ {{ targets: ["{served.address}"] }} ]'
        jobs = [f"{{ job_name: gpuwatch, {targets} }}", f"{{ job_name: text, metrics_path: /text, {targets} }}"]
        with prometheus(folder, jobs) as running:
            twice = until(lambda: bool(running.query("count(count_over_time(up[1m]) >= 2) == 2")))
            assert twice, (folder / "log").read_text()
            yield Scraped(running, host)


def test_a_real_prometheus_takes_every_series_of_the_page(scraped: Scraped) -> None:
    targets = scraped.prometheus.ask("/api/v1/targets")["activeTargets"]
    assert [(found["health"], found["lastError"]) for found in targets] == [("up", "")] * 2
    lines = [line for line in scraped.host.page.get().decode().split("\n") if line and line[0] != "#"]
    assert [int(found["value"][1]) for found in scraped.prometheus.query("scrape_samples_scraped")] == [len(lines)] * 2


def test_a_query_gives_the_numbers_of_the_view(scraped: Scraped) -> None:
    found = {
        series["metric"]["uuid"]: float(series["value"][1])
        for series in scraped.prometheus.query('gpuwatch_gpu_power_watts{job="gpuwatch"}')
    }
    assert found == {
        entry.target.key.split("/")[1]: entry.values[gpu.POWER] for entry in page_view.big_host(scraped.host.beats).of(gpu.GPU)
    }


def test_odd_labels_and_numbers_arrive_unchanged(scraped: Scraped) -> None:
    written = ODD.replace("\udc80", "\\udc80").replace("\0", "\\x00")
    by_name = {}
    for series in scraped.prometheus.query('{__name__=~"gpuwatch_disk_.*", device!~"nvme.*"}'):
        assert series["metric"]["device"] == written
        by_name[series["metric"]["job"], series["metric"]["__name__"]] = float(series["value"][1])
    expected = {
        "gpuwatch_disk_info": 1.0,
        "gpuwatch_disk_temperature_celsius": 1e-300,
        "gpuwatch_disk_power_on_seconds_total": 2.0**53 - 1,
        "gpuwatch_disk_wear_used_ratio": 0.1 + 0.2,
    }
    assert by_name == {(job, name): value for job in ("gpuwatch", "text") for name, value in expected.items()}


def test_prometheus_knows_kind_unit_and_help_of_each_family(scraped: Scraped) -> None:
    metadata = scraped.prometheus.ask("/api/v1/metadata")
    assert {"type": "gauge", "help": gpu.POWER.help, "unit": "watts"} in metadata["gpuwatch_gpu_power_watts"]
    assert metadata["gpuwatch_gpu_energy_joules"] == [{"type": "counter", "help": gpu.ENERGY.help, "unit": "joules"}]
    assert [found["type"] for found in metadata["gpuwatch_gpu_energy_joules_total"]] == ["counter"]  # of the text format


def test_promtool_finds_nothing_to_complain_of_on_a_page_with_every_metric() -> None:
    page = Page(page_view.everything).get()
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=page, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
