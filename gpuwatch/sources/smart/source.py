"""The source: one smartctl call a disk, one Reading a disk, whatever became of the call.

Runs in the short-lived worker `gpuwatch-smart`, one round a process, so it remembers nothing between rounds: every verdict
is of this round. Faults (`Reading.fault.kind`): no_smartctl, denied, timeout, stuck, garbage, gone, no_answer, no_status,
disabled, options, failed; the verdict of each is unknown.
"""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.sources.disks import Disk, disks
from gpuwatch.sources.program import GRACE, Ending, Run, Runner, find
from gpuwatch.sources.smart import document, pysmart
from gpuwatch.sources.smart.facts import Facts, merge
from gpuwatch.sources.smart.left_over import left_over
from gpuwatch.sources.smart.numbers import numbers
from gpuwatch.sources.smart.verdict import Verdict, judge
from gpuwatch.sources.source import Answer

POLLED = {"nvme", "ata", "scsi"}
# Of a disk's deadline, for its calls and for killing them; with the rest we tell it before the supervisor kills us.
CALLS, KILLING, KILLING_LEAST = 0.8, 0.1, 0.5
NO_JSON = re.compile(r"UNRECOGNIZED OPTION: *'?-?-?j", re.IGNORECASE)  # smartctl before 7.0
WORDS_LIMIT = 300


def source(config: Config, clock: Clock) -> "Smart":
    """Build the source; nothing is looked up or started before the first round."""
    return Smart(config, clock, Runner())


class Look(msgspec.Struct, frozen=True):
    """One look at one disk: the facts where there are any, the verdict in every case, how it was parsed and what was odd in that.

    What is odd is told in the Reading, not logged: this process knows no earlier round, and would say the same in every one.
    """

    verdict: Verdict
    facts: Facts | None = None
    parser: str = ""
    odd: str = ""


class Smart:
    """SMART of every disk of this host."""

    def __init__(self, config: Config, clock: Clock, runner: Runner) -> None:
        self._options = config.sources.smart
        self._sys, self._dev, self._proc = (Path(path) for path in (config.paths.sys, config.paths.dev, config.paths.proc))
        self._clock = clock
        self._runner = runner

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read all disks; the tier is SLOW, others have nothing here."""
        if tier is not Tier.SLOW:
            answer.done()
            return
        found = [disk for disk in disks(self._sys) if disk.protocol in POLLED and not disk.removable]
        program = find(self._options.smartctl)
        seconds = float(self._options.deadline)
        hanging = left_over(self._proc, program or self._options.smartctl, seconds)
        busy: list[str] = []
        for disk in found:
            at, started = self._clock.wall(), self._clock.mono()
            node = self._node(disk)
            if program is None:
                look = unknown("no_smartctl", self._missing())
            elif disk.name in skip or not hanging.isdisjoint({node, str(self._dev / disk.name)}):
                look = unknown("timeout", "an earlier look at this disk has not come back; it is left alone until it has")
                busy.append(disk.key)
            else:
                answer.working(disk.name)
                look = self._look(program, disk, node, seconds)
                if look.verdict.fault and look.verdict.fault.kind == "stuck":
                    busy.append(disk.key)
            answer.reading(self._reading(disk, look, at, started))
        answer.done(busy)

    def close(self) -> None:
        """Kill a smartctl that is running."""
        self._runner.close()

    def _node(self, disk: Disk) -> str:
        """Return the device node to ask: of an NVMe drive the controller, or the namespace where only that may be opened.

        With group disk and CAP_SYS_ADMIN only the namespace node opens (the controller's is root's, mode 0600).
        """
        node = self._dev / disk.name
        if disk.protocol == "nvme" and disk.controller and opens(self._dev / disk.controller):
            node = self._dev / disk.controller
        return str(node)

    def _look(self, program: str, disk: Disk, node: str, seconds: float) -> Look:
        """Call smartctl for one disk and understand what it says; a smartctl without JSON is called again for text."""
        allowed, grace = seconds * CALLS, min(GRACE, max(KILLING_LEAST, seconds * KILLING))
        ends = self._clock.mono() + allowed
        kind = ["-d", "nvme"] if disk.protocol == "nvme" else []
        # A disk that spins is left asleep. A solid one often answers CHECK POWER MODE with an error, which smartctl
        # takes for sleep: it would vanish.
        standby = ["-n", "standby"] if disk.rotational and self._options.standby else []
        run = self._runner.run([program, *kind, "-i", "-H", "-A", "--json=o", *standby, node], allowed, grace)
        if run.ending is Ending.EXITED and NO_JSON.search(text(run)):
            left = ends - self._clock.mono()
            run = self._runner.run([program, *kind, "-i", "-H", "-A", *standby, node], left, grace)
            return failed(run, program, allowed) or read_text(run)
        return failed(run, program, allowed) or read_json(run)

    def _missing(self) -> str:
        name = self._options.smartctl
        if "/" in name:
            return f"{name} (sources.smart.smartctl) is no program that can be started"
        return f"{name} is not installed: it comes with the package smartmontools"

    def _reading(self, disk: Disk, look: Look, at: float, started: float) -> Reading:
        verdict = look.verdict
        values, absent = numbers(verdict, look.facts, at)
        target = disk.target()
        fault = verdict.fault
        if fault:
            fault = replace(fault, words=printable(fault.words, WORDS_LIMIT))
        return Reading(
            source="smart",
            tier=Tier.SLOW,
            target=replace(target, info={**target.info, **info(look)}),
            at=at,
            took=self._clock.mono() - started,
            values=values,
            absent=absent,
            fault=fault,
        )


def info(look: Look) -> Mapping[str, str]:
    """Return the text facts that smartctl adds to those of sysfs; `reason` says why the verdict is what it is."""
    facts = look.facts
    said = {
        "model": facts.model if facts else "",
        "serial": facts.serial if facts else "",
        "firmware": facts.firmware if facts else "",
        "family": facts.family if facts else "",
        "parser": look.parser,
        "odd": look.odd,
        "reason": "; ".join(look.verdict.reasons),
    }
    return {name: printable(value, WORDS_LIMIT) for name, value in said.items() if value}


def opens(node: Path) -> bool:
    """Say whether this node may be opened. Only a refusal or its absence say no: a dead controller must be asked, and fail."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT)
    return True


