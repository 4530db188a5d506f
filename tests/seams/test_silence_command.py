"""`gpuwatch silence`: what it asks for, what it says, and how it ends."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.cli import main
from gpuwatch.export.access import OVER_TCP
from gpuwatch.export.message import Response, Route
from gpuwatch.export.server import Server
from gpuwatch.export.sockets import listen_tcp, listen_unix
from gpuwatch.model.silence import Matcher, Silence
from gpuwatch.notify import Silences
from gpuwatch.store.ulid import Ulid
from tests.fakes.until import PATIENCE
from tests.fakes.web import Answers, Served, serving

ULID = "[0-9A-HJKMNP-TV-Z]{26}"
Said = pytest.CaptureFixture[str]


@pytest.fixture
def answers() -> Answers:
    """Return what the daemon knows."""
    return Answers()


@pytest.fixture
def served(tmp_path: Path, answers: Answers) -> Iterator[Served]:
    """Return a running server."""
    with serving(tmp_path, answers=answers) as running:
        yield running


def silence(served: Served, *words: str) -> int:
    """Run the command over the socket and return its exit code."""
    return main(["silence", *words, "--socket", str(served.path)])


def made(answers: Answers) -> Silence:
    """Return the one silence that there is."""
    (found,) = answers.silences.known()
    return found


def test_without_a_label_the_whole_host_is_silenced(served: Served, answers: Answers, capsys: Said) -> None:
    assert silence(served, "--for", "2h", "--comment", "换风扇") == 0
    found = made(answers)
    assert (found.matchers, found.ends_at - found.starts_at, found.comment) == ((), 7200, "换风扇")
    said = capsys.readouterr()
    pattern = rf"({ULID})  silenced: the whole host until \d{{4}}-\d\d-\d\d \d\d:\d\d \(in 2 h 0 min\), by \S+: 换风扇\n"
    shown = re.fullmatch(pattern, said.out)
    assert shown is not None, said
    assert (shown[1], said.err) == (found.id, "")


def test_labels_say_what_is_silenced(served: Served, answers: Answers) -> None:
    assert silence(served, "gpu=3", "rule=gpu_overheating", "--for", "30m") == 0
    assert made(answers).matchers == (Matcher(name="gpu", value="3"), Matcher(name="rule", value="gpu_overheating"))
    assert made(answers).comment == ""


def test_one_that_is_silenced_already_is_kept_to_the_later_end(served: Served, answers: Answers, capsys: Said) -> None:
    for words in (["--for", "2h"], ["--for", "1h", "--comment", "x"], ["--for", "3h"]):
        assert silence(served, "gpu=3", "rule=gpu_overheating", *words) == 0
    first, shorter, longer = capsys.readouterr().out.splitlines()
    identity = made(answers).id
    head = f"{identity}  was silenced already, and the later end counts: gpu=3, rule=gpu_overheating until "
    assert (first.startswith(f"{identity}  silenced: gpu=3"), shorter.startswith(head), longer.startswith(head)) == (True,) * 3
    assert ("(in 2 h 0 min)" in shorter, "(in 3 h 0 min)" in longer) == (True, True)


def test_what_is_not_over_is_listed(served: Served, answers: Answers, capsys: Said) -> None:
    assert silence(served, "--list") == 0
    assert capsys.readouterr().out == "nothing is silenced\n"
    for words in (["gpu=3"], ["gpu=4"]):
        silence(served, *words, "--for", "10d", "--comment", "\x1b[2Jred")
    first, second = answers.silences.known()
    assert silence(served, "--end", first.id) == 0
    assert f"{first.id}  has ended: gpu=3\n" in capsys.readouterr().out
    assert silence(served, "--list") == 0
    said = capsys.readouterr().out
    assert (said.startswith(f"{second.id}  gpu=4 until "), said.count("\n"), "\x1b" in said) == (True, 1, False)


def test_a_silence_that_is_not_stored_is_said_to_be_so(served: Served, answers: Answers, capsys: Said) -> None:
    answers.journal.stall()
    assert silence(served, "--for", "1h") == 0
    assert capsys.readouterr().err == "gpuwatch silence: it holds, but it is not stored yet: the disk does not answer\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--for: is missing: how long, such as 30m, 2h or 7d"),
        (["gpu=3"], "--for: is missing"),
        (["--for", "-2h"], '--for: expected 1s to 30d, a number with a unit (ms, s, m, h, d), got "-2h"'),
        (["--for", "31d"], '--for: expected 1s to 30d, a number with a unit (ms, s, m, h, d), got "31d"'),
        (["gpu", "--for", "1h"], 'expected LABEL=VALUE, such as gpu=3, got "gpu"'),
        (["gpu=", "--for", "1h"], 'got "gpu="'),
        (["=3", "--for", "1h"], 'got "=3"'),
        (["g-p-u=3", "--for", "1h"], '"g-p-u" is not the name of a label'),
        (["--for", "1h", "--comment", "x" * 401], ": --comment: expected at most 400 characters, it has 401"),
        (["rack=B7", "--for", "1h"], ": LABEL=VALUE: this host has rack=A3, not B7"),
        (["rack=A3", "host=vision-08", "--for", "1h"], ": LABEL=VALUE: this host is called vision-07, not vision-08"),
        (["--list", "--for", "1h"], "--list stands alone"),
        (["--end", "x", "gpu=3"], "--end stands alone"),
        (["--list", "--end", "x"], "not allowed with"),
    ],
)
def test_a_mistake_is_said_in_words_and_changes_nothing(
    served: Served, answers: Answers, capsys: Said, words: list[str], said: str
) -> None:
    try:
        code = silence(served, *words)
    except SystemExit as error:  # argparse
        code = int(str(error.code))
    shown = capsys.readouterr()
    assert (code, shown.out, said in shown.err, "Traceback" in shown.err) == (2, "", True, False), shown
    assert answers.silences.known() == []


def test_words_that_are_no_text_become_visible(served: Served, answers: Answers) -> None:
    assert silence(served, "device=\udcff", "--for", "1h", "--comment", "a\udc80") == 0
    assert (made(answers).matchers[0].value, made(answers).comment) == ("\\udcff", "a\\udc80")


def test_a_silence_that_there_is_not_is_exit_1(served: Served, capsys: Said) -> None:
    assert silence(served, "--end", "nonesuch") == 1
    assert capsys.readouterr().err == "gpuwatch silence: there is no silence nonesuch\n"


def test_who_may_not_is_told_who_may(served: Served, answers: Answers, capsys: Said) -> None:
    assert main(["silence", "--for", "1h", "--host", served.address]) == 1
    assert capsys.readouterr().err == f"gpuwatch silence: {OVER_TCP}\n"
    assert answers.silences.known() == []


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"junk\r\n\r\n"])
def test_what_may_have_been_taken_although_no_whole_answer_came_is_said_to_be_so(
    tmp_path: Path, capsys: Said, answer: bytes
) -> None:
    """The daemon may die, or be slow, between the deed and the answer."""
    doubt = "gpuwatch silence: it may have been taken all the same: `gpuwatch silence --list` shows what holds\n"
    path = tmp_path / "s"

    def serve(listening: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with listen_unix(path) as listening:
        server = threading.Thread(target=serve, args=(listening,), daemon=True)
        server.start()
        listening.settimeout(PATIENCE)
        for words, doubts in ((["--for", "1h"], True), (["--end", "x"], True), (["--list"], False)):
            assert main(["silence", *words, "--socket", str(path)]) == 3
            assert (doubt in capsys.readouterr().err) == doubts
        server.join(PATIENCE)


def test_what_never_arrived_was_not_taken(tmp_path: Path, capsys: Said) -> None:
    assert main(["silence", "--for", "1h", "--socket", str(tmp_path / "none")]) == 3
    assert "it may have been taken" not in capsys.readouterr().err


def test_before_the_alert_memory_was_read_that_is_said(tmp_path: Path, answers: Answers, capsys: Said) -> None:
    answers.silences = Silences(answers.journal, answers.clock, Ulid(answers.clock), {})
    with serving(tmp_path, answers=answers) as served:
        assert silence(served, "--list") == 0
        said = "gpuwatch silence: the alert memory has not been read yet: there may be more, which do not hold until then\n"
        assert capsys.readouterr().err == said
        assert silence(served, "--end", "01HF0000000000000000000001") == 3
        assert "the alert memory has not been read yet" in capsys.readouterr().err


def test_where_nobody_answers_it_is_exit_3(tmp_path: Path, capsys: Said) -> None:
    for words in (["--for", "1h"], ["--list"], ["--end", "x"]):
        assert main(["silence", *words, "--socket", str(tmp_path / "none")]) == 3
        assert "is gpuwatch running?" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"silences": 7}', b'{"silence": {}}', b"{}"])
def test_an_answer_of_something_else_is_no_traceback(capsys: Said, body: bytes) -> None:
    listening = listen_tcp("127.0.0.1:0")
    answer = Response(200, body)
    paths = [("GET", "/api/v1/silences"), ("POST", "/api/v1/silences"), ("POST", "/api/v1/silences/end")]
    server = Server([listening], [Route(path, lambda _: answer, method=method) for method, path in paths])
    server.start()
    try:
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        for words in (["--for", "1h"], ["--list"], ["--end", "x"]):
            assert main(["silence", *words, "--host", where]) == 3
            shown = capsys.readouterr()
            assert (shown.out, shown.err) == (
                "",
                "gpuwatch silence: what answers there is no gpuwatch, or one of another version\n",
            )
    finally:
        server.stop(2.0)


@pytest.mark.parametrize(("status", "code"), [(409, 1), (403, 1), (500, 3), (503, 3), (504, 3)])
def test_the_daemons_own_words_are_shown(capsys: Said, status: int, code: int) -> None:
    listening = listen_tcp("127.0.0.1:0")
    server = Server([listening], [Route("/api/v1/silences", lambda _: Response.text(status, "no\x1b"), method="POST")])
    server.start()
    try:
        assert main(["silence", "--for", "1h", "--host", f"127.0.0.1:{listening.getsockname()[1]}"]) == code
    finally:
        server.stop(2.0)
    said = capsys.readouterr().err
    assert said.startswith("gpuwatch silence: no\\x1b\n")
    assert ("it may have been taken" in said) == (status == 504)


def test_the_status_shows_what_is_silenced(tmp_path: Path, capsys: Said) -> None:
    page = {
        **dict.fromkeys(("version", "store"), ""),
        **{name: [] for name in ("reasons", "notes", "gpus", "disks", "judging", "troubles")},
        "now": 0.0,
        "started": 0.0,
        "host": {"name": "vision-07"},
        "ready": True,
        "driver": {"state": "ok"},
        "expected_gpus": 0,
        "collectors": {},
        "telling": {"nobody": False, "problems": []},
        "alerts": [{"severity": "warning", "rule": "r", "state": "firing", "since": 0.0, "summary": "hot", "silenced_by": ["x"]}],
        "silences": [{"of": "gpu=3", "ends_at": 4e9, "author": "lena", "comment": "fans\x1b"}],
    }

    class Quiet(Answers):
        def status(self) -> dict[str, object]:
            return json.loads(json.dumps(page))  # type: ignore[no-any-return] # it is what was dumped

    with serving(tmp_path, answers=Quiet()) as served:
        assert main(["status", "--socket", str(served.path)]) == 1
    said = capsys.readouterr().out
    assert re.search(r"WARNING r for .* \(silenced\): hot\n", said)
    assert re.search(r"\nsilenced: gpu=3 until 2096-10-0\d \d\d:\d\d \(in .* d .* h\), by lena: fans\\x1b\n", said)
