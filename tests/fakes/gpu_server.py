"""A GPU server as a whole: the real daemon over a fake libnvidia-ml, the /proc, /sys and /dev that go with it, a receiver.

with GpuServer(tmp_path) as server:
    server.wait_up(8)
    server.nvml.lose(5)
    server.daemon.until(lambda page: page.value("gpuwatch_gpu_up", gpu="5") == 0)

Periods are short (fast 0.2 s, normal 0.5 s, slow 1 s), the deadline of a call is 2 s. The probe
looks once, at the start, since each look is a process; a test of what it sees change asks for WATCHFUL.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, final

from tests.fakes.daemon import Page, Running
from tests.fakes.host import HostTree
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_layout import FUNCTIONS
from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, until

PACE = 'every = "200ms"\nevery_normal = "500ms"\nevery_slow = "1s"\ndeadline = "2s"'
PROBE = 'every = "1m"\ndeadline = "10s"'
WATCHFUL = '[sources.probe]\nevery = "2s"\ndeadline = "10s"\n'
STAMP = re.compile(r"^\S+ \S+ ")


@final
class GpuServer:
    """The server. Cards, drivers and files may be changed while it runs."""

    def __init__(
        self,
        folder: Path,
        *,
        gpus: int = 8,
        model: str = "A40",
        driver: str = "535.154.05",
        receiver: Receiver | None = None,
        config: str = "",
        environ: Mapping[str, str] | None = None,
        listen: str = "",
        pace: str = PACE,
        real_host: bool = False,  # this machine's own trees instead of fake ones
    ) -> None:
        self.nvml = FakeNvml(folder, gpus=gpus, model=model, driver=driver)
        self.host = HostTree(self.nvml.path).kernel()
        self.host.write(self.host.root / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        for card in range(gpus):
            self.plug(card)
        paths = (
            "" if real_host else "\n".join(f'{tree} = "{getattr(self.nvml, tree)}"' for tree in ("proc", "sys", "dev", "root"))
        )
        told = f'\n[[receivers]]\nname = "oncall"\nkind = "webhook"\nurl = "{receiver.url}"' if receiver else ""
        paces = {"[sources.nvml]": pace, "[sources.probe]": PROBE}
        head = "".join(f"{table}\n{pace}\n" for table, pace in paces.items() if table not in config)
        self.daemon = Running(folder / "d", environ={**self.nvml.environment, **(environ or {})})
        self.daemon.configure(f"[paths]\n{paths}\n{head}{config}{told}", name="vision-07", listen=listen)
        self.receiver = receiver

    # --- the machine ----------------------------------------------------------------------------------------------------

    def address(self, card: int) -> str:
        """Return where a card sits, as sysfs writes it."""
        return self.nvml.read_text(card, "bus_id_legacy").lower()

    def plug(self, card: int) -> None:
        """Have a card on the PCI bus."""
        if self.address(card):
            self.host.gpu(self.address(card))

    def unplug(self, card: int) -> None:
        """Take a card off the PCI bus."""
        folder = self.host.sys / "bus/pci/devices" / self.address(card)
        (folder / "driver").unlink()
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def reboot(self) -> None:
        """Have the kernel say that it is another boot."""
        self.host.files(self.host.proc / "sys/kernel", random__boot_id=f"{time.monotonic_ns():032x}")
        self.host.write(self.host.dev / "kmsg", "")  # the log begins anew

    # --- what is seen -----------------------------------------------------------------------------------------------------

    def wait_up(self, count: int, seconds: float = PATIENCE) -> Page:
        """Wait until it is ready, so many GPUs are up, and each of them has every tier's values; returns that page."""
        self.daemon.wait_ready(seconds)
        names = ("gpuwatch_gpu_temperature_celsius", "gpuwatch_gpu_power_watts", "gpuwatch_gpu_memory_size_bytes")

        def whole(page: Page) -> bool:
            if sum(value for _, value in page.all("gpuwatch_gpu_up")) != count:
                return False
            return all(len({labels["uuid"] for labels, _ in page.all(name)}) >= count for name in names)

        return self.daemon.until(whole, seconds)

    def until_driver(self, state: str, seconds: float = PATIENCE) -> Page:
        """Wait until the page shows this state of the driver."""
        until(lambda: self.daemon.get("/-/healthy")[0] == 200, seconds)
        return self.daemon.until(lambda page: page.state("gpuwatch_driver_state") == state, seconds)

    def until_dropped(self, count: int, seconds: float = PATIENCE) -> Page:
        """Wait until the alert of a lost GPU fires for so many."""
        firing = {"rule": "gpu_dropped", "state": "firing"}
        return self.daemon.until(lambda page: len(page.all("gpuwatch_alert_state", **firing)) == count, seconds)

    def moves(self, cards: Collection[int], seconds: float = PATIENCE) -> None:
        """Fail unless the series of these cards follow what their hardware does: each temperature is set anew and seen."""
        wanted = {}
        for card in cards:
            wanted[self.nvml.uuid(card)] = 40 + (self.nvml.get(card, "temperature") - 39) % 30
            self.nvml.set(card, temperature=wanted[self.nvml.uuid(card)])

        def seen(page: Page) -> bool:
            found = {labels["uuid"]: value for labels, value in page.all("gpuwatch_gpu_temperature_celsius", sensor="core")}
            return wanted.items() <= found.items()

        self.daemon.until(seen, seconds)

    def answers_quickly(self, seconds: float = 0.5) -> Page:
        """Fail unless a page comes within half a second: the best of several, since this machine is shared."""
        took: list[float] = []
        end = time.monotonic() + PATIENCE
        while True:
            began = time.monotonic()
            status, body = self.daemon.get("/metrics")
            took.append(time.monotonic() - began)
            assert status == 200, body
            if took[-1] < seconds:
                return Page(body)
            assert time.monotonic() < end, f"the page took {took}"

    def series(self, page: Page, card: int) -> set[str]:
        """Return the names of all series that carry this card's UUID and say something measured."""
        uuid = self.nvml.uuid(card)
        own = re.compile(
            r"gpuwatch_(gpu_(up|state|down_reason|info|last_seen_timestamp_seconds|errors_open|bus_drops_total"
            r"|idle_allocated_seconds_total)|xid_.*|alert_.*)"
        )
        return {name for name in page.names if not own.fullmatch(name) and page.all(name, uuid=uuid)}

    def calls(self, card: int) -> int:
        """Return how many calls a card has had."""
        return sum(self.nvml.calls(function, gpu=card) for function in FUNCTIONS)

    def ready(self) -> tuple[int, list[str]]:
        """Return the answer of /-/ready, line by line."""
        status, body = self.daemon.get("/-/ready")
        return status, body.splitlines()

    def until_not_ready(self, seconds: float = PATIENCE) -> list[str]:
        """Wait until /-/ready answers 503, and return its lines."""
        until(lambda: self.ready()[0] == 503, seconds)
        return self.ready()[1]

    def read_nvml(self) -> dict[str, dict[str, Any]]:
        """Run `gpuwatch read nvml` and return the last reading of each target that it printed, by subject and key."""
        command = [sys.executable, "-m", "gpuwatch", "read", "nvml", "--config", str(self.daemon.file), "--timeout", "40"]
        done = subprocess.run(command, env=self.daemon.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, dict[str, Any]] = {}
        for reading in json.loads(done.stdout):
            name = f"{reading['subject']} {reading['key']}".strip()
            before = found.get(name)
            if before is None or before["fault"] is None:
                found[name] = reading
        return found

    def lines(self) -> list[str]:
        """Return the log without what it says of alerts: what sources, workers and the daemon say."""
        return [line for line in self.daemon.said().splitlines() if not re.search("gpu_dropped|gpu_overheating", line)]

    def said(self, words: str) -> int:
        """Return how many of these lines have these words (a regular expression)."""
        return sum(bool(re.search(words, line)) for line in self.lines())

    def messages(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the messages that came, in order."""
        assert self.receiver is not None
        found = [got.json for got in self.receiver.requests]
        return [message for message in found if kind in (None, message["kind"])]

    def wait_message(self, is_it: Callable[[dict[str, Any]], object], seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait for a message that is as wanted."""
        found: list[dict[str, Any]] = []

        def came() -> bool:
            found[:] = filter(is_it, self.messages())
            return bool(found)

        until(came, seconds, lambda: f"{self.messages()}\n{self.daemon.said()}")
        return found[0]

    def __enter__(self) -> "GpuServer":
        self.daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.__exit__()
