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
from gpuwatch.sources.processes import PARENT, SINCE, comm, fields, is_over, is_stuck, is_trusted, numbers

SEND = 1.0  # seconds for a frame to fit into a pipe of 64 KiB that nobody else fills


class Process(Protocol):
    """One worker process. No method blocks for longer than a second."""

    @property
    def pid(self) -> int:
        """Its process id, and that of its process group."""
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
    """A real process, leader of a session of its own."""

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

    @property
    def pid(self) -> int:
        """Its process id, and that of its process group."""
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
        """Send SIGKILL to its process group: a smartctl that it started must not outlive it."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return its exit status once nothing of its process group is left, None before.

        While the group has a member its number is not given to another process.
        """
        if self._status is None and self._process.poll() is not None:
            with contextlib.suppress(ChildProcessError):  # where we are process 1 of a container, orphans are ours to reap
                while os.waitpid(-self.pid, os.WNOHANG)[0]:
                    pass
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                self._status = self._process.returncode
                self.dismiss()
            except PermissionError:
                pass  # a member runs as another user
        return self._status


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
