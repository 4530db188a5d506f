"""`gpuwatch status` and a daemon that answers what it should not."""

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from gpuwatch.cli import main
from gpuwatch.export.webconfig import WebConfig
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, serving


class Odd(Answers):
    """A daemon whose status is what a test says."""

    def __init__(self, page: Mapping[str, Any]) -> None:
        super().__init__()
        self._page = dict(page)

    def status(self) -> dict[str, Any]:
        """Return it."""
        return self._page


HOSTILE = "A40\x1b[2J\x9b31m\u202e"
PAGE = {
    "version": HOSTILE,
    "now": 0.0,
    "started": 0.0,
    "host": {"name": HOSTILE},
    "ready": False,
    "reasons": [HOSTILE],
    "driver": {"state": "ok", "driver_version": HOSTILE},
    "expected_gpus": 1,
    "gpus": [{"gpu": "0", "name": HOSTILE, "up": False, "state": "", "down_reason": "lost", "words": HOSTILE, "values": {}}],
    "disks": [{"device": HOSTILE, "verdict": "ok", "words": HOSTILE, "values": {}}],
    "collectors": {HOSTILE: HOSTILE},
    "alerts": [{"severity": "warning", "rule": HOSTILE, "since": 0.0, "summary": HOSTILE}],
    "telling": {"nobody": False, "problems": [HOSTILE]},
    "store": HOSTILE,
    "notes": [HOSTILE],
    "judging": [],
    "troubles": [f"GPU 0: {HOSTILE}"],
}
WELL = {
    **PAGE,
    "host": {"name": "vision-07"},
    "ready": True,
    "reasons": [],
    "driver": {"state": "ok", "driver_version": "550.1"},
    "gpus": [],
    "disks": [],
    "collectors": {"host": ""},
    "alerts": [],
    "telling": {"nobody": False, "problems": []},
    "store": "",
    "notes": [],
    "troubles": [],
}


@pytest.mark.parametrize(("one", "other"), [("socket", "host"), ("socket", "config"), ("host", "config")])
def test_two_daemons_are_not_asked_at_once(capsys: pytest.CaptureFixture[str], one: str, other: str) -> None:
    assert main(["status", f"--{other}", "/nowhere", f"--{one}", "localhost"]) == 2
    assert capsys.readouterr().err == f"gpuwatch status: --{one}: names a daemon, and so does --{other}: one is asked\n"


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["for people", "as JSON"])
def test_text_of_a_hostile_machine_does_not_reach_the_terminal_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    with serving(tmp_path, answers=Odd(PAGE)) as served:
        assert main(["status", "--socket", str(served.path), *form]) == 1
    said = capsys.readouterr().out
    assert "A40" in said
    assert [char for char in said if char in "\x1b\x9b\u202e"] == []


@pytest.mark.parametrize("page", [{"status": "ok"}, {**PAGE, "gpus": None}, {**PAGE, "now": 0.0, "started": "soon"}])
def test_an_answer_of_something_else_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: Mapping[str, Any]
) -> None:
    with serving(tmp_path, answers=Odd(page)) as served:
        assert main(["status", "--socket", str(served.path)]) == 3
    assert capsys.readouterr().err == "gpuwatch status: what answers there is no gpuwatch, or one of another version\n"


@pytest.mark.parametrize(("waits", "mark"), [(True, "."), (False, "!")])
def test_a_driver_that_is_waited_for_is_said_without_an_alarm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, waits: bool, mark: str
) -> None:
    reasons = ["the last sample is 12 s old", "driver no_nodes: its nodes"]
    page = {**PAGE, "reasons": reasons, "driver": {"state": "no_nodes", "words": "its nodes", "waits": waits}}
    with serving(tmp_path, answers=Odd(page)) as served:
        assert main(["status", "--socket", str(served.path)]) == 1  # nothing can be told of the GPUs, as long as it lasts
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line[4:] in reasons] == [f"  ! {reasons[0]}", f"  {mark} {reasons[1]}"]


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], **page: object) -> list[str]:
    """Return the lines of a page that is as usual but for this."""
    with serving(tmp_path, answers=Odd({**PAGE, "host": {"name": "vision-07"}, **page})) as served:
        main(["status", "--socket", str(served.path)])
    return capsys.readouterr().out.splitlines()


def card(gpu: str, *, up: bool = True, **facts: object) -> dict[str, Any]:
    """Return a GPU."""
    return {"gpu": gpu, "up": up, "state": "ok" if up else "", "down_reason": "", "words": "", "values": {}, **facts}


NUMBERS = {"utilization_ratio": 0.5, "temperature_celsius_core": 34.0, "power_watts": 62.0, "memory_used_bytes": 0.0}
HALF = {
    "gpu_instance": "1",
    "profile": "3g.40gb",
    "values": {"memory_used_bytes": 3.0 * 2**30, "memory_size_bytes": 40.0 * 2**30},
}
ANNA = {
    "user": "anna",
    "job": "train-7",
    "gpu_instance": "",
    "command": "python",
    "pids": ["7", "9"],
    "memory_bytes": 2.5 * 2**30,
}


