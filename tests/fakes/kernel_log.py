"""A kernel log that grows: a file or FIFO in place of /dev/kmsg, and a reader of it that a test asks step by step."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gpuwatch.config import Config
from gpuwatch.config.options import Paths, Privacy
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.sources import kernel

BOOT = "0f4c1d2e-3a4b-5c6d-7e8f-90a1b2c3d4e5"
XID = "NVRM: Xid (PCI:0000:65:00): "


class Heard:
    """An Answer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.readings: list[Reading] = []

    def reading(self, reading: Reading) -> None:
        """Keep it."""
        self.readings.append(reading)

    def event(self, event: Event) -> None:
        """Keep it."""
        self.events.append(event)

    def working(self, item: str) -> None:
        """The kernel log has no items."""

    def restart(self, reason: str) -> None:
        """A thread cannot be replaced."""

    def failed(self, words: str) -> None:
        """None of this has a bug to tell of."""
        raise AssertionError(words)

    def done(self, busy: Sequence[str] = ()) -> None:
        """The round is over when `ask` returns."""


class KernelLog:
    """`dev/kmsg` below a folder, and what the kernel says about it in `proc`."""

    def __init__(self, folder: Path, *, fifo: bool = False) -> None:
        self.dev, self.proc = folder / "dev", folder / "proc"
        self.path = self.dev / "kmsg"
        random = self.proc / "sys/kernel/random"
        random.mkdir(parents=True, exist_ok=True)
        self.dev.mkdir(exist_ok=True)
        (random / "boot_id").write_text(f"{BOOT}\n")
        (self.proc / "sys/kernel/dmesg_restrict").write_text("1\n")
        self.config = Config(paths=Paths(dev=str(self.dev), proc=str(self.proc)))
        self.seq = 0
        if fifo:
            os.mkfifo(self.path)
        else:
            self.path.touch()

    def say(self, text: str, *, at: float, priority: int = 4, lost: int = 0) -> None:
        """Let the kernel print a record `at` so many seconds of its clock, after so many that nobody can read any more."""
        self.seq += lost
        self.write(f"{priority},{self.seq},{round(at * 1e6)},-;{text}\n".encode())
        self.seq += 1

    def write(self, data: bytes) -> None:
        """Append bytes as they are."""
        with self.path.open("ab") as file:
            file.write(data)

    def reader(self, clock: Clock, *, users: Literal["name", "uid", "off"] = "name") -> "Reader":
        """Return a reader of it, as a start of the daemon makes one; `users` is [privacy] users."""
        return Reader(msgspec.structs.replace(self.config, privacy=Privacy(users=users)), clock)


class Reader:
    """The source, asked by hand."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.source = kernel.source(config, clock)
        self.heard = Heard()

    def ask(self) -> list[Event]:
        """Ask once; return the events that it told."""
        before = len(self.heard.events)
        self.source.ask(Tier.NORMAL, frozenset(), self.heard)
        return self.heard.events[before:]

    def fault(self) -> str:
        """Return the kind of the fault of the last reading, "" where it has none."""
        fault = self.heard.readings[-1].fault
        return fault.kind if fault else ""
