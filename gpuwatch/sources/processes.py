"""Other processes as /proc shows them: whose they are, and whether they are stuck in the kernel.

Nothing here reads `cmdline`: of a process that is stuck while it holds its memory map's lock that read hangs too.
"""

import os
import signal
from pathlib import Path

STATE, PARENT, GROUP, SESSION, THREADS, SINCE = 0, 1, 2, 3, 17, 19  # proc(5), counted from the field after the name
KILLED = 1 << (signal.SIGKILL - 1)  # in the masks of pending signals


def numbers(proc: Path) -> list[str]:
    """Return the numbers of all processes, none where /proc cannot be read."""
    try:
        return [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - thousands of them, as below
    except OSError:
        return []


def comm(folder: str) -> str:
    """Return the name of a process, "" when it has ended."""
    try:
        with open(f"{folder}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a Path for each costs double
            return file.read().rstrip("\n")
    except OSError:
        return ""


def fields(stat: str) -> list[str] | None:
    """Return the fields of a stat file after the name, which may hold anything; None when the process has ended."""
    try:
        with open(stat, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            found = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return found if len(found) > SINCE else None


def started(proc: Path | str, pid: int) -> int | None:
    """Return when a process began, in clock ticks since the boot: with its pid, who it is. None when it is not there."""
    found = fields(f"{proc}/{pid}/stat")
    try:
        return None if found is None else int(found[SINCE])
    except ValueError:
        return None


def sees_host(proc: Path) -> bool:
    """Say whether this /proc shows the host's process ids, and not those of a container.

    The second process of the host is the kernel's; in any other namespace it is something else, or nothing. Where even the
    first is hidden from us (hidepid), what is left to see is taken for the host's.
    """
    return comm(str(proc / "2")) == "kthreadd" or not (proc / "1").exists()


def is_over(values: list[str] | None) -> bool:
    """Say whether nothing of a process runs; one whose first thread has ended is a zombie to /proc while another is stuck."""
    return values is None or values[STATE] == "X" or (values[STATE] == "Z" and int(values[THREADS]) <= 1)


def is_trusted(folder: Path) -> bool:
    """Say whether this is a process of root's or of our own user.

    Names are anybody's choice, and so is the program: a set-user-ID one runs as root for everybody. So the real user counts too.
    """
    users = status(folder).get("Uid", "").split()
    return len(users) == 4 and set(users) <= {"0", str(os.getuid())}  # real, effective, saved, of file access


def is_stuck(folder: Path) -> bool:
    """Say whether a thread of it is in uninterruptible sleep, or has not yet followed a SIGKILL."""
    tasks = folder / "task"
    return any(hangs(tasks / number) for number in numbers(tasks))


def hangs(task: Path) -> bool:
    """Say whether one thread does not come back from the kernel; a driver may also spin in it."""
    found = status(task)
    state = found.get("State", "Z")[:1]
    return state == "D" or (state not in ("Z", "X") and is_killed(found))


def is_killed(found: dict[str, str]) -> bool:
    """Say whether SIGKILL is pending."""
    try:
        return bool((int(found["SigPnd"], 16) | int(found["ShdPnd"], 16)) & KILLED)
    except (KeyError, ValueError):
        return False


def status(folder: Path) -> dict[str, str]:
    """Return the lines of a status file, none when the process has ended."""
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
