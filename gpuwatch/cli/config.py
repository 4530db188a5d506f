"""Check or show the configuration, or list its options.

`check` builds everything as the daemon does, rules and receivers too, and exits 2 with file, key, what was found and what was
expected at the first mistake. It names the files that it read, and warns of what is allowed and hardly meant: alerts that nobody
would hear of, routes that no alert gets to, a number of a warning beyond that of the critical alert, a period longer than that
of what changes less often, secrets that everybody may read. `show` prints what is in force, defaults included, without secrets.
`options` prints every option that there is, with its default and what it means, as Markdown.

example: gpuwatch config check /etc/gpuwatch/gpuwatch.toml
"""

import argparse
import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import config
from gpuwatch.cli import usage
from gpuwatch.export import sockets, webconfig
from gpuwatch.model.alert import Severity
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.naming import ALWAYS
from gpuwatch.model.quantity import Duration, Size, in_units
from gpuwatch.places import places
from gpuwatch.rules.rule import Only, Rule, Step
from gpuwatch.sources.simulated import scenario

if TYPE_CHECKING:
    from gpuwatch.daemon import Daemon

SECRET = ("url", "secret", "password", "token", "key")
SECRET_FILES = tuple(f"{key}_file" for key in SECRET)
HIDDEN = "(hidden)"
WHATS = ("check", "show", "options")
PRIVATE = (
    "chgrp gpuwatch and chmod 0640 it (chmod 0600 where the daemon runs as yourself)"  # root:root 0640 nobody else could read
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("what", type=usage.one_of(WHATS), metavar=f"{{{','.join(WHATS)}}}")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the same as --config FILE")
    add_config(parser)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Declare --config, for every command that reads the configuration."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration file (default: gpuwatch.toml of root or the user)"
    )


def chosen(args: argparse.Namespace) -> config.Loaded:
    """Load what `--config` or the default names; raises ConfigError."""
    return config.open_all(args.config, places(os.environ, root=os.geteuid() == 0))


@contextlib.contextmanager
def blaming(loaded: config.Loaded) -> Iterator[None]:
    """Give every mistake that a room finds in its part the file that it is in."""
    try:
        yield
    except config.ConfigError as error:
        raise loaded.blamed(error) from None


def run(args: argparse.Namespace) -> int:
    """Check it, and print it where asked."""
    if args.file is not None:
        if args.config is not None or args.what == "options":
            only = "`options` reads no file" if args.what == "options" else "give the file once, here or by --config"
            raise config.ConfigError("gpuwatch config", "FILE", only)
        args.config = args.file
    if args.what == "options":
        from gpuwatch.config import reference  # noqa: PLC0415 - the daemon, which begins here too, needs no page

        print("\n".join(reference.page()))
        return 0
    loaded = chosen(args)
    with blaming(loaded):
        built = check(loaded.config)
    if args.what == "check":
        for words in (*doubts(built), *hasty(loaded), *exposed(loaded)):
            print(f"warning: {words}", file=sys.stderr)
        print(f"the configuration is right: {', '.join(map(str, loaded.files)) or f'no file ({loaded.main}), all is default'}")
    else:
        table = hidden(config.written(loaded.config))
        judged = built.engine.rules
        every = [firing.rule for firing in built.naming.firings]
        table["rules"] = {name: numbers(judged[name]) if name in judged else {"enabled": False} for name in every}
        cap = built.store.cap
        table["store"] |= {"max_size": None if cap is None else in_units(Size(cap)), "state": str(built.store.state)}
        print(json.dumps(table, indent=2, ensure_ascii=False))
    return 0


def doubts(built: "Daemon") -> Iterator[str]:
    """Yield what is allowed and hardly meant: alerts that nobody hears of, folders and programs that are not there."""
    if built.nobody:
        yield "nobody will be told: no receiver is configured ([[receivers]])"
    yield from built.unheard
    yield from unreachable(built.config.routes)
    for rule in built.engine.rules.values():
        yield from crossed(f"rules.{rule.name}", rule.steps)
        for only in rule.only:
            yield from crossed(f"rules.{rule.name}.only ({called(only)})", only.steps)
    yield from absent(built.config)


