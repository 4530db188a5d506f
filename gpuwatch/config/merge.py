"""Several files -> one table: tables merge, arrays of tables append, of anything else that of the later file wins.

Which of them a key is says its type, and not what a file holds there: `receivers = []` adds no receiver, and takes none away.
Where the type says nothing (the keys of a rule, which the room `rules` knows) it is what it was in the files before.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from gpuwatch.config.convert import shown
from gpuwatch.config.section import ConfigError


class Shape(Enum):
    """How what several files say under one key comes together."""

    TABLE = "a table"
    TABLES = "an array"
    ONE = "one value"


def merge(
    into: dict[str, Any], table: Mapping[str, Any], kind: Any, origin: dict[str, Path], path: Path, *, head: str = ""
) -> None:
    """Merge one file's table, which is of type `kind`, into what the files before said. `origin` says who set a key.

    Raises ConfigError for a table in place of an array of tables, or anything else in place of either: a later file that has it
    right must not hide that what came before is lost.
    """
    for key, value in table.items():
        name, hint, before = f"{head}{key}", of_key(kind, key), into.get(key)
        shape = shape_of(hint) or found_in(before) or found_in(value) or Shape.ONE
        if shape is Shape.ONE:
            into[key], origin[name] = value, path
            continue
        origin.setdefault(name, path)
        if shape is Shape.TABLE and isinstance(value, dict):
            into[key] = before if isinstance(before, dict) else {}
            merge(into[key], value, hint, origin, path, head=f"{name}.")
        elif shape is Shape.TABLES and isinstance(value, list):
            start = before if isinstance(before, list) else []
            into[key] = [*start, *value]
            origin.update((f"{name}[{index}]", path) for index in range(len(start), len(into[key])))
        else:
            raise ConfigError(str(path), name, f"expected {shape.value}, found {shown(value, name)}")


def of_key(kind: Any, key: str) -> Any:
    """Return the type of what stands under a key of a table of type `kind`; Any where that is not known."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        return get_type_hints(kind)[names[key]] if key in names else Any
    return get_args(kind)[-1] if get_origin(kind) is dict else Any


def shape_of(kind: Any) -> Shape | None:
    """Return how values of a type come together; None where the type does not say."""
    if kind is Any:
        return None
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return Shape.TABLE
    if get_origin(kind) is list and shape_of(get_args(kind)[0]) is Shape.TABLE:
        return Shape.TABLES
    return Shape.ONE


def found_in(value: object) -> Shape | None:
    """Return how what a file holds comes together with more; None where it does not say, as an empty array."""
    if isinstance(value, dict):
        return Shape.TABLE
    return Shape.TABLES if isinstance(value, list) and any(isinstance(item, dict) for item in value) else None
