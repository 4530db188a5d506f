"""A fake host for the processes of these tests."""

from pathlib import Path

import pytest

from tests.fakes.host import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """The trees of a host, with what every host has."""
    return HostTree(tmp_path).kernel()
