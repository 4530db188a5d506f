"""`gpuwatch config` finds what `gpuwatch run` would refuse, and shows no secret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli import config, main
from tests.fakes.until import PATIENCE

SECRET = "geheim"


def command(tmp_path: Path, what: str, text: str) -> int:
    """Run the command on a file that says this."""
    file = tmp_path / "gpuwatch.toml"
    head = "" if "[store]" in text else f'[store]\nurl = "sqlite:///{tmp_path / "state" / "gpuwatch.db"}"\n'
    file.write_text(head + text)
    return main(["config", what, "--config", str(file)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[http]\nlisten = "localhost"', 'http.listen: expected an address such as "127.0.0.1:9843"'),
        (f'[store]\nurl = "{SECRET}"', "store.url: cannot be used"),
        (
            f'[store]\nurl = "postgresql://lena:{SECRET}@db:{SECRET}/x"',
            "store.url: cannot be used: the port in it",
        ),
        (f'[store]\nurl = "postgresql+none://lena:{SECRET}@db/x"', "store.url: cannot be used"),
        ('[sources.simulated]\nenabled = true\nscenario = "/nowhere.toml"', "/nowhere.toml"),
    ],
)
def test_check_refuses_what_the_daemon_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert command(tmp_path, "check", text) == 2
    heard = capsys.readouterr()
    assert said in heard.err
    assert SECRET not in heard.err + heard.out


@pytest.mark.parametrize("what", ["check", "run"])
@pytest.mark.parametrize("text", ["junk", "x = 1", 'model = "none"'])
def test_a_scenario_with_a_mistake_is_refused_by_the_check_and_by_the_start(tmp_path: Path, what: str, text: str) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(text)
    file = tmp_path / "gpuwatch.toml"
    file.write_text(
        f'[http]\nlisten = ""\nsocket = "{tmp_path}/s"\n[store]\nurl = "sqlite:///{tmp_path}/x.db"\n'
        f'[sources.simulated]\nenabled = true\nscenario = "{scenario}"\n'
    )
    words = ["config", "check"] if what == "check" else ["run"]
    done = subprocess.run(  # a process of its own: `run` takes the signals and the log
        [sys.executable, "-m", "gpuwatch", *words, "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"{scenario}: ")


@pytest.mark.parametrize("key", ["url", "state"])
@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_store_that_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    url = place if key == "url" else tmp_path / "x.db"
    state = f'state = "{place}"\n' if key == "state" else ""
    assert command(tmp_path, "check", f'[store]\nurl = "sqlite:///{url}"\n{state}') == 2
    assert f"store.{key}: expected a file, {place} is none" in capsys.readouterr().err


def test_check_starts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, "check", "") == 0
    assert capsys.readouterr().out == "the configuration is right\n"
    assert [path.name for path in tmp_path.iterdir()] == ["gpuwatch.toml"]


def test_show_hides_every_secret_and_shows_where_it_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receiver = f'[[receivers]]\nname = "a"\nkind = "webhook"\nurl = "https://x.example/{SECRET}"\nsecret = "{SECRET}"\n'
    assert command(tmp_path, "show", receiver) == 0
    shown = capsys.readouterr().out
    assert SECRET not in shown
    assert str(tmp_path / "state" / "gpuwatch.db") in shown


def test_the_address_of_a_database_server_is_hidden_since_a_password_may_stand_in_it() -> None:
    for address in (f"lena:{SECRET}@db/x", f"db/x?user=lena&password={SECRET}"):
        shown = config.hidden({"receivers": [], "store": {"url": f"postgresql://{address}"}})
        assert shown["store"] == {"url": "postgresql://(hidden)"}
