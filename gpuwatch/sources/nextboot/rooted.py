"""Links of a host whose root file system is mounted elsewhere (`[paths] root`): those that begin with / begin there."""

import errno
import os
from pathlib import Path

HOPS = 16  # links that lead to links


def follow(root: Path, path: Path) -> Path:
    """Return where a link leads in the end, the path itself where it is none; raises OSError for a circle."""
    for _ in range(HOPS):
        if not os.path.islink(path):  # noqa: PTH114 - Path's may raise
            return path
        leads = os.readlink(path)  # noqa: PTH115 - the text is wanted
        path = root / leads.lstrip("/") if leads.startswith("/") else path.parent / leads
    raise OSError(errno.ELOOP, "too many links", str(path))


def exists(root: Path, path: Path) -> bool:
    """Say whether there is such a file, behind links too."""
    try:
        return os.path.exists(follow(root, path))  # noqa: PTH110 - Path's may raise
    except OSError:
        return False
