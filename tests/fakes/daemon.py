"""The real daemon as a child process, in folders of its own, with the edges that a test hands in.

with Running(tmp_path, environ=nvml.environment, config={...}) as daemon:
    daemon.wait_ready()
    daemon.until(lambda page: page["gpuwatch_gpu_up"] ...)
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.client import Client, Unreachable
from tests.fakes.until import PATIENCE, until

Labels = Mapping[str, str]
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

DEAR = 0.08  # seconds between two looks at a page, at first: each costs the daemon and us some milliseconds


class Page:
    """One scrape: `value(name, **labels)` finds the one series that has these labels.

    A series is parsed when it is asked for: a test that waits looks at many pages, and at a few series of each.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines: dict[str, list[str]] = {}
        for line in text.splitlines():
            if name := NAME.match(line):
                self._lines.setdefault(name[0], []).append(line)

    @property
    def names(self) -> list[str]:
        """The names of all series, each once."""
        return list(self._lines)

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the series of this name that have these labels."""
        lines = "".join(f"{line}\n" for line in self._lines.get(name, ()))
        samples = [sample for family in text_string_to_metric_families(lines) for sample in family.samples]
        return [(sample.labels, sample.value) for sample in samples if labels.items() <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of one series, None where it is absent; several are a mistake of the test."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels} is {len(found)} series"
        return found[0][1] if found else None

    def state(self, name: str, label: str = "state", **labels: str) -> str | None:
        """Return the state of a state set, None where it is absent."""
        return next((found[label] for found, value in self.all(name, **labels) if value == 1), None)


@final
class Running:
    """The daemon. `stop` ends it in order, `kill` does not; both may be followed by `start`."""

    def __init__(
        self,
        folder: Path,
        *,
        environ: Mapping[str, str] | None = None,
        config: str = "",
        name: str = "test-host",
        python: str = sys.executable,
    ) -> None:
        self.python = python
        self.module = "gpuwatch"  # another one is another version of the program
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.socket = folder / "s"
        self.database = folder / "state" / "gpuwatch.db"
        self.database.parent.mkdir(exist_ok=True)
        self.file = folder / "gpuwatch.toml"
        self.log = folder / "log"
        self.stderr: int | None = None  # a descriptor in place of `log`
        self.environ = {**os.environ, **(environ or {}), "PYTHONUNBUFFERED": "1"}
        self.environ.pop("NOTIFY_SOCKET", None)
        self.configure(config, name=name)
        self.process: subprocess.Popen[bytes] | None = None
        self.client = Client(str(self.socket))

    def configure(self, config: str, *, name: str = "test-host", listen: str = "") -> None:
        """Write the configuration: TCP, SMART and kernel log off unless `config` says so; tables that it has are its own."""
        head = [
            ("[http]", f'listen = "{listen}"\nsocket = "{self.socket}"'),
            ("[host]", f'name = "{name}"'),
            ("[store]", f'url = "sqlite:///{self.database}"'),
            ("[sources.smart]", "enabled = false"),
            ("[sources.kernel]", f"enabled = {str('dev =' in config).lower()}"),
        ]
        parts = [f"{table}\n{body}" for table, body in head if table not in config]
        self.file.write_text("\n".join([*parts, config]))

    def start(self) -> "Running":
        """Start it; what it says goes to `log`, after what earlier runs said."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [self.python, "-m", self.module, "run", "--config", str(self.file)],
                env=self.environ,
                stdout=out,
                stderr=out if self.stderr is None else self.stderr,
                stdin=subprocess.DEVNULL,
            )
        return self

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def get(self, path: str, seconds: float = PATIENCE) -> tuple[int, str]:
        """Ask over the socket; returns status and body, (0, reason) where it is not reachable."""
        try:
            reply = self.client.get(path, seconds)
        except Unreachable as error:
            return 0, str(error)
        return reply.status, reply.body.decode()

    def page(self) -> Page:
        """Scrape it."""
        status, body = self.get("/metrics")
        assert status == 200, body
        return Page(body)

    def status(self) -> dict[str, Any]:
        """Return the page of `gpuwatch status`."""
        code, body = self.get("/api/v1/status")
        assert code == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def wait_ready(self, seconds: float = PATIENCE) -> Page:
        """Wait until it says that it is ready, and return a page."""
        until(lambda: self.get("/-/ready")[0] == 200 or self._ended(), seconds)
        assert not self._ended(), self.said()
        return self.page()

    def until(self, is_true: Callable[[Page], object], seconds: float = PATIENCE) -> Page:
        """Scrape until the page is as wanted, and return it."""
        pages: list[Page] = []

        def came() -> object:
            pages[:] = [self.page()]
            return is_true(pages[0])

        until(came, seconds, pause=DEAR, said=lambda: f"; the log:\n{self.said()}\nthe page:\n{pages[0].text[-3000:]}")
        return pages[0]

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def workers(self) -> dict[int, str]:
        """Return pid and name of its child processes."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                head, _, tail = path.read_text().rpartition(")")
                if int(tail.split()[1]) == self.pid:
                    found[int(path.parent.name)] = head.partition("(")[2]
        return found

    def stop(self, seconds: float = PATIENCE) -> int:
        """Send SIGTERM and return its exit code; fails when it takes longer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def __enter__(self) -> "Running":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@contextlib.contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    """Run the daemon until it is ready, and end it after the test."""
    with Running(folder, **options) as daemon:
        daemon.wait_ready()
        yield daemon
