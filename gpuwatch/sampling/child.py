"""Worker processes as the collectors see them: the seam at which a test puts a process that survives SIGKILL."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import gpuwatch
from gpuwatch.sources.processes import GROUP, PARENT, SESSION, SINCE, comm, fields, is_over, is_stuck, is_trusted, numbers

SEND = 1.0  # seconds for a frame to fit into a pipe of 64 KiB that nobody else fills
PASSES = 3  # over the process groups of a session: one may appear while the others are killed


class Process(Protocol):
    """One worker process. No method blocks for longer than a second."""

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        ...

    @property
    def output(self) -> BinaryIO:
        """The frames that it writes; read by one thread of its own."""
        ...

    def send(self, data: bytes) -> bool:
        """Write a frame to it; False when it does not take it."""
        ...

    def dismiss(self) -> None:
        """Close its input, at which it ends by itself."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to it and everything that it started."""
        ...

    def poll(self) -> int | None:
        """Return its exit status once it and everything that it started are gone, None before."""
        ...


Spawn = Callable[[str], Process]


class Leftover(Protocol):
    """A worker of an earlier daemon that is still there, stuck in the kernel."""

    def is_gone(self) -> bool:
        """Say whether it has ended."""
        ...


Find = Callable[[str], Sequence[Leftover]]


class Child:
    """A real process, leader of a session of its own; what it starts stays in that, whatever its process groups."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, close_fds=True, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin.fileno()
        os.set_blocking(self._input, False)
        self.output: BinaryIO = self._process.stdout  # type: ignore[assignment]  # IO[bytes] of typeshed is a BufferedReader
        self._status: int | None = None
        self._rest: list[str] = []  # of its session, as found last

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        return self._process.pid

    def send(self, data: bytes) -> bool:
        """Write a frame to it; False when it does not take it within a second."""
        end = time.monotonic() + SEND
        rest = memoryview(data)
        room = select.poll()  # select() itself cannot take a descriptor over 1023, and the daemon may have as many connections
        room.register(self._input, select.POLLOUT)
        try:
            while rest and room.poll(max(0.0, end - time.monotonic()) * 1e3):
                rest = rest[os.write(self._input, rest) :]
        except OSError:
            return False  # it is ending
        return not rest

    def dismiss(self) -> None:
        """Close its input, at which it ends by itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def kill(self) -> None:
        """Send SIGKILL to all process groups of its session: a smartctl and what that started must not outlive it."""
        if self._status is not None:
            return
        killed: set[int] = set()
        first = {self.pid} if self._process.returncode is None else set()  # without /proc it is all that we know
        for _ in range(PASSES):
            groups = (first | {int(values[GROUP]) for _, values in self._members()}) - killed
            for group in groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or runs as another user
                    os.killpg(group, signal.SIGKILL)
            killed |= groups
            if not groups:
                break

    def poll(self) -> int | None:
        """Return its exit status once nothing of its session is left, None before.

        While the session has a member its number is not given to another process.
        """
        if self._status is None and self._process.poll() is not None:
            if not any(self._is_member(fields(f"/proc/{number}/stat")) for number in self._rest):  # spares a walk over all
                self._rest = [number for number, _ in self._members()]
            if not self._rest:
                self._status = self._process.returncode
                self.dismiss()
        return self._status

    def _members(self) -> list[tuple[str, list[str]]]:
        """Return the processes of its session that have not ended, with their fields."""
        found: list[tuple[str, list[str]]] = []
        for number in numbers(Path("/proc")):
            values = fields(f"/proc/{number}/stat")
            if values is None or values[SESSION] != str(self.pid):
                continue
            if self._is_member(values):
                found.append((number, values))
            elif values[PARENT] == str(os.getpid()) and number != str(self.pid):
                with contextlib.suppress(ChildProcessError):  # where we are process 1 of a container, orphans are ours to reap
                    os.waitpid(int(number), os.WNOHANG)
        return found

    def _is_member(self, values: list[str] | None) -> bool:
        return values is not None and values[SESSION] == str(self.pid) and not is_over(values)


def worker(name: str) -> Process:
    """Start a worker process of this installation.

    Its folder is ours: `-m` puts the working folder first on the module path, and that may be a stranger's. Raises OSError.
    """
    return Child([sys.executable, "-m", "gpuwatch.sources.worker", name], Path(gpuwatch.__file__).resolve().parents[1])


class Orphan:
    """A process of our name without its daemon, as /proc shows it."""

    def __init__(self, stat: str, since: str) -> None:
        self._stat, self._since = stat, since

    def is_gone(self) -> bool:
        """Say whether it has ended; its number may be another process' by now."""
        found = fields(self._stat)
        return found is None or found[SINCE] != self._since or is_over(found)


def orphans(name: str, proc: Path = Path("/proc")) -> list[Orphan]:
    """Return the workers that an earlier daemon has left behind.

    A hung driver keeps them through every restart of the daemon, and each restart must not add one. They were handed to
    process 1, or to a manager between it and us (`systemd --user` of a user's install is a subreaper, prctl(2)). Anybody can
    name a process so and leave it to process 1: only those of our own user and root's count, and only while they are stuck.
    """
    above = ancestors(proc)
    found: list[Orphan] = []
    for number in numbers(proc):
        folder = f"{proc}/{number}"
        if comm(folder) == name[:15] and number != str(os.getpid()):
            stat = f"{folder}/stat"
            values = fields(stat)
            if values is None or values[PARENT] not in above or is_over(values):
                continue
            if is_trusted(Path(folder)) and is_stuck(Path(folder)):
                found.append(Orphan(stat, values[SINCE]))
    return found


def ancestors(proc: Path) -> set[str]:
    """Return the numbers of the processes above this one, process 1 among them."""
    found = {"1"}
    values = fields(f"{proc}/{os.getpid()}/stat")
    while values is not None and values[PARENT] not in {*found, "0"}:
        found.add(values[PARENT])
        values = fields(f"{proc}/{values[PARENT]}/stat")
    return found