def hasty(loaded: config.Loaded) -> Iterator[str]:
    """Yield the periods that are longer than the one of what changes less often: one of them is hardly meant so."""
    for name, source in msgspec.structs.asdict(loaded.config.sources).items():
        if not isinstance(source, (config.Source, config.Simulated)):
            continue
        found = msgspec.structs.asdict(source)
        for fast, slow in pairwise(("every", "every_normal", "every_slow")):
            if found[fast] > found[slow]:
                key = next((f"sources.{name}.{one}" for one in (fast, slow) if f"sources.{name}.{one}" in loaded.origin), "")
                place = config.blame(key, loaded.origin, loaded.main)
                words = f"{found[fast]:g} s is longer than {slow}, {found[slow]:g} s: raise that, too"
                yield f"{place}: sources.{name}.{fast}: {words}"


def unreachable(routes: Sequence[config.Route]) -> Iterator[str]:
    """Yield the routes that no alert gets to, since an earlier one takes all that they would take."""
    for number, route in enumerate(routes):
        for earlier, other in enumerate(routes[:number]):
            takes_all = other.match.items() <= route.match.items()
            if takes_all and not other.continue_ and Severity(other.min_severity).rank <= Severity(route.min_severity).rank:
                yield f"routes[{number}] is never reached: routes[{earlier}], without `continue = true`, takes all that it would"
                break


def crossed(place: str, steps: Sequence[Step]) -> Iterator[str]:
    """Yield the numbers of a milder step that are beyond those of the graver one: what is mild then comes late or never."""
    for mild, grave in pairwise(steps):
        for name in mild.parameters.keys() & grave.parameters.keys() & mild.clear.keys():
            low, high = mild.parameters[name], grave.parameters[name]
            is_rising = mild.clear[name] < low  # it is over where it has fallen again
            if low > high if is_rising else low < high:
                side = "above" if is_rising else "below"
                words = f"{name} = {low:g} of {mild.severity.value} is {side} the {high:g} of {grave.severity.value}"
                yield f"{place}: {words}, which then comes first"


def called(only: Only) -> str:
    """Return for which targets other numbers are meant."""
    return ", ".join(f'{key} = "{value}"' for key, value in (("model", only.model), ("uuid", only.uuid)) if value != "*")


def check_labels(built: "Daemon") -> None:
    """Refuse labels of the host that alerts have of themselves: theirs counts, and a route for the host's would never match."""
    taken = {*ALWAYS, *(label for rule in built.engine.rules.values() for label in rule.subject.labels)}
    for label in built.config.host.labels:
        if label in taken:
            problem = "is a label that alerts have of themselves: take another name"
            raise config.ConfigError(config.UNPLACED, f"host.labels.{label}", problem)


def absent(found: config.Config) -> Iterator[str]:
    """Yield the folders and programs that are named and not there; each may come later, so it is no mistake."""
    for name, folder in msgspec.structs.asdict(found.paths).items():
        if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a folder that we may not enter
            yield f"paths.{name}: {folder} is no folder that is there: nothing is read from it"
    sources = found.sources
    programs = (
        ("sources.smart.smartctl", sources.smart.smartctl, sources.smart.enabled),
        ("sources.dcgm.dcgmi", sources.dcgm.dcgmi, sources.dcgm.enabled and sources.dcgm.mode == "dmon"),
    )
    for key, program, is_used in programs:
        if is_used and "/" in program and not os.access(program, os.X_OK):
            yield f"{key}: {program} is no program that can be started"


