"""A signal ends a start that hangs, in order: it is heard before anything is built."""

import signal
import subprocess
import sys

import pytest

from tests.fakes.until import PATIENCE

HANGING = """
import logging, threading
from gpuwatch import daemon
logging.basicConfig(level=logging.INFO)
def build():
    print("building", flush=True)
    threading.Event().wait(15)
    raise AssertionError("nobody ended it")
daemon.run(build)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_hangs_is_ended_in_order(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "building\n"
        started.send_signal(number)
        _, said = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0
    assert "stopped before the start was complete" in said
    assert "Traceback" not in said
