"""Floods, junk and cut lines: bounded, never raising, and the same again when they are read again."""

import random
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalogue.events import KINDS
from gpuwatch.model.alert import Severity
from gpuwatch.model.escape import printable
from gpuwatch.model.event import WORDS_LIMIT, Event
from gpuwatch.sources.kernel import lines, raw, replay
from gpuwatch.sources.kernel.fold import COARSE, FINE, Fold
from gpuwatch.sources.kernel.forms import LINE
from gpuwatch.sources.kernel.record import LIMIT, Found, Record
from gpuwatch.sources.kernel.stream import Stream

NOW = 1_796_000_000.0
PIECES = (
    "NVRM: ", "Xid ", "(PCI:", "0000:65:00", ".0", "): ", "79", ", ", "pid=", "name=", "154",
    "changed from 0x0 (None) to 0x1 (", "[", "]", "The NVIDIA GPU ", "has fallen off the bus", "API mismatch: the client",
    "version 1.2", "pcieport ", "AER: ", "error received: ", "PCIe Bus Error: severity=",
    "BAR 1: no space for [mem size 0x2000000000", "INFO: task ", ":12", " blocked ", "for more than 120 seconds", "oom-kill:",
    "Out of memory: Killed process 1 (a)", "BUG: unable", "Oops: ", "RIP: ", "+0x1/0x2", "nvme nvme0: ", "timeout, ",
    "EXT4-fs (", "XFS (a): ", "BTRFS error (device a)", "md/raid1:md0: Disk failure on a", "nfs: server ", " not responding",
    "mce: ", "[Hardware Error]", "EDAC MC0: 1 UE", "watchdog: ", "segfault at 1 in libnccl.so[", "SXid ", "nvidia-nvswitch0: ",
    "Nonfatal Link 4", "\\x0a", "#012", " ", "\t", "4,1,1,-;", "4,2,1,+;", "[    5.0] ", "[Mar11 04:22] ", "[ +1.0] ",
    "Mar 11 04:22:09 h kernel: ", "<4>", "kern :warn : ", '{"MESSAGE":"', "2026-03-11T04:22:09,5+00:00 ",
    "message repeated 9 times: [", "\x1b[1m", "\x00", "\ud7ff", "é", "月", "sysrq: Trigger a crash", "</TASK>",
)  # fmt: skip


