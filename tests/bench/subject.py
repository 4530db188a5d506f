"""The daemon that is measured: as it is installed, with its defaults, on a fake NVML of 8 GPUs."""

import socket
import time
from pathlib import Path

from gpuwatch import shipped
from gpuwatch.catalogue import own
from tests.bench.processes import Watch, children, spent_below, waited
from tests.bench.scrapes import until_full
from tests.bench.workload import GPUS
from tests.fakes.daemon import Running
from tests.fakes.nvml import FakeNvml

SHORT = {"gpuwatch-probe": 60.0, "gpuwatch-smart": 600.0}  # seconds between two rounds of a short-lived worker
TEMPERATURES = b'sensor="core"'  # of which each GPU has one, once it has answered


class Subject:
    """The daemon on 8 fake GPUs: defaults on this host, all sources, the store on disk, three rules, one receiver."""

    def __init__(self, folder: Path, fake: FakeNvml, python: Path, config: str = "") -> None:
        folder.mkdir()
        self.fake, self.port = fake, free_port()
        self.watch: Watch | None = None
        self.running = Running(folder, environ={**fake.environment, **unit_environment()}, python=str(python))
        self.running.file.write_text(
            f"""[http]
listen = "127.0.0.1:{self.port}"
socket = "{self.running.socket}"
[store]
url = "sqlite:///{self.running.database}"
[[receivers]]
name = "oncall"
kind = "webhook"
url = "http://127.0.0.1:9/"
{config}"""
        )

    def start(self, *, watched: bool = False) -> tuple[float, float, float]:
        """Start it; returns the wall time to a page with all GPUs, the CPU of all processes, the daemon's wait for a core."""
        began = time.monotonic()
        self.running.start()
        if watched:
            self.watch = Watch(self.running.pid, tuple(SHORT))  # from the start: the first round of SMART comes with it
        try:
            full = until_full(self.port, lambda page: page.count(TEMPERATURES) >= GPUS, 20.0)
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log ends: {self.running.said()[-1000:]}") from None
        spent = spent_below(self.running.pid)
        return full - began, spent, waited(self.running.pid)

    def resident(self) -> dict[str, int]:
        """Return the processes that stay: the daemon and the worker that holds the GPUs."""
        worker = next(pid for pid, name in children(self.running.pid).items() if name == "gpuwatch-nvml")
        return {"daemon": self.running.pid, "gpuwatch-nvml": worker}

    def write_seconds(self) -> float:
        """Return how long its store has been writing, as it says."""
        return self.running.page().value(own.DATABASE_WRITE_SECONDS.family) or 0.0


def unit_environment() -> dict[str, str]:
    """Return the variables that the shipped unit sets."""
    lines = (shipped.folder("systemd") / "gpuwatch.service").read_text().splitlines()
    return dict(line.removeprefix("Environment=").split("=", 1) for line in lines if line.startswith("Environment="))


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
