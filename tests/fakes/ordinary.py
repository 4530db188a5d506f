"""gpuwatch as run by an ordinary user: `python -m tests.fakes.ordinary COMMAND [OPTION...]`.

It imports every command, then gives up root for the user nobody (who may not be let into the folder of this Python), then
runs the command. Started by somebody else than root, it is that user's.
"""

import importlib
import os
import sys

from gpuwatch import cli

NOBODY = 65534


def main() -> int:
    """Give up root and run the command."""
    for name in cli.COMMANDS:
        importlib.import_module(f"gpuwatch.cli.{name}")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