def test_a_gpu_is_told_with_its_mig_instances_and_those_who_are_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {"user": "", "job": "", "gpu_instance": "2", "command": "", "pids": ["11"], "memory_bytes": None}
    divided = card("0", label="slot 3", values=NUMBERS, mig=[HALF, {**HALF, "gpu_instance": "2", "values": {}}], users=[unknown])
    whole = card("1", values={**NUMBERS, "memory_size_bytes": 80.0 * 2**30}, mig=None, users=[ANNA, *[unknown] * 9])
    cards = [divided, whole, card("2"), card("3", mig=[]), card("4", up=False, down_reason="released")]
    assert [line for line in told(tmp_path, capsys, gpus=cards) if line.startswith("  ")][3:-2] == [
        "  GPU 0 (slot 3): MIG, 2 instances  34 C  62 W",
        "    3g.40gb (instance 1): 3.0 of 40 GiB",
        "    3g.40gb (instance 2): -",
        "    pid 11  -, instance 2",
        "  GPU 1: 50%  34 C  62 W  0.0 of 80 GiB",
        "    anna: train-7 (python)  2.5 GiB, 2 processes",
        *["    pid 11  -, instance 2"] * 7,
        "    and 2 more",
        "  GPU 2: no numbers yet",
        "  GPU 3: MIG, no instances  -  -",
        "  GPU 4: released",
    ]


CABLE = "GPU 0 GPU-1: an external power cable of this card is missing"


def test_each_trouble_is_said_once_and_is_no_good_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    down = "driver not_loaded: the nvidia module is not loaded"
    others = [
        "file system /data: it answers with an error: Input/output error",
        "disk sda: it is failing: 100 unreadable sectors",
    ]
    page = {
        **WELL,
        "ready": False,
        "reasons": [down],
        "driver": {"state": "not_loaded", "words": "the nvidia module is not loaded"},
        "gpus": [card("0", state="degraded", words=CABLE.partition(": ")[2], values=NUMBERS)],
        "disks": [{"device": "sda", "verdict": "fail", "words": "100 bad sectors", "values": {}}],
        "troubles": [down, CABLE, *others],
    }
    with serving(tmp_path, answers=Odd(page)) as served:
        assert main(["status", "--socket", str(served.path)]) == 1
    said = capsys.readouterr().out
    assert [said.count(words.partition(": ")[2]) for words in (down, CABLE, *others)] == [1, 1, 1, 1]
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("  ! ")] == [f"  ! {words}" for words in (down, CABLE, *others)]
    assert "  sda: fail" in lines
    assert [line.rpartition("  ")[2] for line in lines if line.startswith("  GPU 0: ")] == ["degraded"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, 0),
        ({"troubles": [CABLE]}, 1),
        ({"ready": False, "reasons": ["host: hangs"]}, 1),
        ({"store": "no space left"}, 1),
        ({"judging": ["a rule fails"]}, 1),
        ({"telling": {"nobody": False, "problems": ["1 message not delivered"]}}, 1),
        ({"alerts": [{"severity": "warning", "rule": "a", "since": 0.0, "summary": "b"}]}, 1),
        ({"alerts": [{"severity": "info", "rule": "a", "since": 0.0, "summary": "b"}]}, 0),
        ({"disks": [{"device": "sda", "verdict": "", "words": "", "values": {}}]}, 0),
        ({"disks": [{"device": "sda", "verdict": "unsupported", "words": "", "values": {}}]}, 0),
        ({"gpus": [{"gpu": "0", "up": False, "state": "", "down_reason": "released", "words": "", "values": {}}]}, 0),
    ],
)
def test_the_exit_code_says_whether_a_person_is_needed(tmp_path: Path, changed: Mapping[str, object], code: int) -> None:
    with serving(tmp_path, answers=Odd({**WELL, **changed})) as served:
        assert main(["status", "--socket", str(served.path)]) == code


def test_gpus_that_are_released_are_not_counted_as_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = {"state": "released", "until": 0.0, "by": "root"}
    cards = [card("0", up=False, down_reason="released")]
    said = told(tmp_path, capsys, gpus=cards, release=release)
    assert [line.split(" until ")[0] for line in said if line.startswith("GPUs")] == ["GPUs: released"]
    assert "  GPU 0: released" in said
    assert "GPUs: 0 of 1 up" in told(tmp_path, capsys, gpus=cards)


