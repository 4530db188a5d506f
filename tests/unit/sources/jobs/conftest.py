"""A fake host for the processes of these tests."""

from pathlib import Path

import pytest

from tests.fakes.cgroups import Crowd
from tests.fakes.host import HostTree


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """The trees of a host, with what every host has."""
    return HostTree(tmp_path).kernel()


@pytest.fixture
def crowd(tree: HostTree) -> Crowd:
    """A host of cgroup v2 with two users."""
    crowd = Crowd(tree, "v2")
    crowd.users(ann=1001, bob=1002)
    return crowd
