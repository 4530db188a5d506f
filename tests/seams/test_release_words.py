"""What `gpuwatch release` says of it: until when, and who else has the GPUs open, where that can be seen."""

import argparse
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.ask import OF_DEMO
from gpuwatch.cli.release import add, is_here, say, unseen
from gpuwatch.sources.holders import Holders, holders
from tests.fakes.until import PATIENCE

ANSWER: dict[str, Any] = {"already": False, "stuck": [], "stored": True, "until": 4e9, "by": "root", "waits_for": ""}


@pytest.mark.parametrize(("ahead", "form"), [(3600.0, "%H:%M"), (86_400.0, "%Y-%m-%d %H:%M")])
def test_until_when_is_said_with_the_date_where_that_is_not_soon(ahead: float, form: str) -> None:
    out = io.StringIO()
    say(ANSWER, Holders({}, 0, is_whole=True), ANSWER["until"] - ahead, out)
    until_when = time.strftime(form, time.localtime(ANSWER["until"]))
    assert out.getvalue().startswith(f"the GPUs are released until {until_when} by root; ")


def said_of(others: Holders, now: float = 0.0) -> list[str]:
    """Return what is said of a release, after until when it is."""
    out = io.StringIO()
    say(ANSWER, others, now, out)
    return out.getvalue().splitlines()[1:]


@pytest.mark.parametrize(
    ("others", "lines"),
    [
        (Holders({}, 0, is_whole=True), ["nobody has /dev/nvidia* open"]),
        (Holders({7: "python", 9: "Xorg"}, 0, is_whole=True), ["still open by: python (pid 7), Xorg (pid 9)"]),
        (Holders({}, 0, is_whole=False), ["not all processes could be looked into in time"]),
        (
            Holders({7: "python"}, 0, is_whole=False),
            ["still open by: python (pid 7)", "not all processes could be looked into in time"],
        ),
        (Holders({}, 2, is_whole=True), [unseen(2, root=os.geteuid() == 0)]),
        (Holders({7: "a\x1b[2J"}, 1, is_whole=True), ["still open by: a\\x1b[2J (pid 7)", unseen(1, root=os.geteuid() == 0)]),
        (
            Holders(dict.fromkeys(range(1, 23), "x"), 0, is_whole=True),
            ["still open by: " + ", ".join(f"x (pid {n})" for n in range(1, 21)) + ", and 2 more"],
        ),
    ],
)
def test_a_release_says_who_else_has_the_nodes_open(others: Holders, lines: list[str]) -> None:
    assert said_of(others) == lines


def test_a_process_that_has_a_node_open_is_named(tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-c",
        "import sys; f = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read()",
        str(tmp_path / "nvidia0"),
    ]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        found = said_of(holders(nodes=str(tmp_path / "nvidia"), seconds=PATIENCE))
    assert found[0] == f"still open by: {name} (pid {holder.pid})"


@pytest.mark.parametrize(
    ("words", "here"),
    [
        ([], True),
        (["--socket", "/run/gpuwatch/gpuwatch.sock"], True),
        (["--socket", f"/tmp/{OF_DEMO}x/gpuwatch.sock"], False),
        (["--host", "gpu02:9843"], False),
    ],
)
def test_whose_processes_have_gpus_open_is_looked_for_on_the_host_of_the_gpus_alone(words: list[str], *, here: bool) -> None:
    parser = argparse.ArgumentParser()
    add(parser)
    assert is_here(parser.parse_args(words)) is here
    out = io.StringIO()
    say(ANSWER, None, 0.0, out)
    assert out.getvalue().count("\n") == 1


def test_who_could_not_be_looked_into_is_counted_and_root_is_not_told_to_be_root() -> None:
    assert [unseen(1, root=False), unseen(2, root=False)] == [
        "1 process of somebody else could not be looked into: root may",
        "2 processes of others could not be looked into: root may",
    ]
    assert unseen(3, root=True).endswith(": not even this root may (a container, or no CAP_SYS_PTRACE)")
