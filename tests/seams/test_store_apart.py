"""Where the history and the alert memory would be one file, by whatever name, nothing is begun: each would oust the other."""

import os
from pathlib import Path

import pytest

from gpuwatch import config
from gpuwatch.cli import main
from gpuwatch.config import ConfigError
from gpuwatch.model.clock import SystemClock
from gpuwatch.store import Store


def refusal(url: Path, state: str = "") -> tuple[str, str]:
    """Return the key and the words by which a store on these files is refused."""
    with pytest.raises(ConfigError) as caught:
        Store(config.Store(url=f"sqlite:///{url}", state=state), "machine-1", SystemClock())
    return caught.value.key, caught.value.problem


def test_a_history_by_the_default_name_of_the_alert_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    both = "the history (store.url) and the alert memory (store.state: state.db beside the history)"
    assert refusal(path) == ("store.url", f"{both} would be one file, {path}: expected another name")


@pytest.mark.parametrize("name", ["gpuwatch.db", "gpuwatch.db-wal", "gpuwatch.db-shm", "gpuwatch.db-journal", "./gpuwatch.db"])
def test_an_alert_memory_by_a_name_of_the_history_is_refused(tmp_path: Path, name: str) -> None:
    key, words = refusal(tmp_path / "gpuwatch.db", f"{tmp_path}/{name}")
    assert (key, words.partition(" would")[0]) == (
        "store.state",
        "the history (store.url) and the alert memory (store.state)",
    )


@pytest.mark.parametrize(
    ("url", "state"),
    [("memory.db-wal", "memory.db"), ("memory.lock", "memory.db"), ("gpuwatch.db", "memory.lock")],
)
def test_what_lies_beside_the_alert_memory_counts_too(tmp_path: Path, url: str, state: str) -> None:
    key, words = refusal(tmp_path / url, str(tmp_path / state))
    assert (key, "would be one file" in words) == ("store.state", True)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_from_one_to_the_other_is_refused(tmp_path: Path, link: object) -> None:
    (tmp_path / "gpuwatch.db").touch()
    assert callable(link)
    link(tmp_path / "gpuwatch.db", tmp_path / "memory.db")
    key, words = refusal(tmp_path / "gpuwatch.db", str(tmp_path / "memory.db"))
    assert (key, f"{tmp_path / 'gpuwatch.db'} and {tmp_path / 'memory.db'}" in words) == ("store.state", True)


def test_a_link_between_folders_is_seen_before_there_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    key, _ = refusal(tmp_path / "real" / "one.db", str(tmp_path / "link" / "one.db"))
    assert key == "store.state"


def test_an_alert_memory_by_a_part_of_a_path_is_refused_by_its_own_key(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gpuwatch.db", "state.db") == (
        "store.state",
        'expected the whole path of a file, such as /var/lib/gpuwatch/state.db, found "state.db"',
    )


def test_the_check_names_the_file_and_both_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(f'[http]\nlisten = ""\nsocket = "{tmp_path}/s"\n[store]\nurl = "sqlite:///{tmp_path}/state.db"\n')
    assert main(["config", "check", "--config", str(file)]) == 2
    assert f"{file}: store.url: the history (store.url) and the alert memory (store.state:" in capsys.readouterr().err
    assert list(tmp_path.glob("state*")) == []
