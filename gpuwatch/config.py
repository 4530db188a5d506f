"""Every option, its default and its limits: TOML files -> Config.

`/etc/gpuwatch/gpuwatch.toml` (as a user: the XDG folder), then `conf.d/*.toml` beside it in name order: tables merge,
scalars of the later file win, arrays of tables append. Every error names the file, the key, what was found and what was
expected. Rules and receivers are tables whose keys belong to the rooms `rules` and `notify`; those rooms convert them and
raise the same ConfigError.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from gpuwatch import toml
from gpuwatch.model.pci import address_of, spelled
from gpuwatch.model.quantity import Duration, Size, duration, size
from gpuwatch.places import Places

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Least:
    """The least that a duration or size may be, as people write it."""

    text: str


Kept = Annotated[Duration, Least("1s")]
Period = Annotated[Duration, Least("50ms")]  # faster than that this host would do little else


class ConfigError(Exception):
    """A mistake in the configuration: which file, which key, what was found, what was expected. Exit code 2."""

    def __init__(self, place: str, key: str, problem: str) -> None:
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")
        self.place, self.key, self.problem = place, key, problem


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration; unknown keys are refused."""


class Http(Section, frozen=True):
    """Who may ask: TCP address, Unix socket, TLS and passwords (Prometheus' web-config file)."""

    listen: str = "127.0.0.1:9843"  # "" switches TCP off
    socket: str = ""  # default: gpuwatch.sock in the runtime folder
    web_config: str = ""


class Host(Section, frozen=True):
    """What this host is called in messages, and its labels."""

    name: str = ""  # default: the host name
    labels: dict[str, str] = {}


class Gpu(Section, frozen=True):
    """What the operator calls the GPU at a PCI address, in any spelling (`[gpus."0000:65:00.0"] label = "slot 3"`)."""

    label: str


class Inventory(Section, frozen=True):
    """How many GPUs this host should have; learned where not said."""

    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None


class Store(Section, frozen=True):
    """Where history is kept, for how long and up to which size."""

    url: str = ""  # default: gpuwatch.db in the state folder
    state: str = ""  # file of the alert memory; default: state.db beside the history, in the state folder for a database server
    max_size: Annotated[Size | None, Least("16MiB")] = None  # default: the smaller of 2 GiB and 5 % of the file system
    keep_raw: Kept = Duration(7 * 86400)
    keep_incidents: Kept = Duration(3 * 365 * 86400)


