"""Where a command says that a daemon may be that does not answer."""

import tempfile
from pathlib import Path

import pytest

from gpuwatch.cli import ask


def test_a_demo_is_named_where_one_runs_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as inside:
        inside.setattr(tempfile, "tempdir", str(tmp_path))
        assert ask.demo() == ""
        folder = tmp_path / f"{ask.OF_DEMO}x"
        folder.mkdir()
        assert ask.demo() == ""
        (folder / "gpuwatch.sock").touch()
        assert ask.demo() == f" There is a demo: --socket {folder / 'gpuwatch.sock'}"
