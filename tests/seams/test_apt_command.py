"""`gpuwatch apt` against a real server whose daemon has just been started: what was released before is not known at first."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import main
from gpuwatch.cli.apt import UNKNOWN
from tests.fakes.web import Answers, Releasing, Served, serving

SINCE = 1_700_000_000.5


class Starting(Releasing):
    """GPUs of which it is known only after some questions whether they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown = 0

    def release(self, seconds: float, by: str) -> dict[str, Any]:
        """Let go."""
        return {**super().release(seconds, by), "since": SINCE}

    def state(self) -> dict[str, Any]:
        """Say that they are released, once that is known."""
        self.unknown -= 1
        return (
            {"state": "unknown", "found": ""} if self.unknown >= 0 else {"state": "released", "since": SINCE, "asked_at": SINCE}
        )


@pytest.fixture
def gpus() -> Starting:
    """Return the GPUs of the host."""
    return Starting()


@pytest.fixture
def served(tmp_path: Path, gpus: Starting) -> Iterator[Served]:
    """Return a running server."""
    answers = Answers()
    answers.releasing = gpus
    with serving(tmp_path, answers=answers) as running:
        yield running


def apt(served: Served, mark: Path, when: str) -> None:
    """Run a hook."""
    assert main(["apt", when, "--socket", str(served.path), "--mark", str(mark)]) == 0


def test_a_release_that_is_known_only_after_some_questions_is_ended_all_the_same(
    served: Served, gpus: Starting, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    mark.write_text(f"{SINCE}")
    gpus.unknown = 2
    apt(served, mark, "after")
    assert ([what for what, *_ in gpus.asked], mark.exists()) == (["resume"], False)


def test_a_release_that_may_be_a_persons_is_asked_for_and_not_ended(
    served: Served, gpus: Starting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"/var/cache/nvidia-driver-550_550.90.07_amd64.deb\n")))
    gpus.unknown = 2
    apt(served, mark, "before")
    assert mark.read_text() == UNKNOWN
    apt(served, mark, "after")
    assert ([what for what, *_ in gpus.asked], mark.exists()) == (["release"], False)
