"""One run of a program (smartctl, dcgmi): it ends in time, is read up to a limit, and is killed with all its children."""

import contextlib
import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from gpuwatch.sources.processes import PARENT, fields, numbers

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # smartctl lives here, and a service user's PATH lacks it
LIMIT = 1 << 20  # bytes of output; smartctl gives about 30 kB
PR_SET_PDEATHSIG = 1  # linux/prctl.h
GRACE = 2.0  # seconds after SIGKILL until a process counts as unkillable


class Ending(str, Enum):
    """How one run came to its end."""

    EXITED = "exited"
    SIGNALLED = "signalled"  # somebody else killed it
    TIMEOUT = "timeout"  # we killed it
    STUCK = "stuck"  # SIGKILL did not end it (uninterruptible sleep in the driver); left alone
    FLOOD = "flood"  # more output than LIMIT
    REFUSED = "refused"  # it could not be started


class Run(msgspec.Struct, frozen=True):
    """What one run gave. `status` is the exit status, the signal, or the errno of a start that failed."""

    ending: Ending
    status: int = 0
    output: bytes = b""


def find(name: str) -> str | None:
    """Return the path of a program that may be started, None where there is none; a name is looked up in /usr/sbin too."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")


class Runner:
    """Runs one program at a time. `close` may be called from another thread; it kills what runs.

    `kill` is how a process group is ended: `os.killpg`, but for tests of a process that survives it.
    """

    def __init__(self, kill: Callable[[int, int], None] = os.killpg) -> None:
        self._kill = kill
        self._child: subprocess.Popen[bytes] | None = None
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def run(self, argv: Sequence[str], seconds: float, grace: float = GRACE, *, errors: bool = False) -> Run:
        """Run `argv` for at most `seconds`, and `grace` more where it has to be killed; `errors`: with what it says on stderr."""
        ends = time.monotonic() + seconds
        self._stuck = [old for old in self._stuck if old.poll() is None]  # reaps what has ended at last
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
                preexec_fn=begin(os.getpid()),  # noqa: PLW1509 - three system calls, no Python lock is taken in the child
                env={**os.environ, "LC_ALL": "C"},  # text has thousands separators by locale, messages come from strerror()
            )
        except OSError as error:
            return Run(Ending.REFUSED, error.errno or 0)
        self._child = child
        try:
            output, why = collect(child, ends)
            if self._closed:
                why = Ending.TIMEOUT
            if why is Ending.EXITED and not ended(child, ends - time.monotonic()):
                why = Ending.TIMEOUT  # it closed its output and stays
            if why is not Ending.EXITED and not self._end(child, grace):
                return Run(Ending.STUCK)
        finally:
            self._child = None
            if child.stdout:
                child.stdout.close()
        if why is Ending.EXITED and child.returncode < 0:
            return Run(Ending.SIGNALLED, -child.returncode, output)
        return Run(why, child.returncode, output)

    def _end(self, child: "subprocess.Popen[bytes]", grace: float) -> bool:
        """Kill it with what it started; say whether it is gone. What is not is remembered, so that it is reaped when it ends."""
        self._kill_all(child)
        if ended(child, grace):
            return True
        self._stuck.append(child)
        return False

    def close(self) -> None:
        """Kill what runs and start nothing more that lasts; does not wait."""
        self._closed = True
        child = self._child
        if child is not None and child.poll() is None:
            self._kill_all(child)

    def _kill_all(self, child: "subprocess.Popen[bytes]") -> None:
        """Kill its process group, and what has left that for a session of its own but is still to be found below it."""
        others = below(child.pid)  # once it has ended they are process 1's
        with contextlib.suppress(OSError):  # gone already, or not ours to kill (sudo): the wait tells
            self._kill(child.pid, signal.SIGKILL)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def below(pid: int) -> list[int]:
    """Return the processes that one has started, and those that these have."""
    children: dict[str, list[str]] = {}
    for number in numbers(Path("/proc")):
        values = fields(f"/proc/{number}/stat")
        if values is not None:
            children.setdefault(values[PARENT], []).append(number)
    found = [str(pid)]
    for one in found:  # which grows, and ends: /proc is read over a time in which numbers may be given anew
        found += children.pop(one, [])
    return [int(one) for one in found[1:]]


def begin(parent: int) -> Callable[[], None]:
    """Return what a child does before it becomes the program: it leads a process group, and the kernel kills it when we die.

    It stays in the session of the worker, by which the supervisor finds what the program may have started.
    """
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return tie


def collect(child: "subprocess.Popen[bytes]", ends: float) -> tuple[bytes, Ending]:
    """Read the output until it ends, is too much, or time is up."""
    pipe = child.stdout
    assert pipe is not None
    fd = pipe.fileno()
    os.set_blocking(fd, False)
    parts: list[bytes] = []
    total = 0
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left := ends - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            part = os.read(fd, 1 << 16)
            if not part:
                return b"".join(parts), Ending.EXITED
            parts.append(part)
            total += len(part)
            if total > LIMIT:
                return b"", Ending.FLOOD
    return b"".join(parts), Ending.TIMEOUT


def ended(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Wait for the process for at most `seconds`; say whether it has ended."""
    try:
        child.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return False
    return True
