"""The history as it is asked for: rows of some targets over a time, thinned to what an answer holds, and the events beside them.

Reads in the thread of whoever asks, on a connection that only reads. Longer steps come from the 10 s rows; a table of one row a
minute or an hour, once there is one, is read here in their place.
"""

from collections.abc import Collection, Mapping
from itertools import accumulate
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, func, select

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.card import meant
from gpuwatch.model.event import Event
from gpuwatch.model.order import place_of
from gpuwatch.model.past import NoTargetError, Past, Question, Series, TooMuchError
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.store import happenings
from gpuwatch.store.schema import RAW, ROUND, TARGET, milliseconds
from gpuwatch.store.thinning import Thinned

ROWS = 1_000_000  # that one question may read: seven days of sixteen GPUs
SERIES = 512  # of one answer
POINTS = 50_000  # of one answer, all series together
EVENTS = 1_000  # of one answer
NAMED = 240  # characters in which targets are named to who asks for another
FEW = 256  # targets that are looked up one by one; of more, all rows are read
PLACED = 16  # the same where rows lie by time: each is looked up in each round
FETCHED = 1_000  # rows at once
KNOWN_BY = ("uuid", "device", "interface", "pci_bus_id", "nvswitch")  # labels by which events name a thing


class Seen(msgspec.Struct, frozen=True):
    """A target, as the history knows it."""

    key: str
    labels: Mapping[str, str]
    info: Mapping[str, str] = {}


def read(connection: Connection, question: Question) -> Past:
    """Answer a question; raises NoTargetError and TooMuchError, and DISK_ERRORS."""
    with connection.begin():
        first = select(func.min(ROUND.c.id)).scalar_subquery()
        oldest = connection.scalar(select(ROUND.c.at).where(ROUND.c.id == first))
        wanted = chosen(connection, question) if question.is_narrowed else None
        thinned, left_out = gathered(connection, question, wanted)
        shown = {target for target, _ in thinned.names}
        seen = details(connection, shown if wanted is None or len(wanted) > FEW else shown | wanted)
        order = {target: place_of(one.labels) for target, one in seen.items()}
        keys = None if wanted is None else known_by(connection, seen.values())
    events, is_whole = happened(connection, question, keys)
    cut = [f"targets: {left_out} more than the {SERIES} series of one answer have values"] if left_out else []
    return Past(
        step=thinned.step / 1000,
        oldest=None if oldest is None else oldest / 1000,
        series=[
            Series(metric=metric, key=seen[target].key, labels=seen[target].labels, points=thinned.points(name, metric.keep))
            for name in sorted((name for name in thinned.names if name[0] in seen), key=lambda name: (order[name[0]], *name))
            for target, metric in [(name[0], question.metrics[name[1]])]
        ],
        events=events,
        truncated=cut if is_whole else [*cut, f"events: only the newest {EVENTS} are told"],
    )


def chosen(connection: Connection, question: Question) -> set[int]:
    """Return the targets that are asked for; raises NoTargetError where the history has others alone."""
    uuids = set(meant(question.labels["gpu"], cards(connection))) if "gpu" in question.labels else set[str]()
    query = (
        select(TARGET.c.id, TARGET.c.key, TARGET.c.labels).where(TARGET.c.subject == question.subject.name).order_by(TARGET.c.id)
    )
    found, others = set[int](), list[Seen]()
    for number, key, words in connection.execute(query, execution_options={"yield_per": FETCHED}):
        one = Seen(key, texts(words))
        if question.key in {None, key} and all(has(one, name, value, uuids) for name, value in question.labels.items()):
            found.add(number)
        elif len(others) < FEW:
            others.append(one)
    if not found and others:
        raise NoTargetError(strange(question, others))
    return found


def has(seen: Seen, name: str, value: str, uuids: Collection[str]) -> bool:
    """Whether a target has this label, or is of one of these GPUs where the label `gpu` says so in another way."""
    return seen.labels.get(name) == value or (name == "gpu" and seen.labels.get("uuid") in uuids)


def cards(connection: Connection) -> list[Seen]:
    """Return every GPU of the history."""
    query = select(TARGET.c.key, TARGET.c.labels, TARGET.c.info).where(TARGET.c.subject == GPU.name)
    return [Seen(key, texts(labels), texts(info)) for key, labels, info in connection.execute(query)]


def aliases(connection: Connection, keys: Collection[str]) -> set[str]:
    """Return the keys that events may have of these things, which of a GPU are its UUID and its address on the bus."""
    with connection.begin():
        known = cards(connection)
        return known_by(connection, [Seen(one, {}) for key in keys for one in {key, *meant(key, known)}])


