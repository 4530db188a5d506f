"""Where a command says that a daemon may be that does not answer, and what it calls the parts of a question."""

import socket
import tempfile
from pathlib import Path

import pytest

from gpuwatch.cli import ask
from gpuwatch.export.sockets import listen_unix


def test_demos_are_named_where_they_listen_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, dead, junk = (tmp_path / f"{ask.OF_DEMO}{name}" / "gpuwatch.sock" for name in "abcd")
    with monkeypatch.context() as inside:
        inside.setattr(tempfile, "tempdir", str(tmp_path))
        assert ask.demo() == ""
        listen_unix(dead).close()  # as one that was killed
        junk.parent.mkdir()
        junk.touch()
        assert (dead.is_socket(), ask.demo()) == (True, "")
        with listen_unix(second):
            assert ask.demo() == f" There is a demo: --socket {second}"
            with listen_unix(first):
                assert ask.demo() == f" There is a demo: --socket {first} or --socket {second}"


def test_a_demo_that_is_too_busy_to_accept_is_named(tmp_path: Path) -> None:
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        assert ask.answers(path)


@pytest.mark.parametrize(
    ("said", "by_option"),
    [
        ("seconds: expected more than 0", "--for: expected more than 0"),
        ("matchers: rack: none", "LABEL=VALUE: rack: none"),
        ("until: expected a time after since", "--until: expected a time after since"),
        ("the history: it cannot be read", "the history: it cannot be read"),
        ("seconds", "seconds"),
        ("", ""),
    ],
)
def test_a_part_of_a_question_is_called_as_the_command_calls_it(said: str, by_option: str) -> None:
    assert ask.by_option(said) == by_option
