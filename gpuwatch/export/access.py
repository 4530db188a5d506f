"""Who is at the other end of the Unix socket, and who may change state."""

import grp
import os
import pwd
import socket
import struct

import msgspec
from msgspec.structs import replace

ADMINS = "gpuwatch-admin"
REFUSAL = f"needs root or group {ADMINS}"
OVER_TCP = f"over TCP it needs a password (`web_config` of the daemon); over the Unix socket, root or group {ADMINS}"
IN_A_PAGE = "refused: it comes from a page in a browser"
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13; Python has no name for it
GROUPS_SIZE = 1024  # bytes, 256 groups: the most that getsockopt of Python takes (Modules/socketmodule.c, sock_getsockopt)


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end, as the kernel vouches for it. `groups` are all of its groups at the time it connected.

    Without `is_whole` the kernel could not tell them: there are more than 256, or it is older than 4.13.
    """

    uid: int
    gid: int
    groups: frozenset[int] = frozenset()
    is_whole: bool = True


def may_change(peer: Peer | None, *, proven: bool, daemon: int, admins: int | None) -> bool:
    """Decide who may change state: over the socket root, the daemon's own user and the admin group; over TCP a password.

    `admins` is the id of that group, None where the host has none.
    """
    if peer is None:
        return proven
    return peer.uid in {0, daemon} or (admins is not None and admins in peer.groups | {peer.gid})


def peer_of(connection: socket.socket) -> Peer | None:
    """Return who is at the other end of a Unix connection, None for TCP."""
    if connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, uid, gid = CREDENTIALS.unpack(raw)
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_SIZE)
    except OSError:  # ERANGE beyond 256 groups, ENOPROTOOPT before 4.13
        return Peer(uid, gid, is_whole=False)
    return Peer(uid, gid, frozenset(number for (number,) in struct.iter_unpack("I", groups)))


def completed(peer: Peer) -> Peer:
    """Return the peer with the groups that the user database gives its user, where the kernel could not tell them.

    A user whom the database does not know has its first group alone. May ask a directory service, and so may be slow.
    """
    if peer.is_whole:
        return peer
    try:
        return replace(peer, groups=frozenset(os.getgrouplist(pwd.getpwuid(peer.uid).pw_name, peer.gid)))
    except (KeyError, OSError):
        return peer


def refusal(peer: Peer | None) -> str:
    """Say to whoever may not change state what it needs."""
    return OVER_TCP if peer is None else REFUSAL


def name_of(uid: int) -> str:
    """Return what a user is called, or the number where nobody knows. May ask a directory service, and so may be slow."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def admin_group() -> int | None:
    """Return the id of the admin group, None where the host has none. May ask a directory service, and so may be slow."""
    try:
        return grp.getgrnam(ADMINS).gr_gid
    except KeyError:
        return None
