"""What apt calls before and after dpkg: for packages of NVIDIA's driver the GPUs are released, and taken up again afterwards.

`before` reads the packages from standard input, as apt's DPkg::Pre-Install-Pkgs gives them. `after` ends what `before` has asked
for; the GPUs stay released where a person or a command wants them so. Neither waits for more than an answer, and the exit code is
always 0: apt stops where a hook fails. The lines for apt are in apt.conf beside the systemd unit, for
/etc/apt/apt.conf.d/80gpuwatch.

example: gpuwatch apt before < packages.txt
"""

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.cli import ask, usage
from gpuwatch.client import Client
from gpuwatch.model.escape import printable

PLACE = "gpuwatch apt"
MARK = Path("/run/gpuwatch-apt")  # it is there from `before` to `after`; /run is root's, as apt is
HOLD = "apt"  # one for all: only one apt is at work at a time, and it may call `before` more than once
LASTS = 1800.0  # seconds; it goes on while dpkg's lock is held
LINES = 10_000
LONGEST = 4096  # bytes of a line
# Parts of the driver as Debian, Ubuntu and NVIDIA name them; not the container tools, the settings and the CUDA toolkit.
DRIVER = re.compile(
    rb"(?:nvidia-(?:driver|kernel|dkms|headless|open|utils|compute-utils|firmware|smi|legacy|fabricmanager|persistenced|modprobe)"
    rb"|libnvidia-(?!container)|linux-(?:modules|objects|signatures)-nvidia|cuda-drivers|libcuda1)"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("when", type=usage.one_of(("before", "after")), metavar="{before,after}")
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
    """Have the GPUs released, and leave a mark."""
    args.mark.touch()  # first: a release whose mark cannot be made would outlast dpkg
    body = json.dumps({"seconds": LASTS, "hold": HOLD}).encode()
    ask.granted(args, PLACE, client.post("/api/v1/release", body, ask.PATIENCE), changes=True)
    print("gpuwatch has let go of the GPUs while the NVIDIA driver is being installed", file=sys.stderr)


def resume(args: argparse.Namespace, client: Client) -> None:
    """End what was asked for, whatever came of that."""
    args.mark.unlink()
    ask.granted(args, PLACE, client.post("/api/v1/resume", json.dumps({"hold": HOLD}).encode(), ask.PATIENCE), changes=True)
