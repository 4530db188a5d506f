"""Show what a metric was over a time, with what happened meanwhile between its values. It needs a running daemon.

METRIC is an id or a family of `gpuwatch metrics`. A name that the GPU and others have means the GPU's; mig.memory_used_bytes is
that of MIG instances. A time is how long ago (6h, 7d), a date in this host's time zone ("2024-05-01 14:00") or with its own
(2024-05-01T14:00:00Z), or seconds since 1970; of an hour that comes twice in autumn the first is meant, and lines of both have
their offset. A value is of the time up to its line; "-" says that there was none.

Exit code 0: fine; 2: a wrong option, an unknown metric or target; 3: no daemon answers, or it cannot read its history.

example: gpuwatch history power_watts --gpu 0 --since 6h
example: gpuwatch history temperature_celsius --since "2024-05-01 14:00" --until "2024-05-01 15:00" --json
"""

import argparse
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

import msgspec

from gpuwatch.catalogue.named import UnknownMetricError, named
from gpuwatch.cli import CALLERS_MISTAKE, NOT_REACHABLE, ask
from gpuwatch.cli.happened import instant, line
from gpuwatch.config import ConfigError
from gpuwatch.export.chosen import read_with
from gpuwatch.export.history import LEAST, MOST, NAMES, PATH, HistoryDocument, Line
from gpuwatch.model.escape import printable, visible
from gpuwatch.model.moment import stamp
from gpuwatch.model.quantity import BYTES

