"""`gpuwatch release` and `resume` against a real server: what they ask for, what they say, how they end."""

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import main
from gpuwatch.cli.resume import PAUSE, SOON
from gpuwatch.client import Client, Reply
from gpuwatch.export.access import OVER_TCP, name_of
from gpuwatch.export.release import LONGEST
from tests.fakes.until import PATIENCE, until
from tests.fakes.web import Answers, Releasing, Served, serving

Said = pytest.CaptureFixture[str]
ME = name_of(os.getuid())


class Gpus(Releasing):
    """GPUs that are released and resumed; attaching takes as many questions as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.others, self.stuck, self.stored = "attached", False, list[str](), True
        self.missing, self.forgotten = list[str](), set[str | None]()
        self.questions, self.found, self.is_back = 1, "driver 535.154.05, 4 GPUs, same UUIDs", True

    def release(self, seconds: float, by: str, hold: str = "") -> dict[str, Any]:
        """Let go."""
        super().release(seconds, by, hold)
        self.now = "released"
        return {"already": self.others, "stuck": self.stuck, "stored": self.stored, **self.state(), "by": by}

    def resume(self, by: str, hold: str | None = None) -> dict[str, Any]:
        """Take up, unless others want them released."""
        was, is_last = self.now == "released", hold is None or not self.others
        self.now = "attaching" if was and is_last else self.now
        super().resume(by, hold)
        return {"is_known": hold not in self.forgotten, "was_released": was, "stored": self.stored, **self.state()}

    def state(self) -> dict[str, Any]:
        """Return how it stands, and come nearer to the end."""
        if self.now in {"attaching", "unknown"}:
            self.questions -= 1
            self.now = self.now if self.questions >= 0 else "attached"
        who: dict[str, Any] = {"until": 4e9, "by": "lena", "waits_for": ""} if self.now == "released" else {}
        more = {"is_back": self.is_back, "missing": self.missing} if self.now == "attached" else who
        return {"state": self.now, "found": self.found if self.now == "attached" else "", **more}


@pytest.fixture
def gpus() -> Gpus:
    """Return the GPUs of the host."""
    return Gpus()


@pytest.fixture
def served(tmp_path: Path, gpus: Gpus) -> Iterator[Served]:
    """Return a running server."""
    answers = Answers()
    answers.releasing = gpus
    with serving(tmp_path, answers=answers) as running:
        yield running


def run(served: Served, command: str, *words: str) -> int:
    """Run the command over the socket and return its exit code."""
    return main([command, "--socket", str(served.path), *words])


def post(served: Served, path: str, body: bytes) -> Reply:
    """Ask over the socket."""
    return Client(str(served.path)).post(path, body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "cannot be read"),
        (b"{}", "seconds: is missing"),
        (b'{"seconds": "1h"}', "seconds: expected a number, found text"),
        (b'{"seconds": 0}', "seconds: expected 1 to 604800 (7 days)"),
        (b'{"seconds": 0.99}', "seconds: expected 1 to 604800 (7 days)"),
        (b'{"seconds": 1e-320}', "seconds: expected 1 to 604800 (7 days)"),
        (b'{"seconds": %d}' % (LONGEST + 1), "seconds: expected 1 to 604800 (7 days)"),
        (b'{"seconds": NaN}', "cannot be read"),
        (b'{"seconds": 60, "by": "root"}', "by: is not a known key"),
        (b'{"seconds": 60, "hold": ""}', "hold: expected 1 to 64 letters"),
        (b'{"seconds": 60, "hold": "%s"}' % (b"x" * 65), "hold: expected 1 to 64 letters"),
        (b'{"seconds": 60, "hold": 7}', "hold: expected text"),
    ],
)
def test_what_cannot_be_a_release_is_refused_in_words_and_releases_nothing(
    served: Served, gpus: Gpus, body: bytes, words: str
) -> None:
    reply = post(served, "/api/v1/release", body)
    assert (reply.status, words in reply.body.decode(), gpus.asked) == (400, True, []), reply.body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "expected a table"),
        (b'{"holds": "x"}', "holds: is not a known key"),
        (b'{"hold": ""}', "hold: expected 1 to 64 letters"),
        (b'{"hold": "a b"}', "hold: expected 1 to 64 letters"),
    ],
)
def test_what_cannot_be_an_end_of_a_release_is_refused_in_words_and_ends_nothing(
    served: Served, gpus: Gpus, body: bytes, words: str
) -> None:
    """Else a program that misspells its hold would end the release of everybody."""
    reply = post(served, "/api/v1/resume", body)
    assert (reply.status, words in reply.body.decode(), gpus.asked) == (400, True, []), reply.body


def test_the_end_of_a_hold_that_nobody_has_is_refused_in_words(served: Served, gpus: Gpus) -> None:
    gpus.forgotten = {"a-1"}
    reply = post(served, "/api/v1/resume", b'{"hold": "a-1"}')
    assert (reply.status, reply.body) == (404, b"no hold is called a-1: it is over, or never was\n")


@pytest.mark.parametrize(("body", "hold"), [(b"", None), (b"{}", None), (b'{"hold": "a-1"}', "a-1")])
def test_the_end_of_a_release_is_that_of_all_or_of_one_hold(served: Served, gpus: Gpus, body: bytes, hold: str | None) -> None:
    assert (post(served, "/api/v1/resume", body).status, gpus.holds) == (200, [hold])


def test_over_tcp_without_a_password_nobody_may(served: Served, gpus: Gpus, capsys: Said) -> None:
    assert [main([command, "--host", served.address]) for command in ("release", "resume")] == [1, 1]
    assert capsys.readouterr().err == f"gpuwatch release: {OVER_TCP}\ngpuwatch resume: {OVER_TCP}\n"
    assert gpus.asked == []
    assert Client(served.address).get("/api/v1/release").status == 200


def test_a_release_is_for_thirty_minutes_or_as_long_as_is_said(served: Served, gpus: Gpus, capsys: Said) -> None:
    assert [run(served, "release"), run(served, "release", "--for", "2h")] == [0, 0]
    assert gpus.asked == [("release", 1800.0, ME), ("release", 7200.0, ME)]
    said = capsys.readouterr()
    assert said.out.startswith(f"the GPUs are released until 2096-10-02 07:06 by {ME}; `gpuwatch resume` ends it\n"), said


@pytest.mark.parametrize("words", ["soon", "30", "0s", "999ms", "-1m"])
def test_a_time_that_is_none_is_the_callers_mistake(served: Served, gpus: Gpus, words: str) -> None:
    assert (run(served, "release", f"--for={words}"), gpus.asked) == (2, [])


def test_what_is_stuck_or_not_stored_is_said(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.stuck, gpus.stored = ["gpuwatch-nvml (pid 4711)"], False
    assert run(served, "release") == 1
    said = capsys.readouterr().err
    assert "gpuwatch-nvml (pid 4711) is stuck in the driver" in said
    assert "it is not stored yet" in said


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL)])
def test_the_exit_code_of_the_command_is_ours_and_the_gpus_are_taken_up_when_it_ends(
    served: Served, gpus: Gpus, capfd: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    assert run(served, "release", "--", "sh", "-c", f"echo out; {command}") == code
    assert [what for what, _, _ in gpus.asked] == ["release", "resume"]
    said = capfd.readouterr()
    assert (said.out, f"read again: {gpus.found}\n" in said.err) == ("out\n", True), said  # the output is the command's alone


@pytest.mark.parametrize(("command", "code"), [("/nowhere/at-all", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_is_said_and_the_gpus_are_taken_up(
    served: Served, gpus: Gpus, capsys: Said, command: str, code: int
) -> None:
    assert run(served, "release", "--", command) == code
    assert ([what for what, _, _ in gpus.asked], command in capsys.readouterr().err) == (["release", "resume"], True)


def test_a_command_ends_its_own_hold_alone_and_says_who_else_wants_them_released(
    served: Served, gpus: Gpus, capsys: Said
) -> None:
    gpus.others = True
    assert [run(served, "release", "--", "true") for _ in range(2)] == [0, 0]
    one, same, other, again = gpus.holds
    assert (one and one == same, other and other == again, one != other, gpus.now) == (True, True, True, "released")
    assert capsys.readouterr().err.count("the GPUs stay released until 2096-10-02 07:06 by lena\n") == 2
    assert (run(served, "resume"), gpus.holds[-1]) == (0, None)  # a person ends all


def test_a_command_whose_release_somebody_has_ended_says_so(served: Served, gpus: Gpus, capsys: Said) -> None:
    def end() -> None:
        assert post(served, "/api/v1/resume", b"").status == 200

    assert while_it_runs(served, end) == 0
    assert "somebody had the GPUs taken up before\n" in capsys.readouterr().err


def test_a_command_that_ends_while_the_daemon_starts_waits_for_what_comes_of_it(served: Served, gpus: Gpus, capsys: Said) -> None:
    def start() -> None:
        gpus.now, gpus.questions = "unknown", 3

    assert while_it_runs(served, start) == 0
    assert f"the GPUs are read again: {gpus.found}\n" in capsys.readouterr().err


def test_a_command_whose_hold_is_forgotten_says_how_it_stands_by_now(served: Served, gpus: Gpus, capsys: Said) -> None:
    def end_and_begin() -> None:
        gpus.forgotten, gpus.others = set(gpus.holds), True

    assert while_it_runs(served, end_and_begin) == 0
    assert capsys.readouterr().err.endswith("the GPUs stay released until 2096-10-02 07:06 by lena\n")


def test_a_command_is_not_begun_where_nothing_is_released(tmp_path: Path, served: Served, capsys: Said) -> None:
    mark = tmp_path / "mark"
    assert main(["release", "--socket", str(tmp_path / "none"), "--", "touch", str(mark)]) == 3
    assert main(["release", "--host", served.address, "--", "touch", str(mark)]) == 1
    assert capsys.readouterr().err.count("\ngpuwatch release: touch was not run\n") == 2
    assert run(served, "release", "--for", "soon", "--", "touch", str(mark)) == 2
    assert main(["release", "--host", served.address]) == 1
    assert (mark.exists(), "not run" in capsys.readouterr().err) == (False, False)


def test_a_release_that_is_too_long_is_the_callers_mistake(served: Served, gpus: Gpus, capsys: Said) -> None:
    assert [run(served, "release", "--for", "30d"), run(served, "release", "--for", "7d")] == [2, 0]
    words = 'gpuwatch release: --for: expected 1s to 7d, a number with a unit (ms, s, m, h, d), got "30d"\n'
    assert (capsys.readouterr().err, gpus.asked[0][:2]) == (words, ("release", LONGEST))


def test_a_command_that_is_announced_and_lacks_is_the_callers_mistake(served: Served, gpus: Gpus, capsys: Said) -> None:
    assert [run(served, "release", "--"), run(served, "release", "--for", "1h", "--")] == [2, 2]
    assert (gpus.asked, capsys.readouterr().err) == ([], "gpuwatch release: --: no command after it\n" * 2)


def test_what_follows_the_command_is_its_own(served: Served, gpus: Gpus, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(served, "release", "--for", "1h", "--", "echo", "--for", "2h", "--") == 0
    assert (gpus.asked[0][:2], capfd.readouterr().out) == (("release", 3600.0), "--for 2h --\n")


def while_it_runs(served: Served, act: Callable[[], None], *words: str) -> int:
    """Run the command with a shell that waits for `act` to be over, which happens once the shell runs."""
    began, go_on = (served.path.parent / name for name in ("began", "go-on"))

    def behind() -> None:
        try:
            until(began.exists)
            act()
        finally:
            go_on.touch()

    thread = threading.Thread(target=behind)
    thread.start()
    code = run(served, "release", *words, "--", "sh", "-c", f"touch {began}; until test -e {go_on}; do sleep 0.05; done")
    thread.join()
    return code


def test_a_release_goes_on_while_its_command_runs(served: Served, gpus: Gpus) -> None:
    assert while_it_runs(served, lambda: until(lambda: len(gpus.asked) >= 2), "--for", "1s") == 0
    assert [(what, seconds) for what, seconds, _ in gpus.asked] == [("release", 1), ("release", 300), ("resume", 0)]
    assert len(set(gpus.holds)) == 1  # and it is its own that it makes longer


def test_a_signal_that_would_end_us_is_passed_on_to_the_command(served: Served, gpus: Gpus) -> None:
    def end() -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        until(lambda: any(Path(f"/proc/{child}/comm").read_text() == "sh\n" for child in children.read_text().split()))
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    assert while_it_runs(served, end) in (0, 128 + signal.SIGTERM)
    assert ([what for what, _, _ in gpus.asked], signal.getsignal(signal.SIGTERM)) == (["release", "resume"], before)


def test_resume_waits_until_all_is_there_and_says_what_has_changed(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.now, gpus.questions = "released", 3
    assert run(served, "resume") == 0
    assert capsys.readouterr().out == f"the GPUs are read again: {gpus.found}\n"
    assert run(served, "resume") == 0
    assert capsys.readouterr().out == "the GPUs were not released\n"


def test_whoever_waits_for_the_driver_is_told_once_what_it_is_waited_for(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.now, gpus.questions = "released", int(SOON / PAUSE) + 4
    assert run(served, "resume") == 0
    said = "gpuwatch resume: waiting for driver and GPUs to answer, 90 s at most\n"
    assert capsys.readouterr() == (f"the GPUs are read again: {gpus.found}\n", said)


def test_a_resume_that_is_not_stored_is_said(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.now, gpus.stored = "released", False
    assert [run(served, "resume"), run(served, "resume")] == [0, 0]
    said = "gpuwatch resume: it is not stored yet, the disk does not answer: a restart of the daemon would release them again\n"
    assert capsys.readouterr().err == said * 2


def test_a_gpu_that_is_missing_is_a_found_problem(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.now, gpus.found, gpus.missing = "released", "driver 535.154.05, 3 GPUs, lost as before: GPU 3 GPU-3", ["GPU-3"]
    assert run(served, "resume") == 1
    assert capsys.readouterr() == (f"the GPUs are read again: {gpus.found}\n", "")


def test_a_driver_that_is_not_back_is_a_found_problem(served: Served, gpus: Gpus, capsys: Said) -> None:
    gpus.now, gpus.found = "released", "the driver is not back (not_loaded): the nvidia kernel module is not loaded"
    gpus.is_back = False
    assert run(served, "resume") == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"gpuwatch resume: the GPUs are not read: {gpus.found}\n")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"already": 1}'])
def test_an_answer_of_something_else_is_said(tmp_path: Path, capsys: Said, body: bytes) -> None:
    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    asked = b""
                    while not asked.endswith(b"}"):
                        asked += connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert [main([command, "--socket", str(path)]) for command in ("release", "resume")] == [3, 3]
        thread.join(PATIENCE)
    assert capsys.readouterr().err.count("is no gpuwatch, or one of another version") == 2


def test_the_state_over_http_is_everybodys(served: Served) -> None:
    assert json.loads(Client(served.address).get("/api/v1/release").body)["state"] == "attached"


def test_the_command_looks_for_holders_and_says_so(served: Served, capsys: Said) -> None:
    assert run(served, "release") == 0
    said = capsys.readouterr().out.splitlines()
    assert re.search("nobody has /dev/nvidia|could not be looked into|^still open by: ", "\n".join(said[1:]), re.MULTILINE), said
