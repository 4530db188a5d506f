"""The same program, for whose notifier no time passes until the file `PATIENT_GATE` exists: `python -m tests.fakes.patient run`.

So what fires waits for its group just as long as a test wants, however slow the machine is.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch import cli, daemon
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.notify import Notifier

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.fakes.patient"


def environ(gate: Path) -> Mapping[str, str]:
    """Return what its process needs in its environment."""
    return {"PATIENT_GATE": str(gate), "PYTHONPATH": str(ROOT)}


class Standing(SystemClock):
    """A clock that stands until the gate is there."""

    def __init__(self) -> None:
        self._gate, self._began = Path(os.environ["PATIENT_GATE"]), super().mono()

    def mono(self) -> float:
        """Return the monotonic clock."""
        return super().mono() if self._gate.exists() else self._began


class Patient(Notifier):
    """The notifier on that clock."""

    def __init__(self, channels: Any, store: Any, clock: Clock, *arguments: Any, **options: Any) -> None:
        super().__init__(channels, store, Standing(), *arguments, **options)


def main() -> int:
    """Run the command; the clock is an edge that is handed in."""
    daemon.Notifier = Patient  # type: ignore[attr-defined] # the same program on another clock, as in tests.fakes.tomorrow
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
