"""Run the daemon in the foreground: what systemd starts. It ends at SIGTERM or SIGINT, within 5 s.

example: gpuwatch run --config /etc/gpuwatch/gpuwatch.toml
"""

import argparse
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence

from gpuwatch import config, daemon
from gpuwatch.cli import config as configuration
from gpuwatch.export import sockets
from gpuwatch.stderr import log_to_stderr
from gpuwatch.store import LockedError

Greeting = Callable[[Sequence[socket.socket]], str]

NO_THREAD = "can't start new thread"  # what CPython says; it has no class of its own for it
LIMITS = "a limit is met, of processes (ulimit -u, TasksMax=) or of memory (ulimit -v, LimitAS=)"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    configuration.add_config(parser)
    parser.add_argument("--verbose", action="store_true", help="log more")


def run(args: argparse.Namespace) -> int:
    """Run it, and leave at once when it has stopped.

    All is flushed and closed by then, and the interpreter's own tear-down would cost a busy host seconds, in which a second
    signal spoils the exit code.
    """
    loaded = configuration.chosen(args)
    with configuration.blaming(loaded):
        code = serve(loaded.config, verbose=args.verbose)
    logging.shutdown()
    if sys.stdout is not None:
        sys.stdout.flush()
    os._exit(code)


def serve(found: config.Config, *, verbose: bool, setting: str = sockets.SETTING, greeting: Greeting | None = None) -> int:
    """Check all, listen, take the store, then run the daemon; 1 where either is somebody else's. `setting` names the TCP address.

    What `greeting` makes of the sockets is said once we listen. The file of our socket is gone at the end, however it comes.
    """
    log_to_stderr(level=logging.DEBUG if verbose else logging.INFO)
    for noisy in ("httpx", "httpcore", "apscheduler", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    listening: list[socket.socket] = []

    def build() -> daemon.Daemon:
        built = configuration.check(found)  # a mistake of the file is said before a port that is taken: it stays one elsewhere
        listening.extend(sockets.sockets(found.http, os.environ, os.getpid(), setting))
        if greeting is not None:
            print(greeting(listening), file=sys.stderr)
        built.server.take(listening)
        return built

    try:
        daemon.run(build)
    except (sockets.ListenError, LockedError) as error:
        print(f"gpuwatch: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        print(f"gpuwatch: no further thread can be started: {LIMITS}", file=sys.stderr)
        return 1
    finally:
        sockets.remove(listening)
    return 0
