"""Files beside and in place of those that are meant: an editor's, and what an editor puts in front of a text."""

from pathlib import Path

import pytest

from gpuwatch import config
from gpuwatch.config import ConfigError
from gpuwatch.places import Places


@pytest.fixture
def where(tmp_path: Path) -> Places:
    """Folders of a user of this test, with a conf.d."""
    (tmp_path / "etc" / "conf.d").mkdir(parents=True)
    return Places(tmp_path / "etc", tmp_path / "state", tmp_path / "run")


def test_an_editors_lock_and_a_hidden_copy_in_conf_d_are_no_configuration(where: Places) -> None:
    extra = where.config / "conf.d"
    (extra / "a.toml").write_text('[host]\nname = "meant"')
    (extra / ".#a.toml").symlink_to("somebody@workstation.4711:1700000000")  # as Emacs locks a file
    (extra / ".b.toml").write_text('[host]\nname = "hidden"')
    found = config.open_all(None, where)
    assert (found.config.host.name, found.files) == ("meant", (extra / "a.toml",))


def test_a_byte_order_mark_is_called_by_its_name(where: Places) -> None:
    path = where.config / "gpuwatch.toml"
    path.write_bytes(b'\xef\xbb\xbf[host]\nname = "a"\n')
    with pytest.raises(ConfigError) as caught:
        config.load(None, where)
    assert str(caught.value) == f"{path}: begins with a byte order mark (BOM): save it as UTF-8 without one"


@pytest.mark.parametrize(("name", "size"), [("s" * 107, 108), ("七" * 40, 121)])
def test_a_socket_with_a_longer_path_than_a_socket_can_have_is_refused(where: Places, name: str, size: int) -> None:
    path = where.config / "gpuwatch.toml"
    path.write_text(f'[http]\nsocket = "/{name}"\n')
    with pytest.raises(ConfigError) as caught:
        config.load(None, where)
    words = f"expected a path of at most 107 bytes, the most that a socket can have, found one of {size}"
    assert str(caught.value) == f"{path}: http.socket: {words}"


def test_a_socket_with_the_longest_path_is_taken(where: Places) -> None:
    (where.config / "gpuwatch.toml").write_text(f'[http]\nsocket = "/{"s" * 106}"\n')
    assert len(config.load(None, where).http.socket) == 107
