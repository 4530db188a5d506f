"""List what driver and kernel have told, or read a saved kernel log.

A running daemon is asked for what it has stored. `--file` needs none: it reads a log in any form (dmesg, journalctl, syslog, raw
/dev/kmsg, also packed by gzip, bzip2 or xz; `-` is standard input) and says what belongs together and what to do
about it.

A time is how long ago (6h, 7d), a date in this host's time zone ("2024-05-01 14:00") or with its own (2024-05-01T14:00:00Z), or
seconds since 1970; of an hour that comes twice in autumn the first is meant, and lines of both have their offset.

Exit code 0: fine; 1: a log tells of something that needs a person; 2: a wrong option or file, such as one in which no line is of
a kernel log (an empty file is a quiet one, empty standard input is not), or one with errors of the driver of which none can be
read; 3: no daemon answers, or it cannot read its history.

example: gpuwatch events --since 24h
example: dmesg | gpuwatch events --file -
"""

import argparse
import bz2
import contextlib
import errno
import gzip
import io
import json
import lzma
import os
import re
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlencode

import msgspec

from gpuwatch.cli import CALLERS_MISTAKE, NOT_REACHABLE, ask
from gpuwatch.cli.happened import instant, line
from gpuwatch.config import ConfigError
from gpuwatch.detectors.stories import Story, retold
from gpuwatch.export.events import Told, told
from gpuwatch.model.alert import Severity
from gpuwatch.model.escape import printable
from gpuwatch.model.event import Event
from gpuwatch.model.moment import stamp
from gpuwatch.sources.kernel import Dating, Saved, is_of_log, lines, saved_events

PLACE = "gpuwatch events"
OF_DAEMON = ("since", "until", "gpu", "socket", "host", "config", "password_file", "ca_file")  # no option of a file
PLAIN = {**ask.WRONG, 503: NOT_REACHABLE}  # answers whose words are for whoever asks
ERRORS = ("NVRM: Xid (", "SXid (PCI:", "fallen off the bus")  # what tells of an error of the driver, whatever stands before it
READ = frozenset({"xid", "sxid", "off_bus"})  # what comes of these
LONGEST = 8  # bytes of a start
PACKED: tuple[tuple[re.Pattern[bytes], Callable[[Any], Any]], ...] = (  # by their start
    (re.compile(rb"\x1f\x8b"), gzip.open),
    (re.compile(rb"BZh[1-9]"), bz2.open),
    (re.compile(rb"\xfd7zXZ\0"), lzma.open),
)
STRANGE: tuple[tuple[bytes, str, str], ...] = (  # what is not read here, by its start: what it is, and the command that reads it
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "zstdcat"),
    (b"\x04\x22\x4d\x18", "packed by lz4", "lz4cat"),
    (b"\x1f\x9d", "packed by compress", "zcat"),
    (b"LZIP", "packed by lzip", "lzip -dc"),
    (b"PK\x03\x04", "a ZIP archive", "unzip -p"),
    (b"LPKSHHRH", "a journal of systemd", "journalctl --file"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--since", metavar="TIME", help="from when on (default: everything)")
    parser.add_argument("--until", metavar="TIME", help="until when (default: now)")
    parser.add_argument("--gpu", metavar="GPU", help="only those of this GPU: its index, UUID or PCI address")
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="the newest N (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--file", metavar="LOG", help="read this saved log instead; - is standard input")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon, or read the file, and print it."""
    if not 1 <= args.limit <= 10_000:
        raise ConfigError("--limit", "", f"expected a number from 1 to 10000, got {args.limit}")
    if args.file is None:
        return of_daemon(args)
    if asked := [name for name in OF_DAEMON if getattr(args, name) is not None]:
        raise ConfigError("--file", "", f"a saved log is read whole: --{asked[0].replace('_', '-')} is for a daemon")
    return of_file(args)


def of_daemon(args: argparse.Namespace) -> int:
    """Ask the daemon."""
    times = {name: instant(f"--{name}", text) for name in ("since", "until") if (text := getattr(args, name)) is not None}
    query = urlencode({"limit": str(args.limit), **times} | ({} if args.gpu is None else {"gpu": args.gpu}))

    def talk() -> list[Told]:
        reply = ask.granted(args, PLACE, ask.client(args).get(f"/api/v1/events?{query}", ask.PATIENCE), plain=PLAIN)
        return msgspec.convert(reply.json()["events"], list[Told])

    found = ask.conversation(PLACE, talk)
    if isinstance(found, int):
        return found
    if args.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        print("\n".join([line(one) for one in found]) or "no events")
    return 0


def of_file(args: argparse.Namespace) -> int:
    """Read a saved log."""
    last: deque[Event] = deque(maxlen=args.limit)
    times, errors = Times(), Errors()

    def kept(found: Iterable[Saved]) -> Iterator[Event]:
        for saved in found:
            last.append(saved.event)
            times.note(saved)
            errors.note(saved.event)
            yield saved.event

    try:
        with opened(args.file) as file:
            stories = retold(kept(saved_events(errors.watched(lines(file)), time.time())))
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ConfigError("--file", "", f"{args.file}: it is packed, and damaged: {error}") from None
    except OSError as error:
        raise ConfigError("--file", "", f"{args.file}: {error.strerror or error}") from None
    found = [told(event, {}) for event in last]
    if args.json:
        events = [{**msgspec.to_builtins(one), **times.dated(at=one.at)} for one in found]
        print(json.dumps({"events": events, "stories": [shown(story, times) for story in stories]}, indent=1))
    else:
        nothing = "this log tells of nothing that gpuwatch knows"
        if found or not (errors.unread or errors.unknown):
            print("\n".join([line(one, times.words(one.at)) for one in found]) or nothing)
        for story in stories:
            print("\n".join(("", *paragraph(story, times))))
    if errors.unread:
        print(f"{PLACE}: {errors.unread}", file=sys.stderr)
        return CALLERS_MISTAKE
    if errors.unknown:
        print(f"{PLACE}: no line of a kernel log was recognised in {printable(args.file)}", file=sys.stderr)
        return 0 if errors.is_empty and args.file != "-" else CALLERS_MISTAKE  # who knows what became of the command before us
    return int(any(story.severity is not Severity.INFO for story in stories))


class Errors:
    """Whether a log is one, has errors of the driver in it, and any was read: silence about those that were not is a verdict."""

    def __init__(self) -> None:
        self._first = 0  # number of the first line that has one
        self._is_read = False
        self.is_empty = True
        self.unknown = True  # no line is of a kernel log

    def watched(self, log: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a log."""
        for number, text in enumerate(log, 1):
            self.is_empty = False
            self.unknown = self.unknown and not is_of_log(text)
            if not self._first and any(error in text for error in ERRORS):
                self._first = number
            yield text

    def note(self, event: Event) -> None:
        """Take note of an event."""
        self.unknown = False
        self._is_read = self._is_read or event.kind in READ

    @property
    def unread(self) -> str:
        """Return "" or what is wrong."""
        if not self._first or self._is_read:
            return ""
        return (
            f"line {self._first} has an error of the NVIDIA driver, but none could be read: it is broken, in a form of log that "
            "gpuwatch does not know, or written by a program and not by the kernel"
        )


