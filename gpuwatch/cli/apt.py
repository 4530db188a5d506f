"""What apt calls before and after dpkg: for packages of NVIDIA's driver the GPUs are released, and taken up again afterwards.

`before` reads the packages from standard input, as apt's DPkg::Pre-Install-Pkgs gives them. `after` ends a release that `before`
has begun, unless a person has asked for one by then. Neither waits for more than an answer, and the exit code is always 0: apt
stops where a hook fails. The lines for apt are in apt.conf beside the systemd unit, for /etc/apt/apt.conf.d/80gpuwatch.

example: gpuwatch apt before < packages.txt
"""

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.cli import ask
from gpuwatch.client import Client
from gpuwatch.model.escape import printable

PLACE = "gpuwatch apt"
MARK = Path("/run/gpuwatch-apt")  # holds since when; /run is root's, as apt is
LASTS = 1800.0  # seconds; it goes on while dpkg's lock is held
PAUSE = 0.3  # seconds between two questions
LINES = 10_000
LONGEST = 4096  # bytes of a line
UNKNOWN = "-" * 32  # in place of since when
# Parts of the driver as Debian, Ubuntu and NVIDIA name them; not the container tools, the settings and the CUDA toolkit.
DRIVER = re.compile(
    rb"(?:nvidia-(?:driver|kernel|dkms|headless|open|utils|compute-utils|firmware|smi|legacy|fabricmanager|persistenced|modprobe)"
    rb"|libnvidia-(?!container)|linux-(?:modules|objects|signatures)-nvidia|cuda-drivers|libcuda1)"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("when", choices=("before", "after"))
    parser.add_argument("--mark", type=Path, default=MARK, metavar="FILE", help="where `before` leaves its mark (%(default)s)")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Release or resume; whatever is in the way is said, and does not stop apt."""
    try:
        if args.when == "before":
            if is_driver(() if sys.stdin is None else sys.stdin.buffer):  # None: whoever started us has closed it
                ask.conversation(PLACE, lambda: release(args, ask.client(args)))
        elif args.mark.is_file():
            ask.conversation(PLACE, lambda: resume(args, ask.client(args)))
    except Exception as error:  # noqa: BLE001 - apt stops where a hook fails, for whatever reason: 0 is the contract
        with contextlib.suppress(OSError):  # nobody hears it
            print(printable(f"{PLACE}: {str(error) or type(error).__name__}", 400), file=sys.stderr)
    return 0


def is_driver(lines: Iterable[bytes]) -> bool:
    """Say whether a package of the driver is among these files; all lines are read, since apt takes a broken pipe ill."""
    found = False
    for count, line in enumerate(lines):  # paths are bytes, in whatever encoding
        found = found or (count < LINES and DRIVER.match(line[:LONGEST].rpartition(b"/")[2]) is not None)
    return found


def release(args: argparse.Namespace, client: Client) -> None:
    """Have the GPUs released, unless they are by now, and leave a mark."""
    before = client.get("/api/v1/release", ask.PATIENCE).json()["state"]
    if before == "released":
        return
    with args.mark.open("w", encoding="utf-8") as mark:
        mark.write(UNKNOWN)  # first, with its space on the disk: a release whose mark cannot be written would outlast dpkg
        mark.flush()
        body = json.dumps({"seconds": LASTS}).encode()
        answer = ask.granted(args, PLACE, client.post("/api/v1/release", body, ask.PATIENCE), changes=True).json()
        if answer["already"] or before == "unknown":
            return  # it is, or may be, somebody else's
        mark.seek(0)
        mark.write(f"{float(answer['since'])}".ljust(len(UNKNOWN)))
    print("gpuwatch has let go of the GPUs while the NVIDIA driver is being installed", file=sys.stderr)


def resume(args: argparse.Namespace, client: Client) -> None:
    """Have the GPUs taken up, where the release is that of the mark, and nobody has asked for one since."""
    since = args.mark.read_text(encoding="utf-8").strip()
    args.mark.unlink()
    if since == UNKNOWN:
        return  # nothing was released by `before`, as far as is known
    end = time.monotonic() + ask.PATIENCE
    state = client.get("/api/v1/release", ask.PATIENCE).json()
    while state["state"] == "unknown" and time.monotonic() < end:  # the daemon is just being started, as dpkg may have done
        time.sleep(PAUSE)
        state = client.get("/api/v1/release", ask.PATIENCE).json()
    if state["state"] == "released" and str(float(state["since"])) == str(float(state.get("asked_at", state["since"]))) == since:
        ask.granted(args, PLACE, client.post("/api/v1/resume", b"{}", ask.PATIENCE), changes=True)
