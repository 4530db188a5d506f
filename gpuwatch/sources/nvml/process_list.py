"""The process lists and utilisation samples of NVML as bytes -> records. Pure; a list that makes no sense is none.

The struct has had three shapes (nvml.md 2.11): 16 bytes (pid, memory), 24 (gi and ci behind them), and 32 in the drivers from
535.43 to before 535.86. Read with the wrong stride the second pid is the first one's memory (NVIDIA/go-nvml#21). So a list is
read with each stride that its symbol may have; the one is taken in which every row can be true and most processes exist.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from gpuwatch.sources.nvml.answers import ALL_ONES

NOT_MIG = 0xFFFFFFFF
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels (linux/threads.h)
LARGEST_INSTANCE = 255  # GPU and compute instances have small numbers
LARGEST_MEMORY = 1 << 48
FULL = 100  # percent
AHEAD = 60_000_000  # microseconds by which a sample may lie in the future
LAYOUTS = {16: struct.Struct("<IxxxxQ"), 24: struct.Struct("<IxxxxQII"), 32: struct.Struct("<IxxxxQIIQ")}
STRIDES = {"_v3": (24, 32, 16), "_v2": (24, 16), "": (16,)}  # by the symbol's suffix, the documented one first
WIDEST = max(LAYOUTS)
SAMPLE = struct.Struct("<IxxxxQIIII")  # nvmlProcessUtilizationSample_t: pid, time stamp, sm, memory, encoder, decoder
INFO = struct.Struct("<QIIIIIIIxxxx")  # nvmlProcessUtilizationInfo_v1_t: time stamp, pid, sm, memory, encoder, decoder, jpeg, ofa


class Record(msgspec.Struct, frozen=True):
    """One process on one GPU. `gi` and `ci` are None where there is no MIG, memory where the driver does not tell it."""

    pid: int
    memory: int | None
    gi: int | None = None
    ci: int | None = None


class Sample(msgspec.Struct, frozen=True):
    """The share of time in which kernels of one process ran, up to `at` (microseconds since 1970); None: it cannot be told."""

    pid: int
    at: int
    share: float | None


def understood(
    raw: bytes, count: int, strides: Sequence[int], total: int | None, exists: Callable[[int], bool] | None
) -> list[Record] | None:
    """Return the records of a list, None where no stride makes sense of it; `exists` None: no process can be looked up here."""
    best: tuple[int, list[Record]] | None = None
    for stride in strides:
        if stride * count > len(raw):
            continue
        found = list(records(raw, count, stride))
        if not all(can_be(record, total) for record in found):
            continue
        score = 0 if exists is None else sum(exists(record.pid) for record in found)
        if best is None or score > best[0]:
            best = score, found
        if exists is None or score == len(found):
            break
    return None if best is None else best[1]


def records(raw: bytes, count: int, stride: int) -> Iterator[Record]:
    """Yield the rows as they lie there."""
    for pid, memory, *more in LAYOUTS[stride].iter_unpack(raw[: stride * count]):
        gi, ci = (None if number == NOT_MIG else number for number in (more or (NOT_MIG, NOT_MIG))[:2])
        yield Record(pid, None if memory in ALL_ONES else memory, gi, ci)


def can_be(record: Record, total: int | None) -> bool:
    """Say whether a row can be true."""
    instances = (record.gi or 0, record.ci or 0)
    return (
        0 < record.pid <= LARGEST_PID
        and (record.memory is None or record.memory <= (total or LARGEST_MEMORY))
        and max(instances) <= LARGEST_INSTANCE
    )


def samples(raw: bytes, count: int, layout: struct.Struct, since: int, now: int) -> tuple[dict[int, Sample], int]:
    """Return the newest good sample of each process, and the newest time stamp to ask from next time (microseconds).

    Drivers give rows again that were given before, shares over 100 and rows never written (Syllo/nvtop#110). A process that has
    only such rows has a sample without a share: it may have run, and 0 would say that it did not.
    """
    found: dict[int, Sample] = {}
    newest = since
    for sample in decoded(layout.iter_unpack(raw[: layout.size * count]), layout):
        if not 0 < sample.pid <= LARGEST_PID:
            continue
        is_new = since < sample.at <= now + AHEAD
        newest = max(newest, sample.at) if is_new else newest
        known = found.get(sample.pid)
        if not is_new or sample.share is None or sample.share > 1:
            found.setdefault(sample.pid, Sample(sample.pid, sample.at, None))
        elif known is None or known.share is None or sample.at > known.at:
            found[sample.pid] = sample
    return found, newest


def decoded(rows: Iterable[tuple[int, ...]], layout: struct.Struct) -> Iterator[Sample]:
    """Yield the rows of either struct."""
    for first, second, share, *_ in rows:
        pid, at = (first, second) if layout is SAMPLE else (second, first)
        yield Sample(pid, at, share / FULL)
