"""The gpuwatch of tomorrow: the same program, whose databases have one schema more. `python -m tests.fakes.tomorrow run ...`.

Its history cannot be read by today's gpuwatch, its alert memory can. The step of the history takes until the file
`TOMORROW_GATE` is there, as one that rewrites a table of 1 GiB takes its time.
"""

import os
import sys
from pathlib import Path

from sqlalchemy import Connection, text

from gpuwatch import cli, config, daemon
from gpuwatch.model.clock import Clock
from gpuwatch.store import Store
from gpuwatch.store.migrations import HISTORY_LAYOUT, HISTORY_STEPS, STATE_LAYOUT, STATE_STEPS, Layout, Step

LONG = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT max(i) FROM n"


def rewrite(connection: Connection) -> None:
    """Change the history, slowly."""
    connection.execute(text("ALTER TABLE round ADD COLUMN tomorrow INTEGER"))
    while not Path(os.environ["TOMORROW_GATE"]).exists():
        connection.execute(text(LONG))


def add_mood(connection: Connection) -> None:
    """Change the alert memory."""
    connection.execute(text("ALTER TABLE incident ADD COLUMN mood TEXT"))


class Tomorrow(Store):
    """The store of tomorrow."""

    def __init__(self, options: config.Store, machine: str, clock: Clock) -> None:
        next_history, next_state = HISTORY_LAYOUT.version + 1, STATE_LAYOUT.version + 1
        steps = (*HISTORY_STEPS, Step(next_history, rewrite, reads=next_history))
        history = Layout(HISTORY_LAYOUT.name, HISTORY_LAYOUT.metadata, steps)
        steps = (*STATE_STEPS, Step(next_state, add_mood, reads=STATE_LAYOUT.reads))
        state = Layout(STATE_LAYOUT.name, STATE_LAYOUT.metadata, steps, precious=True)
        super().__init__(options, machine, clock, state_layout=state, history_layout=history)


def main() -> int:
    """Run the command with the store of tomorrow: that is all that a newer version of the code would change here."""
    daemon.Store = Tomorrow  # type: ignore[attr-defined, assignment] # it is the program of tomorrow, not a test's view of today's
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
