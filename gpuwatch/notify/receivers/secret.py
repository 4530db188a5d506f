"""A secret of a receiver: inline or in a file of its own, never both."""

import os
from pathlib import Path
from stat import filemode

from gpuwatch import plainfile
from gpuwatch.notify.receivers.receiver import MistakeError


def secret(name: str, inline: str, file: str) -> str:
    """Return the secret `name` from its key or from `<name>_file`, without the line end; "" where neither is set.

    Raises MistakeError; the words never hold the secret.
    """
    if inline and file:
        raise MistakeError(name, f"is set together with {name}_file; keep one of them")
    if not file:
        return inline.strip()
    key = f"{name}_file"
    text = content(key, file).strip()
    if not text:
        raise MistakeError(key, f"{named(file)}is empty")
    if len(text.splitlines()) > 1:
        raise MistakeError(key, f"{named(file)}has more than one line")
    return text


def content(key: str, file: str) -> str:
    """Return what the file says that this key names; raises MistakeError."""
    try:
        return plainfile.text(file)
    except plainfile.UnreadableError as error:
        advice = mode(Path(file)) if isinstance(error.cause, PermissionError) else ""
        raise MistakeError(key, f"{named(file)}{error.problem}{advice}") from None


def named(file: str) -> str:
    """Return the file's name in quotes where there is such a file: what is none may be the secret, put under the wrong key."""
    return f'"{file}" ' if os.path.lexists(file) else ""


def mode(path: Path) -> str:
    """Say what the file's mode is and what it should be, as far as it can be seen."""
    try:
        found = path.stat()
    except OSError:
        return "; the folder should let the daemon's user in"
    owner = f"uid {found.st_uid}, gid {found.st_gid}"
    return f" (it is {filemode(found.st_mode)}, {owner}); chgrp gpuwatch (the daemon's group) and chmod 0640 it"
