"""TOML files -> Config. Options, defaults and limits: `sources.py` for [sources], `options.py` for the rest.

`/etc/gpuwatch/gpuwatch.toml` (as a user: the XDG folder), then `conf.d/*.toml` beside it in name order, no hidden ones:
tables merge, scalars of the later file win, arrays of tables append (`merge.py`). Every error names the file, the key, what was
found and what was expected. Rules and receivers are tables whose keys belong to the rooms `rules` and `notify`; those rooms
convert them and raise the same ConfigError.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from gpuwatch import toml
from gpuwatch.config.convert import blame, convert, shown, unknown
from gpuwatch.config.merge import merge
from gpuwatch.config.options import Config, Gpu, Host, Http, Inventory, Paths, Privacy, Processes, Route, Store
from gpuwatch.config.section import ConfigError, Section
from gpuwatch.config.sources import Dcgm, Jobs, Nvml, Probe, Simulated, Smart, Source, Sources
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.model.quantity import Duration, Size, in_units
from gpuwatch.places import Places

__all__ = [
    "UNPLACED",
    "Config",
    "ConfigError",
    "Dcgm",
    "Gpu",
    "Host",
    "Http",
    "Inventory",
    "Jobs",
    "Loaded",
    "Nvml",
    "Paths",
    "Privacy",
    "Probe",
    "Processes",
    "Route",
    "Section",
    "Simulated",
    "Smart",
    "Source",
    "Sources",
    "Store",
    "blame",
    "convert",
    "from_plain",
    "load",
    "open_all",
    "plain",
    "read",
    "shown",
    "unknown",
]

WEB = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[^/@\s:?#\[\]]+)(?::[0-9]{1,5})?(?:/[^\s?#]*)?")
DATABASE = re.compile(r"(?:sqlite|postgresql)(?:\+\w+)?:")
ADDRESS = 107  # bytes of the name of a Unix socket (unix(7): 108 with the NUL that ends it)
UNPLACED = "configuration"  # the place of a mistake in a part whose room does not know which file it came from


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, and which file set which key."""

    config: Config
    main: str
    origin: Mapping[str, Path]
    files: tuple[Path, ...] = ()  # those that were read; none: all is default

    def blamed(self, error: ConfigError) -> ConfigError:
        """Return the mistake with the file that it is in, where its room could not know."""
        if error.place != UNPLACED:
            return error
        return ConfigError(blame(error.key, self.origin, self.main), error.key, error.problem)


def load(file: Path | None, where: Places) -> Config:
    """Return the configuration of `open_all` alone."""
    return open_all(file, where).config


def open_all(file: Path | None, where: Places) -> Loaded:
    """Read `file` (default: gpuwatch.toml in the configuration folder, which may be missing) and the conf.d beside it.

    Raises ConfigError for a file that cannot be read or holds a mistake; a named file must exist.
    """
    main = file or where.config / "gpuwatch.toml"
    tables: list[tuple[Path, dict[str, Any]]] = []
    if file is not None or is_there(main):
        tables.append((main, read(main)))
    tables += [(extra, read(extra)) for extra in extras(main.parent / "conf.d")]
    merged: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for path, table in tables:
        merge(merged, table, Config, origin, path)
    found = convert(merged, Config, origin, str(main))
    gpus: dict[str, Gpu] = {}
    for text, gpu in found.gpus.items():
        address, name = address_of(text), f"gpus.{text}"
        if address is None:
            raise ConfigError(blame(name, origin, str(main)), name, 'expected the PCI address of a GPU, such as "0000:65:00.0"')
        if spelled(address) in gpus:
            raise ConfigError(blame(name, origin, str(main)), name, f"is the same GPU as another one, {spelled(address)}")
        gpus[spelled(address)] = gpu
    found = msgspec.structs.replace(found, gpus=gpus)
    if not WEB.fullmatch(found.sources.dcgm.url):
        problem = 'expected a web address without a password, such as "http://127.0.0.1:9400/metrics", found text that is none'
        raise ConfigError(blame("sources.dcgm.url", origin, str(main)), "sources.dcgm.url", problem)
    if found.store.url and DATABASE.match(found.store.url) is None:  # what is there instead may be a secret, and is not shown
        problem = "expected a file of SQLite, such as sqlite:////var/lib/gpuwatch/gpuwatch.db, found text that names none"
        raise ConfigError(blame("store.url", origin, str(main)), "store.url", problem)
    if found.http.socket and not Path(found.http.socket).is_absolute():  # from where we run depends on who starts us
        problem = f'expected the whole path of a file, such as "/run/gpuwatch/gpuwatch.sock", found {shown(found.http.socket)}'
        raise ConfigError(blame("http.socket", origin, str(main)), "http.socket", problem)
    size = len(found.http.socket.encode())
    if size > ADDRESS:
        problem = f"expected a path of at most {ADDRESS} bytes, the most that a socket can have, found one of {size}"
        raise ConfigError(blame("http.socket", origin, str(main)), "http.socket", problem)
    return Loaded(settle(found, where), str(main), origin, tuple(path for path, _ in tables))


def is_there(path: Path) -> bool:
    """Whether there is such a file; one in a folder that we may not enter is a mistake, not an absence."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from None
    return True


def extras(folder: Path) -> list[Path]:
    """Return the further files in name order; what is there and no folder that we may look into is a mistake.

    A name with a dot in front is an editor's: of its lock, which leads nowhere, or of a copy that nobody means.
    """
    try:
        return sorted(found for found in folder.iterdir() if found.suffix == ".toml" and not found.name.startswith("."))
    except OSError as error:
        if not is_there(folder):
            return []
        raise ConfigError(str(folder), "", f"cannot be read: {error.strerror}") from None


def settle(config: Config, where: Places) -> Config:
    """Fill in what depends on the host: folders and name."""
    http, store, host = config.http, config.store, config.host
    if not http.socket:
        http = msgspec.structs.replace(http, socket=str(where.runtime / "gpuwatch.sock"))
    if not store.url:
        store = msgspec.structs.replace(store, url=f"sqlite:///{where.state / 'gpuwatch.db'}")
    if not store.state and not store.url.startswith("sqlite"):
        store = msgspec.structs.replace(store, state=str(where.state / "state.db"))
    if not host.name:
        host = msgspec.structs.replace(host, name=os.uname().nodename)
    return msgspec.structs.replace(config, http=http, store=store, host=host)


def read(path: Path) -> dict[str, Any]:
    """Read one TOML file; raises ConfigError."""
    try:
        return toml.read(path)
    except toml.TableError as error:
        raise ConfigError(str(path), error.key, error.problem) from None


def plain(config: Config) -> dict[str, Any]:
    """Return the configuration in force as plain data: seconds, bytes. Secrets are the caller's to hide."""
    table: dict[str, Any] = msgspec.to_builtins(config, enc_hook=as_number)
    return table


def written(config: Config) -> dict[str, Any]:
    """Return the configuration in force as a file would have it, durations and sizes with their units; secrets and all."""
    table: dict[str, Any] = msgspec.to_builtins(config, enc_hook=lambda value: in_units(cast("float", value)))
    return table


def from_plain(table: Mapping[str, Any]) -> Config:
    """Return the configuration that `plain` wrote; it crossed a pipe to one of our workers, so it is known to be right."""
    return msgspec.convert(table, Config, dec_hook=lambda kind, value: kind(value))


def as_number(value: object) -> object:
    """Write our number types as numbers, for msgspec."""
    return int(value) if isinstance(value, Size) else float(cast("Duration", value))
