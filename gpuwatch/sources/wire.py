"""Reading <-> one frame on the pipe between the daemon and a worker: 4 bytes of length, then msgpack.

Frames carry metric ids, never declarations (rulings 1). Both ends are of one installation, so the format has no version.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from gpuwatch import catalogue
from gpuwatch.catalogue.events import KINDS
from gpuwatch.model.alert import Severity
from gpuwatch.model.event import Event
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Fault, Reading, Tier
from gpuwatch.model.target import Target

LENGTH = struct.Struct("!I")
LIMIT = 4 << 20  # bytes of one frame; a Reading has about 1.2 kB


class WireError(Exception):
    """The other end sent what is no frame of ours."""


class Setup(msgspec.Struct, frozen=True, tag="setup", array_like=True):
    """First frame to a worker: which sources, and the configuration (`config.plain`, without rules, receivers, routes).

    `standing` is what the worker before has said in the log and is not over: kind and age in seconds, by source and key.
    """

    sources: list[str]
    config: dict[str, Any]
    standing: dict[str, dict[str, tuple[str, float]]] = {}


class Ask(msgspec.Struct, frozen=True, tag="ask", array_like=True):
    """Read this tier, but not these items (each written `source:item`)."""

    number: int
    tier: Tier
    skip: list[str] = []


class Got(msgspec.Struct, frozen=True, tag="got", array_like=True):
    """One reading. Absent metrics are grouped by reason."""

    source: str
    tier: Tier
    subject: str
    key: str
    labels: dict[str, str]
    info: dict[str, str]
    at: float
    took: float
    values: dict[str, float]
    absent: dict[Absence, list[str]]
    fault: tuple[str, str, int | None, bool] | None = None


class Happened(msgspec.Struct, frozen=True, tag="happened", array_like=True):
    """One event."""

    source: str
    kind: str
    severity: Severity
    at: float
    words: str
    subject: str
    key: str
    code: int | None
    facts: dict[str, str]
    count: int
    mark: str


class Working(msgspec.Struct, frozen=True, tag="working", array_like=True):
    """The worker is about to touch this item of this source; an empty item: the source as a whole."""

    number: int
    source: str
    item: str


class Restart(msgspec.Struct, frozen=True, tag="restart", array_like=True):
    """The worker asks to be replaced."""

    reason: str


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True):
    """The round is over."""

    number: int
    busy: list[str] = []


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """A source could not be built (`number` 0) or raised while it was asked, which is a bug; the other sources go on."""

    number: int
    source: str
    words: str


ToWorker = Setup | Ask
FromWorker = Got | Happened | Working | Restart | Done | Failed


def got(reading: Reading) -> Got:
    """Write a reading as a frame."""
    absent: dict[Absence, list[str]] = {}
    for metric, why in reading.absent.items():
        absent.setdefault(why, []).append(metric.id)
    fault = reading.fault
    return Got(
        source=reading.source,
        tier=reading.tier,
        subject=reading.target.subject.name,
        key=reading.target.key,
        labels=dict(reading.target.labels),
        info=dict(reading.target.info),
        at=reading.at,
        took=reading.took,
        values={metric.id: value for metric, value in reading.values.items()},
        absent=absent,
        fault=(fault.kind, fault.words, fault.code, fault.waits) if fault else None,
    )


def reading(frame: Got) -> Reading:
    """Read a frame back; raises WireError for a name that the catalogue lacks."""
    try:
        subject = catalogue.SUBJECTS[frame.subject]
        values: dict[Metric, float] = {catalogue.BY_ID[frame.subject, name]: value for name, value in frame.values.items()}
        absent = {catalogue.BY_ID[frame.subject, name]: why for why, names in frame.absent.items() for name in names}
    except KeyError as error:
        raise WireError(f"unknown name {error} from {frame.source}") from None
    return Reading(
        source=frame.source,
        tier=frame.tier,
        target=Target(subject=subject, key=frame.key, labels=frame.labels, info=frame.info),
        at=frame.at,
        took=frame.took,
        values=values,
        absent=absent,
        fault=Fault(*frame.fault) if frame.fault else None,
    )


def happened(event: Event) -> Happened:
    """Write an event as a frame."""
    return Happened(
        source=event.source,
        kind=event.kind,
        severity=event.severity,
        at=event.at,
        words=event.words,
        subject=event.subject,
        key=event.key,
        code=event.code,
        facts=dict(event.facts),
        count=event.count,
        mark=event.mark,
    )


def event(frame: Happened) -> Event:
    """Read an event back; raises WireError for a kind that the catalogue lacks."""
    if frame.kind not in KINDS:
        raise WireError(f"unknown kind of event {frame.kind!r} from {frame.source}")
    return Event(
        source=frame.source,
        kind=frame.kind,
        severity=frame.severity,
        at=frame.at,
        words=frame.words,
        subject=frame.subject,
        key=frame.key,
        code=frame.code,
        facts=frame.facts,
        count=frame.count,
        mark=frame.mark,
    )


ENCODER = msgspec.msgpack.Encoder()
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def pack(frame: ToWorker | FromWorker) -> bytes:
    """Return the bytes of one frame, with its length; one `write` of them keeps frames whole."""
    body = ENCODER.encode(frame)
    return LENGTH.pack(len(body)) + body


def frames(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bodies of frames until the stream ends; a cut last frame ends it too. Raises WireError for a senseless length."""
    while True:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(head)
        if length > LIMIT:
            raise WireError(f"frame of {length} bytes, over {LIMIT}")
        body = stream.read(length)
        if len(body) < length:
            return
        yield body


def from_worker(body: bytes) -> FromWorker:
    """Decode what a worker sent; raises WireError."""
    try:
        return FROM_WORKER.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from None


def to_worker(body: bytes) -> ToWorker:
    """Decode what the daemon sent; raises WireError."""
    try:
        return TO_WORKER.decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from None