def text(run: Run) -> str:
    """Return the output as text; before 7.4 strings of a drive may hold invalid UTF-8."""
    return run.output.decode("utf-8", errors="replace")


def unknown(kind: str, words: str, code: int | None = None) -> Look:
    """Return a look that saw nothing."""
    return Look(Verdict("unknown", (words,), Fault(kind, words, code)))


def failed(run: Run, program: str, seconds: float) -> Look | None:
    """Return what a run that did not end by itself means, None for one that did."""
    match run.ending:
        case Ending.EXITED:
            return None
        case Ending.TIMEOUT:
            return unknown("timeout", f"smartctl gave no answer in {seconds:.3g} s and was killed")
        case Ending.STUCK:
            return unknown("stuck", "smartctl hangs in the driver and cannot be killed; this disk is left alone until it ends")
        case Ending.FLOOD:
            return unknown("garbage", "smartctl printed more than it ever should and was killed")
        case Ending.SIGNALLED:
            return unknown("garbage", f"smartctl was killed by signal {run.status}", run.status)
        case Ending.REFUSED if run.status in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
            return unknown("no_smartctl", f"{program} cannot be started: {os.strerror(run.status)}", run.status)
        case Ending.REFUSED:
            return unknown("failed", f"smartctl cannot be started: {os.strerror(run.status)}", run.status)


def read_json(run: Run) -> Look:
    """Understand a run that was asked for JSON: the JSON judges, pySMART parses the same run's text lines."""
    doc = document.document(text(run))
    if doc is None:
        size = len(run.output)
        return unknown("garbage", f"smartctl printed no whole JSON ({size} bytes, exit status {run.status})", run.status)
    facts = document.facts(doc, run.status)
    lines = doc.lines("smartctl", "output")
    if not lines:
        return Look(judge(facts), facts, "json")
    parsed, why = parse(lines, run.status, facts.protocol)
    if parsed is None:
        return Look(judge(facts), facts, "json", f"pySMART fails on the text ({why})")
    facts, differ = merge(facts, parsed)
    words = f"pySMART and JSON differ in {', '.join(differ)}; JSON counts" if differ else ""
    return Look(judge(facts), facts, "json and pySMART", words)


def read_text(run: Run) -> Look:
    """Understand a run of a smartctl older than 7.0: what pySMART parses is all there is."""
    facts, why = parse(text(run).splitlines(), run.status)
    if facts is None:
        return unknown("garbage", f"the text of smartctl could not be parsed (exit status {run.status}, {why})", run.status)
    return Look(judge(facts), facts, "text")


def parse(lines: list[str], status: int, protocol: str = "") -> tuple[Facts | None, str]:
    """Return what pySMART reads, None and why where it fails: that costs its numbers, never the disk or the next one."""
    try:
        return pysmart.facts(lines, status, protocol), ""
    except Exception as error:  # noqa: BLE001 - pySMART raises IndexError, StopIteration, ValueError for lines it does not know
        return None, type(error).__name__