def exposed(loaded: config.Loaded) -> Iterator[str]:
    """Yield the files that hold a secret and that every user of the host may read."""
    found = loaded.config
    named = [str(value) for table in found.receivers for key, value in table.items() if key.endswith(SECRET_FILES)]
    if found.http.web_config:
        web = webconfig.load(found.http.web_config)
        named += [found.http.web_config] if web.users else []
        named += [str(web.tls.key)] if web.tls else []
    if any(key.endswith(SECRET) for table in found.receivers for key in table) or "@" in found.store.url:
        named += [str(path) for path in loaded.files]
    for name in dict.fromkeys(named):
        if Path(name).stat().st_mode & stat.S_IROTH:
            yield f"{name} holds a secret, and every user of this host may read it; {PRIVATE}"


def check(found: config.Config) -> "Daemon":
    """Build the daemon, start nothing, and read what else a running one would read; raises ConfigError.

    `gpuwatch run` builds its daemon by this too: what it refuses and what `check` refuses is the same.
    """
    from gpuwatch import daemon  # noqa: PLC0415 - the commands that only read a source begin without it, in a third of the time

    if found.http.listen:
        sockets.address(found.http.listen)
    if found.sources.simulated.enabled and found.sources.simulated.scenario:
        with naming("sources.simulated.scenario"):
            scenario.read(Path(found.sources.simulated.scenario))
    with naming("http.web_config"):
        web = webconfig.load(found.http.web_config)
    built = daemon.Daemon(found, (), web, SystemClock())
    check_labels(built)
    return built


@contextlib.contextmanager
def naming(key: str) -> Iterator[None]:
    """Say of a file that cannot be read which key of the configuration names it; a mistake in one that can is its own."""
    try:
        yield
    except config.ConfigError as error:
        if error.key or not error.problem.startswith("cannot be read"):
            raise
        raise config.ConfigError(config.UNPLACED, key, f"{error.place} {error.problem}") from None


def numbers(rule: Rule) -> dict[str, Any]:
    """Return the numbers of a rule that are in force: by severity, then those of its `only` tables, the narrowest first."""
    shown: dict[str, Any] = by_severity(rule.steps)
    if rule.only:
        shown["only"] = [
            {
                **{key: value for key, value in (("model", only.model), ("uuid", only.uuid)) if value != "*"},
                **(by_severity(only.steps) if only.steps else {"enabled": False}),
            }
            for only in rule.only
        ]
    return shown


def by_severity(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the numbers of each step as the configuration may set them."""
    return {step.severity.value: of_step(step) for step in steps}


def of_step(step: Step) -> dict[str, Any]:
    """Return the numbers of one step; `clear` by parameter where there are several."""
    timing = {"for": step.timing.hold, "window": step.timing.window, "clear_for": step.timing.clear_for}
    shown: dict[str, Any] = {name: with_unit(value, step.units.get(name, "")) for name, value in step.parameters.items()}
    shown |= {name: with_unit(value, "seconds") for name, value in timing.items() if value}
    if step.timing.share is not None:
        shown["share"] = step.timing.share
    clear = {name: with_unit(value, step.units.get(name, "")) for name, value in step.clear.items()}
    if clear:
        shown["clear"] = clear if len(step.parameters) > 1 else next(iter(clear.values()))
    return shown


def with_unit(value: float, unit: str) -> float | str:
    """Return a number as a file would have it."""
    return in_units(Duration(value)) if unit == "seconds" else in_units(Size(value)) if unit == "bytes" else value


def hidden(table: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration without secrets: those of receivers, and the address of a database server, which may hold one.

    The names of files that hold one are shown.
    """
    table["receivers"] = [
        {key: HIDDEN if key in SECRET or key.endswith(SECRET) else value for key, value in receiver.items()}
        for receiver in table["receivers"]
    ]
    scheme, _, rest = table["store"]["url"].partition("://")
    table["store"]["url"] = f"{scheme}://{rest if scheme.startswith('sqlite') else HIDDEN}"
    return table
