"""Take the GPUs up again after `gpuwatch release`, and say what has changed: driver, GPUs, VBIOS, MIG layout.

That ends every release, also that of a command which still runs. That it is not stored yet, since the disk does not answer, is
said.

Exit code 1: the daemon refuses, the driver is not back, or a GPU is missing; 2: something in the command is wrong;
3: no daemon answers.

example: gpuwatch resume
"""

import argparse
import json
import sys
import time
from typing import TextIO

from gpuwatch.cli import OUR_FAULT, ask
from gpuwatch.cli.status import of_release
from gpuwatch.client import Client
from gpuwatch.model.escape import printable

PLACE = "gpuwatch resume"
WAIT = 90.0  # seconds until a driver that does not come back is told of; without persistence mode each GPU takes seconds
WAITS = ("attaching", "unknown")  # unknown: the daemon has just been started, and takes the end into account
NOT_BACK = {"released": "somebody has released them again", "unknown": "the daemon cannot read yet whether they are released"}
SOON = 1.0  # seconds after which somebody who looks on wants to know what it is waiting for
GONE = 404  # of HTTP: nobody has this hold any more
PAUSE = 0.3  # seconds between two questions


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Have the GPUs taken up, and wait for what comes of it."""
    return ask.conversation(PLACE, lambda: resumed(args, ask.client(args), sys.stdout))


def resumed(args: argparse.Namespace, client: Client, out: TextIO, hold: str | None = None) -> int:
    """Ask, and say what has changed; raises what `ask.conversation` takes. A `hold` is ended alone: others may go on."""
    body = json.dumps({} if hold is None else {"hold": hold}).encode()
    reply = client.post("/api/v1/resume", body, ask.PATIENCE)
    if hold is not None and reply.status == GONE:  # a person has ended it, and how it stands now is for others to say
        answer = {"was_released": False, **client.get("/api/v1/release", ask.PATIENCE).json()}
    else:
        answer = ask.granted(args, PLACE, reply, changes=True).json()
    if not answer.get("stored", True):
        words = "it is not stored yet, the disk does not answer: a restart of the daemon would release them again"
        print(f"{PLACE}: {words}", file=sys.stderr)
    none = "the GPUs were not released" if hold is None else "somebody had the GPUs taken up before"
    if not answer["was_released"] and answer["state"] == "attached":
        print(none, file=out)
        return 0
    began, is_said = time.monotonic(), False
    while answer["state"] in WAITS and (waited := time.monotonic() - began) < WAIT:
        if waited >= SOON and not is_said:
            is_said = True
            print(f"{PLACE}: waiting for driver and GPUs to answer, {WAIT:.0f} s at most", file=sys.stderr, flush=True)
        time.sleep(PAUSE)
        answer = client.get("/api/v1/release", ask.PATIENCE).json()
    if answer["state"] == "released" and hold is not None:
        print(printable(f"the GPUs stay {of_release(answer, time.time())}", 400), file=out)
        return 0
    if answer["state"] != "attached":
        print(f"{PLACE}: the GPUs are not back: {NOT_BACK.get(answer['state'], 'they do not answer yet')}", file=sys.stderr)
        return OUR_FAULT
    found = printable(answer["found"], 400)
    if not answer["is_back"]:
        print(f"{PLACE}: the GPUs are not read: {found}", file=sys.stderr)
        return OUR_FAULT
    print(f"the GPUs are read again: {found}" if found else none, file=out)
    return OUR_FAULT if answer["missing"] else 0