def sane(events: list[Event]) -> None:
    """Check what every event promises."""
    for event in events:
        assert KINDS[event.kind].subject == event.subject
        assert len(event.words) <= WORDS_LIMIT
        assert all(text == printable(text, WORDS_LIMIT) for text in (event.words, event.key, *event.facts.values()))
        assert event.count >= 1


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join), max_size=12))
def test_no_text_raises(log: list[str]) -> None:
    sane(list(replay(log, NOW)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, junk: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("log") / "junk"
    path.write_bytes(b"\n".join(junk))
    with path.open("rb") as file:
        sane(list(replay(lines(file), NOW)))


def test_a_log_may_be_cut_and_spoilt_anywhere(recorded: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    for path in sorted((recorded / "gpu/kmsg").glob("*.*")):
        whole = bytearray(path.read_bytes()[:20_000])
        for _ in range(3):
            spoilt = bytearray(whole[: chance.randrange(len(whole) + 1)])
            for _ in range(len(spoilt) // 50):
                spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
            (tmp_path / "log").write_bytes(spoilt)
            with (tmp_path / "log").open("rb") as file:
                sane(list(replay(lines(file), NOW)))


@pytest.mark.parametrize("piece", PIECES)
def test_a_line_without_end_takes_no_time(piece: str) -> None:
    """Linear in the line: a pattern that is not would need minutes here."""
    heads = ("NVRM: ", "nvme a: ", "INFO: task ", "pcieport 0000:00:01.0: AER: ", "BUG: unable RIP: ", "XFS (a): ", "")
    log = [head + piece * (LINE // len(piece) + 1) for head in heads]
    started = time.process_time()
    sane(list(replay(log, NOW)))
    assert time.process_time() - started < 5


def test_a_line_of_a_megabyte_is_cut_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (1 << 20) + b"\n[ 1.0] NVRM: Xid (PCI:0000:65:00): 79\n")
    with path.open("rb") as file:
        cut = list(lines(file))
    assert [len(line) for line in cut] == [LINE, len("[ 1.0] NVRM: Xid (PCI:0000:65:00): 79\n")]
    assert [event.code for event in replay(cut, NOW)] == [79]


def xids(count: int, key: str = "0000:65:00") -> list[str]:
    """Return so many Xids of one second, each of another process."""
    return [f"[{number / count:.6f}] NVRM: Xid (PCI:{key}): 45, pid={number}, name=a, Ch {number}" for number in range(count)]


def test_a_flood_of_one_second_is_bounded_and_counted() -> None:
    events = list(replay(xids(20_000), NOW))
    assert sum(event.count for event in events) == 20_000
    assert len(events) == FINE + 1


def test_a_flood_of_many_gpus_is_bounded_and_counted() -> None:
    log = [f"[0.5] NVRM: Xid (PCI:{number >> 8:04x}:{number & 255:02x}:00): 79" for number in range(20_000)]
    events = list(replay(log, NOW))
    assert (len(events), sum(event.count for event in events)) == (COARSE + 1, 20_000)
    assert [event.kind for event in events if event.key == ""] == ["log_lost"]


def test_a_flood_takes_no_memory() -> None:
    log = xids(5_000)
    stream = Stream("b")
    tracemalloc.start()
    try:
        for number, line in enumerate(log):
            stream.feed(Record(0.5, line.partition("] ")[2], True, number, number, stamp=0.5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_equal_events_of_one_second_are_one_and_carry_their_span() -> None:
    fold = Fold("b")
    for seq in (7, 8, 11):
        fold.add(Record(100.0 + seq, "x", True, seq, seq, stamp=5.0 + seq / 100), Found("xid", Severity.INFO, "k", 45))
    fold.add(Record(200.0, "y", True, 12, 12, stamp=6.0), Found("xid", Severity.INFO, "k", 45))
    fold.close()
    events = [event for event, _ in fold.take()]
    assert [(event.at, event.count, event.mark) for event in events] == [(107.0, 3, "b:7-11"), (200.0, 1, "b:12")]


@pytest.mark.parametrize(
    ("first", "second"),
    [({"pid": "1"}, {"pid": "2"}), ({"link": "1"}, {"link": "2"}), ({"recovery": "0"}, {"recovery": "1"}), ({}, {"name": "a"})],
)
def test_what_differs_in_what_tells_is_kept_apart(first: dict[str, str], second: dict[str, str]) -> None:
    fold = Fold()
    for facts in (first, second):
        fold.add(Record(1.0, "x", True), Found("xid", Severity.INFO, "k", 45, facts))
    fold.close()
    assert [event.facts for event, _ in fold.take()] == [first, second]


def test_the_marks_of_a_log_rise_whatever_its_groups(recorded: Path) -> None:
    """The detector that counts leaves out what ends at or below the highest mark of an earlier beat."""
    stream = Stream("b")
    seq, ends = 0, []
    for path in sorted((recorded / "gpu/kmsg").glob("*.log")):
        for text in path.read_text("utf-8", "replace").splitlines():
            seq += 1
            found = raw.parse(f"4,{seq},{seq * 3000},-;{text.partition('] ')[2] or text}")
            assert found is not None
            stream.feed(Record(found.stamp, found.text.strip(), True, seq, seq, stamp=found.stamp))
            ends += [int(event.mark.rpartition(":")[2].rpartition("-")[2]) for event, _ in stream.take()]
    stream.end()
    ends += [int(event.mark.rpartition(":")[2].rpartition("-")[2]) for event, _ in stream.take()]
    assert len(ends) > 100
    assert ends == sorted(ends)


def test_a_log_that_names_many_gpus_is_not_all_remembered() -> None:
    stream = Stream("b")
    for number in range(5_000):
        where = f"{number >> 8:04x}:{number & 255:02x}:00"
        stream.feed(Record(0.5, f"NVRM: GPU at PCI:{where}: GPU-6877b607-9010-8cda-631b-5d103f3a6672", True, stamp=0.5))
        stream.feed(Record(0.5, f"pci {where}.0: [10de:2330] type 00 class 0x030200", True, stamp=0.5))
    assert (len(stream._known.uuids), len(stream._known.gpus)) == (LIMIT, LIMIT)
