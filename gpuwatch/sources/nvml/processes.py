"""Which processes use one GPU: the compute, graphics and MPS lists as one, with memory, utilisation and start time.

The driver lists process ids of the host, whatever namespace we are in. Where /proc is that of the host, the start time is read
at once: a pid alone may be another process a moment later. Where it is not (a container without the host's pids), they are
counted and named by pid, and nothing is concluded from what cannot be seen (XuehaiPan/nvitop#152).
"""

import ctypes
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch.catalogue.process import (
    GPU_PROCESSES,
    GPU_PROCESSES_DROPPED,
    GPU_PROCESSES_HIDDEN,
    HOLDER,
    HOLDER_MEMORY,
    HOLDER_UTILIZATION,
)
from gpuwatch.model.clock import Clock
from gpuwatch.model.metric import Metric
from gpuwatch.model.reading import Absence, Reading, Tier
from gpuwatch.model.target import Target
from gpuwatch.sources import processes as procfs
from gpuwatch.sources.nvml import process_list, verdicts
from gpuwatch.sources.nvml.library import CallError, DriverGoneError, GpuGoneError, Library
from gpuwatch.sources.nvml.process_list import INFO, SAMPLE, STRIDES, WIDEST, Record, Sample

NOT_FOUND, INSUFFICIENT_SIZE = 6, 7
ROOM = 128  # rows that a call has room for at first
MOST = 4096  # rows of one list; more than that no GPU can hold
LIMIT = 128  # processes of one GPU that are told one by one, those with the most memory
AGAIN = 600.0  # seconds until a call is tried again that this GPU does not answer (under MIG it may later)
MICROSECONDS = 1e6
LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
UTILIZATION_INFO = 0x01000018  # version word of nvmlProcessesUtilizationInfo_t
Place = tuple[int | None, int | None, int]  # gi, ci, pid

log = logging.getLogger(__name__)


