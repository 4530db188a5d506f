"""Let go of every GPU, so that a reset, a MIG change or a new driver can go through; then take them up by `gpuwatch resume`.

Alerts about GPUs are neither told nor ended meanwhile. It ends by itself after --for (30m), and goes on beyond that, 5 minutes at
a time, while NVIDIA's installer is at work or a package manager holds dpkg's lock. With a command it ends when that does, and
its exit code is ours; while the command runs the release goes on, and it outlasts the command where others want it longer: the
GPUs come back with the end of the last. What else has the GPUs open is named; root sees all of it.

Needs root or the group gpuwatch-admin. Exit code 1: the daemon refuses (or, without a command, a process of ours is stuck in the
driver); 2: something in the words is wrong; 3: no daemon answers. In all these cases a command is not begun.

example: gpuwatch release --for 1h
         gpuwatch release -- nvidia-smi --gpu-reset
"""

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from gpuwatch.cli import OUR_FAULT, ask
from gpuwatch.cli.lasting import lasting
from gpuwatch.cli.resume import resumed
from gpuwatch.cli.status import of_release
from gpuwatch.client import Client, Unreachable
from gpuwatch.config import ConfigError
from gpuwatch.export.release import LONGEST, SHORTEST
from gpuwatch.model.escape import printable
from gpuwatch.model.quantity import Duration, in_units
from gpuwatch.sources.holders import Holders, holders

PLACE = "gpuwatch release"
LASTS = "30m"
GRACE = 300.0  # seconds by which a release goes on while the command runs beyond its time
AHEAD = 0.2  # part of the time that is left when the command is looked at ...
NEAR = 30.0  # ... and when that is less than this, more time is asked for
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
NOT_FOUND, NOT_EXECUTABLE, BY_SIGNAL = 127, 126, 128  # as shells have them


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    most = in_units(Duration(LONGEST))
    what = f"how long: 10m, 2h, at most {most}; {LASTS} if not said"
    parser.add_argument("--for", dest="lasts", metavar="TIME", default=LASTS, help=what)
    ask.add(parser)
    before = parser.format_usage().removeprefix("usage: ").rstrip()
    # With "*" nobody could tell `release --` from `release`, and argparse calls the rest of a line just "...".
    what = "a command; the GPUs are taken up again when it ends"
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help=what)
    parser.usage = f"{before} [-- CMD ...]"


def run(args: argparse.Namespace) -> int:
    """Have the GPUs released, and run the command where there is one."""
    seconds, args.command = lasting(PLACE, args.lasts, SHORTEST, LONGEST), to_run(args.command)
    client = ask.client(args)
    hold = secrets.token_hex(8) if args.command else None
    with passing_on() as child:
        end = time.monotonic() + seconds  # of our own hold; that of somebody else may end at any time
        answer = asked(args, client, seconds, hold)
        if isinstance(answer, int):
            if args.command:
                print(f"{PLACE}: {printable(args.command[0], 400)} was not run", file=sys.stderr)
            return answer
        say(
            answer, holders() if is_here(args) else None, time.time(), sys.stderr if args.command else sys.stdout
        )  # the output belongs to the command
        if not args.command:
            return OUR_FAULT if answer["stuck"] else 0
        try:
            return carried_out(args, client, child, end, hold)
        finally:
            take_up(args, client, hold)  # a signal that comes by now ends us: what is left of the release ends by its time


def to_run(words: Sequence[str]) -> Sequence[str]:
    """Return the command, empty where there is none; raises ConfigError where it was only announced."""
    command = words[1:] if words[:1] == ["--"] else words
    if words and not command:
        raise ConfigError("--", "", "no command after it")
    return command


def asked(args: argparse.Namespace, client: Client, seconds: float, hold: str | None) -> dict[str, Any] | int:
    """Return the daemon's answer, or the exit code where it was none; that is said. Raises ConfigError for a password."""

    def talk() -> dict[str, Any]:
        body = {"seconds": seconds} | ({} if hold is None else {"hold": hold})
        reply = client.post("/api/v1/release", json.dumps(body).encode(), ask.PATIENCE)
        answer = ask.granted(args, PLACE, reply, changes=True).json()
        return {name: answer[name] for name in ("stuck", "stored", "until", "by")} | {"waits_for": ""}

    return ask.conversation(PLACE, talk, "they may be released all the same: `gpuwatch status` shows it")