@pytest.mark.parametrize(
    ("driver", "models", "heading"),
    [
        ({"state": "ok", "driver_version": "550.1"}, ["A40", "A40", "L4"], "vision-07  driver 550.1  2 x A40, 1 x L4"),
        ({"state": "no_library"}, [], "vision-07  no NVIDIA driver  no GPU"),
        ({"state": "released"}, ["A40"], "vision-07  driver released, its version is not known  1 x A40"),
        ({"state": "version_mismatch"}, [], "vision-07  driver version mismatch  no GPU"),
        ({"state": ""}, [], "vision-07  driver not known yet  no GPU"),
    ],
)
def test_the_heading_is_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], driver: dict[str, str], models: list[str], heading: str
) -> None:
    cards = [card(str(number), name=name) for number, name in enumerate(models)]
    assert told(tmp_path, capsys, driver=driver, gpus=cards)[0] == heading


NO_LIBRARY = "libnvidia-ml.so.1 is not there"


@pytest.mark.parametrize("reasons", [[], [f"driver no_library: {NO_LIBRARY}"]])
def test_why_there_is_no_driver_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], reasons: list[str]) -> None:
    page = {**PAGE, "reasons": reasons, "driver": {"state": "no_library", "words": NO_LIBRARY, "waits": False}}
    with serving(tmp_path, answers=Odd(page)) as served:
        main(["status", "--socket", str(served.path)])
    assert capsys.readouterr().out.count(f"driver no_library: {NO_LIBRARY}") == 1


def test_what_is_sent_to_nobody_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = {**PAGE, "telling": {"nobody": False, "problems": [], "unheard": ["warnings are sent to nobody: no route"]}}
    with serving(tmp_path, answers=Odd(page)) as served:
        main(["status", "--socket", str(served.path)])
    assert "messages: warnings are sent to nobody: no route" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", [["status"], ["silence", "--list"], ["silence", "--for", "1h"], ["silence", "--end", "x"]])
def test_a_daemon_that_wants_a_password_answers_and_the_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4))
    (tmp_path / "password").write_text("prom:wrong")
    with serving(tmp_path, answers=Odd(PAGE), web=WebConfig(users={"prom": hashed})) as served:
        words = [*command, "--host", served.address]
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "the daemon wants a user and password: name a file with USER:PASSWORD by --password-file" in said
        assert main([*words, "--password-file", str(tmp_path / "password")]) == 2
        said = capsys.readouterr().err
        assert f"the daemon does not accept the user and password in {tmp_path / 'password'} (--password-file)" in said


@pytest.mark.parametrize("option", ["--password-file", "--ca-file"])
@pytest.mark.parametrize("where", [["--socket", "none"], ["--host", "https://127.0.0.1:1"]])
def test_a_file_that_cannot_be_read_is_the_callers_mistake_and_no_missing_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, where: list[str]
) -> None:
    file = tmp_path / "nothing"
    assert main(["status", *where, option, str(file)]) == 2
    assert f"{file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "why", "said"),
    [
        ("", "driver", "not read while the driver does not answer"),
        ("degraded", "unknown_error", "NO ANSWER"),
        ("", "late", "NO ANSWER"),
        ("", "", "NO ANSWER"),
        ("hung", "hung", "HUNG"),
        ("reset_required", "reset_required", "RESET REQUIRED"),
        ("", "no_permission", "NO PERMISSION"),
    ],
)
def test_why_a_gpu_is_not_read_is_said_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, why: str, said: str
) -> None:
    cards = [card("0", up=False, state=state, down_reason=why)]
    assert f"  GPU 0: {said}" in told(tmp_path, capsys, gpus=cards)


LONG: dict[str, Any] = {
    "severity": "critical",
    "rule": "gpu_dropped",
    "since": 0.0,
    "summary": "GPU 5 (slot 6) dropped out: " + "the driver says that it is lost; " * 6 + "end",
}


def on_terminal(command: list[str], columns: int) -> list[str]:
    """Return the lines that a command writes to a terminal that is so wide."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(command, stdout=its, env=environ) as process:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # EIO: the last writer has gone
            while part := os.read(ours, 65_536):
                said += part
        os.close(ours)
        process.wait(PATIENCE)
    return said.decode().splitlines()


def test_a_long_line_is_broken_between_words_on_a_terminal_and_whole_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {**WELL, "alerts": [LONG, {**LONG, "summary": "short"}]}
    with serving(tmp_path, answers=Odd(page)) as served:
        words = ["status", "--socket", str(served.path)]
        assert main(words) == 1
        whole = capsys.readouterr().out.splitlines()
        shown = on_terminal([sys.executable, "-m", "gpuwatch", *words], 80)
    assert [line.endswith(LONG["summary"]) for line in whole if "GPU 5" in line] == [True]
    assert [line for line in shown if len(line) > 80] == []
    place = next(number for number, line in enumerate(shown) if "GPU 5" in line)
    broken = shown[place : next(number for number, line in enumerate(shown) if line.endswith("short"))]
    assert (len(broken) > 3, [line[:6] == " " * 6 and line[6] != " " for line in broken[1:]]) == (
        True,
        [True] * (len(broken) - 1),
    )
    assert " ".join(line.strip() for line in broken).endswith(LONG["summary"])
