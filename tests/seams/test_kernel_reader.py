"""The reader of /dev/kmsg over files and FIFOs: since the boot, with bounds, nothing twice, and it says why it cannot read."""

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from gpuwatch.catalogue import own
from gpuwatch.detectors.witnesses import Witnesses
from gpuwatch.model.event import Event
from gpuwatch.model.reading import Tier
from gpuwatch.sampling.local import Local
from gpuwatch.sources.kernel.reader import LINE, LINES, SIZE
from tests.fakes import badfs
from tests.fakes.badfs import BadFiles
from tests.fakes.clock import FakeClock
from tests.fakes.kernel_log import BOOT, XID, KernelLog, Reader
from tests.fakes.until import until

FALLEN = f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def log(tmp_path: Path) -> KernelLog:
    """A kernel log in a file."""
    return KernelLog(tmp_path)


@pytest.fixture
def reader(log: KernelLog, clock: FakeClock) -> Iterator[Reader]:
    """A reader of it."""
    reader = log.reader(clock)
    yield reader
    reader.source.close()


def shown(events: list[Event]) -> list[tuple[int | None, int, str]]:
    """Return code, count and numbers of events."""
    return [(event.code, event.count, event.mark.rpartition(":")[2]) for event in events]


def test_what_was_printed_since_the_boot_is_told_once(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    log.say("Linux version 6.8.0", at=0.0)
    log.say(FALLEN, at=900.25)
    (event,) = reader.ask()
    assert (event.source, event.kind, event.code, event.key) == ("kernel", "xid", 79, "0000:65:00.0")
    assert event.mark == f"{BOOT}:1"
    assert event.at == pytest.approx(clock.wall() - 99.75)
    clock.forward(5.0)
    assert (reader.ask(), reader.fault()) == ([], "")


def test_a_second_is_told_once_it_is_over(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    reader.ask()
    clock.forward(0.5)
    log.say(f"{XID}45, pid=1, name=a", at=1000.25)
    assert reader.ask() == []
    clock.forward(0.3)
    log.say(f"{XID}45, pid=1, name=a", at=1000.75)
    assert reader.ask() == []
    clock.forward(0.5)
    assert shown(reader.ask()) == [(45, 2, "0-1")]


def test_what_a_program_wrote_to_the_log_is_not_believed(log: KernelLog, reader: Reader) -> None:
    log.say(FALLEN, at=1.0, priority=12)
    log.say("nothing", at=900.0)
    assert reader.ask() == []


def test_numbers_that_are_missing_are_counted(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    log.say("nothing", at=1.0)
    log.say(FALLEN, at=2.0, lost=84)
    assert [(event.kind, event.count, event.mark) for event in reader.ask()] == [
        ("log_lost", 84, f"{BOOT}:1-84"),
        ("xid", 1, f"{BOOT}:85"),
    ]


def test_all_that_is_missing_within_one_second_is_counted(log: KernelLog, reader: Reader) -> None:
    log.say("nothing", at=1.0)
    for lost in (84, 7, 1):
        log.say("nothing", at=2.5, lost=lost)
    log.say(FALLEN, at=9.0)
    assert [(event.kind, event.count) for event in reader.ask()] == [("log_lost", 92), ("xid", 1)]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/user.slice/user-1002.slice/user@1002.service/app.slice/train.service", True),
        ("/user.slice/user-1002.slice/session-7.scope", True),
        ("/user.slice/user-1002.slice/user@1002.service/user.slice/libpod-" + "a1" * 32 + ".scope", True),
        ("/slurm/uid_1002/job_77/step_0", True),
        ("/system.slice/rstudio@ann.service", True),
        ("/lxc/ann", True),
        ("/ann", True),
        ("/docker/" + "a1" * 32, False),
        ("/system.slice/docker-" + "a1" * 32 + ".scope", False),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + "a1" * 32 + ".scope",
            False,
        ),
        ("/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", False),
        ("/system.slice/triton.service", False),
    ],
)
@pytest.mark.parametrize("users", ["name", "uid", "off"])
def test_a_kill_says_whose_control_group_it_was_only_where_users_may_be_named(
    log: KernelLog, clock: FakeClock, path: str, names: bool, users: Literal["name", "uid", "off"]
) -> None:
    log.say(f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg={path},task_memcg={path},task=python3,pid=812,uid=1002", at=1.0)
    log.say("Memory cgroup out of memory: Killed process 812 (python3) total-vm:9kB, UID:1002 pgtables:4kB", at=1.0)
    reader = log.reader(clock, users=users)
    (event,) = reader.ask()
    reader.source.close()
    is_told = users == "name" or not names
    assert event.facts == {"pid": "812", "name": "python3", "constraint": "memcg"} | ({"cgroup": path} if is_told else {})
    assert event.words == f"killed process 812 (python3) for memory: its cgroup {path + ' ' if is_told else ''}is at its limit"


def test_records_of_programs_are_no_gap(log: KernelLog, reader: Reader) -> None:
    for number in range(50):
        log.say("audit: type=1400", at=number / 10, priority=30)
    log.say(FALLEN, at=6.0)
    assert shown(reader.ask()) == [(79, 1, "50")]


def test_a_fifo_gives_records_in_pieces(tmp_path: Path, clock: FakeClock) -> None:
    log = KernelLog(tmp_path, fifo=True)
    reader = log.reader(clock)
    assert (reader.ask(), reader.fault()) == ([], "")  # nobody writes yet
    writer = os.open(log.path, os.O_WRONLY | os.O_NONBLOCK)
    pieces = (
        b"4,0,5000000,-;NVRM: Xid (PCI:0000:65",
        b":00): 79\n SUBSYSTEM=pci\n4,1,5100000,-;NVRM: Xi",
        b"d (PCI:0000:65:00): 31\n",
    )
    try:
        for piece in pieces:
            os.write(writer, piece)
            clock.forward(1.0)
            reader.ask()
    finally:
        os.close(writer)
    clock.forward(2.0)
    reader.ask()
    assert shown(reader.heard.events) == [(79, 1, "0"), (31, 1, "1")]
    reader.source.close()


def test_a_continued_record_is_one_message(log: KernelLog, reader: Reader) -> None:
    log.write(b"4,0,1000000,c;NVRM: Xid (PCI:0000:65:00): 79, GPU has\n4,1,1000001,+; fallen off the bus.\n4,2,9000000,-;next\n")
    (event,) = reader.ask()
    assert (event.words, event.mark) == ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", f"{BOOT}:0-1")


def test_what_continues_a_lost_record_is_not_the_end_of_another(log: KernelLog, reader: Reader) -> None:
    log.write(b"4,1,1000000,c;NVRM: Xid (PCI:0000:65:00): 31, x\n4,9,1000001,+; fallen off the bus.\n4,10,9000000,-;next\n")
    assert [(event.kind, event.words) for event in reader.ask() if event.kind == "xid"] == [
        ("xid", "NVRM: Xid (PCI:0000:65:00): 31, x")
    ]


@pytest.mark.parametrize(
    "junk",
    [
        b"x" * (1 << 20) + b"\n",
        b"4,1,1000000,-;" + b"NVRM: Xid (PCI:0000:65:00): 31, " * 40_000 + b"\n",
        random.Random(3).randbytes(300_000) + b"\n",
        b"\0" * 100_000 + b"\n\n\n",
        b"4,99999999999999999999999,1,-;x\n-1,2,3,-;x\n4,,,;\n;;;;\n",
        b"\xff\xfe4,1,1,-;x\n",
    ],
)
def test_junk_costs_only_itself(log: KernelLog, reader: Reader, clock: FakeClock, junk: bytes) -> None:
    log.write(junk)
    log.seq = 2
    log.say(FALLEN, at=900.0)
    told = [event.code for event in reader.ask()]
    assert (told[-1], reader.fault()) == (79, "")
    assert all(len(event.words) <= 400 for event in reader.heard.events)


def test_the_end_of_a_line_that_is_too_long_is_no_record(log: KernelLog, reader: Reader) -> None:
    log.write(b"x" * SIZE + b"4,1,1000000,-;NVRM: Xid (PCI:0000:65:00): 48, x\n")
    log.say(FALLEN, at=2.0)
    assert shown(reader.ask()) == [(79, 1, "0")]


def test_one_ask_does_a_bounded_part_of_a_flood(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    total = 2 * LINES + LINES // 2
    log.write(b"".join(b"4,%d,%d,-;NVRM: Xid (PCI:0000:65:00): 45, pid=%d\n" % (n, 5_000_000 + n, n) for n in range(total)))
    events: list[Event] = []
    for _ in range(2):
        reader.ask()
        clock.forward(1.0)
    assert reader.heard.events == []  # still within the same second of the kernel's clock
    for _ in range(3):
        events += reader.ask()
        clock.forward(1.0)
    assert sum(event.count for event in events) == total
    assert len(events) < 300


def test_a_trace_is_waited_for_and_what_comes_between_keeps_its_place(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    reader.ask()
    clock.forward(0.5)
    log.say("INFO: task python3:812 blocked for more than 120 seconds.", at=1000.1)
    log.say(FALLEN, at=1000.2)
    log.say(" os_acquire_mutex+0x3a/0x50 [nvidia]", at=1000.3)
    assert reader.ask() == []
    clock.forward(2.0)
    assert [(event.kind, event.mark, event.facts.get("nvidia")) for event in reader.ask()] == [
        ("xid", f"{BOOT}:1", None),
        ("hung_task", f"{BOOT}:0-2", "yes"),
    ]


def test_a_kernel_clock_that_has_drifted_does_not_move_what_comes(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    reader.ask()
    for behind in (0.0, 40.0, -25.0):
        clock.forward(1.0)
        log.say(FALLEN, at=clock.mono() - 0.5 - behind)
        reader.ask()
        clock.forward(3.0)
        reader.ask()
        assert 2.9 <= clock.wall() - reader.heard.events[-1].at <= 4.1
    assert len(reader.heard.events) == 3


def test_a_wall_clock_that_steps_moves_no_event_into_the_future(log: KernelLog, reader: Reader, clock: FakeClock) -> None:
    log.say(FALLEN, at=5000.0)  # a stamp from beyond
    clock.step(-3600)
    reader.ask()
    clock.forward(5.0)
    reader.ask()
    assert [event.at <= clock.wall() for event in reader.heard.events] == [True]


def test_a_restart_at_any_point_counts_every_record_once(tmp_path: Path) -> None:
    """The state of the detector and what the reader tells again together lose nothing and count nothing twice."""
    for seed in range(12):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        log, clock, witnesses = KernelLog(folder), FakeClock(), Witnesses()
        told = said = 0
        reader = log.reader(clock)
        for _ in range(60):
            for _ in range(chance.randrange(4)):
                log.say(f"{XID}{chance.choice((45, 31, 13))}, pid={chance.randrange(3)}, name=a", at=clock.mono())
                said += 1
            clock.forward(chance.choice((0.1, 0.4, 1.0)))
            told += sum(event.count for event in witnesses.fresh(tuple(reader.ask())))
            if chance.random() < 0.2:
                reader.source.close()
                reader = log.reader(clock)
        clock.forward(5.0)
        reader.ask()
        clock.forward(5.0)
        told += sum(event.count for event in witnesses.fresh(tuple(reader.heard.events)))
        reader.source.close()
        assert (seed, told) == (seed, said)


@contextlib.contextmanager
def child(folder: Path, files: BadFiles) -> Iterator[Callable[[], dict[str, Any]]]:
    """Read the log in a process whose calls fail as told; yields what asks it once."""
    command = [sys.executable, "-m", "tests.fakes.kernel_log_child", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=files.environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            return answer

        yield ask
        process.stdin.close()
        process.wait(10)


@pytest.fixture(scope="session")
def bad_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail."""
    return badfs.build(tmp_path_factory.mktemp("badfs"))


OPENS = [
    (errno.EPERM, "no_permission", "needs the capability CAP_SYSLOG while kernel.dmesg_restrict is 1"),
    (errno.EACCES, "no_permission", "may be read only by its owner and the group root"),
    (errno.ENOENT, "missing", "a container has one only where it is given one"),
    (errno.EMFILE, "failed", "cannot be read: Too many open files"),
    (errno.EIO, "failed", "cannot be read: Input/output error"),
]


def test_a_log_that_may_not_be_opened_says_what_would_help(tmp_path: Path, bad_library: Path) -> None:
    log, files = KernelLog(tmp_path), BadFiles(bad_library, tmp_path)
    log.say(FALLEN, at=1.0)
    with child(tmp_path, files) as ask:
        for code, kind, words in OPENS:
            files.fail("open", log.dev, code)
            answer = ask()
            assert (answer["events"], answer["kind"]) == ([], kind)
            assert words in answer["words"]
        files.work()
        assert ask() == {"events": [["xid", 79, 1, "0"]], "kind": "", "words": ""}
    assert files.faults() == [f"open {log.path}"] * len(OPENS)


def test_a_read_that_fails_loses_nothing_and_tells_nothing_twice(tmp_path: Path, bad_library: Path) -> None:
    log, files = KernelLog(tmp_path), BadFiles(bad_library, tmp_path)
    told: list[list[object]] = []
    with child(tmp_path, files) as ask:
        for code, kind in ((errno.EPIPE, ""), (errno.EIO, "failed"), (errno.EINVAL, "failed"), (errno.EPERM, "no_permission")):
            for nth in (1, 2, 3):
                files.fail("read", log.dev, code, nth)
                kinds: list[str] = []
                for _ in range(3):
                    log.say(FALLEN, at=10.0 * log.seq)
                    answer = ask()
                    told += answer["events"]
                    kinds += [answer["kind"]] if answer["kind"] else []
                assert (code, nth, kinds) == (code, nth, [kind] if kind else [])
        files.work()
        told += [event for _ in range(3) for event in ask()["events"]]
    assert files.faults() == [f"read {log.path}"] * 12
    assert told == [["xid", 79, 1, str(number)] for number in range(log.seq)]


def test_reads_that_only_fail_end(tmp_path: Path, bad_library: Path) -> None:
    log, files = KernelLog(tmp_path), BadFiles(bad_library, tmp_path)
    log.say(FALLEN, at=1.0)
    files.fail("read", log.dev, errno.EPIPE)
    with child(tmp_path, files) as ask:
        assert ask()["events"] == []
        files.work()
        assert [ask()["events"], ask()["events"]] == [[["xid", 79, 1, "0"]], []]


def test_the_collector_says_why_there_are_no_events(log: KernelLog, clock: FakeClock) -> None:
    log.path.unlink()
    reader = log.reader(clock)
    local = Local("kernel", reader.source, post=reader.heard.reading, happened=reader.heard.event, clock=clock, deadline=5)
    local.start()
    try:
        local.ask(Tier.NORMAL)
        until(lambda: reader.heard.readings)
        until(lambda: own.COLLECTOR_SUCCESS in local.readings(0.0)[0].values)
        assert f"there is no {log.path}" in local.problem()
        assert local.readings(0.0)[0].values[own.COLLECTOR_SUCCESS] == 0.0
        log.say(FALLEN, at=1.0)
        local.ask(Tier.NORMAL)
        until(lambda: local.problem() == "")
        until(lambda: local.readings(0.0)[0].values[own.COLLECTOR_SUCCESS] == 1.0)
        assert [event.code for event in reader.heard.events] == [79]
    finally:
        local.stop(5)


def test_lines_are_cut_at_a_bound(log: KernelLog, reader: Reader) -> None:
    log.say(f"{XID}31, " + "x" * 2 * LINE, at=1.0)
    log.say("end", at=9.0)
    assert [event.code for event in reader.ask()] == [31]
    assert len(reader.source._rest) == 0
