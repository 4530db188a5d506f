"""User names by number: from the passwd file of this host's root, else by the name service (LDAP, SSSD), which may block."""

import pwd
from pathlib import Path

from gpuwatch import plainfile
from gpuwatch.model.escape import printable

GOOD_FOR = 3600.0  # seconds for which a name holds
UNKNOWN_FOR = 600.0  # seconds until a number without a name is asked for again


def find(root: Path, uid: int) -> tuple[str, float]:
    """Return the name of a user and for how long it holds; a number that nobody knows is its own name."""
    name = listed(root, uid)
    if not name and root == Path("/"):  # the name service is that of the system that we run in
        try:
            name = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError, OSError):
            name = ""
    return (printable(name), GOOD_FOR) if name else (str(uid), UNKNOWN_FOR)


def listed(root: Path, uid: int) -> str:
    """Return the name in the passwd file, "" where it has none."""
    return next(iter(entry(root, uid)), "")


def home(root: Path, uid: int) -> str:
    """Return the home folder of a user, "" where it is not known."""
    fields = entry(root, uid)
    if len(fields) >= 6:
        return fields[5]
    try:
        return pwd.getpwuid(uid).pw_dir if root == Path("/") else ""
    except (KeyError, OverflowError, OSError):
        return ""


def entry(root: Path, uid: int) -> list[str]:
    """Return the fields of a user's line in the passwd file, none where it has none."""
    try:
        text = plainfile.raw(root / "etc/passwd", plainfile.LIMIT).decode("utf-8", "backslashreplace")
    except OSError:
        return []
    lines = (line.split(":") for line in text.splitlines())
    return next((fields for fields in lines if len(fields) >= 3 and fields[2] == str(uid)), [])
