"""Who may change state."""

import pytest

from gpuwatch.export.access import Peer, may_change

DAEMON, ADMINS = 990, 991


@pytest.mark.parametrize(
    ("peer", "proven", "allowed"),
    [
        (Peer(0, 0), False, True),
        (Peer(DAEMON, 990), False, True),
        (Peer(1000, 1000, frozenset({4, ADMINS})), False, True),
        (Peer(1000, ADMINS), False, True),
        (Peer(1000, 1000, frozenset({4, 27})), False, False),
        (Peer(1000, 0, frozenset({0})), False, False),  # the group root is no right
        (Peer(1000, 1000), True, False),  # a password is none over the socket
        (None, True, True),
        (None, False, False),
    ],
)
def test_root_the_daemon_and_the_group_may_over_the_socket_and_a_password_over_tcp(
    peer: Peer | None, proven: bool, allowed: bool
) -> None:
    assert may_change(peer, proven=proven, daemon=DAEMON, admins=ADMINS) == allowed


def test_a_host_without_the_group_lets_no_stranger_in() -> None:
    assert not may_change(Peer(1000, 1000, frozenset({991})), proven=False, daemon=DAEMON, admins=None)
