"""A table of TOML -> its struct, key by key: every error names the file, the key, what was found and what was expected."""

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from gpuwatch.config.section import ConfigError, Least
from gpuwatch.model.misfit import expected
from gpuwatch.model.nearest import advice
from gpuwatch.model.quantity import Duration, Size, duration, size

T = TypeVar("T", bound=msgspec.Struct)

SECRETIVE = "receivers"  # of a key with this in its name no value is shown that may be a secret, wherever it was put
OPEN = ("kind", "min_severity", "send_resolved", "pace", "receivers")  # the keys that are meant to hold none
HARMLESS = re.compile(r"[a-z]{0,12}|-?\d{1,5}(?:\.\d+)?[a-z]{0,2}|True|False")  # a short word or a number: no address, no token


def convert(table: Mapping[str, Any], kind: type[T], origin: Mapping[str, Path], main: str, head: str = "") -> T:
    """Convert a table to its struct key by key, so that an error names the key and the value found."""
    types = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{head}{key}"
        if key not in fields:
            raise ConfigError(blame(name, origin, main), name, unknown(key, fields))
        values[fields[key].name] = convert_one(value, types[fields[key].name], origin, main, name)
    for key, field in fields.items():
        if field.required and field.name not in values:
            raise ConfigError(blame(head.rstrip("."), origin, main), f"{head}{key}", "is missing, and it is required")
    return kind(**values)


def convert_one(value: object, wanted: Any, origin: Mapping[str, Path], main: str, name: str) -> object:
    """Convert one value to what its field wants; nested tables are converted by themselves."""
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        if not isinstance(value, dict):
            raise ConfigError(blame(name, origin, main), name, f"expected a table, found {shown(value, name)}")
        return convert(value, wanted, origin, main, f"{name}.")
    inner, shape = get_args(wanted), get_origin(wanted)
    if shape is dict:
        if not isinstance(value, dict):
            raise ConfigError(blame(name, origin, main), name, f"expected a table, found {shown(value, name)}")
        return {key: convert_one(item, inner[-1], origin, main, f"{name}.{key}") for key, item in value.items()}
    if shape is list:
        if not isinstance(value, list):
            raise ConfigError(blame(name, origin, main), name, f"expected an array, found {shown(value, name)}")
        return [convert_one(item, inner[-1], origin, main, f"{name}[{index}]") for index, item in enumerate(value)]
    try:
        found = cast("object", msgspec.convert(value, wanted, dec_hook=from_text))
    except msgspec.ValidationError as error:
        words = words_of(wanted)
        what = f"expected one of {', '.join(words)}" if words else expected(error)
        raise ConfigError(blame(name, origin, main), name, f"{what}, found {shown(value, name)}") from None
    for least in getattr(wanted, "__metadata__", ()):
        if isinstance(least, Least) and isinstance(found, (Duration, Size)) and found < from_text(type(found), least.text):
            problem = f'expected at least "{least.text}", found {shown(value, name)}'
            raise ConfigError(blame(name, origin, main), name, problem)
    return found


def words_of(wanted: object) -> list[str]:
    """Return the words of which a field takes one, none where it takes something else."""
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return [str(member.value) for member in wanted]
    return [str(word) for word in get_args(wanted)] if get_origin(wanted) is Literal else []


def from_text(kind: type, value: object) -> Duration | Size:
    """Convert the strings with units, for msgspec."""
    if kind is Duration and isinstance(value, str):
        return duration(value)
    if kind is Size and isinstance(value, str):
        return size(value)
    what = "a duration" if kind is Duration else "a size"
    raise ValueError(f'expected {what} as a string with a unit, such as "{"10s" if kind is Duration else "2GiB"}"')


def shown(value: object, name: str = "") -> str:
    """Return a found value as TOML would write it, short; only its kind where it may be a secret.

    That is all in a table or an array, of a receiver what may be an address or a token, and the address of a database server
    or exporter, wherever it was put.
    """
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    is_open = name.rpartition(".")[2].partition("[")[0] in OPEN and HARMLESS.fullmatch(str(value)) is not None
    if name in {"store", "store.url", "sources.dcgm.url"} or (SECRETIVE in name and not is_open):
        return "text" if isinstance(value, str) else "a value that is no text"
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unknown(key: str, known: Mapping[str, object]) -> str:
    """Say that a key is unknown, with the nearest known name."""
    return "is not a known key" + advice(key, known)


def blame(name: str, origin: Mapping[str, Path], main: str) -> str:
    """Return the file that set this key, or the nearest table around it."""
    while name:
        if name in origin:
            return str(origin[name])
        name = name.rpartition(".")[0] if "." in name else name.rpartition("[")[0]
    return main
