"""A daemon whose disk does not answer at the start."""

import threading
from collections.abc import Callable
from pathlib import Path

from gpuwatch.client import Client
from gpuwatch.config import load
from gpuwatch.daemon import Daemon
from gpuwatch.daemon.building import machine
from gpuwatch.export.sockets import listen_unix
from gpuwatch.export.webconfig import WebConfig
from gpuwatch.model.clock import SystemClock
from gpuwatch.places import Places
from gpuwatch.store import Store
from tests.fakes.until import PATIENCE, until


class Stalled(Store):
    """A store on a disk that does not answer until it is told to."""

    answers: threading.Event
    asked: threading.Event

    def start(self, is_ending: Callable[[], bool] = lambda: False) -> list[str]:
        """Wait for the disk."""
        self.asked.set()
        self.answers.wait(2 * PATIENCE)
        return super().start(is_ending)


def test_the_page_waits_for_no_disk_at_the_start(tmp_path: Path) -> None:
    file, path = tmp_path / "gpuwatch.toml", tmp_path / "s"
    off = "".join(f"[sources.{name}]\nenabled = false\n" for name in ("nvml", "smart", "kernel", "probe", "jobs"))
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "gpuwatch.db"}"\n{off}')
    config, clock = load(file, Places(tmp_path, tmp_path, tmp_path)), SystemClock()
    daemon = Daemon(config, [listen_unix(path)], WebConfig(), clock)
    store = daemon.store = Stalled(config.store, machine(config), clock)
    store.answers, store.asked = threading.Event(), threading.Event()
    starting = threading.Thread(target=daemon.start)
    starting.start()
    try:
        assert store.asked.wait(PATIENCE)
        replies = {
            page: Client(str(path)).get(page, PATIENCE) for page in ("/metrics", "/-/healthy", "/-/ready", "/api/v1/status")
        }
        assert {page: reply.status for page, reply in replies.items()} == {
            "/metrics": 200,
            "/-/healthy": 200,
            "/-/ready": 503,
            "/api/v1/status": 200,
        }
        assert replies["/-/ready"].body == b"no sample has been taken yet\n"
    finally:
        store.answers.set()
        starting.join()
        until(lambda: daemon.beat is not None and daemon.beat.finished is not None)
        daemon.stop()
