"""Print the version of gpuwatch and of the Python it runs on.

example: gpuwatch version --json
"""

import argparse
import json
import platform

from gpuwatch import __version__


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    facts = {"version": __version__, "python": platform.python_version()}
    print(json.dumps(facts) if args.json else f"gpuwatch {facts['version']} (Python {facts['python']})")
    return 0
