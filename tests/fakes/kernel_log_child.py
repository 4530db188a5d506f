"""Reads a kernel log in a process of its own, where a library before libc makes its calls fail; see badfs.c.

One ask for each line on its input; each answers with one line of JSON.
"""

import json
import sys
from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.config.options import Paths
from tests.fakes.clock import FakeClock
from tests.fakes.kernel_log import Reader


def main() -> None:
    """Ask as often as told; a second passes before each ask."""
    folder = Path(sys.argv[1])
    clock = FakeClock()
    reader = Reader(Config(paths=Paths(dev=str(folder / "dev"), proc=str(folder / "proc"))), clock)
    for _ in sys.stdin:
        clock.forward(1.0)
        events = [[event.kind, event.code, event.count, event.mark.rpartition(":")[2]] for event in reader.ask()]
        fault = reader.heard.readings[-1].fault
        print(
            json.dumps({"events": events, "kind": fault.kind if fault else "", "words": fault.words if fault else ""}), flush=True
        )


if __name__ == "__main__":
    main()