class Paths(Section, frozen=True):
    """Where the host's trees are: for containers and tests, as node_exporter has them."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    root: str = "/"


class Source(Section, frozen=True):
    """What every source has: whether it is on, its three periods, and how long it may take."""

    enabled: bool = True
    every: Period = Duration(1)
    every_normal: Period = Duration(10)
    every_slow: Period = Duration(60)
    deadline: Period = Duration(5)


class Nvml(Source, frozen=True):
    """How GPUs are read. `backoff` is the longest pause before a worker that keeps dying is started again.

    A worker that answers for as long counts as well again.
    """

    backoff: Period = Duration(60)


class Smart(Section, frozen=True):
    """How SMART is read: by smartctl, which needs root or capabilities."""

    enabled: bool = True
    every: Period = Duration(600)
    deadline: Period = Duration(30)  # for one disk
    smartctl: str = "smartctl"  # program name or path
    standby: bool = True  # leave sleeping rotational disks asleep


class Probe(Section, frozen=True):
    """The short-lived worker that touches devices and mounts: PCI, file systems, sensors."""

    enabled: bool = True
    every: Period = Duration(60)
    deadline: Period = Duration(10)  # for one thing it looks at


class Simulated(Section, frozen=True):
    """A simulated host in place of the real one, driven by a scenario file (`gpuwatch demo`)."""

    enabled: bool = False
    scenario: str = ""  # default: the shipped demo
    every: Period = Duration(1)
    every_normal: Period = Duration(10)
    every_slow: Period = Duration(60)
    deadline: Period = Duration(5)


class Sources(Section, frozen=True):
    """Where numbers come from."""

    nvml: Nvml = Nvml()
    host: Source = Source()
    probe: Probe = Probe()
    smart: Smart = Smart()
    simulated: Simulated = Simulated()


class Route(Section, frozen=True):
    """Which receivers hear of which alerts. No route: every receiver hears of warning and above."""

    receivers: list[str]
    match: dict[str, str] = {}  # label = value, all must hold; `severity` and `rule` count as labels
    min_severity: str = "warning"
    continue_: bool = msgspec.field(name="continue", default=False)


class Config(Section, frozen=True):
    """All of it. `rules` and `receivers` are converted by their rooms."""

    http: Http = Http()
    host: Host = Host()
    gpus: dict[str, Gpu] = {}
    inventory: Inventory = Inventory()
    store: Store = Store()
    paths: Paths = Paths()
    sources: Sources = Sources()
    rules: dict[str, Any] = {}
    receivers: list[dict[str, Any]] = []
    routes: list[Route] = []


SECRETIVE = "receivers"  # no value under a key with this in its name is shown
UNPLACED = "configuration"  # the place of a mistake in a part whose room does not know which file it came from


@dataclass(frozen=True, slots=True)
class Loaded:
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
        merge(merged, table, origin, path, "")
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
    """Return the further files in name order; what is there and no folder that we may look into is a mistake."""
    try:
        return sorted(found for found in folder.iterdir() if found.suffix == ".toml")
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


def merge(into: dict[str, Any], table: Mapping[str, Any], origin: dict[str, Path], path: Path, head: str) -> None:
    """Merge one file's table: tables merge, arrays of tables append, the later scalar wins. `origin` says who set a key."""
    for key, value in table.items():
        name = f"{head}{key}"
        before = into.get(key)
        if isinstance(value, dict):
            if not isinstance(before, dict):
                into[key] = before = {}
            origin.setdefault(name, path)
            merge(before, value, origin, path, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            into[key] = start = list(before) if isinstance(before, list) else []
            for index, item in enumerate(value, len(start)):
                origin[f"{name}[{index}]"] = path
                start.append(item)
        else:
            into[key], origin[name] = value, path


def convert(table: Mapping[str, Any], kind: type[T], origin: Mapping[str, Path], main: str, head: str = "") -> T:
    """Convert a table to its struct key by key, so that an error names the key and the value found."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{head}{key}"
        if key not in fields:
            raise ConfigError(blame(name, origin, main), name, unknown(key, fields))
        values[fields[key].name] = convert_one(value, hints[fields[key].name], origin, main, name)
    for key, field in fields.items():
        if field.required and field.name not in values:
            raise ConfigError(blame(head.rstrip("."), origin, main), f"{head}{key}", "is missing, and it is required")
    return kind(**values)


def convert_one(value: object, hint: Any, origin: Mapping[str, Path], main: str, name: str) -> object:
    """Convert one value to what its field wants; nested tables are converted by themselves."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if not isinstance(value, dict):
            raise ConfigError(blame(name, origin, main), name, f"expected a table, found {shown(value, name)}")
        return convert(value, hint, origin, main, f"{name}.")
    inner = get_args(hint)
    nested = inner and isinstance(inner[-1], type) and issubclass(inner[-1], msgspec.Struct)
    if nested and isinstance(value, dict):
        return {key: convert_one(item, inner[-1], origin, main, f"{name}.{key}") for key, item in value.items()}
    if nested and isinstance(value, list):
        return [convert_one(item, inner[-1], origin, main, f"{name}[{index}]") for index, item in enumerate(value)]
    try:
        found = cast("object", msgspec.convert(value, hint, dec_hook=from_text))
    except msgspec.ValidationError as error:
        is_enum = isinstance(hint, type) and issubclass(hint, Enum)
        problem = among(hint, value, name) if is_enum else f"{said(error)}, found {shown(value, name)}"
        raise ConfigError(blame(name, origin, main), name, problem) from None
    for least in getattr(hint, "__metadata__", ()):
        if isinstance(least, Least) and isinstance(found, (Duration, Size)) and found < from_text(type(found), least.text):
            problem = f'expected at least "{least.text}", found {shown(value, name)}'
            raise ConfigError(blame(name, origin, main), name, problem)
    return found


def among(kind: type[Enum], value: object, name: str) -> str:
    """Say which words a field takes and what was found; in a receiver that is hinted at only where it is close to a word."""
    words = [str(member.value) for member in kind]
    near = difflib.get_close_matches(value, words, n=1, cutoff=0.5) if isinstance(value, str) else []
    return f"expected one of {', '.join(words)}, found {shown(value, name)}" + (f"; did you mean {near[0]}?" if near else "")


def from_text(kind: type, value: object) -> Duration | Size:
    """Convert the strings with units, for msgspec."""
    if kind is Duration and isinstance(value, str):
        return duration(value)
    if kind is Size and isinstance(value, str):
        return size(value)
    expected = "a duration" if kind is Duration else "a size"
    raise ValueError(f'expected {expected} as a string with a unit, such as "{"10s" if kind is Duration else "2GiB"}"')


def said(error: msgspec.ValidationError) -> str:
    """Return msgspec's words without its own path (`- at ...`) and the value (`invalid enum value 'x'`), and in our case."""
    text = str(error).replace(" | null", "").split(" - at `")[0].split(", got")[0].split(" '")[0]
    return text[:1].lower() + text[1:]


def shown(value: object, name: str = "") -> str:
    """Return a found value as TOML would write it, short; only its kind where it may be a secret.

    That is all in a table or an array, all of a receiver, and the address of a database server, wherever it was put.
    """
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    if name in {"store", "store.url"} or SECRETIVE in name:
        return "text" if isinstance(value, str) else "a value that is no text"
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unknown(key: str, known: Mapping[str, object]) -> str:
    """Say that a key is unknown, with the nearest known name."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return "is not a known key" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}")


def blame(name: str, origin: Mapping[str, Path], main: str) -> str:
    """Return the file that set this key, or the nearest table around it."""
    while name:
        if name in origin:
            return str(origin[name])
        name = name.rpartition(".")[0] if "." in name else name.rpartition("[")[0]
    return main


def plain(config: Config) -> dict[str, Any]:
    """Return the configuration in force as plain data: seconds, bytes. Secrets are the caller's to hide."""
    table: dict[str, Any] = msgspec.to_builtins(config, enc_hook=as_number)
    return table


def from_plain(table: Mapping[str, Any]) -> Config:
    """Return the configuration that `plain` wrote; it crossed a pipe to one of our workers, so it is known to be right."""
    return msgspec.convert(table, Config, dec_hook=lambda kind, value: kind(value))


def as_number(value: object) -> object:
    """Write our number types as numbers, for msgspec."""
    return int(value) if isinstance(value, Size) else float(cast("Duration", value))
