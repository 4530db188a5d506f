"""/dev/kmsg, polled: every record since the boot once, then what comes. It never waits, and each ask has its bounds.

The first read begins with the oldest record that the kernel still has. What an earlier run of the daemon has told already is
told again, with the same marks (`boot id:sequence`): the events detector, which counts, knows the highest mark that it has
counted, and the two are stored in one piece. So nothing is counted twice and nothing is lost, whenever the daemon died. What the
kernel has overwritten by then is told as lost from number 0 on; how much of that an earlier run has read is known there, too.

`[paths] dev` may hold a FIFO or a file in place of the device: lines are split here, several records a read are taken, and
nothing is sought.
"""

import errno
import grp
import logging
import os
from pathlib import Path

from gpuwatch.catalogue.events import KERNEL, LOG_READ
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import sysfs
from gpuwatch.sources.kernel import raw
from gpuwatch.sources.kernel.fold import SOURCE
from gpuwatch.sources.kernel.record import Record
from gpuwatch.sources.kernel.stream import Stream
from gpuwatch.sources.source import Answer

SIZE = 1 << 16  # bytes a read; one record of the device has at most 8 KiB
LINES = 10_000  # an ask; a kernel's whole buffer has about as many
BYTES = 4 << 20  # an ask
LINE = 1 << 14  # bytes of a line that are kept

log = logging.getLogger(__name__)


class Reader:
    """The kernel log of this boot. Used by one thread, but for `problem`."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._path = Path(config.paths.dev) / "kmsg"
        self._restricted = Path(config.paths.proc) / "sys/kernel/dmesg_restrict"
        self._clock = clock
        boot = sysfs.fact(Path(config.paths.proc) / "sys/kernel/random/boot_id")
        self._target = Target(subject=KERNEL, key="", info={"boot_id": boot})
        self._descriptor: int | None = None
        self._stream = Stream(boot, is_private=config.privacy.users != "name")
        self._rest = b""  # of a line that is not whole yet
        self._is_skipping = False  # the rest of a line that is too long
        self._held: Record | None = None  # a message that the next record may continue
        self._seq = -1
        self._asked: float | None = None  # monotonic time of the last ask, where it read to the end
        self._ahead = 0.0  # seconds by which the kernel's stamps run ahead of the monotonic clock; they drift for months
        self._fault: Fault | None = None

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:  # noqa: ARG002 - there is one tier, and it cannot hang
        """Tell what has come, up to the bounds of one ask."""
        at, started = self._clock.wall(), self._clock.mono()
        fault = self._open() or self._drain(at, started)
        self._change(fault)
        for event, _ in self._stream.take():
            answer.event(event)
        told = self._stream.told() if self._target.info["boot_id"] else None
        values = {} if told is None or told < 0 else {LOG_READ: float(told)}
        took = self._clock.mono() - started
        answer.reading(Reading(source=SOURCE, tier=tier, target=self._target, at=at, took=took, values=values, fault=fault))
        answer.done()

    @property
    def is_at_end(self) -> bool:
        """Whether the last ask has read all that there was."""
        return self._asked is not None

    def finish(self, answer: Answer) -> None:
        """Tell what waits for more to come: there will be no further ask."""
        self._give()
        self._stream.end()
        for event, _ in self._stream.take():
            answer.event(event)

    def close(self) -> None:
        """Close the device."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def problem(self) -> str:
        """Return "" or why the kernel log cannot be read."""
        fault = self._fault
        return fault.words if fault else ""

    def _change(self, fault: Fault | None) -> None:
        if fault != self._fault:
            if fault is None:
                log.info("the kernel log can be read again")
            else:
                log.warning("no events from the kernel log: %s", fault.words)
            self._fault = fault

    def _open(self) -> Fault | None:
        if self._descriptor is not None:
            return None
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            return self._why(error)
        self._rest, self._is_skipping, self._asked = b"", False, None
        return None

    def _why(self, error: OSError) -> Fault:
        """Say what is wrong, and what would help."""
        if error.errno == errno.EPERM:
            restricted = sysfs.fact(self._restricted)
            words = f"{self._path} needs the capability CAP_SYSLOG" + (
                f" while kernel.dmesg_restrict is {restricted}" if restricted not in {"", "0"} else ""
            )
            return Fault("no_permission", f"{words}; in a container, its device rules must allow it too", error.errno)
        if error.errno == errno.EACCES:
            return Fault(
                "no_permission", f"{self._path} may be read only by its owner and the group {self._group()}", error.errno
            )
        if error.errno == errno.ENOENT:
            return Fault("missing", f"there is no {self._path}; a container has one only where it is given one", error.errno)
        return Fault("failed", f"{self._path} cannot be read: {error.strerror}", error.errno)

    def _group(self) -> str:
        try:
            return grp.getgrgid(self._path.stat().st_gid).gr_name
        except (OSError, KeyError):
            return "of the file"

    def _drain(self, wall: float, mono: float) -> Fault | None:
        """Read until nothing is left, or the bounds of an ask are reached."""
        assert self._descriptor is not None
        lines = size = 0
        fault, is_end = None, False
        while lines < LINES and size < BYTES:
            try:
                chunk = os.read(self._descriptor, SIZE)
            except BlockingIOError:
                is_end = True
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before we came; the next number says how many
                    lines += 1
                    continue
                self.close()
                fault = self._why(error)
                break
            if not chunk:  # a file's end, or a FIFO that nobody writes to
                is_end = True
                break
            size += len(chunk)
            lines += self._split(chunk, wall, mono)
        if is_end:
            self._give()
            self._stream.settle(mono + self._ahead)
        self._asked = mono if is_end else None
        return fault

    def _split(self, chunk: bytes, wall: float, mono: float) -> int:
        """Take the whole lines of what was read; return how many."""
        whole = (self._rest + chunk).split(b"\n")
        self._rest = whole.pop()
        if self._is_skipping and whole:
            del whole[0]
            self._is_skipping = False
        if self._is_skipping:
            self._rest = b""
        elif len(self._rest) > LINE:
            whole.append(self._rest)
            self._rest, self._is_skipping = b"", True
        for line in whole:
            self._line(line[:LINE], wall, mono)
        return len(whole)

    def _line(self, line: bytes, wall: float, mono: float) -> None:
        """Take one line; what is no record (a field of the record before, junk) is nothing."""
        found = raw.parse(line.decode("utf-8", "replace"))
        if found is None or found.seq <= self._seq:  # after the device was opened again it begins at its oldest
            return
        held = self._held
        if found.continues and held is not None and held.is_kernel == found.is_kernel and found.seq == self._seq + 1:
            self._held = held._replace(text=(held.text + found.text)[:LINE], seq=found.seq)
        else:
            self._give()
            at = wall - mono + self._mono(found.stamp, mono)  # never in the future
            self._held = Record(at, found.text.strip(), found.is_kernel, found.seq, found.seq, stamp=found.stamp)
        self._seq = found.seq

    def _give(self) -> None:
        if self._held is not None:
            self._stream.feed(self._held)
            self._held = None

    def _mono(self, stamp: float, mono: float) -> float:
        """Return the monotonic time of a kernel's stamp. One that has come since the last ask sets the two clocks right."""
        then = stamp - self._ahead
        if self._asked is not None and then < self._asked:
            self._ahead -= self._asked - then
        elif then > mono:
            self._ahead += then - mono
        return stamp - self._ahead


def source(config: Config, clock: Clock) -> Reader:
    """Return the kernel log of this host."""
    return Reader(config, clock)