def say(answer: dict[str, Any], others: Holders | None, now: float, out: TextIO) -> None:
    """Say until when they are released, and who still has them open, where that is known."""
    print(printable(f"the GPUs are {of_release(answer, now)}; `gpuwatch resume` ends it", 400), file=out)
    for name in answer["stuck"]:
        print(printable(f"{PLACE}: {name} is stuck in the driver, cannot be ended, and has GPUs open", 400), file=sys.stderr)
    if not answer["stored"]:
        print(f"{PLACE}: it is not stored yet, the disk does not answer: a restart of the daemon would end it", file=sys.stderr)
    if others is None:
        return
    if others.found:
        print(printable(f"still open by: {others}", 2000), file=out)
    if others.hidden:
        print(unseen(others.hidden, root=os.geteuid() == 0), file=out)
    elif not others.is_whole:
        print("not all processes could be looked into in time", file=out)
    elif not others.found:
        print("nobody has /dev/nvidia* open", file=out)


def is_here(args: argparse.Namespace) -> bool:
    """Say whether the GPUs are of this host: neither of another one nor of a demo, which simulates them."""
    return not args.host and not (args.socket and Path(args.socket).absolute().parent.name.startswith(ask.OF_DEMO))


def unseen(count: int, *, root: bool) -> str:
    """Say how many processes could not be looked into. Even root may not everywhere: in a container, say."""
    them = "1 process of somebody else" if count == 1 else f"{count} processes of others"
    why = "not even this root may (a container, or no CAP_SYS_PTRACE)" if root else "root may"
    return f"{them} could not be looked into: {why}"


class Child:
    """The command, once it runs, for the signals that come to us."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._begins = False
        self._early = 0  # a signal that came while the command was being started

    def take(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on; what the terminal sends to all of its foreground the command has got already."""
        if self._begins:
            self._early = number
            return
        if self.process is None:
            raise SystemExit(BY_SIGNAL + number)
        if number not in (signal.SIGINT, signal.SIGQUIT) or not in_foreground():
            self.process.send_signal(number)

    def begin(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the command; raises OSError. A signal that comes meanwhile is for it."""
        self._begins = True
        try:
            process = self.process = subprocess.Popen(command)
        finally:
            self._begins = False
        if self._early:
            process.send_signal(self._early)
        return process


@contextlib.contextmanager
def passing_on() -> Iterator[Child]:
    """Take the signals that would end us, so that the GPUs are taken up in any case."""
    child = Child()
    before = {number: signal.signal(number, child.take) for number in PASSED_ON}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_foreground() -> bool:
    """Say whether we are in the foreground of a terminal."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def carried_out(args: argparse.Namespace, client: Client, child: Child, end: float, hold: str | None) -> int:
    """Run the command and return its exit code; while it runs beyond the time, the release goes on."""
    try:
        process = child.begin(args.command)
    except OSError as error:
        print(f"{PLACE}: {printable(args.command[0])}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    while True:
        left = end - time.monotonic()
        try:
            code = process.wait(max(0.1, left * (1 - AHEAD)))
        except subprocess.TimeoutExpired:
            if left < NEAR:
                end = time.monotonic() + (GRACE if goes_on(args, client, hold) else NEAR)
        else:
            child.process = None
            return code if code >= 0 else BY_SIGNAL - code


def goes_on(args: argparse.Namespace, client: Client, hold: str | None) -> bool:
    """Have the release go on, unless somebody has ended it; False also where no daemon answers, as while it is restarted."""
    try:
        state = client.get("/api/v1/release", ask.PATIENCE).json()["state"]
    except (Unreachable, *ask.STRANGE):
        return False
    return state == "released" and isinstance(asked(args, client, GRACE, hold), dict)


def take_up(args: argparse.Namespace, client: Client, hold: str | None) -> None:
    """Have the GPUs taken up again, where nobody else wants them released; what is in the way does not change our exit code."""
    try:
        resumed(args, client, sys.stderr, hold)
    except (Unreachable, ask.DeclinedError) as error:
        print(f"{PLACE}: the GPUs stay released until the time is over: {error}", file=sys.stderr)
    except ask.STRANGE:
        print(f"{PLACE}: {ask.STRANGER}", file=sys.stderr)
