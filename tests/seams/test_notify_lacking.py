"""A host or process without a free descriptor at the start: nobody can be told then, and all is told once there is one."""

import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.receiver import Receiver
from tests.fakes.until import PATIENCE, SLOWER

# A limit on descriptors belongs to a process.
STARTED = """
import logging, os, resource, sys
from gpuwatch import notify
from tests.fakes.clock import FakeClock
from tests.fakes.incidents import HOT
from tests.fakes.journal import Journal
from tests.fakes.telling import HOST, channels, new_id
from tests.fakes.until import until

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
logging.getLogger("asyncio").setLevel(logging.ERROR)  # -X dev would have it tell that a loaded machine is slow
clock, journal = FakeClock(), Journal()
silences = notify.Silences(journal, clock, new_id, {})
notifier = notify.Notifier(channels(a=sys.argv[1]), journal, clock, HOST, new_id, silences=silences)
notifier.restore(journal.memory())
free = os.dup(0)
os.close(free)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
notifier.start()
journal.note(HOT)
notifier.changed([HOT])
until(notifier.problems)
print(notifier.problems(), flush=True)
if sys.argv[2] == "goes on":
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: not notifier.problems() and not notifier._inbox)
    before = set(sys.modules)
    clock.forward(10)
    notifier.tick()
    until(lambda: journal.results == ["sent"])
    print("late:", sorted(set(sys.modules) - before), flush=True)
notifier.stop(0.5)
print("stopped", notifier._thread.is_alive(), flush=True)
"""
ROOT = Path(__file__).resolve().parents[2]
LACKING = [
    "ERROR nobody is told for now: Too many open files; tried again every 5 s",
    "['notifier: nobody is told for now: Too many open files']",
]


def said(receiver: Receiver, then: str) -> list[str]:
    """Return what a notifier says that is begun without a descriptor to spare."""
    words = [sys.executable, "-X", "dev", "-c", STARTED, receiver.url, then]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


def test_a_moment_without_descriptors_at_the_start_costs_no_message() -> None:
    with Receiver() as receiver:
        found = said(receiver, "goes on")
        assert [got.json["kind"] for got in receiver.requests] == ["firing"]
    # The clock of the test stands still meanwhile. What is imported for the first message could not be then.
    assert found == [*LACKING, "INFO messages can be sent again after 0 s", "late: []", "stopped False"]


def test_a_stop_waits_for_no_descriptor() -> None:
    with Receiver() as receiver:
        began = time.monotonic()
        assert said(receiver, "ends") == [*LACKING, "stopped False"]
        assert (time.monotonic() - began < 5 + SLOWER, receiver.requests) == (True, [])
