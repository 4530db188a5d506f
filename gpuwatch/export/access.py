"""Who is at the other end of the Unix socket, and who may change state."""

import grp
import pwd
import socket
import struct
from dataclasses import dataclass

ADMINS = "gpuwatch-admin"
REFUSAL = f"needs root or group {ADMINS}"
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13; Python has no name for it


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end, as the kernel vouches for it. `groups` are all of its groups at the time it connected."""

    uid: int
    gid: int
    groups: frozenset[int] = frozenset()


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
        groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * 1024)
    except OSError:  # ENOPROTOOPT before 4.13, ERANGE beyond 1,024 groups: the first group still counts
        groups = b""
    return Peer(uid, gid, frozenset(number for (number,) in struct.iter_unpack("I", groups)))


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
