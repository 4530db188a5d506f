"""Commands whose standard input or output was closed before they began end with a code and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.client import Reply
from tests.fakes.until import PATIENCE


def shell(words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of gpuwatch with the shell's redirections."""
    command = ["sh", "-c", f"{sys.executable} -m gpuwatch {words}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_log_from_a_closed_standard_input_is_the_callers_mistake() -> None:
    done = shell("events --file - <&-")
    assert (done.returncode, done.stderr) == (2, "gpuwatch events: --file: -: Bad file descriptor\n")


def test_a_closed_standard_output_costs_the_output_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[    1.0] Linux version 6.8.0\n")
    done = shell(f"events --file {log} >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"<html>", b"\xff", b""])
def test_an_answer_that_is_no_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting|decode"):
        Reply(200, body).json()
