"""What is no address to listen on is a mistake in the configuration, however odd."""

import pytest

from gpuwatch.config import ConfigError
from gpuwatch.export import sockets


@pytest.mark.parametrize("text", [":" + "9" * 5000, ":65536", "localhost", "::1:9843", ":x", "a" * 64 + "ä:9843", "a..b:9843"])
def test_what_is_no_address_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.listen: expected an address such as") as raised:
        sockets.address(text)
    assert len(str(raised.value)) < 250


def test_an_address_is_split() -> None:
    assert [sockets.address(text) for text in ("127.0.0.1:9843", "[::1]:0", ":65535")] == [
        ("127.0.0.1", 9843),
        ("::1", 0),
        ("", 65535),
    ]
