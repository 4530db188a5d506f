"""Where configuration, state and runtime files live: the system's folders, a user's, or those that a unit names."""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class Places(msgspec.Struct, frozen=True):
    """Where configuration, state and runtime files live by default."""

    config: Path
    state: Path
    runtime: Path


def places(environ: Mapping[str, str], *, root: bool) -> Places:
    """Return the default folders: the system's for root and service units, else the user's XDG folders."""
    home = Path(environ.get("HOME", "/"))
    if root:
        found = Places(Path("/etc/gpuwatch"), Path("/var/lib/gpuwatch"), Path("/run/gpuwatch"))
    else:
        state = Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / "gpuwatch"
        runtime = Path(environ["XDG_RUNTIME_DIR"]) / "gpuwatch" if environ.get("XDG_RUNTIME_DIR") else state
        found = Places(Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "gpuwatch", state, runtime)
    return Places(  # a systemd unit says where its folders are
        Path(environ.get("CONFIGURATION_DIRECTORY", "").split(":")[0] or found.config),
        Path(environ.get("STATE_DIRECTORY", "").split(":")[0] or found.state),
        Path(environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or found.runtime),
    )
