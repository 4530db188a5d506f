"""A saved log -> events: for `gpuwatch events --file` and for tests."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec.structs import replace

from gpuwatch.model.event import Event
from gpuwatch.sources.kernel.forms import LINE, Forms
from gpuwatch.sources.kernel.stream import Stream


def lines(file: BinaryIO) -> Iterator[str]:
    """Return the lines of a file, each cut to what is looked at: a log may hold junk, and lines without end."""
    while line := file.readline(LINE):
        yield line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = file.readline(LINE)


def replay(log: Iterable[str], now: float, booted: float | None = None) -> Iterator[Event]:
    """Return the events of a log in the order of their lines.

    `booted` is the wall time of the boot that uptimes count from; where it is not known, the log is taken to end `now`, and
    its events come once it has been read. A date without a year is the latest before `now`.
    """
    forms, stream = Forms(now, booted), Stream()
    undated: list[tuple[Event, bool]] = []
    end = 0.0  # the last uptime
    for line in log:
        record = forms.feed(line)
        if record is None:
            continue
        if record.is_uptime:
            end = record.at
        stream.feed(record)
        for event, is_uptime in stream.take():
            if is_uptime or undated:
                undated.append((event, is_uptime))
            else:
                yield event
    record = forms.end()
    if record is not None:
        if record.is_uptime:
            end = record.at
        stream.feed(record)
    stream.end()
    for event, is_uptime in [*undated, *stream.take()]:
        yield replace(event, at=now - end + event.at) if is_uptime else event
