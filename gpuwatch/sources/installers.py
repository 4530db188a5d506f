"""Who is at work on the driver: NVIDIA's installer, or a package manager that holds dpkg's lock."""

import fcntl
import os
import struct
from pathlib import Path

from gpuwatch.sources.processes import comm, is_trusted, numbers

LOCK = Path("var/lib/dpkg/lock-frontend")  # apt holds it for a whole run, dpkg holds `lock` for each of its own
INSTALLERS = (
    "NVIDIA-Linux-",
    "nvidia-installe",
)  # a process name has 15 bytes: nvidia-installer, NVIDIA-Linux-x86_64-550.90.07.run
FLOCK = struct.Struct("hhqqi0q")  # struct flock of Linux on 64 bits: type, whence, start, length, pid


def at_work(proc: Path, root: Path) -> str:
    """Return who is at work on the driver, "" for nobody. Reads a file of the root file system: it may hang with that disk."""
    for number in numbers(proc):
        name = comm(f"{proc}/{number}")
        if name.startswith(INSTALLERS) and is_trusted(proc / number):  # anybody can name a process so
            return f"{name} (pid {number})"
    pid = locked_by(proc, root / LOCK)
    return f"{comm(f'{proc}/{pid}') or 'a package manager'} (pid {pid})" if pid else ""


def locked_by(proc: Path, lock: Path) -> int:
    """Return the process that holds a lock of fcntl on a file, 0 where none does or the file is not there."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:  # it is root's alone; the kernel's list of locks is everybody's
        return listed(proc, lock)
    except OSError:
        return 0
    try:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return 0 if kind == fcntl.F_UNLCK else max(pid, 0)


def listed(proc: Path, lock: Path) -> int:
    """Return the holder of a lock as /proc/locks has it: `1: POSIX  ADVISORY  WRITE 4711 08:02:131081 0 EOF` (proc(5))."""
    try:
        found = lock.stat()
        lines = (proc / "locks").read_text().splitlines()
    except OSError:
        return 0
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) >= 6 and words[1] == "POSIX" and words[5] == place and words[4].isdecimal():
            return int(words[4])
    return 0