class Times:
    """The times of a saved log that are of no calendar, by the guess that stands for each: seconds since a boot, or None."""

    def __init__(self) -> None:
        self._known: dict[float, float | None] = {}

    def note(self, saved: Saved) -> None:
        """Take note of an event."""
        if saved.dating is not Dating.WALL:
            self._known[saved.event.at] = saved.uptime if saved.dating is Dating.BOOT else None

    def words(self, at: float) -> str:
        """Return a time in words."""
        if at not in self._known:
            return stamp(at)
        uptime = self._known[at]
        return "at an unknown time" if uptime is None else f"{uptime:.6f} s since boot"

    def dated(self, **times: float) -> Mapping[str, float | None]:
        """Return times as plain data: null where none is known, and beside it the seconds since boot where these are."""
        found: dict[str, float | None] = {}
        for name, at in times.items():
            found[name] = None if at in self._known else at
            if (uptime := self._known.get(at)) is not None:
                found[f"{name}_since_boot"] = uptime
        return found


def opened(name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open a log, packed or not; standard input is not ours to close, and somebody may have closed it."""
    if name == "-" and sys.stdin is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    if name == "-":
        return contextlib.nullcontext(unpacked(sys.stdin.buffer, "standard input"))
    path = Path(name)
    if path.is_fifo():  # to open it waits for a writer, and who forgot to start one would wonder
        print(f"{PLACE}: {printable(name)} is a FIFO: waiting for whoever writes to it", file=sys.stderr)
    return whole(path)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file."""
    with path.open("rb") as file:
        yield unpacked(file, str(path))


def unpacked(file: BinaryIO, name: str) -> BinaryIO:
    """Return what is in a packed file, or the file; raises ConfigError for what is read by another program."""
    buffer = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))
    start = buffer.peek(LONGEST)
    for head, what, command in STRANGE:
        if start.startswith(head):
            raise ConfigError("--file", "", f"{name}: it is {what}, which is not read here: {command} FILE | {PLACE} --file -")
    unpack = next((one for pattern, one in PACKED if pattern.match(start)), None)
    return buffer if unpack is None else cast("BinaryIO", unpack(buffer))


def paragraph(story: Story, times: Times) -> Iterator[str]:
    """Yield the lines of a story."""
    often = f", {story.count} times" if story.count > 1 else ""
    until = f" to {times.words(story.last)}" if story.last - story.began >= 1 else ""
    yield printable(f"{story.severity.value.upper()}  {story.thing}: {story.title}{often}", 400)
    yield f"  {times.words(story.began)}{until}"
    yield printable(f"  {story.words}", 400)
    if story.also:
        yield printable(f"  with it: {story.also}", 400)
    if story.action:
        yield printable(f"  {story.action}", 400)


def shown(story: Story, times: Times) -> Mapping[str, Any]:
    """Return a story as plain data."""
    return {
        "subject": story.subject,
        "key": story.key,
        "severity": story.severity.value,
        "cause": story.label,
        "title": story.title,
        "code": story.code,
        "count": story.count,
        **times.dated(began=story.began, last=story.last),
        "words": story.words,
        "also": {label: tally.count for label, tally in story.tallies.items() if label != story.label},
        "programs": story.programs,
        "recovery": story.recovery,
        "action": story.action,
    }
