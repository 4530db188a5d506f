"""`dcgmi dmon` and `dcgmi discovery`, as children with a deadline. They ask a host engine that runs; none is ever started."""

import errno
import os

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.escape import printable
from gpuwatch.model.reading import Fault, Reading, Tier
from gpuwatch.sources.dcgm import told
from gpuwatch.sources.dcgm.fields import PROFILING, read_all
from gpuwatch.sources.dcgm.table import cards, rows
from gpuwatch.sources.program import Ending, Run, Runner, find
from gpuwatch.sources.source import Answer

ALL = tuple(PROFILING)
# Where one field is not supported dmon gives none at all. These are those of every GPU that has any: no NVLink, no FP64.
COMMON = (1001, 1002, 1003, 1004, 1005, 1009, 1010)
DELAY = 1000  # milliseconds between two rows of a GPU
COUNT = 2  # the first row of a profiling field is blank until there are two samples of its counters
DISCOVERY, DMON = "dcgmi discovery", "dcgmi dmon"
MARK = "error"
WORDS = (  # of what dcgmi says, in lower case -> kind of fault
    ("unable to connect", "no_host_engine"),
    ("unable to establish a connection", "no_host_engine"),
    ("host engine connection invalid", "no_host_engine"),
    ("requires the host engine to be running as root", "denied"),
    ("not supported", "unsupported"),
    ("module", "unsupported"),  # "... serviced by a module of DCGM that is not currently loaded"; of the profiling module
)


class Dmon:
    """dcgmi on this host."""

    def __init__(self, config: Config, clock: Clock, runner: Runner | None = None) -> None:
        self._program, self._seconds = config.sources.dcgm.dcgmi, float(config.sources.dcgm.deadline)
        self._clock = clock
        self._runner = runner or Runner()

    def ask(self, tier: Tier, skip: frozenset[str], answer: Answer) -> None:
        """Read the profiling fields of every GPU, once a normal round."""
        if tier is told.TIER:
            for reading in self._read(skip, answer):
                answer.reading(reading)
        answer.done()

    def close(self) -> None:
        """Kill what runs."""
        self._runner.close()

    def _read(self, skip: frozenset[str], answer: Answer) -> list[Reading]:
        """Return what DCGM says now."""
        at, started = self._clock.wall(), self._clock.mono()
        program = find(self._program)
        if program is None:
            fault = Fault("no_dcgmi", f"{printable(self._program)} is not there or cannot be started")
            return [told.state(at, 0.0, fault=fault)]
        listed = self._run(DISCOVERY, [program, "discovery", "-l"], skip, answer)
        if isinstance(listed, Fault):
            return [told.state(at, self._clock.mono() - started, fault=listed)]
        known = cards(listed)
        if not known:
            fault = Fault("empty", "DCGM lists no GPU that has a UUID or a PCI address")
            return [told.state(at, self._clock.mono() - started, fault=fault)]
        printed = self._run(DMON, dmon(program, ALL), skip, answer)
        if isinstance(printed, Fault) and printed.kind == "unsupported":
            printed = self._run(DMON, dmon(program, COMMON), skip, answer)
        took = self._clock.mono() - started
        if isinstance(printed, Fault):
            return [told.state(at, took, fault=printed)]
        found = rows(printed)
        readings = [
            told.numbers(told.card(card.key, index, card.info), at, took, *read_all(found[index]))
            for index, card in known.items()
            if index in found
        ]
        if not readings:
            return [told.state(at, took, fault=Fault("garbage", "dcgmi dmon printed no row of a GPU that DCGM lists"))]
        return [told.state(at, took, seen=len(readings), missing=known.keys() - found.keys()), *readings]

    def _run(self, item: str, argv: list[str], skip: frozenset[str], answer: Answer) -> str | Fault:
        """Return what one call prints, or why it is of no use. A call whose process could not be killed is not made again."""
        if item in skip:
            return Fault("stuck", f"{item} does not return, and could not be killed")
        answer.working(item)
        run = self._runner.run(argv, self._seconds, errors=True)
        return failed(item, run, self._seconds) or run.output.decode("utf-8", "replace")


def dmon(program: str, fields: tuple[int, ...]) -> list[str]:
    """Return the call that prints these fields."""
    return [program, "dmon", "-e", ",".join(map(str, fields)), "-d", str(DELAY), "-c", str(COUNT)]


def failed(item: str, run: Run, seconds: float) -> Fault | None:
    """Return what a run that gave nothing means, None for one that did. dcgmi may end with 0 and have printed an error."""
    match run.ending:
        case Ending.TIMEOUT:
            return Fault("timeout", f"{item} had not answered after {seconds:g} s and was killed")
        case Ending.STUCK:
            return Fault("stuck", f"{item} had not answered after {seconds:g} s and cannot be killed")
        case Ending.FLOOD:
            return Fault("garbage", f"{item} printed without end")
        case Ending.SIGNALLED:
            return Fault("garbage", f"{item} was killed by signal {run.status}", run.status)
        case Ending.REFUSED:
            kind = "no_dcgmi" if run.status in (errno.ENOENT, errno.EACCES, errno.ENOEXEC) else "failed"
            return Fault(kind, f"dcgmi cannot be started: {os.strerror(run.status)}", run.status)
        case Ending.EXITED:
            return complaint(item, run)


def complaint(item: str, run: Run) -> Fault | None:
    """Return what dcgmi complains of, None where it does not."""
    lines = [line.strip() for line in run.output.decode("utf-8", "replace").splitlines()]
    said = next((line for line in lines if line.lower().startswith(MARK)), "")
    if not said and run.status == 0:
        return None
    if not said:
        return Fault("failed", f"{item} ended with status {run.status} and no word", run.status)
    kind = next((kind for words, kind in WORDS if words in said.lower()), "failed")
    return Fault(kind, f"{item}: {printable(said)}", run.status or None)
