"""A real Prometheus (Debian package) in a folder of its own, on loopback, that scrapes what it is told to."""

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gpuwatch.client import Client, Unreachable
from tests.fakes.until import PATIENCE


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    client: Client

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


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def tool(name: str) -> str:
    """Return the path of a program of Debian's package prometheus; skips the test where it is missing."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} on this machine (Debian: apt install prometheus)")
    return program


@contextlib.contextmanager
def prometheus(folder: Path, scrapes: Sequence[str]) -> Iterator[Prometheus]:
    """Run Prometheus with these scrape configurations (YAML, one job each), every second, until the end of the block."""
    program = tool("prometheus")
    config = "global: { scrape_interval: 1s, scrape_timeout: 1s }\nscrape_configs:\n"
    (folder / "prometheus.yml").write_text(config + "".join(f"- {scrape}\n" for scrape in scrapes))
    port = free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Prometheus(Client(f"127.0.0.1:{port}"))
        finally:
            process.terminate()
            process.wait(PATIENCE)