class UtilizationInfo(ctypes.Structure):
    """nvmlProcessesUtilizationInfo_v1_t (R550 and later)."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("since", ctypes.c_ulonglong),
        ("rows", ctypes.c_void_p),
    )


class Processes:
    """The lists of one GPU, for as long as its handle lives. Used on its lane."""

    def __init__(self, library: Library, card: Target, clock: Clock, proc: str, period: float) -> None:
        self._library, self._card, self._clock, self._proc = library, card, clock, proc
        self._period = int(period * MICROSECONDS)
        self._since = self._now() - self._period  # samples are newer than this
        self._total: int | None = None
        self._suffix: dict[str, str] = {}  # the newest version of each list that this driver has
        self._never: dict[str, float] = {}  # list: until when it is not asked for
        self._told: dict[Place, Target] = {}
        self._missing: set[int] = set()  # pids that were listed and not in /proc the last time
        self._senseless = False  # it was logged that a list makes no sense
        self._room = ROOM

    def look(self, handle: Any) -> tuple[dict[Metric, float], dict[Metric, Absence], list[Reading]]:
        """Return the GPU's own numbers, and one Reading a process; raises GpuGoneError and DriverGoneError."""
        at, started = self._clock.wall(), self._clock.mono()
        sees = procfs.sees_host(Path(self._proc))
        values: dict[Metric, float] = {}
        absent: dict[Metric, Absence] = {}
        found: dict[Place, tuple[Record, list[str]]] = {}
        whole = True
        for kind in LISTS:
            rows = self._list(kind, handle, sees=sees)
            if isinstance(rows, Absence):
                absent[GPU_PROCESSES[kind]] = rows
                whole = whole and rows is Absence.UNSUPPORTED
                continue
            values[GPU_PROCESSES[kind]] = float(len(rows))
            for row in rows:
                found.setdefault((row.gi, row.ci, row.pid), (row, []))[1].append(kind)
        shares = self._shares(handle) if found else Absence.EMPTY
        readings = self._readings(found, shares, values, sees=sees, whole=whole)
        took = self._clock.mono() - started
        return values, absent, [self._reading(target, at, took, *what) for target, what in readings.items()]

    def _readings(
        self,
        found: Mapping[Place, tuple[Record, list[str]]],
        shares: Mapping[int, Sample] | Absence,
        values: dict[Metric, float],
        *,
        sees: bool,
        whole: bool,
    ) -> dict[Target, tuple[dict[Metric, float], dict[Metric, Absence]]]:
        """Return what is told of each process, the ended ones with nothing; adds to `values` what is told of the GPU."""
        told: dict[Place, Target] = {}
        said: dict[Target, tuple[dict[Metric, float], dict[Metric, Absence]]] = {}
        hidden, missing = 0, set[int]()
        chosen = sorted(found.items(), key=lambda item: -(item[1][0].memory or 0))
        for place, (row, kinds) in chosen[:LIMIT]:
            ticks = procfs.started(self._proc, row.pid) if sees else None
            if ticks is None:
                hidden += 1
                missing.add(row.pid)
                if sees and row.pid not in self._missing:
                    continue  # it has just ended, or is about to: the next list tells (wookayin/gpustat#95)
            target = told[place] = self._target(row, ticks, kinds, "" if ticks is not None else "gone" if sees else "namespace")
            own: dict[Metric, float] = {}
            lacks: dict[Metric, Absence] = {}
            if row.memory is None:
                lacks[HOLDER_MEMORY] = Absence.UNSUPPORTED
            else:
                own[HOLDER_MEMORY] = float(row.memory)
            if isinstance(shares, Absence):
                lacks[HOLDER_UTILIZATION] = shares
            else:
                share = shares[row.pid].share if row.pid in shares else 0.0  # rows are of those alone that ran a kernel (nvml.h)
                if share is None:
                    lacks[HOLDER_UTILIZATION] = Absence.EMPTY
                else:
                    own[HOLDER_UTILIZATION] = share
            said[target] = own, lacks
        before = self._told.values()
        if whole:
            said |= {target: ({}, {}) for target in before if target not in said}
            self._told, self._missing = told, missing
        else:
            self._told |= told
        if values:
            values[GPU_PROCESSES_HIDDEN] = float(hidden)
            values[GPU_PROCESSES_DROPPED] = float(max(0, len(chosen) - LIMIT))
        return said

    def _target(self, row: Record, ticks: int | None, kinds: list[str], unseen: str) -> Target:
        """Return a process on this GPU; `unseen` says why it is not known since when it runs."""
        labels = {
            "pid": str(row.pid),
            "ticks": "" if ticks is None else str(ticks),
            **self._card.labels,
            "gi": "" if row.gi is None else str(row.gi),
            "ci": "" if row.ci is None else str(row.ci),
        }
        key = "/".join((self._card.key, labels["gi"], labels["ci"], labels["pid"], labels["ticks"]))
        info = {"kinds": ",".join(kinds)} | ({"unseen": unseen} if unseen else {})
        return Target(subject=HOLDER, key=key, labels=labels, info=info)

    def _reading(
        self, target: Target, at: float, took: float, values: dict[Metric, float], absent: dict[Metric, Absence]
    ) -> Reading:
        return Reading(source="nvml", tier=Tier.NORMAL, target=target, at=at, took=took, values=values, absent=absent)

    def _list(self, kind: str, handle: Any, *, sees: bool) -> list[Record] | Absence:
        """Return one list, or why there is none."""
        if self._clock.mono() < self._never.get(kind, 0.0):
            return Absence.UNSUPPORTED
        try:
            if self._total is None:
                self._total = self._ask_total(handle)
            return self._rows(kind, handle, sees=sees)
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError as error:
            if error.code in verdicts.PERMANENT:
                self._never[kind] = self._clock.mono() + AGAIN
            return verdicts.absence(error.code)

    def _ask_total(self, handle: Any) -> int:
        """Return the memory of the card, 0 where it has none of its own: no process holds more."""
        try:
            total = int(self._library.named("nvmlDeviceGetMemoryInfo", handle).total)
        except CallError as error:
            if error.code not in verdicts.PERMANENT:
                raise
            return 0
        return 0 if total >= process_list.LARGEST_MEMORY else total

    def _rows(self, kind: str, handle: Any, *, sees: bool) -> list[Record] | Absence:
        """Ask for one list by the newest symbol that this driver has; raises CallError."""
        suffixes = [self._suffix[kind]] if kind in self._suffix else list(STRIDES)
        for suffix in suffixes:
            try:
                raw, count = self._call(LISTS[kind] + suffix, handle)
            except CallError as error:
                if error.code == verdicts.FUNCTION_NOT_FOUND and suffix != suffixes[-1]:
                    continue
                raise
            self._suffix[kind] = suffix
            exists = (lambda pid: procfs.started(self._proc, pid) is not None) if sees else None
            rows = process_list.understood(raw, count, STRIDES[suffix], self._total, exists)
            if rows is None and not self._senseless:
                self._senseless = True
                log.warning("%s: its list of %s processes makes no sense and is left out (%d rows)", self._card, kind, count)
            return Absence.FAILED if rows is None else rows
        return Absence.UNSUPPORTED

    def _call(self, symbol: str, handle: Any) -> tuple[bytes, int]:
        """Return the bytes of a list and its count of rows; raises CallError."""
        while True:
            buffer = ctypes.create_string_buffer(b"\xff" * (self._room * WIDEST), self._room * WIDEST)
            count = ctypes.c_uint(self._room)
            code = self._library.attempt(symbol, handle, ctypes.byref(count), buffer, allowed=(INSUFFICIENT_SIZE,))
            if code == 0 and count.value <= self._room:
                return buffer.raw, count.value
            if self._room >= MOST:
                raise CallError(INSUFFICIENT_SIZE)
            self._room = min(MOST, max(2 * self._room, 2 * count.value))

    def _shares(self, handle: Any) -> Mapping[int, Sample] | Absence:
        """Return what each process used since the last look, or why it is not known. Nothing new is no error (gpud#544)."""
        for name, ask in (("utilization", self._ask_samples), ("utilization info", self._ask_info)):
            if self._clock.mono() < self._never.get(name, 0.0):
                continue
            try:
                return ask(handle)
            except (GpuGoneError, DriverGoneError):
                raise
            except CallError as error:
                if error.code not in verdicts.PERMANENT:
                    return verdicts.absence(error.code)
                self._never[name] = self._clock.mono() + AGAIN
        return Absence.UNSUPPORTED

    def _now(self) -> int:
        return int(self._clock.wall() * MICROSECONDS)

    def _begin(self, ahead: int) -> int:
        """Return since when to ask: one period ago where the last sample lies further ahead, since the clock went back then."""
        now = self._now()
        if self._since > now + ahead:
            self._since = now - self._period
        return self._since

    def _ask_samples(self, handle: Any) -> Mapping[int, Sample] | Absence:
        """Ask by the call that every driver has."""
        buffer, count = ctypes.create_string_buffer(self._room * SAMPLE.size), ctypes.c_uint(self._room)
        since = ctypes.c_ulonglong(self._begin(process_list.AHEAD))
        allowed = (NOT_FOUND, INSUFFICIENT_SIZE)
        code = self._library.attempt(
            "nvmlDeviceGetProcessUtilization", handle, buffer, ctypes.byref(count), since, allowed=allowed
        )
        return self._sampled(code, buffer.raw, count.value, SAMPLE)

    def _ask_info(self, handle: Any) -> Mapping[int, Sample] | Absence:
        """Ask by the call that follows it (R550 and later)."""
        buffer = ctypes.create_string_buffer(self._room * INFO.size)
        rows = ctypes.cast(buffer, ctypes.c_void_p)
        info = UtilizationInfo(version=UTILIZATION_INFO, count=self._room, since=self._begin(process_list.AHEAD), rows=rows)
        allowed = (NOT_FOUND, INSUFFICIENT_SIZE)
        code = self._library.attempt("nvmlDeviceGetProcessesUtilizationInfo", handle, ctypes.byref(info), allowed=allowed)
        return self._sampled(code, buffer.raw, info.count, INFO)

    def _sampled(self, code: int, raw: bytes, count: int, layout: Any) -> Mapping[int, Sample] | Absence:
        """Take the samples of a call, and remember up to when they go."""
        if code == INSUFFICIENT_SIZE:
            self._room = min(MOST, max(2 * self._room, 2 * count))
        if code == NOT_FOUND:
            self._begin(0)  # what was ahead by less has come by now, unless the clock went back a little
        if code or count > self._room:
            return Absence.EMPTY
        found, self._since = process_list.samples(raw, count, layout, self._since, self._now())
        # Nothing new of anybody says nothing of those without a row either.
        return found if any(sample.share is not None for sample in found.values()) else Absence.EMPTY
