"""Whatever is wrong in whichever option: the mistake has file, key, what was found and what was expected, and no secret."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch import config, notify
from gpuwatch.config import Config, ConfigError, Route
from gpuwatch.notify.receivers import RECEIVERS
from gpuwatch.places import Places

SECRET = "geheimesWort"
WRONG = ("3.5", '"x"', "true", f'"{SECRET}"', "[3]", "{ a = 3 }")  # as TOML has them
SECRETIVE = re.compile(r"receivers|store\.url|sources\.dcgm\.url")
WORDS = re.compile(r": expected .+, found .+|: .*cannot be read: ")  # a file is what it is
SLOT = '"0000:65:00.0"'


def options(kind: typing.Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key of every option below a type, as an error names it, and as TOML does."""
    for field in msgspec.structs.fields(kind):
        name = f"{key}.{field.encode_name}" if key else field.encode_name
        part = field.type
        while not (isinstance(part, type) and issubclass(part, msgspec.Struct)) and typing.get_args(part):
            name = f"{name}.{SLOT}" if typing.get_origin(part) is dict and typing.get_args(part)[1] is config.Gpu else name
            part = typing.get_args(part)[-1]
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part is not Route:
            yield from options(part, name)
        else:
            yield name.replace('"', ""), name


def cases() -> Iterator[tuple[str, str]]:
    """Yield the key that an error names, and a file without its wrong value."""
    for said, name in options(Config):
        yield said, f"{name} = "
    for field in msgspec.structs.fields(Route):
        head = "" if field.name == "receivers" else "receivers = []\n"
        yield f"routes[0].{field.encode_name}", f"[[routes]]\n{head}{field.encode_name} = "
    for kind, receiver in RECEIVERS.items():
        for key in (field.encode_name for field in msgspec.structs.fields(receiver.keys)):
            others = {"name": "a", "kind": kind, "url": f"https://x.example/{SECRET}"}
            lines = "".join(
                f'{other} = "{value}"\n' for other, value in others.items() if other not in {key, key.removesuffix("_file")}
            )
            yield f"receivers[0].{key}", f"[[receivers]]\n{lines}{key} = "


FILES = dict(cases())


def mistake(folder: Path, text: str) -> str:
    """Return what is wrong with a file, "" where nothing is; that it is named is taken off."""
    file = folder / "gpuwatch.toml"
    file.write_text(text)
    try:
        loaded = config.open_all(file, Places(folder, folder, folder))
        notify.build(loaded.config, str(file))
    except ConfigError as error:
        return str(error).removeprefix(f"{file}: ")  # where it is not, no key is in front
    return ""


@pytest.mark.parametrize("key", FILES)
def test_a_mistake_in_any_option_has_its_key_what_was_found_and_what_was_expected(tmp_path: Path, key: str) -> None:
    found = [said for wrong in WRONG if (said := mistake(tmp_path, f"{FILES[key]}{wrong}\n"))]
    assert len(found) >= (1 if key.startswith("rules") else 3)  # text may be text
    for said in found:
        assert said.startswith(key)
        assert WORDS.search(said), said
        assert SECRET not in said or not SECRETIVE.match(key)


def test_the_hint_of_a_word_that_is_none_of_a_few_is_those(tmp_path: Path) -> None:
    assert mistake(tmp_path, 'privacy.users = "none"') == 'privacy.users: expected one of name, uid, off, found "none"'


def test_no_option_is_left_out() -> None:
    assert {"http.listen", "gpus.0000:65:00.0.label", "sources.nvml.per_link", "routes[0].continue"} <= FILES.keys()
    assert {"receivers[0].url", "receivers[0].pace", "store.max_size", "host.labels"} <= FILES.keys()
    assert len(FILES) > 70
