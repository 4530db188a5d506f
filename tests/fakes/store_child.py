"""A process that runs a Store and does what its standard input says, so that it can be killed, or put on a failing disk.

`python -m tests.fakes.store_child FOLDER`; each line in is a JSON list (command, arguments), each line out its result.
`python -m tests.fakes.store_child FOLDER flood` runs one process after another that commits at full speed until it is killed:
each line in is the first number of the next one, lines out are its pid, the numbers that are on disk, and `gone`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpuwatch import config
from gpuwatch.catalogue import gpu
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.delivery import Outcome
from gpuwatch.model.past import UnreadableError
from gpuwatch.store import Store, Ticket
from tests.fakes import store_nouns as nouns
from tests.fakes.until import PATIENCE


class Child:
    """One store and the commands on it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(config.Store(url=f"sqlite:///{folder / 'gpuwatch.db'}"), "machine-1", SystemClock())
        self.base = time.time() // 10 * 10
        self.ticket = Ticket()

    def start(self) -> object:
        """Open the store."""
        return self.store.start()

    def commit(self, number: int, seconds: float) -> object:
        """Commit incident, told-mark and delivery `number`, and wait for the ticket."""
        began = time.monotonic()
        ticket = self.store.commit([nouns.incident(number)], [nouns.told(number)], [nouns.delivery(number)])
        took = time.monotonic() - began
        self.ticket = ticket
        return {"stored": ticket.wait(seconds), "took": took}

    def again(self, seconds: float) -> object:
        """Wait for the ticket of the last commit once more."""
        return self.ticket.wait(seconds)

    def observe(self, first: int, beats: int) -> object:
        """Observe beats of eight GPUs, one a second of their own time, at full speed; returns the longest call."""
        longest = 0.0
        for beat in range(first, first + beats):
            view = nouns.view([(nouns.gpu_target(index), {gpu.POWER: float(beat)}) for index in range(8)], self.base + beat)
            began = time.monotonic()
            self.store.observe(view)
            longest = max(longest, time.monotonic() - began)
        return longest

    def round(self, number: int) -> object:
        """Hand one finished period to the writing thread, as `observe` does every 10 s."""
        began = time.monotonic()
        self.store._rounds.put(nouns.round_of(number, self.base))
        self.store._writer.wake()
        return time.monotonic() - began

    def problem(self) -> object:
        """Say what is wrong."""
        return self.store.problem()

    def memory(self) -> object:
        """Return the ids that a new run would get."""
        memory = self.store.memory()
        return {"incidents": [item.id for item in memory.incidents], "deliveries": [item.id for item in memory.deliveries]}

    def rows(self) -> object:
        """Return the stored values of power, or why they cannot be read."""
        try:
            return [row.values[gpu.POWER] for row in self.store.rows(gpu.GPU, [gpu.POWER], 0, 1e12)]
        except UnreadableError as error:
            return str(error)

    def numbers(self) -> object:
        """Return the store's own numbers by metric id (and queue)."""
        return {
            f"{metric.id}{reading.target.key}": value
            for reading in self.store.readings(0.0)
            for metric, value in reading.values.items()
        }

    def stop(self, seconds: float) -> object:
        """Stop, and say whether all was written in time and how long it took."""
        began = time.monotonic()
        return {"whole": self.store.stop(seconds), "took": time.monotonic() - began}


def flood(folder: Path, number: int) -> None:
    """Commit at full speed for ever, history beside it; print each number once its ticket says that it is on disk."""
    child = Child(folder)
    child.start()
    while True:
        ticket = child.store.commit([nouns.incident(number)], [nouns.told(number)], [nouns.delivery(number)])
        child.store.save_state("engine", 1, b"%d" % number)
        if number % 3 == 0:
            child.round(number)
        if number % 2:
            child.store.attempted(nouns.delivery(number), Outcome.sent(), None)
        if number % 4 == 0 or ticket.wait(PATIENCE):  # some commits pile up
            sys.stdout.write(f"{number if number % 4 else ''}\n")  # at once: `print` writes a line in two parts
            sys.stdout.flush()
        number += 1


def floods(folder: Path) -> None:
    """Fork one flooding process a line; they share our imports."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            print(os.getpid(), flush=True)
            flood(folder, int(line))
        os.waitpid(pid, 0)
        print("gone", flush=True)


def main() -> None:
    """Do what the lines say, until there are no more."""
    if sys.argv[2:] == ["flood"]:
        floods(Path(sys.argv[1]))
        return
    child = Child(Path(sys.argv[1]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        command: Callable[..., object] = getattr(child, name)
        print(json.dumps({"result": command(*arguments)}), flush=True)


if __name__ == "__main__":
    main()
