"""`gpuwatch config` finds what `gpuwatch run` would refuse, and shows no secret."""

from pathlib import Path

import pytest

from gpuwatch.cli import config, main

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
