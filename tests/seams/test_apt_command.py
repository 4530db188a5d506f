"""`gpuwatch apt` against a real server: it ends what it has asked for itself, and nothing that somebody else wants."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.cli import main
from gpuwatch.cli.apt import HOLD
from tests.fakes.web import Answers, Releasing, Served, serving

DRIVER = b"/var/cache/nvidia-driver-550_550.90.07_amd64.deb\n"


@pytest.fixture
def gpus() -> Releasing:
    """Return the GPUs of the host."""
    return Releasing()


@pytest.fixture
def served(tmp_path: Path, gpus: Releasing) -> Iterator[Served]:
    """Return a running server."""
    answers = Answers()
    answers.releasing = gpus
    with serving(tmp_path, answers=answers) as running:
        yield running


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return where the mark is."""
    return tmp_path / "mark"


def apt(place: Path, mark: Path, when: str) -> None:
    """Run a hook."""
    assert main(["apt", when, "--socket", str(place), "--mark", str(mark)]) == 0


def packages(monkeypatch: pytest.MonkeyPatch, lines: bytes) -> None:
    """Have apt name these."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))


def test_packages_of_the_driver_are_installed_under_a_hold_that_ends_with_them(
    served: Served, gpus: Releasing, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # apt may call dpkg more than once
        packages(monkeypatch, DRIVER)
        apt(served.path, mark, "before")
    assert mark.exists()
    apt(served.path, mark, "after")
    apt(served.path, mark, "after")
    done = [(what, hold) for (what, *_), hold in zip(gpus.asked, gpus.holds, strict=True)]
    assert (done, mark.exists()) == ([("release", HOLD), ("release", HOLD), ("resume", HOLD)], False)


def test_other_packages_are_nothing_to_us(served: Served, gpus: Releasing, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages(monkeypatch, b"/var/cache/nvidia-container-toolkit_1_amd64.deb\n")
    apt(served.path, mark, "before")
    apt(served.path, mark, "after")
    assert (gpus.asked, mark.exists()) == ([], False)


def test_what_may_have_been_released_though_no_answer_came_is_ended_too(
    served: Served, gpus: Releasing, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, DRIVER)
    apt(mark.parent / "nobody", mark, "before")
    apt(served.path, mark, "after")
    assert (gpus.holds, mark.exists()) == ([HOLD], False)


def test_where_no_mark_can_be_made_nothing_is_released(
    served: Served, gpus: Releasing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, DRIVER)
    apt(served.path, tmp_path / "no" / "folder", "before")
    assert gpus.asked == []
