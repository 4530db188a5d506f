"""A saved log -> events: for `gpuwatch events --file` and for tests."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from gpuwatch.model.event import Event
from gpuwatch.sources.kernel.forms import LINE, Forms
from gpuwatch.sources.kernel.record import Dating
from gpuwatch.sources.kernel.stream import Stream


def lines(file: BinaryIO) -> Iterator[str]:
    """Return the lines of a file, each cut to what is looked at: a log may hold junk, and lines without end."""
    while line := file.readline(LINE):
        yield line.decode("utf-8", "replace")
        while line and not line.endswith(b"\n"):
            line = file.readline(LINE)


class Saved(NamedTuple):
    """An event of a saved log. Where its time is of no calendar, `event.at` is a guess that serves to tell what is near."""

    event: Event
    dating: Dating
    uptime: float = 0.0  # seconds since the boot, with Dating.BOOT


def replay(log: Iterable[str], now: float, booted: float | None = None) -> Iterator[Event]:
    """Return the events of a log in the order of their lines, without what their times count from."""
    return (saved.event for saved in saved_events(log, now, booted))


def saved_events(log: Iterable[str], now: float, booted: float | None = None) -> Iterator[Saved]:
    """Return the events of a log in the order of their lines.

    `booted` is the wall time of the boot that uptimes count from; where it is not known, the log is taken to end `now`, and
    its events come once it has been read. A date without a year is the latest before `now`.
    """
    forms, stream = Forms(now, booted), Stream()
    undated: list[tuple[Event, Dating]] = []
    end = 0.0  # the last uptime
    for line in log:
        record = forms.feed(line)
        if record is None:
            continue
        if record.dating is Dating.BOOT:
            end = record.at
        stream.feed(record)
        for event, dating in stream.take():
            if dating is Dating.BOOT or undated:
                undated.append((event, dating))
            else:
                yield Saved(event, dating)
    record = forms.end()
    if record is not None:
        if record.dating is Dating.BOOT:
            end = record.at
        stream.feed(record)
    stream.end()
    for event, dating in [*undated, *stream.take()]:
        if dating is Dating.BOOT:
            yield Saved(replace(event, at=now - end + event.at), dating, event.at)
        else:
            yield Saved(event, dating)
