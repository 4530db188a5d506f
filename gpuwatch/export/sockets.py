"""The sockets that HTTP listens on: our own, or those that systemd made and hands over."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwatch.config import ConfigError, Http, shown

BACKLOG = 512
FIRST = 3  # the first descriptor that systemd passes (sd_listen_fds(3))
PLACE = "configuration"
SETTING = "[http] listen"


class Own(socket.socket):
    """A Unix socket that we have bound ourselves, whose file is ours to remove."""

    file: tuple[Path, int, int] | None = None  # with device and inode, by which it is still the same

    def remove(self) -> None:
        """Remove the file, unless somebody has put another in its place."""
        if self.file is None:
            return
        path, device, inode = self.file
        with contextlib.suppress(OSError):  # it has gone, or its folder has: the next start replaces what is left
            found = path.lstat()
            if (found.st_dev, found.st_ino) == (device, inode):
                path.unlink()


class ListenError(Exception):
    """We cannot listen there: which address, why, and what to do."""


def sockets(http: Http, environ: Mapping[str, str], pid: int, setting: str = SETTING) -> list[socket.socket]:
    """Return every socket to listen on. One of a kind (TCP, Unix) that systemd hands over stands in place of our own.

    `setting` is what the caller calls the TCP address, for the words of errors. Raises ListenError, or ConfigError for an
    address that is none.
    """
    found = [handed for group in inherited(environ, pid).values() for handed in group]
    families = {handed.family for handed in found}
    try:
        if http.listen and not families & {socket.AF_INET, socket.AF_INET6}:
            found.append(listen_tcp(http.listen, setting))
        if http.socket and socket.AF_UNIX not in families:
            found.append(listen_unix(Path(http.socket)))
    except (ListenError, ConfigError):
        for made in found:
            made.close()
        raise
    return found


def remove(found: Iterable[socket.socket]) -> None:
    """Remove the files of those sockets that we have bound ourselves: one that nobody listens on only misleads."""
    for one in found:
        if isinstance(one, Own):
            one.remove()


def address(text: str) -> tuple[str, int]:
    """Split `127.0.0.1:9843`, `[::1]:9843` or `:9843` (every interface); raises ConfigError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not colon or not is_port or (":" in host and not bracketed) or not is_name(host):
        expected = '"127.0.0.1:9843", "[::1]:9843", ":9843" or "" (no TCP)'
        raise ConfigError(PLACE, "http.listen", f"expected an address such as {expected}, found {shown(text, 'http.listen')}")
    return host[1:-1] if bracketed else host, int(port)


def is_name(host: str) -> bool:
    """Whether the resolver takes it: a label of at most 63 characters between dots."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def listen_tcp(text: str, setting: str = SETTING) -> socket.socket:
    """Listen on a TCP address; raises ListenError, or ConfigError for an address that is none."""
    host, port = address(text)
    try:
        if not host:
            return on_every_interface(port)
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return listening(family, where)
    except socket.gaierror as error:
        raise ListenError(f"{text}: the name cannot be resolved ({error.strerror}); check {setting}") from None
    except OSError as error:
        raise ListenError(f"{text}: {remedy(error, port, setting)}") from None


def on_every_interface(port: int) -> socket.socket:
    """Listen on IPv6 and IPv4 at once, or on IPv4 alone where the kernel has no IPv6."""
    try:
        return listening(socket.AF_INET6, ("::", port))
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return listening(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - the operator wrote ":port"


def listening(family: int, where: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> socket.socket:
    """Bind and listen; a taken port shows here, not when the loop runs."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        made.bind(where)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def remedy(error: OSError, port: int, setting: str) -> str:
    """Say why a port cannot be had and what to do."""
    if error.errno == errno.EADDRINUSE:
        return (
            "is taken: another program, perhaps another gpuwatch, listens there; "
            f"`ss -ltnp sport = :{port}` shows which; stop it, or set {setting} to a free address"
        )
    if error.errno == errno.EACCES:
        return f"only root may listen on a port below 1024; set {setting} to a higher one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this host does not have that address (yet); set {setting} to one of `ip address`"
    return f"cannot listen: {error.strerror}"


def listen_unix(path: Path) -> Own:
    """Listen on a Unix socket that every local user may connect to; a stale file is replaced, a living daemon is not.

    Raises ListenError.
    """
    made = Own(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        clear(path)
        made.bind(str(path))
        there = path.lstat()
        made.file = (path, there.st_dev, there.st_ino)
        path.chmod(0o666)  # who may change state is decided by peer credentials, not by the file's mode
        made.listen(BACKLOG)
    except OSError as error:  # a path beyond 107 bytes is an OSError without errno
        made.remove()
        made.close()
        raise ListenError(f"{path}: cannot listen: {error.strerror or error}; set [http] socket to another path") from None
    except ListenError:
        made.close()
        raise
    return made


def clear(path: Path) -> None:
    """Remove the socket file of a daemon that is gone; raises ListenError where somebody answers, or it is no socket."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise ListenError(f"{path}: is there and is not a socket; move it away, or set [http] socket to another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a full backlog is EAGAIN at once: somebody has it
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise ListenError(f"{path}: another gpuwatch is running and answers there; stop it, or set [http] socket to another path")


def inherited(environ: Mapping[str, str], pid: int) -> dict[str, list[socket.socket]]:
    """Return the listening sockets that systemd passed to this very process, by their FileDescriptorName."""
    if environ.get("LISTEN_PID") != str(pid):
        return {}  # meant for another process, or no socket unit
    count = int(environ.get("LISTEN_FDS", "0"))
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[socket.socket]] = {}
    for index in range(count):
        name = names[index] if index < len(names) and names[index] else "unknown"
        os.set_inheritable(FIRST + index, False)  # workers must not hold our port
        found.setdefault(name, []).append(socket.socket(fileno=FIRST + index))
    return found
