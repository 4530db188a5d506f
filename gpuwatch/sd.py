"""What systemd wants to hear: sd_notify, and log lines with priorities, in the few lines that it takes."""

import logging
import os
from collections.abc import Mapping
from typing import Any


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Tell systemd `state` ("READY=1", "WATCHDOG=1", ...); does nothing where no one listens."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    import socket  # noqa: PLC0415 - only the daemon notifies; each worker is here for its log lines

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


ALARMS = "gpuwatch.alarms"  # the logger of what alerts do: its level is their severity


class Line(logging.Formatter):
    """Log lines in which nothing that was quoted from the machine ends the line or commands the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of the message, without its traceback."""
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback, with the lines that it has by itself."""
        return "\n".join(visible(line) for line in super().formatException(ei).split("\n"))


class Priority(Line):
    """Log lines as the journal reads them: `<4>text`, the number being syslog's."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, every part of it with its priority."""
        levels = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4))
        level = next((number for least, number in levels if record.levelno >= least), 6)
        return "\n".join(f"<{level}>{line}" for line in super().format(record).split("\n"))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of the message; of an alarm with how grave it is, since the journal does not print priorities."""
        line = super().formatMessage(record)
        is_alarm = record.name == ALARMS and record.levelno >= logging.WARNING
        return f"{record.levelname.lower()} {line}" if is_alarm else line


def visible(text: str) -> str:
    """Return text with everything escaped that a terminal would not show as itself."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def lines(name: str = "", environ: Mapping[str, str] = os.environ, descriptor: int = 2) -> logging.Formatter:
    """Return how log lines look on stderr: with priorities where that is the journal, with the time where a person reads."""
    head = f"{name}: " if name else ""
    if is_journal(environ, descriptor):
        return Priority(f"{head}%(message)s")
    return Line(f"%(asctime)s %(levelname)s {head}%(message)s")


def is_journal(environ: Mapping[str, str], descriptor: int) -> bool:
    """Whether this descriptor goes to the journal; a terminal inherits $JOURNAL_STREAM from its service too (systemd.exec(5))."""
    try:
        stream = os.fstat(descriptor)
    except OSError:  # it is closed
        return False
    return environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"
