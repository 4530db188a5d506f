"""What belongs together over several records: a message in pieces, or a fault with its trace, becomes one Record.

The kernel prints such a group within milliseconds, but other CPUs may print in between: what does not belong to an open
group passes it by. A group ends with its last line, or after HOLD seconds of the log's own clock.
"""

import re
from collections.abc import Callable

import msgspec

from gpuwatch.sources.kernel.host import OOPS
from gpuwatch.sources.kernel.record import Record

HOLD = 1.0  # seconds
SENTENCES = 32  # of one shape that are open at once: as many GPUs as a host has, twice over
PASSING = 500  # records that may pass an open group
LINES = 200  # of a group

Test = Callable[[str], object]

# Lines of a call trace, of a register dump and of what stands around them, in kernels from 3.10 on, of x86 and arm64.
TRACE = re.compile(
    r"Internal error: |Mem abort|ESR = |(?:pc|lr|sp|pstate|x\d+) ?: |\[[0-9a-f]{16}\] |"
    r"\[<[0-9a-f]+>\]|\? |[\w.]+\+0x[0-9a-f]+/0x|</?(?:TASK|IRQ|NMI)>|Call [Tt]race|Tainted:|Not tainted|\"echo 0|task:|task\.|"
    r"\S+ +[DRSX] +[0-9a-f]|RIP|RSP|R[A-Z0-9]{2}:|[A-Z]S:|CR[0-9]:|DR[0-9]:|Code:|CPU:|PID:|Workqueue:|Hardware name|"
    r"Modules linked|PGD |P4D |Oops:|IP:|Stack:|[0-9a-f]{8,16}\b|---\[|PKRU|#PF:|ORIG_RAX|Kernel panic|note: "
)


class Shape(msgspec.Struct, frozen=True):
    """One kind of group: how it begins, what belongs to it, how it ends."""

    opens: Test
    takes: Test
    ends: Test
    many: int = 1  # groups of it that may be open at once


def shape(opens: str, takes: str, ends: str, many: int = 1) -> Shape:
    """Return a shape from three patterns: the first two for the start of a record, the last anywhere in it."""
    return Shape(re.compile(opens).match, re.compile(takes).match, re.compile(ends).search, many)


SENTENCE = r"NVRM: +(?:\(|[a-z]|BAR\d)"  # how a sentence of the driver goes on in its next record
SHAPES = (
    # Of several GPUs that fall at once the sentences lie across each other. Their further lines do not say whose they are, but
    # are alike: each goes to the sentence that has the fewest.
    shape(r"NVRM: The NVIDIA GPU [0-9a-fA-F:.]+", SENTENCE, r"to commands|not supported|requires use", SENTENCES),
    shape(r"NVRM: API mismatch:", SENTENCE, r"the same version"),
    shape(r"NVRM: This PCI I/O region assigned", SENTENCE, r"BAR\d is"),
    shape(r"sysrq: (?:SysRq : )?Trigger a crash", r"", r"---\[ end trace"),
    shape(OOPS.pattern, TRACE.pattern, r"---\[ end trace|Kernel panic"),
    shape(r"INFO: task .* blocked ", TRACE.pattern, r"</TASK>"),
    shape(r"(?:watchdog: )?BUG: soft lockup|NMI watchdog: BUG", TRACE.pattern, r"</TASK>"),
    shape(
        r"oom-kill:|Task in \S+ killed as|(?:Memory cgroup out|Out) of memory: Kill process",
        r"oom-kill:|Task in |(?:Memory cgroup out|Out) of memory|Killed process|memory: usage|memory\+swap|kmem:|"
        r"Memory cgroup stats",
        r"Killed process",
    ),
    shape(
        r"\S+ [0-9a-f:.]+: (?:AER: .*received|PCIe Bus Error|AER: PCIe Bus Error|DPC: containment)",
        r"\S+ [0-9a-f:.]+: (?:AER: (?!.*received)|PCIe Bus Error| *device \[| *\[ ?\d+\]|can't find|DPC: | *TLP Header|"
        r" *Error of this Agent)",
        r"recovery (?:failed|successful)|can't find device",
    ),
    # The kernel tries again with larger windows: what could not be assigned at first often is a moment later.
    shape(
        r"\S+ [0-9a-f:.]+: BAR \d+.*(?:no space|failed to assign|can't assign)",
        r"\S+ [0-9a-f:.]+: *(?:BAR \d|bridge window|PCI bridge)|pci_bus |pcieport [0-9a-f:.]+: BAR",
        r"(?!)",
    ),
)


class Group(msgspec.Struct):
    """One that is open."""

    shape: Shape
    records: list[Record]
    began: int  # its place in the log
    order: int  # that of its last record
    passed: int = 0


class Join(msgspec.Struct):
    """The groups that are open in one log."""

    groups: list[Group] = []

    def feed(self, record: Record, order: int) -> list[tuple[int, Record]]:
        """Take the next record; return what is whole now, with the place in the log (`order`) at which it ended."""
        whole = self.overdue(record)
        for group in self.groups:
            if group.shape.takes(record.text):
                whole += self._go_on(group, record, order)
                return whole
            group.passed += 1
        opened = next((one for one in SHAPES if one.opens(record.text)), None)
        if opened is None:
            whole.append((order, record))
            return whole
        alike = [group for group in self.groups if group.shape is opened]
        whole += [self._close(group) for group in alike[: max(0, len(alike) + 1 - opened.many)]]
        group = Group(opened, [record], order, order)
        self.groups.append(group)
        if opened.ends(record.text):
            whole.append(self._close(group))
        return whole

    def _go_on(self, first: Group, record: Record, order: int) -> list[tuple[int, Record]]:
        """Add a record to a group, or to another of its shape that has got fewer; return that, if it is whole now."""
        group = min((one for one in self.groups if one.shape is first.shape), key=lambda one: len(one.records))
        group.records.append(record)
        group.order = order
        return [self._close(group)] if group.shape.ends(record.text) or len(group.records) >= LINES else []

    def overdue(self, record: Record) -> list[tuple[int, Record]]:
        """Close the groups that this record is too late for."""
        return [
            self._close(group)
            for group in list(self.groups)
            if abs(record.stamp - group.records[0].stamp) > HOLD or group.passed >= PASSING
        ]

    def old(self, now: float) -> list[tuple[int, Record]]:
        """Close the groups that have been open for HOLD seconds."""
        return [self._close(group) for group in list(self.groups) if now - group.records[0].stamp > HOLD]

    def end(self) -> list[tuple[int, Record]]:
        """Close all."""
        return [self._close(group) for group in list(self.groups)]

    def _close(self, group: Group) -> tuple[int, Record]:
        self.groups.remove(group)
        first, last = group.records[0], group.records[-1]
        text = "\n".join(record.text for record in group.records)
        return group.order, first._replace(text=text, seq=last.seq, stamp=last.stamp)
