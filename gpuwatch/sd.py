"""What systemd wants to hear (sd_notify), in the few lines that it takes."""

import os
import socket
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Tell systemd `state` ("READY=1", "WATCHDOG=1", ...); does nothing where no one listens."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.settimeout(1)
        try:
            out.sendto(state.encode(), address)
        except OSError:
            return  # a service manager that does not listen is not ours to mend


def watchdog_period(environ: Mapping[str, str] = os.environ) -> float | None:
    """Return the seconds within which systemd wants WATCHDOG=1, None where it does not watch this process."""
    if environ.get("WATCHDOG_PID") not in (None, str(os.getpid())):
        return None
    try:
        period = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return period / 1e6 if period > 0 else None
