"""The commands, one file each: `add(parser)` declares its options, `run(args)` does it and returns the exit code.

A new command is a file here and its line in COMMANDS; it imports its room only when it is chosen.
Exit codes: 0 fine, 1 our fault or a found problem, 2 the caller's mistake, 3 daemon not reachable.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from gpuwatch import __version__
from gpuwatch.cli import usage
from gpuwatch.config import ConfigError

COMMANDS = {
    "run": "run the daemon in the foreground (what systemd starts)",
    "demo": "run the daemon on a simulated host with 8 GPUs that goes through faults",
    "status": "say how this host and its monitor are",
    "events": "list what driver and kernel have told, or read a saved kernel log",
    "history": "show what a metric was, and what happened meanwhile",
    "silence": "tell nobody of some alerts, or of any, for a time; list or end that",
    "release": "let go of every GPU, for a reset or a new driver; with a command, until it ends",
    "apt": "what apt calls around dpkg: release the GPUs for packages of the NVIDIA driver",
    "resume": "take the GPUs up again, and say what has changed",
    "read": "read one source once and print it as JSON",
    "metrics": "list every metric that gpuwatch knows",
    "config": "check or show the configuration",
    "version": "print the version",
}
OUR_FAULT = 1
CALLERS_MISTAKE = 2
NOT_REACHABLE = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = dispatch(words)
        if sys.stdout is not None:  # None: whoever started us has closed it
            sys.stdout.flush()  # here, where a reader that has gone or a disk that is full can still be told apart
    except BrokenPipeError:  # the reader of our output has gone: head, a pager
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # our own output takes no more: a full disk
        print(f"gpuwatch: {refused(error)}", file=sys.stderr)
        return OUR_FAULT
    return code


def dispatch(words: Sequence[str]) -> int:
    """Choose the command, import it, parse its words and run it."""
    overview = argparse.ArgumentParser(
        prog="gpuwatch",
        description="The monitor for Linux GPU servers.",
        usage="gpuwatch COMMAND [OPTION...]",
        epilog=f"commands:\n{usage.listed(COMMANDS)}\n\nexample: gpuwatch status",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"gpuwatch {__version__}")
    overview.add_argument("command", metavar="COMMAND", help="see below; `gpuwatch COMMAND --help` tells more")
    name = words[0] if words else "--help"
    if name in usage.FIRST:
        overview.parse_args([name])
    if name not in COMMANDS:
        overview.error(usage.no_command(name, COMMANDS))
    module = importlib.import_module(f"gpuwatch.cli.{name}")
    parser = argparse.ArgumentParser(
        prog=f"gpuwatch {name}",
        description=usage.folded(module.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.register("action", None, usage.Once)
    module.add(parser)
    options = usage.options_of(parser)
    if strange := usage.unknown_option(words[1:], options):
        parser.error(usage.no_option(strange, options) + usage.of_a_command(words[1:], strange, parser))
    args = parser.parse_args(usage.joined(words[1:]))
    try:
        return int(module.run(args))
    except ConfigError as error:  # a file is named in it; an option is one of this command
        print(f"gpuwatch {name}: {error}" if error.place.startswith("--") else error, file=sys.stderr)
        return CALLERS_MISTAKE


def refused(error: OSError) -> str:
    """Return what the system refuses, and of which file; a name that is missing without being told is that of where we are."""
    said = error.strerror or str(error)
    name = "the working directory" if isinstance(error, FileNotFoundError) and error.filename is None else error.filename
    return said if name is None else f"{name}: {said}"
