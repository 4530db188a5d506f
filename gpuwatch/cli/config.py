"""Check or show the configuration.

`check` builds everything as the daemon does, rules and receivers too, and exits 2 with file, key, what was found and what was
expected at the first mistake. `show` prints what is in force, defaults included, without secrets.

example: gpuwatch config check --config /etc/gpuwatch/gpuwatch.toml
"""

import argparse
import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuwatch import config, daemon
from gpuwatch.export import sockets, webconfig
from gpuwatch.model.clock import SystemClock
from gpuwatch.places import places
from gpuwatch.rules.rule import Rule
from gpuwatch.sources.simulated import scenario

SECRET = ("url", "secret", "password", "token", "key")
HIDDEN = "(hidden)"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("what", choices=("check", "show"))
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
    loaded = chosen(args)
    with blaming(loaded):
        built = check(loaded.config)
    if args.what == "check":
        print("the configuration is right")
    else:
        table = hidden(config.plain(loaded.config))
        table["rules"] = {rule.name: numbers(rule) for rule in built.engine.rules.values()}
        print(json.dumps(table, indent=2, ensure_ascii=False))
    return 0


def check(found: config.Config, listening: Sequence[socket.socket] = ()) -> daemon.Daemon:
    """Build the daemon, start nothing, and read what else a running one would read; raises ConfigError.

    `gpuwatch run` builds its daemon by this too: what it refuses and what `check` refuses is the same.
    """
    if found.http.listen:
        sockets.address(found.http.listen)
    if found.sources.simulated.enabled and found.sources.simulated.scenario:
        scenario.read(Path(found.sources.simulated.scenario))
    return daemon.Daemon(found, listening, webconfig.load(found.http.web_config), SystemClock())


def numbers(rule: Rule) -> dict[str, dict[str, float]]:
    """Return the numbers of each step of a rule that are in force, where no `only` narrows them; times in seconds."""
    shown: dict[str, dict[str, float]] = {}
    for step in rule.steps:
        timing = {"for": step.timing.hold, "window": step.timing.window, "share": step.timing.share or 0.0}
        times = {name: value for name, value in timing.items() if value}
        shown[step.severity.value] = {**step.parameters, **times, "clear_for": step.timing.clear_for}
    return shown


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
