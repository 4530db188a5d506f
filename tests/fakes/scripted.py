"""Sources that do what a file says, in a real worker process; and how to start one.

`<paths.root>/<name>.json` is read at each ask: `{"items": ["a", "b"], "a": "hang", "all": "crash"}`. What an item did is in
`<paths.root>/<name>.log`, one line each.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from gpuwatch.catalogue.disk import FILESYSTEM, FILESYSTEM_SIZE, FILESYSTEM_STUCK
from gpuwatch.config import Config, Paths
from gpuwatch.model.alert import Severity
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sampling.child import Child
from gpuwatch.sources.source import Answer
from gpuwatch.sources.worker import main

ROOT = Path(__file__).resolve().parents[2]


EVENT = Event(
    source="alpha",
    kind="xid",
    severity=Severity.CRITICAL,
    at=5.5,
    words="Xid 79",
    subject="gpu",
    key="GPU-1",
    code=79,
    facts={"pid": "7"},
    count=3,
    mark="boot:1-3",
)


class Scripted:
    """A source that follows its script."""

    def __init__(self, name: str, config: Config, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._folder = Path(config.paths.root)
        if "build" in self._script():
            raise RuntimeError(self._script()["build"])
        if "build_exit" in self._script():
            raise SystemExit(self._script()["build_exit"])

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read the items of the script."""
        script = self._script()
        if script.get("tier", tier.value) != tier.value:
            answer.done()
            return
        act(script.get("all", ""), answer)
        if "event" in script:
            answer.event(EVENT if script["event"] == EVENT.kind else replace(EVENT, kind=script["event"]))
        for item in script.get("items", [self._name]):
            target = Target(subject=FILESYSTEM, key=item, labels={"mountpoint": item, "fstype": "ext4"})
            values = {FILESYSTEM_STUCK: 1.0}
            if item not in skip:
                answer.working(item)
                with (self._folder / f"{self._name}.log").open("a") as log:
                    log.write(f"{item}\n")
                act(script.get(item, ""), answer)
                values = {FILESYSTEM_STUCK: 0.0, FILESYSTEM_SIZE: float(script.get("size", 1))}
            at = self._clock.wall()
            answer.reading(Reading(source=self._name, tier=tier, target=target, at=at, took=0.0, values=values))
        answer.done(script.get("busy", []))

    def close(self) -> None:
        """Hold nothing."""

    def _script(self) -> dict[str, Any]:
        try:
            script: dict[str, Any] = json.loads((self._folder / f"{self._name}.json").read_text())
        except FileNotFoundError:
            return {}
        return script


def act(what: str, answer: Answer) -> None:
    """Do one thing of a script."""
    if what == "hang":
        threading.Event().wait()
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "raise":
        raise ValueError("a bug of this source")
    if what == "exit":
        sys.exit(3)
    if what == "restart":
        answer.restart("driver_change")
        threading.Event().wait()
    if what == "print":
        print("a stray print", flush=True)
        os.write(1, b"\xff\xff\xff\xffa stray write")


def alpha(config: Config, clock: Clock) -> Scripted:
    """Build the first source."""
    return Scripted("alpha", config, clock)


def beta(config: Config, clock: Clock) -> Scripted:
    """Build the second source."""
    return Scripted("beta", config, clock)


TABLE = {"alpha": "tests.fakes.scripted:alpha", "beta": "tests.fakes.scripted:beta", "absent": "tests.fakes.no_such_file:source"}


class Stage:
    """A folder with scripts, and workers that play them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = msgspec.structs.replace(Config(), paths=Paths(root=str(folder)))
        self.children: list[Child] = []

    def play(self, name: str, **script: object) -> None:
        """Write a source's script; a worker takes it in at its next ask."""
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(script))
        new.rename(self.folder / f"{name}.json")

    def read(self, name: str) -> list[str]:
        """Return the items that were touched so far."""
        try:
            return (self.folder / f"{name}.log").read_text().split()
        except FileNotFoundError:
            return []

    def spawn(self, name: str) -> Child:
        """Start a real worker process that has these sources."""
        child = Child([sys.executable, "-m", "tests.fakes.scripted", name], ROOT)
        self.children.append(child)
        return child

    def run(self, code: str) -> Child:
        """Start a process that is no worker at all."""
        child = Child([sys.executable, "-c", code], ROOT)
        self.children.append(child)
        return child


def begin() -> NoReturn:  # the worker's main ends with its process
    """Be a worker."""
    main(sys.argv[1:], TABLE)
    raise AssertionError("main returned")


if __name__ == "__main__":
    begin()