PLACE = "gpuwatch history"
ROWS = 400  # of a table, unless more are asked for
COLUMNS = 12  # of a table
WIDTH, ROOM = 24, 120  # characters of a heading, and of all together, beyond which they are cut as far as they can be told apart
DIGITS = 6  # of the largest number of a column
PLAIN = {**ask.WRONG, 404: CALLERS_MISTAKE, 503: NOT_REACHABLE}  # answers whose words are for whoever asks
NOTHING = "-"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("metric", metavar="METRIC", help="its id, or its family for all members of it")
    parser.add_argument("--gpu", metavar="GPU", help="only that of this GPU: its index, UUID or PCI address")
    parser.add_argument("--target", metavar="KEY", help="only that of the target with this key")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="only those with this label; may come often"
    )
    parser.add_argument("--since", default="6h", metavar="TIME", help="from when on (default: %(default)s)")
    parser.add_argument("--until", metavar="TIME", help="until when (default: now)")
    parser.add_argument("--limit", type=int, metavar="N", help=f"at most N values a target (default: {ROWS}; with --json 2500)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon, and print what it says."""
    query = urlencode({name: visible(value) for name, value in asked(args).items()})  # as the history writes what is no UTF-8

    def talk() -> str:
        reply = ask.client(args).get(f"{PATH}?{query}", ask.PATIENCE)
        found = msgspec.convert(ask.granted(args, PLACE, reply, plain=PLAIN).json(), HistoryDocument)
        return json.dumps(msgspec.to_builtins(found), indent=1) if args.json else "\n".join(page(args.metric, found))

    text = ask.conversation(PLACE, talk)
    if isinstance(text, int):
        return text
    print(text)
    return 0


def asked(args: argparse.Namespace) -> dict[str, str]:
    """Return the question as the daemon takes it; raises ConfigError."""
    query = {"metric": args.metric, "since": instant("--since", args.since)}
    if args.until is not None:
        query["until"] = instant("--until", args.until)
    if args.limit is not None and not LEAST <= args.limit <= MOST:
        raise ConfigError("--limit", "", f"expected a number from {LEAST} to {MOST}, got {args.limit}")
    if args.limit is not None or not args.json:
        query["limit"] = str(args.limit or ROWS)
    query |= {name: value for name, value in (("gpu", args.gpu), ("target", args.target)) if value is not None}
    for label in args.label:
        name, equals, value = label.partition("=")
        if not name or not equals:
            raise ConfigError("--label", "", f"expected a label and its value, such as device=nvme0n1, got {label[:40]!r}")
        if name in NAMES:
            how = "the first argument" if name == "metric" else f"the option --{name}"
            raise ConfigError("--label", "", f"{name} is no label: it is {how}")
        if name in query:
            said = "by --gpu and by --label" if name == "gpu" and args.gpu is not None else "twice"
            raise ConfigError("--label", "", f"{name[:40]} is given {said}; one value is looked for")
        query[name] = value
    return query


def page(name: str, found: HistoryDocument) -> Iterator[str]:
    """Yield the lines of a table: time, a column a series, and what happened between them."""
    columns = found.series[:COLUMNS]
    if columns:
        yield from table(columns, found)
    else:
        yield nothing(name, found)
        yield from map(line, found.events)
    if len(found.series) > COLUMNS:
        yield f"{len(found.series) - COLUMNS} more are not shown: choose with --gpu, --target or --label, or take --json"
    yield from (printable(f"left out: {words}", 400) for words in found.truncated)


def nothing(name: str, found: HistoryDocument) -> str:
    """Say that there is nothing, and why."""
    if found.oldest is None:
        return "there is no history yet: the first values are kept some ten seconds after the start"
    begins = f"; the history begins at {stamp(found.oldest)}" if found.oldest > found.since else ""
    return printable(f"no value of {name} from {stamp(found.since)} to {stamp(found.until)}{begins}{option(name)}", 400)


def option(name: str) -> str:
    """Say with which option a metric is read at all, "" for one that needs none."""
    try:
        options = {read_with(metric) for metric in named(name)}
    except UnknownMetricError:  # a newer daemon has it
        return ""
    return "" if "" in options else f"; it is read only with {' and '.join(sorted(options))}"


def table(columns: Sequence[Line], found: HistoryDocument) -> Iterator[str]:
    """Yield the heading, and values and events in the order of their time."""
    first = columns[0]
    of = "" if all(one.metric == first.metric for one in columns) else ", ..."
    spread = "; lowest and highest in brackets" if found.step > 10 and len(columns) == 1 else ""
    unit = f" in {first.unit}" if first.unit else ""
    yield printable(f"{first.subject}.{first.metric}{of}{unit}, {first.keep} of {found.step:g} s{spread}", 400)
    headings = apart([heading(one, columns) for one in columns], [one.key for one in columns])
    rows: dict[float, list[str]] = {at: [NOTHING] * len(columns) for at in moments(columns, found.step)}
    for place, one in enumerate(columns):
        form = Form([number for _, *numbers in one.points for number in numbers if number is not None], one.unit)
        for at, *numbers in one.points:
            if at is None or len(numbers) not in {1, 3}:
                raise ValueError("a point without a time, or neither of one value nor of a value and its bounds")
            if numbers != [None]:
                rows[at][place] = written(numbers, form, alone=len(columns) == 1)
    widths = [max(len(text), *(len(row[place]) for row in rows.values())) for place, text in enumerate(headings)]
    times = {at: stamp(at) for at in rows}
    wide = max(19, *map(len, times.values()))
    yield "  ".join([f"{'time':{wide}}", *(text.rjust(width) for text, width in zip(headings, widths, strict=True))])
    lines = [
        (at, "  ".join([f"{times[at]:{wide}}", *(text.rjust(width) for text, width in zip(row, widths, strict=True))]))
        for at, row in rows.items()
    ]
    lines += [(event.at, line(event)) for event in found.events]
    yield from (text for _, text in sorted(lines, key=lambda pair: pair[0]))


def moments(columns: Sequence[Line], step: float) -> list[float]:
    """Return the time of every line: of each value, and of each gap that no line of another column stands in."""
    times = sorted({at for one in columns for at, *numbers in one.points if at is not None and numbers != [None]})
    for gap in sorted({at for one in columns for at, *numbers in one.points if at is not None and numbers == [None]}):
        place = bisect_left(times, gap)
        if all(abs(at - gap) > step / 2 for at in times[max(0, place - 1) : place + 1]):
            times.insert(place, gap)
    return times


def apart(headings: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return headings that are cut, but not so short that two are one; with their keys where they are one as a whole."""
    whole = [
        printable(f"{text} {key}" if key and headings.count(text) > 1 else text, 400)
        for text, key in zip(headings, keys, strict=True)
    ]
    least = max(WIDTH, ROOM // len(whole))
    different = len(set(whole))
    room = next((size for size in range(least, 400) if len({printable(text, size) for text in whole}) == different), 400)
    return [printable(text, room) for text in whole]


def heading(one: Line, columns: Sequence[Line]) -> str:
    """Return what a column is of: its GPU or its labels, and the member of the family, as far as the columns differ in it.

    The member comes first: where there are many columns and little room, it is what tells two of one thing apart.
    """
    differ = [
        name
        for name, value in one.labels.items()
        if name != "uuid" and value and (len(columns) == 1 or any(other.labels.get(name) != value for other in columns))
    ]
    words = list(one.members.values()) if any(other.metric != one.metric for other in columns) else []
    words += [called(name, one.labels[name]) for name in differ]
    if not words:
        words = [called(name, value) for name, value in one.labels.items() if name != "uuid" and value]
    return " ".join(words) or one.key or one.subject


def called(name: str, value: str) -> str:
    """Return a label as people say it: GPU 0, nvme0n1; a number alone says nothing: instance 1, link 3, pid 4711."""
    if name == "gpu":
        return f"GPU {value}"
    return f"{name.removeprefix('gpu_')} {value}" if value.isdecimal() else value


class Form:
    """How the numbers of one column are written: with as many decimals, so that they can be compared; bytes in their own unit."""

    def __init__(self, numbers: Sequence[float], unit: str) -> None:
        largest = max(map(abs, numbers), default=0.0)
        fits = max(0, DIGITS - len(f"{largest:.0f}"))
        self._decimals = min(fits, max(map(decimals, numbers), default=0))
        self._is_size = unit == "bytes"

    def of(self, number: float) -> str:
        """Return one of them; only what is 0 reads 0."""
        if self._is_size:
            return amount(number)
        text = f"{number:.{self._decimals}f}"
        return f"{number:.2g}" if number and not float(text) else text


def amount(size: float) -> str:
    """Return a number of bytes in the largest unit of which it is at least one."""
    unit, length = next(((unit, length) for unit, length in reversed(BYTES.items()) if abs(size) >= length), ("B", 1))
    return f"{size:g} B" if length == 1 else f"{size / length:.2f} {unit}"


def decimals(number: float) -> int:
    """Return how many decimals a number has, of those that matter."""
    return len(f"{number:.{DIGITS}f}".rstrip("0").partition(".")[2])


def written(numbers: Sequence[float | None], form: Form, *, alone: bool) -> str:
    """Return a value, and the lowest and highest of a longer step where there is room."""
    value, *spread = (NOTHING if number is None else form.of(number) for number in numbers)
    return f"{value} ({spread[0]} to {spread[1]})" if alone and spread and spread[0] != spread[1] else value
