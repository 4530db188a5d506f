"""A secret of a receiver: inline or in a file of its own, never both."""

from pathlib import Path
from stat import filemode

from gpuwatch.notify.receivers.receiver import MistakeError

LIMIT = 64 << 10  # bytes; a secret is one line


def secret(name: str, inline: str, file: str) -> str:
    """Return the secret `name` from its key or from `<name>_file`, without the line end; "" where neither is set.

    Raises MistakeError; the words never hold the secret.
    """
    if inline and file:
        raise MistakeError(name, f"is set together with {name}_file; keep one of them")
    if not file:
        return inline.strip()
    key, path = f"{name}_file", Path(file)
    try:
        with path.open("rb") as stream:
            text = stream.read(LIMIT).decode("utf-8").strip()
    except PermissionError:
        raise MistakeError(key, f'"{file}" cannot be read: permission denied{mode(path)}') from None
    except OSError as error:
        raise MistakeError(key, f'"{file}" cannot be read: {error.strerror}') from None
    except UnicodeDecodeError:
        raise MistakeError(key, f'"{file}" is not text') from None
    if not text:
        raise MistakeError(key, f'"{file}" is empty')
    if len(text.splitlines()) > 1:
        raise MistakeError(key, f'"{file}" has more than one line')
    return text


def mode(path: Path) -> str:
    """Say what the file's mode is and what it should be, as far as it can be seen."""
    try:
        found = path.stat()
    except OSError:
        return "; the folder should let the daemon's user in"
    owner = f"uid {found.st_uid}, gid {found.st_gid}"
    return f" (it is {filemode(found.st_mode)}, {owner}); chgrp it to the daemon's group and chmod 0640"