def strange(question: Question, others: list[Seen]) -> str:
    """Say that there is no such target, and which there are: by index or name, since UUIDs tell nobody anything.

    Who has asked for a key is told the keys as well.
    Where none has a label of that name it says so: there is nothing to choose from.
    """
    asked = [*([f"target={question.key}"] if question.key is not None else []), *map("=".join, question.labels.items())]
    refused = f"the history has no {question.subject.name} with {', '.join(asked)}"
    lacking = [name for name in question.labels if not any(name in one.labels for one in others)]
    if lacking:
        return f"{refused}, which has no label {' and no label '.join(lacking)}"
    if not any(one.key or one.labels for one in others):
        return f"{refused}, of which there is one alone"
    ordered = sorted(others, key=lambda one: place_of(one.labels))
    named = list(dict.fromkeys(words_of(one, by_key=question.key is not None) for one in ordered))
    fits = max(1, sum(end <= NAMED for end in accumulate(len(words) + 2 for words in named)))
    more = ", ..." if len(named) > fits else ""
    return f"{refused}; it has {', '.join(named[:fits])}{more}"


def words_of(one: Seen, *, by_key: bool) -> str:
    """Return what a target is asked for by: its labels, or its key with them beside it."""
    labels = " ".join(f"{name}={value}" for name, value in one.labels.items() if name != "uuid")
    if by_key and one.key:
        return f"target={one.key}{f' ({labels})' if labels else ''}"
    return labels or f"target={one.key}"


def gathered(connection: Connection, question: Question, wanted: set[int] | None) -> tuple[Thinned[tuple[int, int]], int]:
    """Return the values by target and place of the metric, and how many targets had no room; raises TooMuchError."""
    thinned = Thinned[tuple[int, int]](question.points, POINTS)
    left_out, count = set[int](), 0
    for target, at, *values in connection.execute(rows(question, wanted), execution_options={"yield_per": FETCHED}):
        count += 1
        if count > ROWS:
            raise TooMuchError(f"more than {ROWS} rows lie in that time: ask for a shorter one, or for fewer targets")
        if wanted is not None and target not in wanted:
            continue
        for place, value in enumerate(values):
            if value is None:
                continue
            if (target, place) in thinned or len(thinned) < SERIES:
                thinned.add((target, place), at, value)
            else:
                left_out.add(target)
    return thinned, len(left_out)


def rows(question: Question, wanted: Collection[int] | None) -> Select[Any]:
    """Return the query, which goes along the key of the table; of more than a few targets it gives the rows of all."""
    subject, table = question.subject, RAW[question.subject]
    key = (table.c.at, table.c.target) if subject.brief else (table.c.target, table.c.at)
    query = (
        select(table.c.target, table.c.at, *(table.c[metric.id] for metric in question.metrics)).order_by(*key).limit(ROWS + 1)
    )
    first, end = milliseconds(question.since), milliseconds(question.until)
    if wanted is not None and len(wanted) <= (PLACED if subject.brief else FEW):
        query = query.where(table.c.target.in_(wanted))
        if subject.brief:
            return query.where(table.c.at.in_(select(ROUND.c.at).where(ROUND.c.at >= first, ROUND.c.at < end)))
    elif not subject.brief:
        query = query.where(table.c.target.in_(select(TARGET.c.id).where(TARGET.c.subject == subject.name)))
    return query.where(table.c.at >= first, table.c.at < end)


def details(connection: Connection, targets: Collection[int]) -> dict[int, Seen]:
    """Return what is known of some targets."""
    query = select(TARGET.c.id, TARGET.c.key, TARGET.c.labels).where(TARGET.c.id.in_(targets))
    return {number: Seen(key, texts(words)) for number, key, words in connection.execute(query)}


def known_by(connection: Connection, targets: Collection[Seen]) -> set[str]:
    """Return the keys that events may have of these things: their own, and of GPUs the address on the bus, too."""
    keys = {one.key for one in targets} | {one.labels[name] for one in targets for name in KNOWN_BY if name in one.labels}
    query = select(TARGET.c.info).where(TARGET.c.subject == GPU.name, TARGET.c.key.in_(keys))
    addresses = [address_of(texts(words).get("pci_bus_id", "")) for (words,) in connection.execute(query)]
    return (keys | {spelled(found) for found in addresses if found is not None}) - {""}


def happened(connection: Connection, question: Question, keys: Collection[str] | None) -> tuple[list[Event], bool]:
    """Return the newest events of that time, the oldest of them first, and whether these are all."""
    found = list(happenings.read(connection, question.since, question.until, EVENTS + 1, kinds=None, keys=keys))
    return found[-EVENTS:], len(found) <= EVENTS


def texts(words: str) -> dict[str, str]:
    """Return labels or info."""
    return msgspec.json.decode(words, type=dict[str, str])
