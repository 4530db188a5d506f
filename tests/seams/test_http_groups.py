"""Whom the kernel vouches for at the other end of the socket: the groups of a real process, also where they are many."""

import os
import pwd
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuwatch.export.access import REFUSAL, Peer, completed, may_change, peer_of
from tests.fakes.ordinary import NOBODY
from tests.fakes.until import PATIENCE

ADMINS = 54321  # the id of the admin group of these tests; no host's own
FIRST = 54000  # the first group of the processes of these tests
MOST = 256  # groups that fit into what Python asks of the kernel
ROOT = os.geteuid() == 0

pytestmark = pytest.mark.skipif(not ROOT, reason="only root can start a process with groups of its own choice")


def seen(folder: Path, groups: Sequence[int], user: int = NOBODY) -> Peer:
    """Return whom we see when a process of this user, with these supplementary groups, connects."""
    for above in (folder, *folder.parents):
        if above.stat().st_uid == os.getuid() and above != Path(above.anchor):
            above.chmod(above.stat().st_mode | 0o011)
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen()
        listening.settimeout(PATIENCE)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(groups)
                os.setgid(FIRST)
                os.setuid(user)
                with socket.socket(socket.AF_UNIX) as mine:
                    mine.connect(str(path))
                    mine.recv(1)  # until the other end has looked
            finally:
                os._exit(0)
        try:
            connection, _ = listening.accept()
            with connection:
                found = peer_of(connection)
        finally:
            os.waitpid(child, 0)
    assert found is not None
    return found


def may(peer: Peer) -> bool:
    """Whether this one may change state, as the server decides it."""
    return may_change(completed(peer), proven=False, daemon=990, admins=ADMINS)


def test_a_member_of_the_admin_group_by_a_supplementary_group_may_change_state(tmp_path: Path) -> None:
    peer = seen(tmp_path, [27, ADMINS])
    assert peer == Peer(NOBODY, FIRST, frozenset({27, ADMINS}))
    assert may(peer)


def test_who_is_in_other_groups_only_may_not(tmp_path: Path) -> None:
    peer = seen(tmp_path, [27, ADMINS - 1])
    assert (peer.groups, may(peer)) == (frozenset({27, ADMINS - 1}), False)
    assert REFUSAL == "needs root or group gpuwatch-admin"


def test_as_many_groups_as_fit_are_all_seen(tmp_path: Path) -> None:
    groups = [*range(FIRST, FIRST + MOST - 1), ADMINS]
    peer = seen(tmp_path, groups)
    assert (peer.groups, peer.is_whole, may(peer)) == (frozenset(groups), True, True)


def test_of_more_groups_than_the_kernel_can_tell_the_user_database_knows_some(tmp_path: Path) -> None:
    """The kernel answers ERANGE, and tells no group at all."""
    peer = seen(tmp_path, [*range(FIRST, FIRST + MOST), ADMINS])
    assert peer == Peer(NOBODY, FIRST, is_whole=False)
    whole = completed(peer)
    assert whole.groups == frozenset(os.getgrouplist(pwd.getpwuid(NOBODY).pw_name, FIRST))
    assert FIRST in whole.groups
    assert not may(peer)  # the database of this host makes nobody a member


def test_the_first_group_counts_also_for_a_user_whom_nobody_knows(tmp_path: Path) -> None:
    peer = seen(tmp_path, range(FIRST, FIRST + MOST + 1), user=4_000_000)
    assert completed(peer) == peer == Peer(4_000_000, FIRST, is_whole=False)
    assert may_change(peer, proven=False, daemon=990, admins=FIRST)
