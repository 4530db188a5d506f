"""Run the daemon on a simulated host with 8 GPUs that goes through faults; nothing is written outside a temporary folder.

The cooling of GPU 2 fails at 20 s: it is so hot within two minutes that it is critical at once, and cool again within ten. GPU 5
falls off the bus at 90 s and is back 5 minutes later: critical too, and it is in `gpuwatch events`. Memory leaks, loaders cannot
keep up, a power limit is lowered, a disk wears: these show in the numbers. The users of the GPUs are invented.

example: gpuwatch demo, and in another terminal: curl -s localhost:9843/metrics
"""

import argparse
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuwatch import config
from gpuwatch.cli.ask import OF_DEMO
from gpuwatch.cli.config import blaming
from gpuwatch.cli.run import serve
from gpuwatch.export import sockets
from gpuwatch.places import Places
from gpuwatch.sources.simulated.scenario import DEMO, read


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--listen", default="127.0.0.1:9843", metavar="ADDR", help='where the page is, "" for no TCP (%(default)s)'
    )
    parser.add_argument(
        "--scenario",
        type=Path,
        default=DEMO,
        metavar="FILE",
        help="what happens: docs/simulation.md (default: shipped)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="take host, rules, receivers and routes from this file")
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(args: argparse.Namespace) -> int:
    """Run it in a folder that is removed at the end."""
    try:
        if args.listen:
            sockets.address(args.listen)
    except config.ConfigError as error:
        raise config.ConfigError("gpuwatch demo", "--listen", error.problem) from None
    read(args.scenario)  # a mistake in it is the caller's, and is said before anything starts
    with tempfile.TemporaryDirectory(prefix=OF_DEMO) as folder:
        where = Places(Path(folder), Path(folder), Path(folder))
        loaded = config.open_all(args.config, where)
        found = loaded.config
        http = config.Http(listen=args.listen, socket=str(where.runtime / "gpuwatch.sock"))
        simulated = config.Simulated(enabled=True, scenario=str(args.scenario.resolve()))
        demo = msgspec.structs.replace(
            found,
            http=http,
            host=config.Host(name=found.host.name if args.config else "demo", labels=found.host.labels),
            store=config.Store(url=f"sqlite:///{where.state / 'gpuwatch.db'}"),
            sources=config.Sources(simulated=simulated),
        )

        def greeting(listening: Sequence[socket.socket]) -> str:
            return f"gpuwatch demo: {page(args.listen, listening)}gpuwatch status --socket {http.socket}"

        with blaming(loaded):
            return serve(demo, verbose=args.verbose, setting="--listen", greeting=greeting)


def page(listen: str, listening: Sequence[socket.socket]) -> str:
    """Return where the page is, with the port that it got; "" where it is over no TCP."""
    ports = [one.getsockname()[1] for one in listening if one.family != socket.AF_UNIX]
    if not (listen and ports):
        return ""
    host = sockets.address(listen)[0] or "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{ports[0]}/metrics, "
